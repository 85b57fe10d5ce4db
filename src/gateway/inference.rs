//! The data plane, top-down: body, decision, the call through Pingora's proxy, and what remains of it: the last
//! answer or an error event, the capture, the counters, the access line. A reroute takes the same steps.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, RETRY_AFTER, TRANSFER_ENCODING};
use http::{HeaderValue, Response, StatusCode};
use pingora::apps::HttpServerApp;
use pingora::http::RequestHeader;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use pingora_proxy::HttpProxy;

use super::admission::Admission;
use super::attempt::forwarded;
use super::call::{Call, Progress, demand};
use super::edge::{Edge, Ended, answer, refuse};
use super::exchange::Exchange;
use super::failure::Failure;
use super::record::{Outcome, Record};
use super::relay::{Answer, Mode};
use super::wrap::Wrap;
use super::{Gateway, allowance, broken_off, intake, panicked, reply, shadow};
use crate::app::{App, Live};
use crate::auth::Principal;
use crate::body_memory::{BodyClass, Held};
use crate::capture::query::without_credentials;
use crate::error::{Error, Kind, Result};
use crate::limits::LimitPermit;
use crate::prompt::{Prompt, UnreadBody, gather, may_ask_for};
use crate::protocol::coding::Coding;
use crate::protocol::endpoint::Endpoint;
use crate::routing::decide::{Decision, decide};
use crate::routing::inputs::Inputs;
use crate::routing::recipe::Rule;
use crate::store::FaultPlace;

/// An inference call at one of the data plane's endpoints.
pub(super) async fn run(
    edge: &Edge,
    place: &mut Option<Box<ServerSession>>,
    exchange: &mut Exchange,
    endpoint: Endpoint,
    admitted: &Admission,
    shutdown: &ShutdownWatch,
) -> Ended {
    let app = &edge.app;
    let Some(session) = place.as_deref_mut() else { return Ended::GONE };
    if intake::costs_work(session)
        && let Err(error) = allowance::look(app, exchange, admitted.principal(), endpoint.costs())
    {
        return refuse(session, exchange, error, true).await;
    }
    let mut held = app.body_memory.begin(BodyClass::Requests);
    let reading = read(edge, exchange, session, (endpoint, admitted.principal()), &mut held).await;
    let (mut prompt, waited) = match reading {
        Ok(read) => read,
        Err((error, framed)) => return refuse(session, exchange, error, framed).await,
    };
    let fresh = match edge.still_good(exchange, session, admitted) {
        Ok(fresh) => fresh,
        Err(error) => return refuse(session, exchange, error, true).await,
    };
    let principal = fresh.as_ref().unwrap_or(admitted.principal());
    exchange.line.model = Some(app.auth.veil().over(&prompt.request.model).into_owned());
    let allowed = match may_ask_for(principal, prompt.asked()) {
        Ok(()) => prompt.take_agent(app, principal).await,
        refused => refused,
    };
    let live = app.live();
    let routing_began = Instant::now();
    let inputs = gather(app, &live, exchange.at, &prompt, principal);
    let decision =
        allowed.and_then(|()| choose(app, exchange, principal, &live, (&inputs, &prompt)));
    let mut record = Record::begin(app, exchange, principal, &prompt);
    record.decided(
        inputs,
        decision.as_ref().ok().map(|(decision, _)| decision.clone()),
        routing_began.elapsed(),
    );
    let (decision, mut permit) = match decision {
        Ok(decided) => decided,
        Err(error) => {
            exchange.refused(&error);
            let response = reply::error(exchange.surface, exchange.id.as_str(), &error);
            record.refused(app, exchange, &error, response.body().clone());
            return answer(session, exchange, response, true).await;
        }
    };
    shadow::send(edge, &live, &prompt, &record, shutdown);
    let (counted, demand) = (permit.counts_tokens(), demand(record.inputs()));
    let call =
        Call { counted, demand, ..prepare(app, exchange, live, &decision, prompt, Mode::Relay) };
    exchange.line.rule = call.rule.as_ref().map(|(name, _)| name.clone());
    let call = Arc::new(call);
    call.state().slot = permit.take_slot();
    // The wait for the client's bytes is not ours.
    app.metrics.overhead(exchange.started.elapsed().saturating_sub(waited));
    *place = proxy(&edge.proxy, place.take(), &call, shutdown).await;
    let outcome = Outcome::take(&call, record.prompt_tokens());
    allowance::settle(permit, &outcome);
    let (ended, said) = match place.as_deref_mut() {
        Some(session) if call.has_panicked() => {
            Box::pin(panicked::end(app, session, exchange)).await
        }
        Some(session) => conclude(session, exchange, &call, &outcome).await,
        None => (Ended::GONE, Bytes::new()),
    };
    record.close(app, exchange, outcome, ended.status, said);
    ended
}

