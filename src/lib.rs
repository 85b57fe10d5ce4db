//! rerouter: an LLM edge gateway on Pingora that authenticates, captures and replays at proxy speed.
//!
//! This page is the map. The crate is made of rooms, one module each, in an order: a room uses only rooms above its own
//! row, never one beside or below it. `tests/layering.rs` holds that, and that each external crate enters by one door.
//!
//! | layer | rooms |
//! |---|---|
//! | vocabulary | [`bounds`] every limit, with its reason · [`clock`] · [`error`] kinds of refusal · [`blocking`] threads that may wait · [`turns`] fair turns at work for a few · [`body_memory`] the bound on bodies held at once · [`id`] · [`interface`] PIN, AGENT, ROUTER · [`secret`] |
//! | reporting | [`log`] diagnostics and access lines · [`metrics`] |
//! | adapters | [`store`] accounts, keys, documents, and the index of captures, in SQLite · [`protocol`] what providers and clients speak, as bytes |
//! | decisions | [`auth`] who a request is · [`limits`] what it may use up · [`routing`] the pure `decide` · [`nodes`] machines that serve models and report themselves · [`capture`] what is kept of a call · [`replay`] what captures tell · [`repeats`] what was answered to calls that may come twice |
//! | state | [`config`] both documents, checked · [`app`] the handles of one gateway, and what is live · [`prompt`] a request, and all that a decision looks at · [`evaluation`] captures decided again, step by step |
//! | endpoints | [`reload`] a new routing document · [`api`] every route in one table, one file a noun |
//! | boundary | [`gateway`] from bytes on a connection to calls into the rooms above, and back |
//! | process | [`server`] listeners, services, drain · [`cli`] the command line and the environment; `rerouter replay`, which asks a gateway; `rerouter node`, which reports to one |
//!
//! Only [`gateway`] and [`server`] know Pingora. The words are the same in code, API, documents and metrics: an *alias*
//! leads to a *recipe*, whose *rules* name *targets* (provider and model); the *decision* is a *plan* of targets, made once;
//! *served* is who answered; a *capture* is what is kept; a *replay* is a capture run again; a *revision* names a document.
//!
//! # One inference request
//!
//! Each step is a call that can be searched for; all files are in `src/gateway/` unless another room is named.
//!
//! ```text
//! door.rs       Door::process_new         a connection: its place (places.rs), TLS, one deadline to its first request
//! head.rs       └ read                    HTTP/1: a head, each line of it ending in CRLF; chunks.rs: the lines of its body
//! http2.rs      └ serve                   HTTP/2: the streams of a connection, and its end; http2_stream.rs: one of them
//! edge.rs       Edge::serve               one request
//!               └ Edge::request           gate::check: framing, Host, target (400, 421, 431)
//!                 └ Edge::admit           api::find (method, path) → Auth::identify → Admission::of, by the route's policy; no body is read yet
//! inference.rs  └ run                     all that follows
//!                 ├ read                  intake::read_body: whole, bounded; Prompt::read: one pass, no copy
//!                 ├ take_agent            the room `prompt`, where `agent/…` is asked for: the agent's part, protocol/agent.rs
//!                 ├ gather                the room `prompt`: Inputs, everything that the decision may look at, copied out
//!                 ├ choose                allowance.rs around decide: let in by limits/, then the plan's dearest target reserved
//!                 │ └ decide              routing/decide.rs, pure: Inputs and document → Decision (the plan)
//!                 ├ Record::begin         record.rs: the capture in the making
//!                 ├ shadow::send          shadow.rs: a copy for another target, if one is drawn; a task of its own
//!                 ├ prepare               call.rs: Call, the plan resolved to targets, shared with Pingora's hooks
//!                 ├ proxy                 wrap.rs: Wrap, the client's session as Pingora's proxy is given it
//! mod.rs          │ └ Gateway (ProxyHttp) for each target of the plan:
//! attempt.rs      │   ├ peer              the target's permit (under_way.rs, routing/health/), its address (reach.rs)
//!                 │   ├ write_head        head, credential and body (`model` renamed) for this provider
//! relay.rs        │   ├ Relay::observe    hold until the first content event, then through; our key starred, tee, usage, errors in-band
//! attempt.rs      │   └ failed            may the next target be tried? never after the commit
//!                 ├ Outcome::take         record.rs: how it went
//!                 ├ allowance::settle     what was used, for what was reserved
//!                 ├ conclude              what is left to write: the last answer, an error, or an error event
//!                 └ Record::close         counters, access line, CaptureQueue::offer (never waits)
//! reply.rs        error                   on the way out of any step: an Error in the envelope of its interface
//! ```
//!
//! Outside of calls, `upkeep.rs` looks names of providers up again and asks those with a `health` whether they are well.
//!
//! # One reroute
//!
//! `reroute.rs` is the same path with its two ends exchanged. `replays::find` (in [`api`]) gives the capture, or 404 when it
//! is not the caller's; the decision is made by the same `decide` on the captured inputs under the live document; the same
//! `prepare` and `proxy` run it through a *memory session* (`Wrap::memory`): the body is the captured one without `stream`,
//! the answer is collected and wrapped as `{new_id, decision, response}`. The room [`repeats`] remembers it for an `Idempotency-Key`.
//!
//! # One shadow
//!
//! `shadow.rs` copies a live request, once it is decided, to the target that its recipe names, if the draw says so
//! (`routing::decide::shadow`, pure as `decide` is). A task of its own runs the copy through a memory session, as a reroute;
//! its end is `Record::close_shadow`: a capture, and nothing in any counter but `rerouter_shadows_total`.
//!
//! # One reload
//!
//! ```text
//! reload/watch.rs  Watcher::look, ::reload  the file changed and stood still, or SIGHUP
//! config/       load, read_routing        text → tree with positions → RoutingSpec (as written), every problem at once
//! routing/      Routing::build            RoutingSpec → Routing (as run): names resolved, CEL compiled
//! store/        keep_document             the text is kept, sealed, before any capture can name its revision
//! app.rs        App::replace              one atomic swap; a request keeps the Live that it took (App::live)
//! ```
//!
//! A document with a problem ends at the step that finds it: logged, counted, nothing changed.
//!
//! # Where a change goes
//!
//! | to add | files |
//! |---|---|
//! | a provider that speaks a known protocol | the routing document only |
//! | a management endpoint | its noun in `api/`, a row of `ROUTES` in `api/mod.rs`, a line in `api/openapi.rs` (a new shape: `api/schemas.json`) |
//! | an endpoint of inference | `protocol/endpoint.rs`, its reader in `protocol/request/`, its answers in `protocol/mock/`, then as a management endpoint |
//! | a strategy | `routing/document.rs` (the word), `routing/strategy.rs` (the order) |
//! | a signal | `routing/inputs.rs` (what is kept of it), `routing/condition/signals.rs` (its name) |
//! | a metric | `metrics.rs`, and where it is counted |
//! | a refusal | a row of [`error::Kind`] |
//! | what is audited | `store/audit.rs` (the word), `api/audit.rs` (the route), `App::store.noting(event)` where it is done |
//! | what is sealed or digested for good | a purpose in `secret/keyring.rs`, and how it goes over to another master key in `server/master.rs` |
//! | a limit of the program | `bounds.rs` |
//! | a warning of what a document hardly means | `routing/warnings.rs`; of a constant in a condition `routing/condition/constants.rs` |
//! | what a start needs of its machine, so that `check` tells it | `server/ready.rs` |
//! | a limit of keys and users | `store/limits.rs` (the record), `api/limits.rs` (its bounds), `limits/` (how it is counted) |

pub mod api;
pub mod app;
pub mod auth;
pub mod blocking;
pub mod body_memory;
pub mod bounds;
pub mod capture;
pub mod cli;
pub mod clock;
pub mod config;
pub mod error;
pub mod evaluation;
pub mod gateway;
pub mod id;
pub mod interface;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod nodes;
pub mod prompt;
pub mod protocol;
pub mod reload;
pub mod repeats;
pub mod replay;
pub mod routing;
pub mod secret;
pub mod server;
pub mod store;
pub mod turns;
