//! `POST /v1/router/replay/{id}/reroute`: runs a capture again through the pipeline. The request
//! comes from the capture instead of the client, and the answer is collected and wrapped instead of
//! passed on. This file has the differences from a live call; the stages are in `pipeline`.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use pingora::protocols::http::ServerSession;
use serde_json::{Value, json};

use super::admission::Admission;
use super::allowance;
use super::answers::json_response;
use super::call::InferenceCall;
use super::exchange::HttpExchange;
use super::failure::AttemptFailure;
use super::outcome::Outcome;
use super::record::Record;
use super::reroute_answer::{answer, envelope};
use rerouter_access::auth::{CaptureLevel, Principal};
use rerouter_access::limits::LimitPermit;
use rerouter_base::body_memory::{BodyClass, Held};
use rerouter_base::error::{Error, Kind, RefusalReason, Result};
use rerouter_base::id::{RequestId, UserId};
use rerouter_captures::capture::pending::PendingCapture;
use rerouter_captures::capture::record::{self, Capture, Head};
use rerouter_core::api::{audit, idempotency, limits, read_query, replays};
use rerouter_core::app::{App, Live};
use rerouter_core::prompt::{Prompt, UnreadBody, may_ask_for};
use rerouter_dialect::chat::completion::CompletionDefaults;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::request;
use rerouter_records::replay::{DecisionRecord, RerouteQuery};
use rerouter_routing::{Inputs, decide};
use rerouter_store::Action;

pub(super) struct RerouteRequest {
    /// The id of the capture, as the path has it.
    pub(super) id: String,
    pub(super) key: Option<String>,
    pub(super) dry_run: bool,
}

impl RerouteRequest {
    /// 400 if key or query are invalid.
    pub(super) fn read(
        session: &ServerSession,
        exchange: &HttpExchange,
        admitted: &Admission,
    ) -> Result<Self> {
        let key = idempotency::key(&session.req_header().headers)?;
        let RerouteQuery { dry_run } = read_query(exchange.query.as_deref())?;
        // A dry run costs nothing, so it may be repeated without a key.
        let key = key.filter(|_| !dry_run);
        Ok(RerouteRequest { id: admitted.params.first().to_owned(), key, dry_run })
    }
}

/// A captured request, made ready to run again.
pub(super) struct CapturedRequest {
    pub(super) original: Capture,
    pub(super) prompt: Prompt,
    pub(super) inputs: Inputs,
    announced: Option<PendingCapture>,
    pub(super) held: Held,
    /// A dry run counts against the caller's limits until it ends.
    _drawn: Option<limits::CountedCall>,
}

impl CapturedRequest {
    /// 404 if the caller may not see the capture.
    pub(super) async fn load(
        app: &App,
        exchange: &mut HttpExchange,
        principal: &Principal,
        asked: &RerouteRequest,
    ) -> Result<Self> {
        let drawn = asked.dry_run.then(|| limits::draw(app, principal)).transpose()?;
        if !asked.dry_run {
            // The call is admitted together with its decision. If the limits have no room for it,
            // the capture is not even looked up.
            allowance::look(app, exchange, principal, false)?;
        }
        let captures = app.server.capture.enabled && !asked.dry_run;
        // Announced before the look-up, so that a deletion of the original from now on also finds
        // this replay.
        let announced = RequestId::parse(&asked.id).filter(|_| captures).map(|original| {
            let owner = principal.user_id().unwrap_or_else(UserId::admin);
            let key = principal.key().map(|key| &key.id);
            app.captures.pending().announce(&exchange.id, (&owner, key), Some(&original))
        });
        let reach = app.auth.reach(principal);
        let original = replays::look_up(&app.archive, &app.captures, &reach, &asked.id).await?;
        original.head.check_replayable()?;
        // Noted before any wait, so that a deletion by owner or key finds the replay with its
        // original.
        if let Some(coming) = &announced {
            coming.is_replay(original.head.whose(), &original.head.id);
        }
        let about = (&original.head.id, &original.head.owner);
        let by = (Some(exchange.id.clone()), exchange.client.address);
        audit::foreign(app, principal, Action::CaptureReroute, about, by).await?;
        let mut held = app.body_memory.begin(BodyClass::Requests);
        let (prompt, inputs) = read_again(app, principal, &original, exchange, &mut held).await?;
        if may_ask_for(principal, &inputs.request.model).is_err() {
            return Err(Error::new(
                Kind::Forbidden,
                "The `limits.models` of your key or your user do not allow the captured model.",
            ));
        }
        Ok(CapturedRequest { original, prompt, inputs, announced, held, _drawn: drawn })
    }