/// Lets the request in, decides, and reserves what that may cost. A request that is refused draws
/// on nothing.
pub(super) fn choose(
    app: &App,
    exchange: &mut Exchange,
    principal: &Principal,
    live: &Live,
    (inputs, prompt): (&Inputs, &Prompt),
) -> Result<(Arc<Decision>, LimitPermit)> {
    let mut permit = allowance::admit(app, exchange, principal, inputs)?;
    app.store.faults().pass(FaultPlace::Decision);
    let decided = decide(&live.routing, inputs).map_err(Error::from).and_then(|decision| {
        allowance::reserve(app, &mut permit, live, &decision, prompt)?;
        Ok(decision)
    });
    match decided {
        Ok(decision) => {
            allowance::tell(app, exchange, &permit.remaining());
            Ok((Arc::new(decision), permit))
        }
        Err(error) => {
            allowance::tell(app, exchange, &permit.release());
            Err(error)
        }
    }
}

/// Reads, decodes and understands the body; gives also how long its bytes were awaited. With the error: whether the request is
/// still well framed.
async fn read(
    edge: &Edge,
    exchange: &mut Exchange,
    session: &mut ServerSession,
    (endpoint, who): (Endpoint, &Principal),
    held: &mut Held,
) -> Result<(Prompt, Duration), (Error, bool)> {
    let mut headers = session.req_header().headers.clone();
    let lines = headers.get_all(CONTENT_ENCODING).iter().map(HeaderValue::as_bytes);
    let coding = Coding::of(lines).map_err(|error| (error, true))?;
    let limit = edge.app.server.limits.request_body;
    let began = Instant::now();
    let body = intake::read_body(session, limit, edge.pace(), held).await;
    let body = body.map_err(|error| (error, false))?;
    let waited = began.elapsed();
    exchange.line.bytes_in = body.len() as u64;
    let coded = headers.remove(CONTENT_ENCODING).is_some();
    let unread = UnreadBody { endpoint, body, coding, costs: endpoint.costs(), held };
    let reading = Prompt::read_in_turn(&edge.app, who, unread, headers).await;
    let mut prompt = reading.map_err(|error| (error, true))?;
    if coded && prompt.headers.contains_key(CONTENT_LENGTH) {
        // What is kept of the request is its head beside the body as it was read.
        let length = HeaderValue::from(prompt.body.len());
        prompt.headers.insert(CONTENT_LENGTH, length);
    }
    // A provider gets a copy, with its own name of the model.
    if !held.set(2 * prompt.body.len()) {
        return Err((Held::full(), true));
    }
    prompt.query = exchange.query.as_deref().and_then(without_credentials);
    Ok((prompt, waited))
}

/// Makes the call that Pingora's hooks walk.
pub(super) fn prepare(
    app: &App,
    exchange: &Exchange,
    live: Arc<Live>,
    decision: &Arc<Decision>,
    prompt: Prompt,
    mode: Mode,
) -> Call {
    app.metrics.decision(
        &decision.recipe,
        decision.rule.as_deref().unwrap_or(""),
        &decision.provider,
        &decision.model,
    );
    let recipe = live.routing.recipe(&decision.recipe);
    let retry = live.routing.retry_of(decision);
    let rule = recipe
        .zip(decision.rule.as_deref())
        .and_then(|(recipe, rule)| recipe.rule(rule))
        .map(Rule::shown);
    let recipe = recipe.filter(|_| mode == Mode::Relay && retry.budget_percent.is_some());
    let budget = recipe.map(|recipe| recipe.budget().clone());
    if let Some(budget) = &budget {
        budget.request(app.clock.now());
    }
    let mut targets = live.routing.targets_of(decision);
    targets.truncate(retry.attempts.max(1));
    Call {
        id: exchange.id.clone(),
        mode,
        targets,
        retry,
        budget,
        clock: app.clock.clone(),
        nodes: app.nodes.clone(),
        faults: app.store.faults().clone(),
        demand: Default::default(),
        endpoint: prompt.endpoint,
        forward: forwarded(&prompt.headers),
        query: prompt.query,
        rates: exchange.rates.clone(),
        rule,
        decision: decision.clone(),
        capture_limit: app.server.capture.max_body,
        body: prompt.body,
        model: prompt.request.model_span,
        ask_usage: prompt.request.ask_usage,
        counted: false,
        live,
        coming: app.captures.coming().clone(),
        state: Progress::within(&app.body_memory).into(),
        home: Default::default(),
        panicked: Default::default(),
    }
}

