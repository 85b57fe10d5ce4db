//! The capture of a call while the call runs. It is built beside the request and offered once, at
//! the end. No request waits for the capture.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};

use super::accounting::CallAccount;
use super::answer_translation::DROPPED;
use super::exchange::{HttpExchange, client_request_id};
use super::failure::AttemptFailure;
use super::outcome::Outcome;
use super::respond;
use rerouter_access::auth::{CaptureLevel, Principal};
use rerouter_base::error::{Error, RefusalReason};
use rerouter_base::id::{RequestId, UserId};
use rerouter_base::trace_context::TraceContext;
use rerouter_captures::capture::pending::PendingCapture;
use rerouter_captures::capture::raw_capture::RawCapture;
use rerouter_captures::capture::record::{self, Bodies, CaptureState, Head};
use rerouter_captures::telemetry::{AttemptStep, CallTrace};
use rerouter_core::app::App;
use rerouter_core::prompt::Prompt;
use rerouter_records::replay::DecisionRecord;
use rerouter_routing::{Decision, Inputs};

pub(super) struct Record {
    head: Box<Head>,
    pub(super) request_headers: HeaderMap,
    request: Bytes,
    account: CallAccount,
    began: Instant,
    /// The announced capture; `None` if nothing is captured.
    coming: Option<PendingCapture>,
    pub(super) trace: Option<Arc<TraceContext>>,
}

impl Record {
    /// Takes the headers out of the prompt and announces the capture.
    pub(super) fn begin(
        app: &App,
        exchange: &HttpExchange,
        principal: &Principal,
        prompt: &mut Prompt,
    ) -> Self {
        let headers = std::mem::take(&mut prompt.headers);
        let owner = principal.user_id().unwrap_or_else(UserId::admin);
        let key = principal.key().map(|key| &key.id);
        let keeps = app.server.capture.enabled && principal.capture_level() != CaptureLevel::Off;
        let coming = keeps.then(|| app.captures.announce(&exchange.id, (&owner, key)));
        Record::announced(app, exchange, principal, (prompt, headers), coming)
    }

    pub(super) fn announced(
        app: &App,
        exchange: &HttpExchange,
        principal: &Principal,
        (prompt, request_headers): (&Prompt, HeaderMap),
        coming: Option<PendingCapture>,
    ) -> Self {
        let settings = &app.server.capture;
        let opted_out = settings.client_opt_out && says_off(&request_headers);
        let owner = principal.user_id().unwrap_or_else(UserId::admin);
        let sent = prompt.sent();
        let head = Box::new(Head {
            key: principal.key().map(|key| key.id.clone()),
            client_request_id: client_request_id(&request_headers),
            query: prompt.query.clone(),
            stream: prompt.request.stream,
            request_captured: settings.bodies
                && !opted_out
                && principal.capture_level() == CaptureLevel::Full,
            request_truncated: sent.len() > settings.max_body,
            trace_id: exchange.trace.as_ref().map(|trace| trace.trace),
            ..Head::new(exchange.id.clone(), exchange.at, owner, prompt.endpoint.as_str())
                .through(prompt.agent())
        });
        let request = Bodies::cut(sent, settings.max_body);
        let asked = &prompt.request;
        let is_text = asked.images == 0 && asked.audio == 0 && !asked.ceiling.is_open;
        let estimated = is_text.then_some(asked.prompt_tokens);
        let account = CallAccount { payer: (head.owner.clone(), head.key.clone()), estimated };
        let trace = exchange.trace.clone();
        let began = exchange.started;
        Record { head, request_headers, request, account, began, coming, trace }
    }

    /// Marks the record as a replay of `original`, made and paid for by `caller`.
    pub(super) fn replay_of(&mut self, original: &Head, caller: String) {
        self.head.owner = original.owner.clone();
        self.head.key = original.key.clone();
        self.head.stream = original.stream;
        self.head.replay_of = Some(original.id.clone());
        self.head.replayed_by = Some(caller);
    }

    pub(super) fn keeps(&mut self, kept: CaptureLevel) {
        self.head.request_captured &= kept == CaptureLevel::Full;
        if kept == CaptureLevel::Off {
            self.coming = None;
        }
    }

