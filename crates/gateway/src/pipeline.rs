//! The stages of every request, from its head to its answer, in order. All kinds of calls share the
//! first stages ([`Pipeline::admit`], [`Pipeline::receive`], [`Admission::recheck`]) and one
//! responder ([`respond`]). Live calls and reroutes also share the decision and the proxy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, HeaderValue, Response};
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use pingora_proxy::HttpProxy;
use tokio::time::timeout_at;

use super::admission::Admission;
use super::call::InferenceCall;
use super::exchange::HttpExchange;
use super::finish_answer::finish_answer;
use super::intake::{self, BodyRules};
use super::node_signature::NodeSignatures;
use super::outcome::Outcome;
use super::plan::{CallPlan, SentRequest};
use super::reading_on::ReadingOn;
use super::record::Record;
use super::reroute::{self, CapturedRequest, RerouteGuard, RerouteRequest};
use super::reroute_repeat::{KnownReroute, find_repeat, keep};
use super::respond::{self, RequestEnd, RequestRefusal, StageAnswer, respond, turn_away};
use super::verdict::Mode;
use super::wrap::proxy;
use super::{ProxyHooks, allowance, framing, progress_stream, shadow};
use rerouter_access::auth::Principal;
use rerouter_access::limits::LimitPermit;
use rerouter_base::body_memory::Held;
use rerouter_base::bounds;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_captures::redaction::without_credentials;
use rerouter_core::api::{BodyKind, Handler, ProgressHandler, Responder};
use rerouter_core::app::{App, Live};
use rerouter_core::prompt::{Prompt, READ_INLINE, UnreadBody, gather, may_ask_for};
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::wire::coding::Coding;
use rerouter_routing::{Decision, Inputs, decide};
use rerouter_store::PanicPoint;

pub(super) struct Pipeline {
    pub(super) app: Arc<App>,
    proxy: Arc<HttpProxy<ProxyHooks>>,
}

struct Received {
    body: Bytes,
    coding: Option<Coding>,
    held: Held,
    /// Time spent waiting for the body's bytes.
    waited: Duration,
}

enum Management {
    Whole(Handler),
    Slow(ProgressHandler),
}

impl Pipeline {
    pub(super) fn new(app: Arc<App>, proxy: Arc<HttpProxy<ProxyHooks>>) -> Self {
        Pipeline { app, proxy }
    }

    /// Answers one request whose head has been read. `holder` holds the session, except while
    /// Pingora's proxy has it. `standby`: the connection has only a reserve slot.
    pub(super) async fn serve(
        &self,
        holder: &mut Option<Box<ServerSession>>,
        exchange: &mut HttpExchange,
        standby: bool,
        shutdown: &ShutdownWatch,
    ) -> RequestEnd {
        let answer = self.answer(holder, exchange, standby, shutdown).await;
        match (answer, holder.as_deref_mut()) {
            (Ok(StageAnswer::Written(ended)), _) => ended,
            // Boxed: the future of a relayed answer is moved several times and has no room for it.
            (answer, Some(session)) => {
                Box::pin(respond(&self.app, session, exchange, answer)).await
            }
            (_, None) => RequestEnd::GONE,
        }
    }

    async fn answer(
        &self,
        holder: &mut Option<Box<ServerSession>>,
        exchange: &mut HttpExchange,
        standby: bool,
        shutdown: &ShutdownWatch,
    ) -> Result<StageAnswer, RequestRefusal> {
        let Some(session) = holder.as_deref_mut() else {
            return Ok(StageAnswer::Written(RequestEnd::GONE));
        };
        let raw = session.as_http1().map(|http1| http1.get_headers_raw_bytes());
        // If the framing is in doubt, nothing after this head can be trusted.
        framing::check(session.req_header(), raw.as_deref()).map_err(RequestRefusal::unframed)?;
        let admitted = self.admit(session, exchange).await?;
        if standby {
            exchange.skip_drain = !admitted.is_known();
            if !admitted.fits_reserve(session.is_body_empty()) {
                let ended = Box::pin(turn_away(&self.app, session, exchange)).await;
                return Ok(StageAnswer::Written(ended));
            }
        }
        self.app.store.faults().pass(PanicPoint::Entry);
        match admitted.route.responder {
            Responder::Inference(endpoint) => {
                // Boxed, because the futures around this one are moved several times.
                Box::pin(self.inference(holder, exchange, endpoint, &admitted, shutdown)).await
            }
            Responder::Direct(handler, takes) => {
                let call = (Management::Whole(handler), takes);
                Box::pin(self.management(session, exchange, call, &admitted)).await
            }
            Responder::Progress(handler, takes) => {
                let call = (Management::Slow(handler), takes);
                Box::pin(self.management(session, exchange, call, &admitted)).await
            }
            Responder::Reroute => {
                Box::pin(self.reroute(session, exchange, &admitted, shutdown)).await
            }
        }
    }

