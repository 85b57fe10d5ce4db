//! rerouter: an LLM edge gateway on Pingora that authenticates, captures and replays at proxy
//! speed.
//!
//! This page is the map. The crate is made of rooms, one module each. A room uses only rooms that
//! stand before it in this list, and its files form no import cycle. `tests/layering.rs` checks
//! both, and that each external crate enters through few files.
//!
//! - **vocabulary**: [`bounds`] every limit, with its reason · [`clock`] · [`error`] kinds of
//!   refusal · [`id`] · [`interface`] PIN, AGENT, ROUTER · [`blocking`] threads that may block ·
//!   [`turns`] fair turns at scarce work · [`body_memory`] the limit on bodies in memory ·
//!   [`secret`]
//! - **reporting**: [`log`] diagnostics and access lines · [`metrics`]
//! - **adapters**: [`store`] accounts, keys, documents and the index of captures, in SQLite ·
//!   [`protocol`] what providers and clients speak, as bytes
//! - **decisions**: [`auth`] who sends a request · [`limits`] what it may use ·
//!   [`idempotency`] answers to calls with an `Idempotency-Key` · [`routing`] the pure `decide` ·
//!   [`nodes`] machines that serve models and send heartbeats · [`capture`] what is kept of a call
//! - **state**: [`config`] both documents, checked · [`app`] the handles of one gateway, and the
//!   live document · [`prompt`] a request, and the inputs of its decision · [`evaluate`] captures
//!   compared, and decided again under another document
//! - **endpoints**: [`reload`] a new routing document · [`api`] every route in one table, one file
//!   a noun
//! - **boundary**: [`gateway`] from bytes on a connection to calls into the rooms above, and back
//! - **process**: [`server`] listeners, services, drain · [`cli`] the command line and the
//!   environment; `rerouter replay` is a client of a gateway, `rerouter node` runs beside a model
//!
//! Only [`gateway`] and [`server`] know Pingora. Code, API, documents and metrics use the same
//! words: an *alias* leads to a *recipe*, whose *rules* name *targets* (provider and model). A
//! *decision* is a *plan* of targets, made once. *Served* is the target that answered. A *capture*
//! is what is kept, a *replay* is a capture run again, a *revision* names a document.
//!
//! # One inference request
//!
//! Each step is a call that can be searched for. Files are in `src/gateway/` unless a room is
//! named.
//!
//! ```text
//! door.rs       ConnectionAcceptor::process_new         a connection: its slot (places.rs), TLS, deadline
//! head.rs       └ read                    HTTP/1: a head; chunks.rs: a chunked body
//! http2.rs      └ serve                   HTTP/2: a connection; http2_stream.rs: a stream
//! edge.rs       Edge::serve               one request
//!               └ Edge::request           gate::check: framing, Host, target (400, 421, 431)
//!                 └ Edge::admit           api::find → Auth::identify → Admission::of
//! inference.rs  └ run                     the rest
//!                 ├ read                  intake::read_body: bounded; Prompt::read: no copy
//!                 ├ take_agent            room `prompt`: for `agent/…`, the agent's part
//!                 ├ gather                room `prompt`: Inputs, copied out of the request
//!                 ├ choose                allowance.rs: rate limits, decide, reservation of cost
//!                 │ └ decide              routing/decide.rs, pure: Inputs, Routing → Decision
//!                 ├ Record::begin         record.rs: the capture so far
//!                 ├ shadow::send          shadow.rs: a copy for another target, in its own task
//!                 ├ prepare               call.rs: Call, the plan with its targets, for the hooks
//!                 ├ proxy                 wrap.rs: Wrap, the session that Pingora's proxy sees
//! mod.rs          │ └ Gateway (ProxyHttp) for each target of the plan:
//! attempt.rs      │   ├ peer              permit (under_way.rs, routing/health/), address
//!                 │   ├ write_head        head, credential and body for this provider
//! relay.rs        │   ├ Relay::observe    hold until content, then through; mask, tee, usage
//! attempt.rs      │   └ failed            may the next target be tried? never after the commit
//!                 ├ Outcome::take         record.rs: how it went
//!                 ├ allowance::settle     actual use replaces the reservation
//!                 ├ conclude              writes the last answer, an error, or an error event
//!                 └ Record::close         counters, access line, CaptureQueue::offer (never waits)
//! reply.rs        error                   at any step: an Error in the format of its interface
//! ```
//!
//! In the background, `upkeep.rs` resolves the names of providers again and runs their health
//! checks.
//!
//! # One reroute
//!
//! `reroute.rs` is the same path with its two ends exchanged. `replays::find` (in [`api`]) gives
//! the capture, or 404 if it is not the caller's. The same `decide` runs on the captured inputs
//! under the live document. The same `prepare` and `proxy` run it through a *memory session*
//! (`Wrap::memory`): the body is the captured one without `stream`, the answer is collected and
//! wrapped as `{new_id, decision, response}`. The room [`idempotency`] keeps it for an
//! `Idempotency-Key`.
//!
//! # One shadow
//!
//! `shadow.rs` copies a decided live request to the shadow target of its recipe, if the draw
//! selects it (`routing::shadow`, pure like `decide`). A separate task runs the copy through a
//! memory session, like a reroute. It ends with `Record::close_shadow`: a capture, and no counter
//! but `rerouter_shadows_total`.
//!
//! # One reload
//!
//! ```text
//! reload/watch.rs  Watcher::check, ::reload the file has changed, or SIGHUP
//! config/       load, read_routing        text → tree with positions → RoutingSpec (as written), every problem at once
//! routing/      Routing::build            RoutingSpec → Routing (as run): names resolved, CEL compiled
//! store/        keep_document             the text is kept, sealed, before any capture can name its revision
//! app.rs        App::replace              one atomic swap; a request keeps the Live that it took (App::live)
//! ```
//!
//! A document with a problem stops at the step that finds it. The problem is logged and counted,
//! and the live document stays.
//!
//! # Where a change goes
//!
//! | to add | files |
//! |---|---|
//! | a provider that speaks a known protocol | the routing document only |
//! | a management endpoint | its noun in `api/`, a row of `ROUTES` in `api/mod.rs`, a line in `api/openapi/operations.rs` (a new shape: `api/schemas.json`) |
//! | an endpoint of inference | `protocol/endpoint.rs`, its reader beside `protocol/openai.rs`, its answers in `protocol/mock/`, then as a management endpoint |
//! | a strategy | `routing/document.rs` (the word), `routing/strategy.rs` (the order) |
//! | a signal | `routing/inputs.rs` (what is kept of it), `routing/condition/signals.rs` (its name) |
//! | a metric | `metrics.rs`, and where it is counted |
//! | a refusal | a row of [`error::Kind`] |
//! | what is audited | `store/audit.rs` (the word), `api/audit.rs` (the route), `App::store.noting(event)` where it is done |
//! | what is sealed or digested for good | a purpose in `secret/keyring.rs`, and how it goes over to another master key in `server/master.rs` |
//! | a limit of the program | `bounds.rs` |
//! | a field that holds a credential | the table in `redaction/fields.rs`; a name of headers `secret/names.rs` |
//! | a warning of what a document hardly means | `routing/warnings.rs`; of a constant in a condition `routing/condition/constants.rs` |
//! | what a start needs of its machine, so that `check` tells it | `server/ready.rs` |
//! | a limit of keys and users | `store/limits.rs` (the record), `api/limits.rs` (its bounds), `limits/` (how it is counted) |

pub mod api;
pub mod app;
pub mod archive;
mod atomic_file;
pub mod auth;
pub mod blocking;
pub mod body_memory;
pub mod bounds;
pub mod capture;
pub mod cli;
pub mod clock;
pub mod config;
pub mod error;
pub mod evaluate;
pub mod gateway;
pub mod id;
pub mod idempotency;
pub mod interface;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod nodes;
pub mod prompt;
pub mod protocol;
pub mod redaction;
pub mod reload;
pub mod routing;
pub mod secret;
pub mod server;
pub mod store;
pub mod turns;
