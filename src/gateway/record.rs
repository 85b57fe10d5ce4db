//! What remains of a call: its outcome, and the capture that is made of it. Built beside the request, offered
//! once at the end, never waited for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};
use serde_json::Value;

use super::call::Call;
use super::exchange::Exchange;
use super::failure::Failure;
use super::relay::{Answer, says_event_stream};
use crate::app::App;
use crate::auth::{Kept, Principal};
use crate::bounds;
use crate::capture::coming::Coming;
use crate::capture::draft::Draft;
use crate::capture::record::{self, Attempt, Bodies, Head, Served, State};
use crate::capture::scrub::offers_tools_past;
use crate::error::Error;
use crate::id::{KeyId, NodeId, RequestId, UserId};
use crate::limits::day;
use crate::prompt::Prompt;
use crate::protocol::coding;
use crate::protocol::endpoint::Endpoint;
use crate::protocol::stream::StreamTally;
use crate::protocol::usage::{self, Usage};
use crate::routing::decide::Decision;
use crate::routing::inputs::Inputs;
use crate::routing::recipe::Target;
use crate::store::{UsageKey, UsageSums, nano_usd};

/// How a call went, copied out of its progress.
pub(super) struct Outcome {
    pub(super) complete: bool,
    pub(super) committed: bool,
    pub(super) stream: bool,
    /// Of a stream: nothing is missing but the end of the body.
    pub(super) said_all: bool,
    pub(super) between_events: bool,
    /// The number that an event after those of the stream would have.
    pub(super) next_event: u64,
    pub(super) status: Option<u16>,
    pub(super) failure: Option<Failure>,
    pub(super) attempts: Vec<Attempt>,
    /// The last whole answer: not passed on yet, or collected.
    pub(super) answer: Option<Answer>,
    /// Who answered.
    target: Option<Arc<Target>>,
    /// At which node.
    node: Option<NodeId>,
    headers: HeaderMap,
    body: Bytes,
    body_truncated: bool,
    pub(super) usage: Option<Usage>,
    first_content: Option<tokio::time::Instant>,
}

impl Outcome {
    /// Takes it out of the call, which is over.
    pub(super) fn take(call: &Call, prompt_tokens: u64) -> Self {
        let mut state = call.state();
        state.slot = None;
        if state.failure.is_none() {
            state.failure = match &state.relay {
                relay if (relay.complete || relay.has_said_all()) && relay.has_error() => {
                    Some(Failure::InBand)
                }
                relay if relay.committed && !relay.complete && !relay.has_said_all() => {
                    Some(Failure::Cut)
                }
                _ => None,
            };
            let failure = state.failure;
            let _ = call.note_attempt(&mut state, failure);
        }
        let failure = state.failure;
        let used = Call::served(&state).cloned();
        let (target, node) =
            (used.as_ref().map(|used| used.target.clone()), used.and_then(|used| used.node));
        let answer = if state.relay.committed && !call.collects() {
            None
        } else {
            state.relay.answer.clone()
        };
        let (status, headers, body) = match &answer {
            Some(answer) => (Some(answer.status), answer.headers.clone(), answer.body.clone()),
            None if state.relay.committed => (
                state.relay.status,
                std::mem::take(&mut state.relay.headers),
                std::mem::take(&mut state.relay.body).freeze(),
            ),
            None => (None, HeaderMap::new(), Bytes::new()),
        };
        let ok = status.is_some_and(|status| (200..300).contains(&status));
        let usage = match () {
            () if !ok => None,
            () if state.relay.stream => Some(state.relay.tally.usage_or_estimate(prompt_tokens)),
            () if state.relay.body_truncated && answer.is_none() => {
                usage::read_ending(&state.relay.ending)
            }
            () => usage::read(&body)
                .or_else(|| usage_within(call.endpoint, &headers, &body, prompt_tokens)),
        };
        Outcome {
            complete: state.relay.complete,
            committed: state.relay.committed,
            stream: answer.as_ref().map_or(state.relay.stream, |answer| answer.stream),
            said_all: state.relay.has_said_all(),
            between_events: state.relay.between_events(),
            next_event: state.relay.tally.next_number(),
            status,
            failure,
            attempts: state.attempts.clone(),
            target,
            node,
            headers,
            body_truncated: state.relay.body_truncated && answer.is_none(),
            body,
            usage,
            first_content: state.relay.first_content,
            answer,
        }
    }

    /// What it cost, where every price that it takes is known.
    pub(super) fn cost_usd(&self) -> Option<f64> {
        self.target.as_ref()?.prices.as_ref()?.cost(self.usage.as_ref()?)
    }

    /// Who answered.
    pub(super) fn target(&self) -> Option<&Target> {
        self.target.as_deref()
    }