    /// Checks caller and route, before the body is read. A node's signature works only once, so it
    /// is spent even if the request is refused.
    async fn admit(
        &self,
        session: &mut ServerSession,
        exchange: &mut HttpExchange,
    ) -> Result<Admission> {
        self.app.catch_up().await?;
        let admitted = Admission::check(&self.app, exchange, session);
        if let Some((node, signed)) = exchange.signed.take() {
            let route = admitted.as_ref().map_or("", |admission| admission.route.path);
            Box::pin(NodeSignatures { app: &self.app }.spend(node, &signed, route)).await?;
        }
        admitted
    }

    /// A body that costs work is read only if the caller's limits have room.
    async fn receive(
        &self,
        session: &mut ServerSession,
        exchange: &mut HttpExchange,
        principal: &Principal,
        kind: BodyRules,
    ) -> Result<Received, RequestRefusal> {
        let app = &self.app;
        if let Some(costs) = kind.is_limited()
            && intake::costs_work(session)
        {
            allowance::look(app, exchange, principal, costs)?;
        }
        let coding = kind.coding(session)?;
        let mut held = app.body_memory.begin(kind.room());
        let began = Instant::now();
        let body = intake::read_body(app, session, kind, &mut held).await;
        let (body, waited) = (body.map_err(RequestRefusal::unframed)?, began.elapsed());
        exchange.line.bytes_in = body.len() as u64;
        kind.check_type(session, &body)?;
        Ok(Received { body, coding, held, waited })
    }

    async fn management(
        &self,
        session: &mut ServerSession,
        exchange: &mut HttpExchange,
        (handler, takes): (Management, BodyKind),
        admitted: &Admission,
    ) -> Result<StageAnswer, RequestRefusal> {
        let (app, kind) = (&self.app, BodyRules::Management(takes));
        let Received { body, held, .. } =
            self.receive(session, exchange, &admitted.principal, kind).await?;
        let principal = admitted.recheck(app, exchange, session).await?;
        if let Principal::Node { signed, .. } = &*principal
            && !signed.covers(&body)
        {
            return Err(NodeSignatures { app }.no_node("digest").into());
        }
        let request = admitted.request(session, exchange, body);
        match handler {
            Management::Whole(handler) => {
                let answered = handler(app, &principal, &request).await;
                drop((request, held));
                let response = answered?;
                // A console page with a refusal is already rendered.
                if let Some(error) = response.extensions().get::<Arc<Error>>() {
                    exchange.refused(error);
                }
                Ok(StageAnswer::Whole(response))
            }
            Management::Slow(handler) => {
                let slow = handler(app, &principal, &request).await?;
                drop((request, held));
                progress_stream::follow(session, exchange, slow).await
            }
        }
    }

    async fn inference(
        &self,
        holder: &mut Option<Box<ServerSession>>,
        exchange: &mut HttpExchange,
        endpoint: Endpoint,
        admitted: &Admission,
        shutdown: &ShutdownWatch,
    ) -> Result<StageAnswer, RequestRefusal> {
        let app = &self.app;
        let Some(session) = holder.as_deref_mut() else {
            return Ok(StageAnswer::Written(RequestEnd::GONE));
        };
        let kind = BodyRules::Inference(endpoint);
        let mut received = self.receive(session, exchange, &admitted.principal, kind).await?;
        let who = (endpoint, &admitted.principal);
        let headers = session.req_header().headers.clone();
        exchange.trace = app.telemetry.begin(&headers, &app.random);
        let mut prompt = self.read_prompt(headers, exchange, who, &mut received).await?;
        let principal = &*admitted.recheck(app, exchange, session).await?;
        exchange.line.model =
            Some(app.auth.key_redactor().redact(&prompt.request.model).into_owned());
        let mut allowed = match may_ask_for(principal, prompt.asked()) {
            Ok(()) => prompt.take_agent(app, principal).await,
            refused => refused,
        };
        let live = app.live();
        let translates = live.routing.translates(&prompt.request.model, endpoint);
        // Room for the neutral form and for the body that a provider of another dialect gets.
        if translates && allowed.is_ok() && !received.held.set(3 * prompt.body.len()) {
            return Err(Held::full().into());
        }
        if allowed.is_ok() {
            allowed = self.read_again(principal, translates, &mut prompt).await;
        }
        let began = Instant::now();
        let inputs = gather(app, &live, exchange.at, &prompt, principal);
        let decided = match allowed {
            Ok(()) => self.decide(exchange, principal, &live, (&inputs, &prompt)).await,
            Err(refused) => Err(refused),
        };
        let mut record = Record::begin(app, exchange, principal, &mut prompt);
        record.decided(inputs, decision_of(&decided), began.elapsed());
        let (decision, mut permit) = match decided {
            Ok(decided) => decided,
            Err(error) => return Ok(StageAnswer::Whole(record.refused(app, exchange, &error))),
        };
        shadow::send((app, &self.proxy), &live, (principal, &prompt), &record, shutdown);
        let request = SentRequest::of_prompt(prompt, &record.request_headers, &permit);
        let call = self.call(exchange, (live, decision), &record, request, Mode::Relay);
        call.progress().slot = permit.take_slot();
        permit.mark_sent();
        // The overhead does not include the wait for the client's bytes.
        let own = exchange.started.elapsed().saturating_sub(received.waited);
        app.metrics.request.overhead.observe(own.as_secs_f64());
        *holder = proxy(&self.proxy, holder.take(), &call, shutdown).await;
        let mut outcome = Outcome::take(&call, record.prompt_tokens());
        allowance::settle(permit, &mut outcome);
        let (ended, added) = match holder.as_deref_mut() {
            Some(session) => finish_answer(app, session, exchange, &call, &outcome).await,
            None => (RequestEnd::GONE, Bytes::new()),
        };
        record.close(app, exchange, outcome, ended.status, added);
        Ok(StageAnswer::Written(ended))
    }