/// Through Pingora's proxy and back: upstream selection, failover, relaying. The session comes home with the wrap's end.
pub(super) async fn proxy(
    proxy: &Arc<HttpProxy<Gateway>>,
    session: Option<Box<ServerSession>>,
    call: &Arc<Call>,
    shutdown: &ShutdownWatch,
) -> Option<Box<ServerSession>> {
    let head = RequestHeader::build_no_case("POST", b"/", Some(0)).ok()?;
    let wrap = match session {
        Some(session) => Wrap::around(session, head, call.clone()),
        None => Wrap::memory(head, call.clone()),
    };
    let through = proxy.process_new_http(ServerSession::new_custom(Box::new(wrap)), shutdown);
    // For a session of ours it always gives `None`; the connection is the edge's to keep. Should anything in there panic, our hooks
    // or the engine, what they held is dropped and the session comes home all the same.
    if AssertUnwindSafe(through).catch_unwind().await.is_err() {
        call.panics();
    }
    call.take_home()
}

/// Writes what is left to write once the proxy is done, and gives what it wrote beside the provider's answer.
async fn conclude(
    session: &mut ServerSession,
    exchange: &mut Exchange,
    call: &Call,
    outcome: &Outcome,
) -> (Ended, Bytes) {
    let status = outcome.status.unwrap_or(502);
    if outcome.complete {
        let sent = session.body_bytes_sent();
        return (Ended { status, sent, reusable: true }, Bytes::new());
    }
    if outcome.failure == Some(Failure::ClientGone) {
        return (Ended { status: 499, sent: 0, reusable: false }, Bytes::new());
    }
    call.ends();
    if outcome.committed {
        // Too late for another status: a stream says what happened, unless it has said all, and ends properly; any other answer
        // is cut, so that nobody takes it for whole.
        let breaks = outcome.stream && !outcome.said_all;
        let event = if breaks { broken_off::event(call, outcome) } else { Bytes::new() };
        let reusable =
            outcome.stream && session.write_response_body(event.clone(), true).await.is_ok();
        let sent = session.body_bytes_sent();
        return (Ended { status, sent, reusable }, event);
    }
    let mut response = match &outcome.answer {
        Some(last) => pass_on(last),
        None => {
            let error = provider_failed(outcome);
            exchange.refused(&error);
            reply::error(exchange.surface, exchange.id.as_str(), &error)
        }
    };
    if !response.headers().contains_key(RETRY_AFTER) || outcome.answer.is_some() {
        // We have tried what there is; unless it was nobody, and we say ourselves when to come back.
        response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
    }
    reply::name_call(call, false, response.headers_mut());
    let said = if outcome.answer.is_some() { Bytes::new() } else { response.body().clone() };
    (answer(session, exchange, response, true).await, said)
}

/// The last provider's answer when no better one is to be had: its status, its words.
fn pass_on(last: &Answer) -> Response<Bytes> {
    let mut response = Response::new(last.body.clone());
    *response.status_mut() = StatusCode::from_u16(last.status).unwrap_or(StatusCode::BAD_GATEWAY);
    *response.headers_mut() = last.headers.clone();
    response.headers_mut().remove(TRANSFER_ENCODING);
    response.headers_mut().remove(CONTENT_LENGTH);
    response.headers_mut().remove("connection");
    response
}

/// For when no provider gave an answer that could be passed on: 502, or, where none was even asked, what a decision made
/// a moment later would have said.
pub(super) fn provider_failed(outcome: &Outcome) -> Error {
    let words =
        || outcome.attempts.iter().map(|attempt| attempt.error.as_deref().unwrap_or("no answer"));
    let asked = words().any(|word| !Failure::BARRED.iter().any(|barred| barred.as_str() == word));
    let tried = outcome
        .attempts
        .iter()
        .zip(words())
        .map(|(attempt, word)| format!("{}/{}: {word}", attempt.provider, attempt.model));
    let tried = tried.collect::<Vec<_>>().join(", ");
    if asked || outcome.attempts.is_empty() {
        return Error::new(Kind::ProviderFailed, format!("No provider answered ({tried})."));
    }
    let broken = words().any(|word| {
        [Failure::BreakerOpen, Failure::NoNode].iter().any(|failure| failure.as_str() == word)
    });
    let kind = if broken { Kind::NoTarget } else { Kind::RateLimited };
    Error::new(kind, format!("No target can take the request now ({tried})."))
        .retry_after(Duration::from_secs(1))
}
