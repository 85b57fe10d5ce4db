//! `POST /v1/router/replay/{id}/reroute`: the data plane with its two ends exchanged. The body comes from a
//! capture, the answer goes into memory; in between it is the one live path, through a memory session.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use serde_json::{Value, json};

use super::admission::Admission;
use super::call::{Call, demand};
use super::edge::{Edge, Ended, answer, refuse};
use super::exchange::Exchange;
use super::failure::Failure;
use super::inference::{choose, prepare, provider_failed, proxy};
use super::record::{Outcome, Record};
use super::relay::Mode;
use super::reply::{self, json_response};
use super::{allowance, intake, panicked};
use crate::api::{audit, limits, replays};
use crate::app::App;
use crate::auth::{Kept, Principal};
use crate::body_memory::{BodyClass, Held};
use crate::bounds;
use crate::capture::record::{self, Capture, Head};
use crate::error::{Error, Kind, Result};
use crate::id::{RequestId, UserId};
use crate::limits::LimitPermit;
use crate::prompt::{Prompt, UnreadBody, may_ask_for};
use crate::protocol::completion::{self, CompletionDefaults};
use crate::protocol::endpoint::Endpoint;
use crate::protocol::{anthropic, request, stream};
use crate::repeats::{self, Asked, Found};
use crate::routing::decide::decide;
use crate::routing::inputs::Inputs;
use crate::store::Action;

/// What was answered to a reroute that may be asked for again.
#[derive(Clone)]
pub(super) struct Told {
    /// The replay that was made, where it was captured.
    replay: Option<RequestId>,
    /// The body of the 200.
    body: Bytes,
}

/// Answers a reroute.
pub(super) async fn run(
    edge: &Edge,
    session: &mut ServerSession,
    exchange: &mut Exchange,
    admitted: &Admission,
    shutdown: &ShutdownWatch,
) -> Ended {
    let id = admitted.params().first();
    let mut held = edge.app.body_memory.begin(BodyClass::Requests);
    let ignored = intake::read_body(session, bounds::MANAGEMENT_BODY, edge.pace(), &mut held).await;
    drop(held);
    if let Err(error) = ignored {
        return refuse(session, exchange, error, false).await;
    }
    let fresh = match edge.still_good(exchange, session, admitted) {
        Ok(fresh) => fresh,
        Err(error) => return refuse(session, exchange, error, true).await,
    };
    let principal = fresh.as_ref().unwrap_or(admitted.principal());
    let key = match repeats::key(&session.req_header().headers) {
        Ok(key) => key,
        Err(error) => return refuse(session, exchange, error, true).await,
    };
    let outcome = tokio::select! {
        biased;
        outcome = once(edge, exchange, (id, key), principal, shutdown) => outcome,
        _ = session.read_body_or_idle(true) => {
            // The client is gone, or talks out of turn; the provider is not kept at work for nobody.
            return Ended { status: 499, sent: 0, reusable: false };
        }
    };
    match outcome {
        Ok(response) => answer(session, exchange, response, true).await,
        Err(error) => refuse(session, exchange, error, true).await,
    }
}

/// A reroute, or the answer to the same one before. Only what came to a good end is remembered: what failed may be tried again.
async fn once(
    edge: &Edge,
    exchange: &mut Exchange,
    (id, key): (&str, Option<String>),
    principal: &Principal,
    shutdown: &ShutdownWatch,
) -> Result<Response<Bytes>> {
    let app = &edge.app;
    let dry_run = wants_dry_run(exchange.query.as_deref())?;
    // Nothing is paid for a dry run, so it may be made as often as anybody likes.
    let Some(key) = key.filter(|_| !dry_run) else {
        return reroute(edge, exchange, id, dry_run, principal, shutdown).await;
    };
    // Whoever may not see the capture, any more, learns nothing of what was answered.
    let original = replays::look_up(&app.archive, &app.captures, principal, id).await?;
    let payer = app.auth.tenant(principal);
    let asked =
        Asked { caller: caller(principal), payer, key, about: original.head.id.to_string() };
    match edge.repeats.begin(asked, exchange.at)? {
        Found::Repeated(told) => {
            note_foreign(app, exchange, principal, &original).await?;
            if let Some(replay) = &told.replay {
                replays::look_up(&app.archive, &app.captures, principal, replay.as_str()).await?;
            }
            Ok(reply::json_bytes(StatusCode::OK, told.body))
        }
        Found::First(claim) => {
            let response = reroute(edge, exchange, id, dry_run, principal, shutdown).await?;
            if response.status() == StatusCode::OK {
                let body = response.body().clone();
                let bytes = body.len();
                let captured = app.server.capture.enabled
                    && kept(app, principal, &original.head) != Kept::Nothing;
                let replay = captured.then(|| exchange.id.clone());
                claim.answered(Told { replay, body }, bytes, app.clock.now());
            }
            Ok(response)
        }
    }
}