    /// The status of the last answer that was none of success, for the client or not.
    pub(super) fn last_refusal(&self) -> Option<u16> {
        self.attempts
            .iter()
            .rev()
            .find_map(|attempt| attempt.status.filter(|status| !(200..300).contains(status)))
    }

    /// Whether the provider answered with success.
    pub(super) fn is_good(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }

    fn served(&self) -> Option<Served> {
        let target = self.target.as_ref()?;
        Some(Served {
            provider: target.provider.name.clone(),
            model: target.model.clone(),
            node: self.node.as_ref().map(ToString::to_string),
        })
    }

    fn state(&self, status: u16) -> State {
        match self.failure {
            Some(Failure::ClientGone) => State::Aborted,
            Some(_) => State::Failed,
            None if status >= 500 || status == 429 => State::Failed,
            None => State::Completed,
        }
    }
}

/// A capture in the making.
pub(super) struct Record {
    head: Box<Head>,
    request_headers: HeaderMap,
    request: Bytes,
    /// Whether what was cut off the request may hold credentials, which nobody could look for in the answer.
    cut_tools: bool,
    /// The estimate of the prompt, uncorrected; none where it holds more than text.
    estimated: Option<u64>,
    began: Instant,
    /// Who pays, with which key.
    payer: (UserId, Option<KeyId>),
    /// Unless nothing is captured.
    coming: Option<Coming>,
}

impl Record {
    /// Opens it when the request has been read.
    pub(super) fn begin(
        app: &App,
        exchange: &Exchange,
        principal: &Principal,
        prompt: &Prompt,
    ) -> Self {
        let owner = principal.user_id().unwrap_or_else(UserId::admin);
        let keeps = app.server.capture.enabled && principal.kept() != Kept::Nothing;
        let coming = keeps.then(|| app.captures.announce(&exchange.id, &owner));
        Record::announced(app, exchange, principal, prompt, coming)
    }

    /// The same for one whose capture was announced, unless nothing is captured.
    pub(super) fn announced(
        app: &App,
        exchange: &Exchange,
        principal: &Principal,
        prompt: &Prompt,
        coming: Option<Coming>,
    ) -> Self {
        let settings = &app.server.capture;
        let opted_out = settings.client_opt_out && says_off(&prompt.headers);
        let owner = principal.user_id().unwrap_or_else(UserId::admin);
        let sent = prompt.sent();
        let head = Box::new(Head {
            key: principal.key().map(|key| key.id.clone()),
            client_request_id: client_request_id(&prompt.headers),
            query: prompt.query.clone(),
            stream: prompt.request.stream,
            request_captured: settings.bodies && !opted_out && principal.kept() == Kept::Whole,
            request_truncated: sent.len() > settings.max_body,
            ..Head::new(exchange.id.clone(), exchange.at, owner, prompt.endpoint.as_str())
                .through(prompt.agent())
        });
        let request = Bodies::cut(sent, settings.max_body);
        let cut_tools =
            coming.is_some() && head.request_captured && offers_tools_past(sent, settings.max_body);
        let is_text = prompt.request.images == 0 && prompt.request.audio == 0;
        let estimated = is_text.then_some(prompt.request.prompt_tokens);
        let payer = (head.owner.clone(), head.key.clone());
        Record {
            head,
            request_headers: prompt.headers.clone(),
            request,
            cut_tools,
            estimated,
            began: exchange.started,
            payer,
            coming,
        }
    }

    /// As a replay of `original`, for which `caller` pays.
    pub(super) fn replay_of(&mut self, original: &Head, caller: String) {
        self.head.owner = original.owner.clone();
        self.head.key = original.key.clone();
        self.head.stream = original.stream;
        self.head.replay_of = Some(original.id.clone());
        self.head.replayed_by = Some(caller);
        if let Some(coming) = &self.coming {
            coming.is_replay(&original.owner, &original.id);
        }
    }

    /// Keeps no more of it than that.
    pub(super) fn keeps(&mut self, kept: Kept) {
        self.head.request_captured &= kept == Kept::Whole;
        if kept == Kept::Nothing {
            self.coming = None;
        }
    }

    /// Notes the decision, or that there is none.
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

    /// What was decided on.
    pub(super) fn inputs(&self) -> Option<&Inputs> {
        self.head.inputs.as_ref()
    }

    /// What was decided.
    pub(super) fn decision(&self) -> Option<&Arc<Decision>> {
        self.head.decision.as_ref()
    }

    /// Its own id.
    pub(super) fn id(&self) -> &RequestId {
        &self.head.id
    }