    /// Runs a capture again through the same stages: the request comes from the capture, and the
    /// answer is collected.
    async fn reroute(
        &self,
        session: &mut ServerSession,
        exchange: &mut HttpExchange,
        admitted: &Admission,
        shutdown: &ShutdownWatch,
    ) -> Result<StageAnswer, RequestRefusal> {
        self.receive(session, exchange, &admitted.principal, BodyRules::Ignored).await?;
        let principal = admitted.recheck(&self.app, exchange, session).await?;
        let asked = RerouteRequest::read(session, exchange, admitted)?;
        let headers = &session.req_header().headers;
        exchange.trace = self.app.telemetry.begin(headers, &self.app.random);
        let mut running = Box::pin(self.reroute_once(exchange, &asked, &principal, shutdown));
        tokio::select! {
            biased;
            response = &mut running => return Ok(StageAnswer::Whole(response?)),
            // The client has left, or sends bytes that it should not send now.
            _ = session.read_body_or_idle(true) => {}
        }
        // The call ends with its client, unless it has an `Idempotency-Key`, as a repeat needs its
        // answer, or a budget that pays what the provider bills.
        let answer = if asked.key.is_some() {
            Some(running.await)
        } else if allowance::pays(&self.app, &principal)
            && let Some(reading_on) = ReadingOn::begin()
        {
            timeout_at(reading_on.until, running).await.ok()
        } else {
            drop(running);
            None
        };
        if let Some(Err(error)) = answer {
            exchange.refused(&error);
        }
        Ok(StageAnswer::Written(RequestEnd::client_gone(0)))
    }

    /// If its `Idempotency-Key` was answered before, the answer is the same.
    async fn reroute_once(
        &self,
        exchange: &mut HttpExchange,
        asked: &RerouteRequest,
        principal: &Principal,
        shutdown: &ShutdownWatch,
    ) -> Result<Response<Bytes>> {
        let app = &self.app;
        let claim = match find_repeat(app, exchange, principal, asked).await? {
            KnownReroute::Answered(response) => return Ok(response),
            KnownReroute::New(claim) => claim,
        };
        let answer = self.run_capture(exchange, asked, principal, shutdown).await;
        if let Some(claim) = claim {
            keep(claim, app, exchange, principal, &answer).await;
        }
        answer
    }