    pub(super) fn decided(
        &mut self,
        inputs: Inputs,
        decision: Option<Arc<Decision>>,
        took: Duration,
    ) {
        self.head.inputs = Some(inputs);
        self.head.decision = decision;
        self.head.routing_us = record::micros_of(took);
    }

    pub(super) fn inputs(&self) -> Option<&Inputs> {
        self.head.inputs.as_ref()
    }

    pub(super) fn decision(&self) -> Option<&Arc<Decision>> {
        self.head.decision.as_ref()
    }

    pub(super) fn id(&self) -> &RequestId {
        &self.head.id
    }

    pub(super) fn is_captured(&self) -> bool {
        self.coming.is_some()
    }

    /// The record of this request's shadow: with a new id and the same decision.
    pub(super) fn shadow(&self, app: &App) -> Record {
        let (at, original) = (app.clock.now(), &self.head.id);
        let id = RequestId::new(at, &app.random);
        let coming = self
            .coming
            .is_some()
            .then(|| app.captures.pending().announce(&id, self.head.whose(), Some(original)));
        let head = Box::new(Head {
            id,
            created_at: at,
            shadow_of: Some(original.clone()),
            ..Head::clone(&self.head)
        });
        let (request_headers, request) = (self.request_headers.clone(), self.request.clone());
        // Nobody pays for a shadow: [`Record::close_shadow`] leaves the account alone.
        let account = CallAccount { payer: self.account.payer.clone(), estimated: None };
        let trace = self.trace.as_ref().map(|trace| Arc::new(trace.within(&app.random)));
        let began = Instant::now();
        Record { head, request_headers, request, account, began, coming, trace }
    }

    /// Replaces the captured body by the one that was sent to the shadow's target.
    pub(super) fn sends(&mut self, app: &App, body: &Bytes) {
        let most = app.server.capture.max_body;
        self.head.request_truncated = body.len() > most;
        self.request = Bodies::cut(body, most);
    }

    pub(super) fn prompt_tokens(&self) -> u64 {
        self.head.inputs.as_ref().map_or(0, |inputs| inputs.request.prompt_tokens)
    }

    /// The decision in the form that the answer to a reroute shows.
    pub(super) fn answered(&self, outcome: &Outcome) -> Option<DecisionRecord> {
        let mut head = Head::clone(&self.head);
        head.served = outcome.served();
        head.attempts = outcome.attempts.clone();
        head.decision_record()
    }

    /// Ends a request that is refused before any provider is asked.
    pub(super) fn refused(
        mut self,
        app: &App,
        exchange: &mut HttpExchange,
        error: &Error,
    ) -> Response<Bytes> {
        self.head.set_refused(error.refusal());
        self.head.state = match self.head.refused {
            Some(_) => CaptureState::Refused,
            None => CaptureState::Failed,
        };
        if self.head.refused == Some(RefusalReason::Limit) {
            // The bodies of what a limit refuses would push out the captures of everyone.
            self.head.request_captured = false;
            let (user, key) = &self.account.payer;
            self.coming.take_if(|_| !app.limits.keeps_refusal(user, key.as_ref(), app.clock.now()));
        }
        exchange.is_uncounted = false;
        self.account.add_unasked(app, &self.head);
        self.head.status = error.status().as_u16();
        self.head.error = Some(format!("{}: {}", error.kind().row().word, error.detail()));
        self.head.total_ms = millis(self.began.elapsed());
        exchange.line.state = Some(self.head.state.as_str());
        exchange.line.routing_us = Some(self.head.routing_us);
        exchange.line.trace_id = self.head.trace_id;
        let response = respond::refuse(exchange, error);
        self.leave_trace(app, Vec::new(), exchange.line.error.clone());
        self.offer(app, response.body().clone(), HeaderMap::new());
        response
    }