/// What is kept of a replay: no more than of the caller's requests, and of those of the key that the original is of.
fn kept(app: &App, principal: &Principal, original: &Head) -> Kept {
    let of_original = original.key.as_ref().map_or(Kept::Whole, |key| app.auth.kept_of(key));
    principal.kept().max(of_original)
}

/// Notes that an admin is about to see what somebody else's capture answers now.
async fn note_foreign(
    app: &App,
    exchange: &Exchange,
    principal: &Principal,
    original: &Capture,
) -> Result<()> {
    let by = (Some(exchange.id.clone()), exchange.client.address);
    audit::foreign(
        app,
        principal,
        Action::CaptureReroute,
        (&original.head.id, &original.head.owner),
        by,
    )
    .await
}

async fn reroute(
    edge: &Edge,
    exchange: &mut Exchange,
    id: &str,
    dry_run: bool,
    principal: &Principal,
    shutdown: &ShutdownWatch,
) -> Result<Response<Bytes>> {
    let app = &edge.app;
    let _drawn = dry_run.then(|| limits::draw(app, principal)).transpose()?;
    if !dry_run {
        // What is let in is seen when it is decided; what cannot be is not even looked up.
        allowance::look(app, exchange, principal, false)?;
    }
    // Before the look: whoever deletes the original from now on finds this replay of it.
    let announced =
        RequestId::parse(id).filter(|_| app.server.capture.enabled && !dry_run).map(|original| {
            let owner = principal.user_id().unwrap_or_else(UserId::admin);
            app.captures.coming().announce(&exchange.id, &owner, Some(&original))
        });
    let original = replays::look_up(&app.archive, &app.captures, principal, id).await?;
    original.head.check_replayable()?;
    note_foreign(app, exchange, principal, &original).await?;
    let mut held = app.body_memory.begin(BodyClass::Requests);
    let (mut prompt, inputs) = again(app, principal, &original, exchange, &mut held).await?;
    if may_ask_for(principal, &inputs.request.model).is_err() {
        return Err(Error::new(
            Kind::Forbidden,
            "The `limits.models` of your key or your user do not allow the captured model.",
        ));
    }
    let live = app.live();
    let routing_began = Instant::now();
    let health = app.standing(&live.routing, Some(&inputs.request.name), exchange.at);
    let mut inputs = Inputs { health, ..inputs };
    inputs.complete(&live.routing, || Some(prompt.last_user_text()));
    if dry_run {
        let decision = decide(&live.routing, &inputs)
            .map_err(|refusal| no_target(refusal.into(), &inputs.request.model))?;
        let decision =
            record::decision_json(&decision, record::micros_of(routing_began.elapsed()), None, &[]);
        return Ok(json_response(
            StatusCode::OK,
            &envelope(None, decision, &original.head, Value::Null),
        ));
    }
    if let Some(seen) = &inputs.request.agent {
        prompt.take_agent_again(app, principal, seen).await?;
    }
    let turn = app.reroutes.take(&app.auth.tenant(principal)).await;
    let _turn = turn.ok_or_else(|| {
        let why = "Too many reroutes are running; none ended in time.";
        Error::new(Kind::RateLimited, why).retry_after(bounds::LIMIT_RETRY)
    })?;
    let mut record = Record::announced(app, exchange, principal, &prompt, announced);
    record.replay_of(&original.head, caller(principal));
    record.keeps(kept(app, principal, &original.head));
    // Whoever asks pays, whosever capture it is.
    let decision = choose(app, exchange, principal, &live, (&inputs, &prompt))
        .map_err(|error| no_target(error, &inputs.request.model));
    record.decided(
        inputs,
        decision.as_ref().ok().map(|(decision, _)| decision.clone()),
        routing_began.elapsed(),
    );
    let (decision, permit) = match decision {
        Ok(decided) => decided,
        Err(error) => {
            let rendered = reply::error(exchange.surface, exchange.id.as_str(), &error);
            record.refused(app, exchange, &error, rendered.into_body());
            return Err(error);
        }
    };
    let call = Call {
        demand: demand(record.inputs()),
        ..prepare(app, exchange, live, &decision, prompt, Mode::Collect)
    };
    exchange.line.rule = call.rule.as_ref().map(|(name, _)| name.clone());
    let call = Arc::new(call);
    // Should the client leave, this future is dropped: the guard still writes the capture, as aborted.
    let mut unfinished = Unfinished {
        edge,
        exchange,
        call: call.clone(),
        record: Some(record),
        permit: Some(permit),
    };
    proxy(&edge.proxy, None, &call, shutdown).await;
    let response = unfinished.finish(&original.head);
    if call.has_panicked() {
        app.metrics.panic();
        return Err(panicked::error());
    }
    Ok(response)
}

/// A reroute under way; dropped early it is recorded as aborted.
struct Unfinished<'a> {
    edge: &'a Edge,
    exchange: &'a mut Exchange,
    call: Arc<Call>,
    record: Option<Record>,
    permit: Option<LimitPermit>,
}

