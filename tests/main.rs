//! The integration tests, one binary: the real gateway as a process, talked to over sockets, and
//! checks of the source itself.

// A test says what is wrong by panicking, prints the gateway's log when it does, and takes its tier
// from the environment; nothing of it is called from outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    unreachable_pub
)]
// A scenario reads from top to bottom, however many steps it has.
#![allow(clippy::disallowed_methods, clippy::too_many_lines)]

mod support;

/// One JSON line a request, whatever its end.
mod access_log;
/// Agents as models: credentials, streams and reroutes of each dialect, names, what strangers left
/// behind.
mod agent_surface;
/// Agents as models: each dialect's bytes, trust, limits, captures, replays, shadows.
mod agents;
/// Traffic of nodes and agents, evaluated while they are there, changed and gone.
mod agents_on_nodes;
/// What of a provider's answer is for nobody but the gateway.
mod answers;
/// The examples of the API, asked again of a running gateway.
mod api_examples;
/// Who did what: the rows of the audit, and who reads them.
mod audit;
/// Costs of evaluations are what was billed, over random traffic.
mod billing;
/// Bodies of any size and framing reach the provider whole, also after a failover; over the limit
/// 413.
mod bodies;
/// The bound on bodies in memory: 503 beyond it, and answers whole though their copies are cut.
mod body_memory;
/// Pages of other origins, by a table over every route and by a real browser: they achieve nothing.
mod browsers;
/// What limits say of themselves: refusals, headers, keys; small budgets, and refusals that cost
/// nothing.
mod budgets;
/// Bytes of captures that go bad on the disk, with their index or without: what they held is lost,
/// and nothing else.
mod capture_damage;
/// The memory of the gateway's process while captures cannot be written.
mod capture_memory;
/// Credentials of a request that its provider says again, which no capture holds.
mod capture_secrets;
/// Captures after a kill, a damaged index, under a disk that hangs, and as they lie on it; what is
/// kept out of them, and who.
mod captures;
/// `rerouter check`: what `serve` would stop at, and what is hardly meant.
mod check;
/// What `rerouter serve` says about bad documents.
mod cli;
/// The commands that are clients of a gateway: keys, users, agents, nodes, usage, configuration,
/// logs, profiles.
mod cli_clients;
/// Users and nodes, whatever is asked for of them: nobody has more than they were given.
mod climb;
/// Gateways whose machines show different times: one time judges, and who is wrong is said.
mod clocks;
/// Requests of Claude Code and Codex, to providers of every API.
mod coding_agents;
/// Bodies in a content coding: decoded for the provider, the decision and the capture; bounded
/// coded and decoded.
mod codings;
/// What clients and SDKs of both APIs lean on: ends of streams, words of refusals, what is shown of
/// a provider.
mod compatibility;
/// The compose files, as far as they can be tried without containers.
mod compose;
/// The routing document by the API: read, replaced, looked at, rolled back; in a file and in the
/// store; under load.
mod configuration;
/// Connections of those who want no answer: how many there may be, how long they last, who is
/// served meanwhile.
mod connections;
/// The console: sign-in, the first admin, what every page keeps to, and what it lets through.
mod console;
/// Keys, users, agents, nodes, gateways, audit and the playground in a browser.
mod console_access;
/// The console's pages of captures: found, read, explained, run again, compared; long and hostile
/// ones.
mod console_captures;
/// The overview of the console: its numbers, and what it says needs attention.
mod console_overview;
/// A day as a small team has it, for the pictures of the console.
mod console_pictures;
/// Routing in the console: a document edited, evaluated, applied and rolled back in a browser.
mod console_routing;
/// The pages of the console with many captures.
mod console_scale;
/// Rules by the texts of a request: each dialect, agents, captures, evaluations.
mod content;
/// The data directory: write-ahead logs, the lock, backups.
mod data_directory;
/// `POST /v1/router/decide`: decisions and refusals as live, and nothing else.
mod decide;
/// README and docs: their commands, documents, links and references.
mod docs;
/// `rerouter doctor`: each line, and its remedy.
mod doctor;
/// Every end of a key or a session, while clients ask with it.
mod endings;
/// Embeddings, responses, messages and counts: providers, words of refusals, captures, limits.
mod endpoints;
/// Every way in beside `Authorization`, and that nothing is entered by another one.
mod entrances;
/// Captures that are erased by key, user or time, and users who are deleted with theirs.
mod erasure;
/// Estimates of prompts beside what providers counted, over the recorded exchanges.
mod estimates;
/// Captured traffic under other documents, and the gate that asks for it.
mod evaluate;
/// The documents in `conf/`, run as they stand.
mod examples;
/// Which failures go to the next target, and what the client sees of them.
mod failover;
/// Sixteen ways in which providers fail, and what is right then.
mod faults;
/// Recorded exchanges go in and out byte for byte.
mod fidelity;
/// A start without configuration, and `rerouter init`.
mod first_start;
/// The fuzz targets over seeds, recorded exchanges and what becomes of them.
mod fuzzing;
/// Several gateways on one database: what is revoked is dead on all, whatever happens to them.
mod gateways;
/// Several gateways on one database: budgets, creations, nodes, logins and last uses are one.
mod gateways_share;
/// Breakers, cool-downs, places, keys and retry budgets, as clients notice them.
mod health;
/// Bodies that are meant to hurt, one by one and many at once.
mod hostile;
/// Length and width of source files, where unit tests are, and paths that the map names.
mod house;
/// Every route with every kind of credential; keys, sessions and agents from beginning to end.
mod identity;
/// Which files of a crate name which.
mod imports;
/// Users, sessions, keys that keys made and agents after `kill -9`, against what clients were told
/// of them.
mod journal;
/// Keys changed, ended with their descent, made once, under load and `kill -9`.
mod keys;
/// Which crate, room and file may use which, where other crates enter, unique type names.
mod layering;
/// Rates, requests at once, budgets; usage.
mod limits;
/// What a ROUTER key reaches: a new one infers, one with `replay` or `keys` has what its line made.
mod lines;
/// Configurations of LiteLLM: imported, checked, served, and what is told of the rest.
mod litellm;
/// The shapes of LiteLLM's public documentation: each imports, checks and serves.
mod litellm_shapes;
/// Registration, logins and sessions: what is answered, to whom nothing is told, how many and how
/// often.
mod logins;
/// Evaluations of thousands of captures: the bar, how many at once, and that one ends with its
/// client.
mod long_evaluations;
/// Commits whose answers are lost: usage counts once, and budgets stay whole.
mod lost_answers;
/// Another master key for a store that has one: what is kept, and what moves when.
mod master_keys;
/// Kills at every write of a change to another master key: before it, within it, after it.
/// `GET /v1/models` in both dialects, by limits and by name.
mod models;
/// Names under patterns: served, captured, counted, listed, evaluated and rerouted.
mod names;
/// What nodes say of their models, and what operators are shown of them.
mod node_abilities;
/// Leases, registrations and places, by a clock that is moved and by processes that come and go.
mod node_leases;
/// `rerouter node` under load: in turn, dead, killed, drained, and back.
mod node_load;
/// `rerouter node` beside scripted servers: it serves, leaves, and bears what gateways and its like
/// do.
mod node_processes;
/// What nodes may lead the gateway to, told by what arrives at sockets.
mod node_reach;
/// `rerouter node` beside servers of each kind, as they change, and by wrong clocks.
mod node_servers;
/// Signatures over every kind of connection, and bent in what `nodes` does not bend.
mod node_signatures;
/// Nodes while the store takes nothing.
mod node_store;
/// Nodes: enrolment, every way to bend a signature, what they tell, and requests that they serve.
mod nodes;
/// Captures of several gateways in each kind of object store: uploaded, read, refused, deleted.
mod object_stores;
/// A panic on the way to a provider or a node tells no credential, of whoever asks and of whoever
/// is asked.
mod panic_canaries;
/// A panic anywhere in a request ends that request, tells nothing, and leaves nothing behind.
mod panics;
/// The library in another Pingora server, beside a proxy of its own.
mod plugin;
/// The store in PostgreSQL: the promises of SQLite there, poolers, TLS, and a store that moves.
mod postgres;
/// Providers by one word: what reaches them, whose settings win, what is refused.
mod presets;
/// The shipped prices: cost and budgets on the first day, and whose prices win.
mod prices;
/// Dashboards and alert rules, under a real Prometheus.
mod prometheus;
/// `decide` gives the stored plan again.
mod property;
/// Providers that have not all endpoints of their protocol, and what only responses carry.
mod provider_endpoints;
/// Authorities, HTTP/2, health checks, and what operators are shown of providers.
mod providers;
/// Each limit has a reason.
mod reasons;
/// Each refusal: status, exact envelope, connection closed or kept.
mod refusals;
/// `rerouter replay`: lists, reroutes, gates and corpora by the command line.
mod replay_cli;
/// What the command line writes: to full disks, to who reads the beginning only, over a corpus, on
/// a terminal.
mod replay_output;
/// Captures compared and deleted.
mod replays;
/// `response` of a reroute, whatever a provider answers.
mod reroute_answers;
/// Every route by every method, by other spellings of its path, over HTTP/2: nobody gets further
/// than by its own.
mod routes;
/// The JSON Schemas of both documents: as the readers have it, and as the references say.
mod schemas;
/// The official SDKs, LangChain and LiteLLM, unmodified, against the gateway.
mod sdk;
mod sdk_translations;
/// Nothing secret in logs, metrics, captures, the data directory or an answer that is not to carry
/// it.
mod secrets;
/// Each key of the server document: what it changes, seen from outside.
mod settings;
/// Copies of live requests for another target: apart, bounded, of no consequence.
mod shadows;
/// A budget over a hundred keys below it: with new secrets, a changed parent, another process.
mod shared_budgets;
/// Captures of several gateways, from each of them: one index, and an object store.
mod shared_captures;
/// The signals that are found out for a document's conditions only, live and in reroutes under
/// another document.
mod signals;
/// The Rust source of the house: its files, and their places.
mod source;
/// Spellings that some providers read otherwise, and prompts beside the messages: never dearer than
/// the budget.
mod spellings;
/// A synchronous standby takes over from the database of several gateways.
mod standby;
/// Every change with a store that cannot be written.
mod store_down;
/// Every route that asks the store, with one that cannot be read, and what goes on without it.
mod store_reads;
/// What a sender without a credential costs, by one try of everything that is open.
mod strangers;
/// A stream's usage is asked for where a limit or the document wants it, and kept from clients that
/// did not ask.
mod stream_usage;
/// What answers used and how they ended: captures, sums, clients.
mod streams;
/// What systemd hears of a start and of an end.
mod systemd;
/// Counts of tokens: by whom, and what an estimate says of itself.
mod token_counts;
/// The access specification's tour: keys, captures, reroute, revocation, reload, restart.
mod tour;
/// Traces at a collector, and trace contexts at providers.
mod traces;
/// Clients of each dialect, and providers of others.
mod translation;
/// Failures of providers of other dialects, and what clients see of them.
mod translation_faults;
/// A new process takes over under load; certificates are reloaded; drains end.
mod upgrades;
/// A third process takes over while the first still streams.
mod upgrades_chain;
/// Users as admins see to them: made, changed, shut out and let in again.
mod users;
/// A routing document's file while somebody writes into it, under load; what a document must have,
/// and what one takes away.
mod whole_documents;