    /// The record of a shadow of this request, which begins now: under an id of its own, as this was decided.
    pub(super) fn shadow(&self, app: &App) -> Record {
        let (at, original) = (app.clock.now(), &self.head.id);
        let id = RequestId::new(at, &app.random);
        let coming = self
            .coming
            .is_some()
            .then(|| app.captures.coming().announce(&id, &self.head.owner, Some(original)));
        let head = Box::new(Head {
            id,
            created_at: at,
            shadow_of: Some(original.clone()),
            ..Head::clone(&self.head)
        });
        let (request_headers, request) = (self.request_headers.clone(), self.request.clone());
        // Nobody pays for it: [`Record::close_shadow`] counts nothing.
        let (cut_tools, payer) = (self.cut_tools, self.payer.clone());
        Record {
            head,
            request_headers,
            request,
            cut_tools,
            estimated: None,
            began: Instant::now(),
            payer,
            coming,
        }
    }

    /// Notes what is sent, where that is not what the client sent.
    pub(super) fn sends(&mut self, app: &App, body: &Bytes) {
        let most = app.server.capture.max_body;
        self.head.request_truncated = body.len() > most;
        self.request = Bodies::cut(body, most);
        self.cut_tools =
            self.coming.is_some() && self.head.request_captured && offers_tools_past(body, most);
    }

    pub(super) fn prompt_tokens(&self) -> u64 {
        self.head.inputs.as_ref().map_or(0, |inputs| inputs.request.prompt_tokens)
    }

    /// The decision as answers show it.
    pub(super) fn decision_json(&self, outcome: &Outcome) -> Value {
        let mut head = Head::clone(&self.head);
        head.served = outcome.served();
        head.attempts = outcome.attempts.clone();
        head.decision_json()
    }

    /// Ends a request that was refused before any provider was asked; `said` is what the client is told.
    pub(super) fn refused(
        mut self,
        app: &App,
        exchange: &mut Exchange,
        error: &Error,
        said: Bytes,
    ) {
        self.head.state = State::Refused;
        self.head.status = error.status().as_u16();
        self.head.error = Some(format!("{}: {}", error.kind().row().word, error.detail()));
        self.head.total_ms = millis(self.began.elapsed());
        exchange.line.state = Some(self.head.state.as_str());
        exchange.line.routing_us = Some(self.head.routing_us);
        self.offer(app, said, HeaderMap::new());
    }

    /// Ends a call: counters, access line, capture. `status` is what the client was told, `said` what we wrote to it
    /// beside the provider's answer.
    pub(super) fn close(
        mut self,
        app: &App,
        exchange: &mut Exchange,
        mut outcome: Outcome,
        status: u16,
        said: Bytes,
    ) {
        if !said.is_empty() {
            outcome.body = [outcome.body, said].concat().into();
        }
        let ttft =
            outcome.first_content.map(|at| at.into_std().saturating_duration_since(self.began));
        count(app, &outcome, ttft, self.head.replay_of.is_some());
        self.learn(app, &outcome);
        self.count_usage(app, &outcome);
        self.ended(&outcome, status);
        let head = &self.head;
        let line = &mut exchange.line;
        line.state = Some(head.state.as_str());
        line.routing_us = Some(head.routing_us);
        line.ttft_ms = head.ttft_ms;
        line.prompt_tokens = head.usage.map(|usage| usage.prompt_tokens);
        line.completion_tokens = head.usage.map(|usage| usage.completion_tokens);
        line.usage_estimated = head.usage.is_some_and(|usage| usage.estimated);
        line.cost_usd = head.cost_usd;
        line.attempts = Some(outcome.attempts.len());
        line.recipe = head.decision.as_ref().map(|decision| decision.recipe.as_str().into());
        line.provider = head.served.as_ref().map(|served| served.provider.clone());
        line.served_model = head.served.as_ref().map(|served| served.model.clone());
        line.error = line.error.take().or_else(|| head.error.clone());
        self.leave(app, outcome);
    }

    /// Ends a shadow: its capture is all that remains. What it used is in there, and in no counter. Gives how it ended.
    pub(super) fn close_shadow(mut self, app: &App, outcome: Outcome) -> State {
        let gone = outcome.failure == Some(Failure::ClientGone);
        self.ended(&outcome, if gone { 499 } else { outcome.status.unwrap_or(502) });
        let state = self.head.state;
        self.leave(app, outcome);
        state
    }

    /// Notes how it went.
    fn ended(&mut self, outcome: &Outcome, status: u16) {
        let head = &mut self.head;
        head.state = outcome.state(status);
        head.status = status;
        head.cost_usd = outcome.cost_usd();
        head.response_stream = outcome.stream && !outcome.body.is_empty();
        head.response_truncated = outcome.body_truncated;
        head.ttft_ms = outcome
            .first_content
            .map(|at| millis(at.into_std().saturating_duration_since(self.began)));
        head.total_ms = millis(self.began.elapsed());
        head.error = outcome.failure.map(|failure| failure.as_str().to_string());
        head.served = outcome.served();
        head.usage = outcome.usage;
    }