    /// Replaces the captured health of targets by the current health, and adds the signals that the
    /// document needs.
    pub(super) async fn refresh(
        &mut self,
        app: &App,
        live: &Live,
        exchange: &HttpExchange,
        principal: &Principal,
    ) -> Result<()> {
        let name = Some(&*self.inputs.request.name);
        self.inputs.health = app.standing(&live.routing, name, exchange.at);
        let prompt = &self.prompt;
        let headers = &self.original.head.request_headers;
        self.inputs.complete(&live.routing, headers, |part| Some(prompt.text(part)));
        if !self.inputs.complete_translation(&live.routing, || None) {
            self.read_neutral(app, live, principal).await?;
        }
        Ok(())
    }

    /// Reads the request in the neutral form, if a target may have another dialect. An agent may
    /// have changed the request since the capture.
    pub(super) async fn read_neutral(
        &mut self,
        app: &App,
        live: &Live,
        principal: &Principal,
    ) -> Result<()> {
        let prompt = &mut self.prompt;
        if live.routing.translates(&self.inputs.request.name, prompt.endpoint) {
            prompt.read_neutral(app, principal).await?;
            self.inputs.request.untranslatable = prompt.untranslatable();
            // Room for the neutral form and for the body that a provider of another dialect gets.
            if !self.held.set(3 * prompt.body.len()) {
                return Err(Held::full());
            }
        }
        Ok(())
    }

    pub(super) fn dry_run(&self, live: &Live, began: Instant) -> Result<Response<Bytes>> {
        let decision = decide(&live.routing, &self.inputs)
            .map_err(|refusal| no_target(refusal.into(), &self.inputs.request.model))?;
        let routing_us = record::micros_of(began.elapsed());
        let decision = Some(DecisionRecord::undone(decision, routing_us));
        let answer = envelope(None, decision, &self.original.head, Value::Null);
        Ok(json_response(StatusCode::OK, &json!(answer)))
    }

    pub(super) fn record(
        &mut self,
        app: &App,
        exchange: &HttpExchange,
        principal: &Principal,
    ) -> Record {
        let announced = self.announced.take();
        let read = (&self.prompt, self.prompt.headers.clone());
        let mut record = Record::announced(app, exchange, principal, read, announced);
        record.replay_of(&self.original.head, caller(principal));
        record.keeps(kept(app, principal, &self.original.head));
        record
    }
}

/// How much of a replay is captured: as much as of the caller's own requests, but no more than of
/// requests by the original's key.
fn kept(app: &App, principal: &Principal, original: &Head) -> CaptureLevel {
    let of_original =
        original.key.as_ref().map_or(CaptureLevel::Full, |key| app.auth.capture_level_of(key));
    principal.capture_level().max(of_original)
}