    /// `status` is the status that the client got, `added` the bytes that we wrote after the
    /// provider's answer.
    pub(super) fn close(
        mut self,
        app: &App,
        exchange: &mut HttpExchange,
        outcome: Outcome,
        status: u16,
        added: Bytes,
    ) {
        self.note_outcome(&outcome, status, !added.is_empty());
        exchange.is_uncounted = false;
        let head = &self.head;
        let line = &mut exchange.line;
        line.state = Some(head.state.as_str());
        line.routing_us = Some(head.routing_us);
        line.ttft_ms = head.ttft_ms;
        line.prompt_tokens = head.usage.as_ref().map(|usage| usage.prompt_tokens);
        line.completion_tokens = head.usage.as_ref().map(|usage| usage.completion_tokens);
        line.usage_estimated = head.usage.as_ref().is_some_and(|usage| usage.estimated);
        line.cost_usd = head.cost_usd;
        line.attempts = Some(outcome.attempts.len());
        let dropped = outcome.relay.headers.get(&DROPPED).and_then(|names| names.to_str().ok());
        line.dropped = dropped.map(str::to_owned);
        line.recipe = head.decision.as_ref().map(|decision| Arc::clone(&decision.recipe));
        line.provider = head.served.as_ref().map(|served| served.provider.clone());
        line.served_model = head.served.as_ref().map(|served| served.model.clone());
        line.trace_id = head.trace_id;
        line.error = line.error.take().or_else(|| head.error.clone());
        let ttft = outcome.first_content_after(self.began);
        self.account.add(app, head, &outcome, ttft);
        self.leave(app, outcome, added);
    }

    /// Ends a shadow, which leaves only a capture. Returns the state of the capture.
    pub(super) fn close_shadow(mut self, app: &App, outcome: Outcome) -> CaptureState {
        let gone = outcome.failure == Some(AttemptFailure::ClientGone);
        let status = if gone { 499 } else { outcome.status.unwrap_or(502) };
        self.note_outcome(&outcome, status, false);
        let state = self.head.state;
        self.leave(app, outcome, Bytes::new());
        state
    }

    fn note_outcome(&mut self, outcome: &Outcome, status: u16, added: bool) {
        let head = &mut self.head;
        head.state = outcome.state(status);
        head.status = status;
        head.cost_usd = outcome.cost_usd();
        head.response_stream = outcome.is_stream() && (added || outcome.has_body());
        head.response_truncated = outcome.is_truncated();
        head.ttft_ms = outcome.first_content_after(self.began).map(millis);
        head.total_ms = millis(self.began.elapsed());
        head.error = outcome.failure.map(|failure| failure.as_str().to_string());
        head.served = outcome.served();
        head.set_usage(outcome.usage.clone());
    }

    fn leave(mut self, app: &App, mut outcome: Outcome, added: Bytes) {
        self.head.attempts = std::mem::take(&mut outcome.attempts);
        self.leave_trace(app, std::mem::take(&mut outcome.steps), None);
        let (headers, mut body) = outcome.into_answer();
        if !added.is_empty() {
            body = [body, added].concat().into();
        }
        self.offer(app, body, headers);
    }

    /// `word` is the error that the client read, if it differs from the capture's error.
    fn leave_trace(&mut self, app: &App, steps: Vec<AttemptStep>, word: Option<String>) {
        let Some(context) = self.trace.take().filter(|trace| trace.sampled) else { return };
        // A span needs no inputs, and they are most of a head.
        let inputs = self.head.inputs.take();
        let mut head = Head::clone(&self.head);
        head.error = word.or(head.error);
        self.head.inputs = inputs;
        let model = self.head.inputs.as_ref().map_or("", |inputs| &*inputs.request.model);
        let model = app.auth.key_redactor().redact(model).into_owned();
        let took = self.began.elapsed();
        app.telemetry.offer(CallTrace { context, head, model, began: self.began, took, steps });
    }

    fn offer(self, app: &App, response: Bytes, response_headers: HeaderMap) {
        if let Some(coming) = self.coming {
            let (request, response) = if self.head.request_captured {
                (self.request, response)
            } else {
                Default::default()
            };
            let (mut head, request_headers) = (*self.head, self.request_headers);
            // An answer that was read whole, or is our own, may be longer than the copy of a
            // relayed answer.
            let most = app.server.capture.max_body;
            head.response_truncated |= response.len() > most;
            let bodies = Bodies { request, response: Bodies::cut(&response, most) };
            app.captures.offer_announced(
                RawCapture { head, request_headers, response_headers, bodies },
                coming,
            );
        }
    }
}

/// Whether any line of the client's header asks for bodies not to be captured.
fn says_off(headers: &HeaderMap) -> bool {
    let lines = headers.get_all("x-rerouter-capture").iter().map(HeaderValue::as_bytes);
    lines
        .flat_map(|line| line.split(|byte| *byte == b','))
        .any(|word| word.trim_ascii().eq_ignore_ascii_case(b"off"))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