    fn leave(mut self, app: &App, outcome: Outcome) {
        self.head.attempts = outcome.attempts;
        self.offer(app, outcome.body, outcome.headers);
    }

    /// Lets later estimates know how far this one was off.
    fn learn(&self, app: &App, outcome: &Outcome) {
        if let (Some(estimated), Some(usage), Some(inputs), None) =
            (self.estimated, &outcome.usage, &self.head.inputs, &self.head.replay_of)
            && !usage.estimated
        {
            app.bias.learn(
                &app.live().routing,
                &inputs.request.name,
                estimated,
                usage.prompt_tokens,
            );
        }
    }

    /// Adds to the sums of usage what its capture says that it used and cost.
    fn count_usage(&self, app: &App, outcome: &Outcome) {
        let (user, key) = self.payer.clone();
        let key = UsageKey {
            day: day(self.head.created_at),
            user,
            key,
            model: outcome.target.as_ref().map(|target| target.name.clone()),
            recipe: self
                .head
                .decision
                .as_ref()
                .map(|decision| decision.recipe.clone())
                .unwrap_or_default(),
            replay: self.head.replay_of.is_some(),
        };
        let (used, cost) = (outcome.usage.unwrap_or_default(), outcome.cost_usd());
        let sums = UsageSums {
            requests: 1,
            prompt_tokens: used.prompt_tokens,
            completion_tokens: used.completion_tokens,
            cached_tokens: used.cached_tokens.unwrap_or(0),
            nano: cost.map_or(0, nano_usd),
            priced: u64::from(cost.is_some()),
            unpriced: u64::from(cost.is_none() && outcome.usage.is_some()),
        };
        app.limits.used(key, &sums);
    }

    fn offer(self, app: &App, response: Bytes, response_headers: HeaderMap) {
        if let Some(coming) = self.coming {
            let (request, response) = if self.head.request_captured {
                (self.request, response)
            } else {
                Default::default()
            };
            let (mut head, request_headers) = (*self.head, self.request_headers);
            // What was read whole, or what we said ourselves, may be longer than the copy of what passed.
            let most = app.server.capture.max_body;
            head.response_truncated |= response.len() > most;
            let mut bodies = Bodies { request, response: Bodies::cut(&response, most) };
            if self.cut_tools && !bodies.response.is_empty() {
                bodies.response = Bytes::new();
                head.lacks_of_answer();
            }
            app.captures
                .offer_announced(Draft { head, request_headers, response_headers, bodies }, coming);
        }
    }
}

/// The usage of an answer that came compressed against our word, where it is small enough to be read for that.
fn usage_within(
    endpoint: Endpoint,
    headers: &HeaderMap,
    body: &[u8],
    prompt_tokens: u64,
) -> Option<Usage> {
    let lines = headers.get_all(CONTENT_ENCODING).iter().map(HeaderValue::as_bytes);
    let decoded = coding::decode(lines, body, bounds::DECODED_ANSWER)?;
    if !says_event_stream(headers) {
        return usage::read(&decoded);
    }
    let mut tally = StreamTally::of(endpoint);
    tally.feed(&decoded);
    tally.finish();
    Some(tally.usage_or_estimate(prompt_tokens))
}

fn count(app: &App, outcome: &Outcome, ttft: Option<Duration>, replay: bool) {
    let metrics = &app.metrics;
    for attempt in &outcome.attempts {
        metrics.attempt(
            &attempt.provider,
            &attempt.model,
            attempt.error.as_deref().unwrap_or("ok"),
        );
    }
    let Some(target) = outcome.target.as_ref() else { return };
    let (provider, model) = (&*target.provider.name, &*target.model);
    if let Some(ttft) = ttft.filter(|_| !replay) {
        metrics.first_token(provider, model, ttft);
    }
    if let Some(usage) = &outcome.usage {
        metrics.tokens(provider, model, "prompt", usage.prompt_tokens);
        metrics.tokens(provider, model, "completion", usage.completion_tokens);
        metrics.tokens(provider, model, "cached", usage.cached_tokens.unwrap_or(0));
    }
    if let Some(cost) = outcome.cost_usd() {
        metrics.cost(provider, model, cost);
    }
}

/// Whether a client keeps its bodies out: in whatever line it says so.
fn says_off(headers: &HeaderMap) -> bool {
    let lines = headers.get_all("x-rerouter-capture").iter().map(HeaderValue::as_bytes);
    lines
        .flat_map(|line| line.split(|byte| *byte == b','))
        .any(|word| word.trim_ascii().eq_ignore_ascii_case(b"off"))
}

/// What the client calls its request; as long as such names are, so that a record stays small.
pub(super) fn client_request_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get("x-request-id")?.to_str().ok()?;
    Some(id.chars().take(bounds::CLIENT_REQUEST_ID_CHARS).collect())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