/// Reads the request of a capture as if it came now: with the captured signals, the current time,
/// and a body that asks for no stream.
async fn read_again(
    app: &App,
    principal: &Principal,
    original: &Capture,
    exchange: &HttpExchange,
    held: &mut Held,
) -> Result<(Prompt, Inputs)> {
    let inputs = original
        .head
        .inputs
        .clone()
        .ok_or_else(|| Error::new(Kind::NotCaptured, "This capture has no inputs."))?;
    let endpoint = endpoint_of(&original.head)?;
    let body = request::without_stream(&original.bodies.request).map_err(Error::internal)?;
    let mut headers = HeaderMap::new();
    for (name, value) in &original.head.request_headers {
        if let (Ok(name), Ok(value)) =
            (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.as_str()))
        {
            headers.append(name, value);
        }
    }
    if !held.set(body.len()) {
        return Err(Held::full());
    }
    let unread = UnreadBody { endpoint, body, coding: None, costs: endpoint.costs(), held };
    let prompt = Prompt::read_in_turn(app, principal, unread, headers).await;
    // The request was readable when it was captured, but memory, turns and limits may refuse it
    // now.
    let mut prompt = prompt.map_err(|error| match error.kind() {
        Kind::Unavailable | Kind::RateLimited | Kind::InsufficientQuota => error,
        _ => Error::new(
            Kind::InvalidRequest,
            format!("The captured request would be refused now: {}", error.detail()),
        ),
    })?;
    prompt.query.clone_from(&original.head.query);
    Ok((prompt, Inputs { at: exchange.at, ..inputs }))
}

fn endpoint_of(head: &Head) -> Result<Endpoint> {
    Endpoint::named(&head.endpoint).ok_or_else(|| {
        Error::internal(format!("a capture of an unknown endpoint {}", head.endpoint))
    })
}

/// A 404 for the model would seem to mean the capture.
pub(super) fn no_target(error: Error, model: &str) -> Error {
    match error.kind() {
        Kind::ModelNotFound => {
            Error::new(Kind::NoTarget, format!("The current document has no `{model}`."))
                .refusing(RefusalReason::Model)
        }
        _ => error,
    }
}

/// The caller of the replay: the id of a key, or of a user in a session.
fn caller(principal: &Principal) -> String {
    match principal.key() {
        Some(key) => key.id.to_string(),
        None => principal.user_id().map(|user| user.to_string()).unwrap_or_default(),
    }
}

/// A reroute while it runs. If dropped early, because the client left, it is recorded as aborted.
pub(super) struct RerouteGuard<'a> {
    pub(super) app: &'a App,
    pub(super) exchange: &'a mut HttpExchange,
    pub(super) call: Arc<InferenceCall>,
    pub(super) record: Option<Record>,
    pub(super) permit: Option<LimitPermit>,
}

impl RerouteGuard<'_> {
    pub(super) fn finish(&mut self, original: &Head) -> Response<Bytes> {
        let Some(record) = self.record.take() else { return Response::default() };
        let outcome = self.settle(&record);
        let instead = CompletionDefaults {
            id: self.exchange.id.as_str(),
            created: self.exchange.at.as_second(),
            model: outcome.target().map_or("", |target| &target.model),
            prompt_tokens: record.prompt_tokens(),
            usage: outcome.usage.clone(),
        };
        let decision = record.answered(&outcome);
        let endpoint = self.call.request.endpoint;
        let (status, body) = answer(&instead, decision, original, endpoint, &outcome);
        let upstream = outcome.status.unwrap_or(502);
        record.close(self.app, self.exchange, outcome, upstream, Bytes::new());
        json_response(status, &body).map(|body| self.app.live().routing.masked(body))
    }

    fn settle(&mut self, record: &Record) -> Outcome {
        let mut outcome = Outcome::take(&self.call, record.prompt_tokens());
        allowance::settle(self.permit.take().unwrap_or_default(), &mut outcome);
        outcome
    }
}

impl Drop for RerouteGuard<'_> {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            let status = if std::thread::panicking() {
                self.call.panics();
                500
            } else {
                self.call.attempt_failed(AttemptFailure::ClientGone, false);
                499
            };
            let outcome = self.settle(&record);
            record.close(self.app, self.exchange, outcome, status, Bytes::new());
        }
    }
}
