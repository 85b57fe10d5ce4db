//! rerouter: an LLM edge gateway on Pingora that authenticates, captures and replays at proxy
//! speed.
//!
//! This page is the map. The source is thirteen crates in `crates/`. They consist of rooms, and
//! each room is one module. `docs/internals/crates.md` draws the crates. A crate depends only on
//! crates above it. A room uses only rooms of its crate that come before it in this list. The files
//! of a crate form no import cycle. `tests/house/layering.rs` checks what Cargo does not. Paths on
//! this page begin with the room. If a crate is a single room, that room's folder is the `src` of
//! the crate. The crates and their rooms:
//!
//! - `base`: vocabulary and reporting · `document` · `dialect`: also `wire` · `store` · `routing` ·
//!   `records`
//! - `access`: `auth`, `limits`, `nodes` · `captures`: `capture`, `redaction`,
//!   `archive`, `telemetry`
//! - `core`: state and endpoints, but for `console` · `gateway`: also `mock` and `server` ·
//!   `importer` · `cli`
//!
//! The rooms, in their order:
//!
//! - **vocabulary**: [`bounds`] limits that several crates share · [`words`] enumerations with a
//!   word for each value · [`clock`] · [`error`] kinds of refusal · [`id`] · [`interface`] PIN,
//!   AGENT, ROUTER · [`money`] · [`usage_kind`] what providers bill · [`url`] · [`atomic_file`]
//!   files replaced in one step · [`blocking`] work on threads that may block · [`count_guard`]
//!   what is under way · [`turns`] fair turns for expensive work · [`repeats`] calls with an
//!   `Idempotency-Key` · [`body_memory`] the limit on bodies in memory · [`unread`] the limit on
//!   answers that clients do not read · [`trace_context`] the W3C trace context of a request ·
//!   [`secret`]
//! - **reporting**: [`log`] diagnostics and access lines · [`metrics`]
//! - **adapters**: [`document`] YAML, read by tables of keys · [`store`] accounts, keys and
//!   documents, in SQLite or PostgreSQL, and the index of captures ·
//!   [`wire`] JSON, events and codings, as bytes · [`dialect`] the dialects of providers and
//!   clients, and the neutral form between them · [`mock`] a provider inside the process
//! - **decisions**: [`auth`] who sends a request · [`limits`] what the caller may use ·
//!   [`routing`] the pure `decide` · [`records`] requests and answers of the API · [`nodes`]
//!   machines that serve models and send heartbeats ·
//!   [`capture`] the records of calls, and their queue · [`redaction`] removes credentials from
//!   captures · [`archive`] captures on disk · [`telemetry`] traces of finished calls, for a
//!   collector
//! - **state**: [`config`] both documents, checked · [`app`] the handles of one gateway, and the
//!   live document · [`prompt`] a request, and the inputs of its decision · [`evaluate`] compares
//!   captures, and decides them again under another document
//! - **endpoints**: [`reload`] a new routing document · [`api`] every route in one table, one file
//!   per noun · [`console`] web pages, which call the API inside the process
//! - **boundary**: [`gateway`] from bytes on a connection to calls into the rooms above, and back
//! - **process**: [`server`] listeners, services, drain · [`importer`] converts a LiteLLM proxy's
//!   configuration to a routing document · [`cli`] the command line and the environment, one file
//!   per command; most commands are clients of a gateway, `rerouter node` runs beside a model ·
//!   [`internals`] re-exports for tests and benches
//!
//! Only [`gateway`] and [`server`] know Pingora. Code, API, documents and metrics use the same
//! words: an *alias* leads to a *recipe*, whose *rules* name *targets* (provider and model). A
//! *decision* is a *plan* of targets, made once. The *served* target is the one that answered. A
//! *capture* is the stored record of a call, a *replay* is a capture that was run again, and a
//! *revision* names a version of the routing document.
//!
//! # One inference request
//!
//! Each step is a name that can be searched for in the source. Files are in `gateway/` unless
//! another room is named. `pipeline.rs` has all stages in this order.
//!
//! ```text
//! ConnectionAcceptor     accept.rs, process_new: a slot (connection_limits.rs), the TLS handshake
//! ├ http1_head::read     a head under a deadline; chunked_body.rs checks the framing of a body
//! └ http2::serve         the streams of a connection; http2_stream.rs: one of them
//! Edge::serve            edge.rs: timeouts, access line, panics
//! └ Pipeline::answer     framing::check: framing, Host, request target (400, 421, 431)
//!   ├ Pipeline::admit    admission.rs, Admission::check: route, credential, policy; no body is
//!   │                    read yet. The way from a header to a principal: auth/identify.rs
//!   └ Pipeline::inference
//!     ├ receive          intake::read_body: whole and bounded, if the caller's limits have room
//!     ├ read_prompt      Prompt::read_in_turn: decoded, read in one pass without a copy
//!     ├ recheck          admission.rs: the credential again, if the body took long
//!     ├ take_agent       room `prompt`: for `agent/…`, the agent's part of the prompt
//!     ├ read_again       room `prompt`, read_neutral: the neutral form, if a target has another
//!     │                  dialect; the credential again, if that took long
//!     ├ gather           room `prompt`: Inputs, a copy of all that the decision may use
//!     ├ decide           allowance.rs: rate limits, and after the decision the budget reserve
//!     │ └ decide         routing/decide.rs, pure: Inputs and document → Decision, the plan
//!     ├ Record::begin    record.rs: the capture, while the call runs
//!     ├ shadow::send     shadow.rs: a copy for another target, if one is drawn; its own task
//!     ├ call             call.rs: InferenceCall, shared with the hooks; plan.rs: its targets
//!     ├ proxy            wrap.rs: Wrap, the session that Pingora's proxy gets
//!     │ └ ProxyHooks     lib.rs: Pingora's hooks (ProxyHttp), for each target of the plan:
//!     │   ├ peer         attempt.rs: the next target of the plan (call.rs, begin_attempt), its
//!     │   │              permit (attempt_guard.rs) and its address (peers.rs)
//!     │   ├ write_request  provider_headers.rs: head, credential, body with `model` renamed, or
//!     │   │              translated (translation.rs)
//!     │   ├ rewrite_answer hop-by-hop headers go, ours join
//!     │   ├ observe      relay.rs: held until the first content, then passed on;
//!     │   │              answer_filter.rs masks our credentials and translates
//!     │   │              (answer_translation.rs)
//!     │   └ failed       call.rs, attempt_failed: whether another target is tried; never once
//!     │                  the client has a part of the answer
//!     ├ Outcome::take    outcome.rs: how the call went, with its usage
//!     ├ settle           allowance.rs: the usage replaces what was reserved
//!     ├ finish_answer    finish_answer.rs: the rest: the last answer, an error, an error event
//!     └ Record::close    metrics and usage (accounting.rs), access line, capture (next section)
//! respond                respond.rs: every answer of ours, an Error in the envelope of its surface
//! ```
//!
//! # One capture
//!
//! ```text
//! gateway/record.rs       Record::close, ::offer      what the call leaves, at its end
//! ├ telemetry/            Telemetry::offer            its trace, if it is sampled
//! capture/queue.rs        CaptureQueue                bounded in bytes; drops are counted
//! └ CaptureWriter::run    write_out                   a service of its own (server/services.rs)
//! archive/service.rs      Archive::append_with        redacted, compressed, encrypted
//! ├ archive/segment_log.rs  SegmentLog::write         appended to the active segment, synced
//! └ store/captures/mod.rs    CaptureIndex::insert    the row that makes it a capture
//! ```
//!
//! In the background, `background.rs` repeats the DNS look-ups of providers and makes health
//! checks.
//!
//! # One management call
//!
//! `Pipeline::management` has the same first steps (`admit`, `receive`, `recheck`). Then it calls a
//! handler of [`api`] and the same responder. `progress_stream.rs` reports the progress of a
//! handler that takes time.
//!
//! # One reroute
//!
//! `Pipeline::reroute` has the same first steps, then calls `Pipeline::reroute_once`: with an
//! `Idempotency-Key` the answer is kept in memory (`reroute_repeat.rs`). In
//! `Pipeline::run_capture` the request comes from a capture: `CapturedRequest::load` (`reroute.rs`)
//! looks it up, with 404 where it is not the caller's. The same `decide` decides on the captured
//! inputs under the live document, and the same `call` and `proxy` run it through a *memory
//! session*, a [`gateway`] wrap without a client: the body asks for no stream, and the answer is
//! collected. `reroute_answer.rs` wraps it as `{new_id, decision, response}`.
//!
//! # One shadow
//!
//! `shadow::send` copies a decided request to the target that its recipe names, if the draw falls
//! on it (`routing::shadow`, pure as `decide` is). `ShadowCopy::run`, a task of its own,
//! runs the copy through a memory session as a reroute does. It ends in `Record::close_shadow`: a
//! capture, and one count in `rerouter_shadows_total`.
//!
//! # One reload
//!
//! ```text
//! reload/watch.rs  Watcher::check, ::reload the file changed and settled, or SIGHUP
//! config/       load, read_routing        text → tree → RoutingSpec (as written)
//! routing/      Routing::build            RoutingSpec → Routing (as run)
//! store/        keep_document             the sealed text, before a capture names its revision
//! app.rs        App::replace              one atomic swap; each request keeps its App::live
//! ```
//!
//! A document with a problem stops at the step that finds it. The problem is logged and counted,
//! and the live document stays.
//!
//! # One upgrade
//!
//! `server/upgrade/mod.rs` has the dialogue of the two processes. `server/listeners.rs` has the
//! sockets that one hands to the other, `store/data_dir.rs` the locks. `store/handover.rs` keeps
//! the tables of both alike and knows whether its process has handed over. Each
//! process holds its own part of budgets (`limits/ledger.rs`).
//!
//! # Where a change goes
//!
//! `tests/house/source.rs` checks that every path on this page exists.
//!
//! - a provider that speaks a known protocol: the routing document only; to be named by one word, a
//!   row in `routing/presets.rs`
//! - a price or ability of a model that is shipped: `routing/prices.json`, with its source
//! - a key of a document: its row in `config/settings.rs`, `routing/document.rs` or
//!   `routing/provider_spec.rs`. A test prints the row of `docs/reference/`, `rerouter config
//!   schema` the file in `conf/schema/`. For the server document also its effect, in
//!   `tests/process/settings.rs`
//! - a management endpoint: its records in `records/`, its handler in `api/`, a row in
//!   `api/operations.rs`, a row in `tests/access/identity.rs`, and a section of
//!   `docs/reference/api.md`, which a test checks; one that people call often: an example, by
//!   `tests/house/api_examples.rs`. For a new prefix also `interface.rs` (`Surface::of`), for a new
//!   kind of body `gateway/intake.rs`
//! - a page of the console: its file in `console/`, a row of `PAGES` in `console/lib.rs`, for the
//!   navigation `TABS` in `console/layout.rs`; styles and scripts in `console/assets/`, with their
//!   line in `console/assets.rs`; a scenario in `tests/console/`, and `docs/console.md`. What it
//!   needs of the gateway it gets from the API
//! - a dialect: its folder in `dialect/`, its variant in `dialect/dialect.rs`, a row in the tables
//!   of `dialect/lib.rs`, and for a new protocol of providers its word in `dialect/protocol.rs` and
//!   in `records/status.rs`
//! - a feature of requests that is translated, dropped or refused: the table in
//!   `dialect/feature.rs`, the readers and writers of the dialects
//! - an inference endpoint: `dialect/endpoint.rs`, its row in the folder of its dialect; then as a
//!   management endpoint
//! - a strategy: `routing/document.rs` (the word), `routing/strategy.rs` (the order),
//!   `evaluate/explain.rs` (why an evaluation orders otherwise); with parameters also
//!   `routing/compile/recipes.rs`; for users `docs/routing.md` and
//!   `conf/routing.yaml`
//! - a signal: its reader in `dialect/request/` or `prompt.rs`, `routing/inputs.rs` (what is kept
//!   of it), `routing/condition/signals.rs` (its name and value); if it is expensive also
//!   `routing/complete.rs` and `routing/condition/check.rs`; a text that patterns may search:
//!   `routing/condition/content.rs` and `Prompt::text`
//! - a metric: a row of `metrics/families.rs`, from which `docs/reference/metrics.md` is made, and
//!   the place that counts; labels of targets or rules also `retain_targets` or `retain_rules` of
//!   `metrics.rs`, so that a reload removes their series; a gauge that is read on a scrape:
//!   `server/metrics_pages.rs`; a panel in `conf/grafana/`, and where somebody has to act an alert
//!   in `conf/prometheus/rules.yml`
//! - an attribute of spans: `telemetry/otlp.rs`, a row of `docs/operate/traces.md`
//! - a field of the access log: `log/access_line.rs`, with its row of the reference; for people
//!   also `log/text.rs`
//! - a refusal: a row of [`error::Kind`]
//! - an audited action: `store/audit.rs` (the word), `api/operations.rs` (the route),
//!   `App::store.noting(event)` at the action
//! - a sealed or digested secret: a purpose in `secret/keyring.rs`
//! - a field that holds a credential: the table in `redaction/fields.rs`; a name of headers:
//!   `secret/credential_names.rs`
//! - a limit of the program: a constant with its reason in the file that uses it; `bounds.rs`, if
//!   several crates do
//! - a command: its file in `cli/`, its row in `cli/lib.rs`, and the tables that
//!   `rerouter man --markdown` prints for `docs/reference/cli.md`
//! - a warning about a document: `routing/compile/warnings.rs`
//! - a requirement on the machine, for `check`: `server/ready.rs`
//! - a table of accounts: a step in `store/steps.rs` and `store/steps/`, its row in `store/rows/`,
//!   the file of its noun in `store/`, what it promises in `store/tests/` (a line of `suite!`
//!   there); a column: a step and its row
//! - the index of captures: `store/captures/`; where gateways share it, `archive/sharing.rs`, and
//!   for the object store `archive/objects/`
//! - another database: a variant in `store/backend.rs` and `store/sql.rs`, a folder like
//!   `store/sqlite/`, which runs the suite
//! - a limit of keys and users: `store/limits.rs` (the record), `api/limits.rs` (its bounds),
//!   `limits/` (how it is counted)

