//! rerouter: an LLM edge gateway on Pingora that authenticates, captures and replays at proxy speed.
//!
//! This page is the map. The crate is made of rooms, one module each, in an order: a room uses only rooms above its own
//! row, never one beside or below it. `tests/layering.rs` holds that, and that each external crate enters by one door.
//!
//! | layer | rooms |
//! |---|---|
//! | vocabulary | [`bounds`] every limit, with its reason · `atomic_file` files replaced in one step · [`clock`] · [`error`] kinds of refusal · [`blocking`] threads that may wait · [`turns`] fair turns at work for a few · [`body_memory`] the bound on bodies held at once · [`id`] · [`interface`] PIN, AGENT, ROUTER · [`secret`] |
//! | reporting | [`log`] diagnostics and access lines · [`metrics`] |
//! | adapters | [`store`] accounts, keys, documents, and the index of captures, in SQLite · [`protocol`] what providers and clients speak, as bytes |
//! | decisions | [`auth`] who a request is · [`limits`] what it may use up · [`routing`] the pure `decide` · [`nodes`] machines that serve models and report themselves · [`capture`] what is kept of a call · [`redaction`] what of it may be kept · [`replay`] what captures tell · [`repeats`] what was answered to calls that may come twice |
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
//! Each step is a call that can be searched for. Files are in `src/gateway/` unless another room is
//! named. `pipeline.rs` has all stages in this order.
//!
//! ```text
//! ConnectionAcceptor     accept.rs, process_new: a slot (connection_limits.rs), the TLS handshake
//! ├ http1_head::read     a head under a deadline; chunked_body.rs checks the framing of a body
//! └ http2::serve         the streams of a connection; http2_stream.rs: one of them
//! Edge::serve            edge.rs: timeouts, access line, panics
//! └ Pipeline::answer     gate::check: framing, Host, target (400, 421, 431)
//!   ├ Pipeline::admit    Admission::check: route, credential, policy; no body is read yet
//!   └ Pipeline::inference
//!     ├ receive          intake::read_body: whole and bounded, if the caller's limits have room
//!     ├ read_prompt      Prompt::read_in_turn: decoded, read in one pass without a copy
//!     ├ recheck          admission.rs: the credential again, if the body took long
//!     ├ take_agent       room `prompt`: for `agent/…`, the agent's part of the prompt
//!     ├ gather           room `prompt`: Inputs, a copy of all that the decision may use
//!     ├ decide           allowance.rs: rate limits, and after the decision the budget reserve
//!     │ └ decide         routing/decide.rs, pure: Inputs and document → Decision, the plan
//!     ├ Record::begin    record.rs: the capture, while the call runs
//!     ├ shadow::send     shadow.rs: a copy for another target, if one is drawn; its own task
//!     ├ call             call.rs: InferenceCall, shared with the hooks; plan.rs: its targets
//!     ├ proxy            wrap.rs: Wrap, the session that Pingora's proxy gets
//!     │ └ ProxyHooks     mod.rs: Pingora's hooks (ProxyHttp), for each target of the plan:
//!     │   ├ peer         attempt.rs: a permit (attempt_guard.rs) and an address (peers.rs)
//!     │   ├ write_request  provider_headers.rs: head, credential, body with `model` renamed
//!     │   ├ rewrite_answer hop-by-hop headers go, ours join
//!     │   ├ observe      relay.rs: held until the first content, then passed on;
//!     │   │              answer_filter.rs masks our credentials
//!     │   └ failed       attempt.rs: whether another target is tried; never after the commit
//!     ├ Outcome::take    outcome.rs: how the call went, with its usage
//!     ├ settle           allowance.rs: the usage replaces what was reserved
//!     ├ conclude         conclude.rs: the rest: the last answer, an error, an error event
//!     └ Record::close    metrics and usage (accounting.rs), access line, offer_announced
//! respond                respond.rs: every answer of ours, an Error in the envelope of its surface
//! ```
//!
//! Beside calls, `background.rs` looks the names of providers up again and makes health checks.
//!
//! # One management call
//!
//! `Pipeline::management` is the same prelude (`admit`, `receive`, `recheck`), then a handler of
//! [`api`] and the same responder. `progress_stream.rs` follows a handler that takes time.
//!
//! # One reroute
//!
//! `Pipeline::reroute` is the same prelude, then `Pipeline::reroute_once`: the room [`repeats`]
//! keeps answers for an `Idempotency-Key`. In `Pipeline::run_capture` the request comes from a
//! capture: `CapturedRequest::load` (`reroute.rs`) looks it up, with 404 where it is not the
//! caller's. The same `decide` decides on the captured inputs under the live document, and the
//! same `call` and `proxy` run it through a *memory session*, a [`gateway`] wrap without a
//! client: the body asks for no stream, and the answer is collected. `reroute_answer.rs` wraps it
//! as `{new_id, decision, response}`.
//!
//! # One shadow
//!
//! `shadow::send` copies a decided request to the target that its recipe names, if the draw falls
//! on it (`routing::decide::shadow`, pure as `decide` is). `ShadowCopy::run`, a task of its own,
//! runs the copy through a memory session as a reroute does. It ends in `Record::close_shadow`: a
//! capture, and one count in `rerouter_shadows_total`.
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
//! | an endpoint of inference | `protocol/endpoint.rs`, its reader beside `protocol/openai.rs`, its answers in `protocol/mock/`, then as a management endpoint |
//! | a strategy | `routing/document.rs` (the word), `routing/strategy.rs` (the order) |
//! | a signal | `routing/inputs.rs` (what is kept of it), `routing/condition/signals.rs` (its name) |
//! | a metric | `metrics.rs`, and where it is counted |
//! | a refusal | a row of [`error::Kind`] |
//! | what is audited | `store/audit.rs` (the word), `api/audit.rs` (the route), `App::store.noting(event)` where it is done |
//! | what is sealed or digested for good | a `Purpose` in `secret/keyring.rs` |
//! | a limit of the program | `bounds.rs` |
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
pub mod redaction;
pub mod reload;
pub mod repeats;
pub mod replay;
pub mod routing;
pub mod secret;
pub mod server;
pub mod store;
pub mod turns;