    async fn run_capture(
        &self,
        exchange: &mut HttpExchange,
        asked: &RerouteRequest,
        principal: &Principal,
        shutdown: &ShutdownWatch,
    ) -> Result<Response<Bytes>> {
        let app = &self.app;
        let mut captured = CapturedRequest::load(app, exchange, principal, asked).await?;
        let live = app.live();
        if let Some(agent) = &captured.inputs.request.agent {
            let taken = captured.prompt.take_agent_again(app, principal, agent).await;
            // Without its agent, a captured request can still be decided.
            taken.or_else(|gone| if asked.dry_run { Ok(()) } else { Err(gone) })?;
        }
        captured.refresh(app, &live, exchange, principal).await?;
        let began = Instant::now();
        if asked.dry_run {
            return captured.dry_run(&live, began);
        }
        captured.read_neutral(app, &live, principal).await?;
        let turn = app.reroutes.take(&app.auth.tenant(principal)).await;
        let _turn = turn.ok_or_else(|| {
            let why = "Too many reroutes are running; none ended in time.";
            Error::new(Kind::RateLimited, why).retry_after(bounds::LIMIT_RETRY)
        })?;
        // The steps so far may have taken long: a credential that was revoked meanwhile spends
        // nothing.
        app.catch_up().await?;
        app.auth.recheck(principal, app.clock.now())?;
        let mut record = captured.record(app, exchange, principal);
        let CapturedRequest { original, prompt, inputs, held: _held, .. } = captured;
        // The caller pays, even for another user's capture.
        let decided = self
            .decide(exchange, principal, &live, (&inputs, &prompt))
            .await
            .map_err(|error| reroute::no_target(error, &inputs.request.model));
        record.decided(inputs, decision_of(&decided), began.elapsed());
        let (decision, mut permit) = match decided {
            Ok(decided) => decided,
            Err(error) => return Ok(record.refused(app, exchange, &error)),
        };
        let request = SentRequest::of_prompt(prompt, &record.request_headers, &permit);
        let call = self.call(exchange, (live, decision), &record, request, Mode::Collect);
        permit.mark_sent();
        let (record, permit) = (Some(record), Some(permit));
        let mut guard = RerouteGuard { app, exchange, call: call.clone(), record, permit };
        proxy(&self.proxy, None, &call, shutdown).await;
        let response = guard.finish(&original.head);
        if call.has_panicked() {
            app.metrics.process.panics.inc();
            return Err(respond::panic_error());
        }
        Ok(response)
    }

    async fn read_prompt(
        &self,
        mut headers: HeaderMap,
        exchange: &HttpExchange,
        (endpoint, principal): (Endpoint, &Principal),
        received: &mut Received,
    ) -> Result<Prompt> {
        let coded = headers.remove(CONTENT_ENCODING).is_some();
        let unread = UnreadBody {
            endpoint,
            body: std::mem::take(&mut received.body),
            coding: received.coding.take(),
            costs: endpoint.costs(),
            held: &mut received.held,
        };
        let mut prompt = Prompt::read_in_turn(&self.app, principal, unread, headers).await?;
        if coded && prompt.headers.contains_key(CONTENT_LENGTH) {
            // The capture keeps the head together with the decoded body.
            let length = HeaderValue::from(prompt.body.len());
            prompt.headers.insert(CONTENT_LENGTH, length);
        }
        // Room for the provider's copy of the body, with the provider's name of the model.
        if !received.held.set(2 * prompt.body.len()) {
            return Err(Held::full());
        }
        prompt.query = exchange.query.as_deref().and_then(without_credentials);
        Ok(prompt)
    }

    /// Reads the neutral form of a request that is translated. Then checks the credential again if
    /// a large body was read a second time, because that takes long enough for a revocation.
    async fn read_again(
        &self,
        principal: &Principal,
        translates: bool,
        prompt: &mut Prompt,
    ) -> Result<()> {
        let app = &self.app;
        if translates {
            prompt.read_neutral(app, principal).await?;
        }
        let is_read_twice = translates || prompt.agent().is_some();
        if is_read_twice && prompt.sent().len() > READ_INLINE {
            app.catch_up().await?;
            app.auth.recheck(principal, app.clock.now())?;
        }
        Ok(())
    }

    /// Admits the call by the caller's limits, decides, and reserves the cost. A refused call uses
    /// up nothing of the limits.
    async fn decide(
        &self,
        exchange: &mut HttpExchange,
        principal: &Principal,
        live: &Live,
        (inputs, prompt): (&Inputs, &Prompt),
    ) -> Result<(Arc<Decision>, LimitPermit)> {
        let app = &self.app;
        let mut permit = allowance::admit(app, exchange, principal, inputs)?;
        app.store.faults().pass(PanicPoint::Decision);
        let decided = match decide(&live.routing, inputs) {
            Ok(decision) => {
                let asked = (&decision, prompt);
                let reserved = allowance::reserve(app, &mut permit, live, asked, principal).await;
                reserved.map(|()| decision)
            }
            Err(refused) => Err(refused.into()),
        };
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

    fn call(
        &self,
        exchange: &mut HttpExchange,
        (live, decision): (Arc<Live>, Arc<Decision>),
        record: &Record,
        request: SentRequest,
        mode: Mode,
    ) -> Arc<InferenceCall> {
        let plan = CallPlan::of_decision(&self.app, live, &decision, record.inputs(), mode);
        exchange.line.rule = plan.rule.as_ref().map(|(name, _)| name.clone());
        let mut call = InferenceCall::new(&self.app, exchange.id.clone(), plan, request, mode);
        call.rates = exchange.rates.clone();
        call.captured = record.is_captured();
        call.traced(record.trace.as_ref());
        call.prompt_tokens = record.prompt_tokens();
        Arc::new(call)
    }
}

fn decision_of(decided: &Result<(Arc<Decision>, LimitPermit)>) -> Option<Arc<Decision>> {
    decided.as_ref().ok().map(|(decision, _)| decision.clone())
}