// The documentation is written for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]
// A scenario of a test reads from top to bottom, however many steps it has.
#![cfg_attr(test, allow(clippy::too_many_lines))]

#[doc(hidden)]
pub mod internals;

pub use rerouter_base::clock::Clock;
pub use rerouter_base::log::{AccessLog, LogForm, init as init_log};
pub use rerouter_base::secret::Secret;
#[doc(hidden)]
pub use rerouter_cli::main;
pub use rerouter_core::config::{Problem, load_server};
pub use rerouter_gateway::server::{BootError, Environment, Gateway};
// Names for the links of this page.
#[cfg(doc)]
use {
    rerouter_access::{auth, limits, nodes},
    rerouter_base::{
        atomic_file, blocking, body_memory, bounds, clock, count_guard, error, id, interface, log,
        metrics, money, repeats, secret, trace_context, turns, unread, url, usage_kind, words,
    },
    rerouter_captures::{archive, capture, redaction, telemetry},
    rerouter_cli as cli, rerouter_console as console,
    rerouter_core::{api, app, config, evaluate, prompt, reload},
    rerouter_dialect::{self as dialect, wire},
    rerouter_document as document,
    rerouter_gateway::{self as gateway, mock, server},
    rerouter_importer as importer, rerouter_records as records, rerouter_routing as routing,
    rerouter_store as store,
};