impl Unfinished<'_> {
    fn take(&mut self, record: &Record) -> Outcome {
        let outcome = Outcome::take(&self.call, record.prompt_tokens());
        allowance::settle(self.permit.take().unwrap_or_default(), &outcome);
        outcome
    }

    fn finish(&mut self, original: &Head) -> Response<Bytes> {
        let Some(record) = self.record.take() else { return Response::default() };
        let outcome = self.take(&record);
        let instead = CompletionDefaults {
            id: self.exchange.id.as_str(),
            created: self.exchange.at.as_second(),
            model: outcome.target().map_or("", |target| &target.model),
            prompt_tokens: record.prompt_tokens(),
            usage: outcome.usage,
        };
        let (status, body) = respond(
            &instead,
            record.decision_json(&outcome),
            original,
            self.call.endpoint,
            &outcome,
        );
        let upstream = outcome.status.unwrap_or(502);
        record.close(&self.edge.app, self.exchange, outcome, upstream, Bytes::new());
        json_response(status, &body)
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            let (failure, status) = if std::thread::panicking() {
                (Failure::Internal, 500)
            } else {
                (Failure::ClientGone, 499)
            };
            self.call.attempt_failed(failure, false);
            let outcome = self.take(&record);
            record.close(&self.edge.app, self.exchange, outcome, status, Bytes::new());
        }
    }
}

/// The request of a capture as it would come today: its signals as captured, the time and the state of now, and
/// for the provider a body that asks for no stream.
async fn again(
    app: &App,
    principal: &Principal,
    original: &Capture,
    exchange: &Exchange,
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
    // It was read before, by this build or one that took it: else only the room, the turn or the
    // limits can stand in the way.
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

/// The endpoint that a capture was for.
fn endpoint_of(head: &Head) -> Result<Endpoint> {
    Endpoint::named(&head.endpoint).ok_or_else(|| {
        Error::internal(format!("a capture of an unknown endpoint {}", head.endpoint))
    })
}

/// A name that the current document does not know has no target there; 404 would speak of the capture.
fn no_target(error: Error, model: &str) -> Error {
    match error.kind() {
        Kind::ModelNotFound => {
            Error::new(Kind::NoTarget, format!("The current document has no `{model}`."))
        }
        _ => error,
    }
}

fn wants_dry_run(query: Option<&str>) -> Result<bool> {
    match query {
        None | Some("" | "dry_run=false") => Ok(false),
        Some("dry_run=true") => Ok(true),
        Some(query) => {
            let name = query.split(['=', '&']).next().unwrap_or_default();
            Err(Error::invalid(name, "The only parameter is `dry_run`, `true` or `false`."))
        }
    }
}

fn caller(principal: &Principal) -> String {
    match principal.key() {
        Some(key) => key.id.to_string(),
        None => principal.user_id().map(|user| user.to_string()).unwrap_or_default(),
    }
}

fn envelope(new_id: Option<&str>, decision: Value, original: &Head, response: Value) -> Value {
    json!({
        "new_id": new_id,
        "decision": decision,
        "response": response,
        "replay_of": original.id,
        "original": original.as_original(),
    })
}

/// The answer of the access specification, or 502 with what is known.
fn respond(
    instead: &CompletionDefaults<'_>,
    decision: Value,
    original: &Head,
    endpoint: Endpoint,
    outcome: &Outcome,
) -> (StatusCode, Value) {
    let response = outcome.answer.as_ref().and_then(|answer| match outcome.stream {
        true => Some(stream::assemble(endpoint, &answer.body)),
        false => serde_json::from_slice::<Value>(&answer.body).ok(),
    });
    let good = outcome.status.is_some_and(|status| (200..300).contains(&status))
        && outcome.failure.is_none();
    let object = response.as_ref().is_some_and(Value::is_object);
    let response = match (response, endpoint) {
        (Some(message), Endpoint::Messages) if good && object => {
            completion::shaped(anthropic::as_chat_completion(&message), instead)
        }
        (Some(answer), Endpoint::ChatCompletions) if good && object => {
            completion::shaped(answer, instead)
        }
        (response, _) => response.unwrap_or(Value::Null),
    };
    let mut body = envelope(Some(instead.id), decision, original, response);
    if good && object {
        // What is no chat completion says what it is.
        if let (false, Value::Object(body)) =
            (matches!(endpoint, Endpoint::ChatCompletions | Endpoint::Messages), &mut body)
        {
            body.insert("response_kind".into(), endpoint.as_str().into());
        }
        return (StatusCode::OK, body);
    }
    let error = match outcome.status {
        Some(status) if good => Error::new(
            Kind::ProviderFailed,
            format!("The provider answered {status} with something that is not a JSON object."),
        ),
        Some(status) => {
            Error::new(Kind::ProviderFailed, format!("The provider answered {status}."))
        }
        None => provider_failed(outcome),
    };
    if let Value::Object(body) = &mut body {
        body.insert("error".into(), json!(error.kind().row().word));
        body.insert("detail".into(), json!(error.detail()));
        body.insert(
            "upstream_status".into(),
            json!(outcome.status.or_else(|| outcome.last_refusal())),
        );
    }
    (error.status(), body)
}
