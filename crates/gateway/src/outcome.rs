//! The outcome of a call: the parts of its progress that are needed after Pingora's proxy is done.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::call::{AskedTarget, InferenceCall};
use super::content_type::says_event_stream;
use super::cost_bound::{PromptBound, may_cache_for_an_hour};
use super::failure::AttemptFailure;
use super::plan::SentRequest;
use super::relay::Relay;
use super::verdict::WholeAnswer;
use rerouter_base::error::{Error, Kind};
use rerouter_base::usage_kind::UsageCounts;
use rerouter_captures::capture::record::{Attempt, CaptureState, Served};
use rerouter_captures::telemetry::AttemptStep;
use rerouter_dialect::Dialect;
use rerouter_dialect::stream::StreamTally;
use rerouter_dialect::usage::Usage;
use rerouter_dialect::wire::coding;
use rerouter_routing::{Target, bill, is_unknown};

/// Most decoded bytes of an answer that a provider compressed unasked. Such an answer is decoded
/// only to read its usage, which takes a millisecond or two.
const DECODED_ANSWER: usize = 4 << 20;

/// Tokens of one answer that a provider is assumed to make in a second, if neither the document nor
/// the stream says more.
const TOKENS_PER_SECOND: u64 = 200;

/// What is known of a provider's bill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bill {
    /// The usage says it.
    Told,
    /// The client left a stream: the usage is the most that can have been made until then.
    AtMost,
    /// The client left a whole answer that was not read to its end, or the proxy panicked.
    Unknown,
}

pub(super) struct Outcome {
    pub(super) attempts: Vec<Attempt>,
    pub(super) steps: Vec<AttemptStep>,
    pub(super) took: Duration,
    pub(super) failure: Option<AttemptFailure>,
    /// The status of the answer that was passed on, or could still be.
    pub(super) status: Option<u16>,
    /// The last whole answer: one that is not passed on yet, or the collected one.
    pub(super) answer: Option<WholeAnswer>,
    pub(super) usage: Option<Usage>,
    /// The cost of the usage in dollars, if all prices that are needed for it are known.
    billed: Option<f64>,
    /// Whether the usage has something that the prices do not count, or cannot be read.
    pub(super) has_unknown_usage: bool,
    pub(super) bill: Bill,
    /// What a budget pays for a stream that its client left, in dollars.
    charged: Option<f64>,
    /// The target that answered, or that was working when the client left.
    served: Option<AskedTarget>,
    /// The last event of a translated stream that broke off; empty if the client has it already.
    pub(super) last_event: Option<Bytes>,
    pub(super) relay: Relay,
}

impl Outcome {
    pub(super) fn take(call: &InferenceCall, prompt_tokens: u64) -> Self {
        let mut progress = call.progress();
        progress.slot = None;
        let asked_at_panic = progress.panicked == Some(true);
        if progress.failure.is_none() {
            progress.failure = failure_at_end(&progress.relay);
            let failure = progress.failure;
            progress.note_attempt(failure);
        }
        if progress.left {
            progress.failure = Some(AttemptFailure::ClientGone);
        }
        // A client that leaves before the answer still pays for its prompt.
        let left = progress.left_behind().filter(|_| call.request.endpoint.costs()).cloned();
        let is_left = left.is_some();
        let served = left.or_else(|| progress.served().cloned());
        let mut relay = std::mem::take(&mut progress.relay);
        let answer =
            relay.answer.take().filter(|_| !is_left && (!relay.committed || call.collects()));
        let status = match &answer {
            Some(answer) => Some(answer.status),
            None => relay.status.filter(|_| relay.committed),
        };
        let mut outcome = Outcome {
            attempts: std::mem::take(&mut progress.attempts),
            steps: progress.steps.take().unwrap_or_default(),
            took: progress.took,
            failure: progress.failure,
            status,
            answer,
            usage: None,
            billed: None,
            has_unknown_usage: false,
            bill: Bill::Told,
            charged: None,
            served,
            last_event: None,
            relay,
        };
        if outcome.breaks_off() {
            outcome.last_event = outcome.relay.filter.break_off();
        }
        let mut lacks_usage = false;
        if outcome.is_good() {
            // A stream that begins with an error is no answer.
            outcome.usage = outcome
                .read_usage(call.request.endpoint.dialect(), prompt_tokens)
                .filter(|usage| !(usage.estimated && outcome.relay.in_band_error()));
            let is_billed = call.request.endpoint.costs() && outcome.failure.is_none();
            lacks_usage = is_billed && outcome.usage.is_none();
        } else if is_left {
            outcome.usage = Some(outcome.relay.tally().usage_or_estimate(prompt_tokens));
        }
        if let Some(usage) = &mut outcome.usage {
            // A translation leaves these members out.
            let is_sent = outcome
                .served
                .as_ref()
                .is_some_and(|served| !served.target.is_translated(call.request.endpoint));
            usage.add_modes(if is_sent { &call.request.modes } else { &[] });
        }
        if outcome.failure == Some(AttemptFailure::ClientGone) {
            outcome.bill = outcome.bill_of_left(&call.request);
        }
        if asked_at_panic && outcome.usage.as_ref().is_none_or(|usage| usage.estimated) {
            outcome.bill = Bill::Unknown;
        }
        if let Some(served) = &outcome.served {
            let (prices, usage) = (served.target.prices.as_deref(), outcome.usage.as_ref());
            outcome.billed = usage.and_then(|usage| bill(prices, usage));
            outcome.has_unknown_usage =
                usage.map_or(lacks_usage, |usage| is_unknown(prices, usage));
        }
        outcome
    }

    /// What is known of the bill for an answer that its client left, if a budget pays for it. A
    /// stream costs the most that the provider can have read and made until then.
    fn bill_of_left(&mut self, request: &SentRequest) -> Bill {
        let Some(ceiling) = request.paid else { return Bill::Told };
        let is_asked = self.usage.is_some() || self.is_good();
        let Some(usage) = self.usage.as_mut().filter(|_| request.stream) else {
            let is_told = request.stream || self.relay.complete || !is_asked;
            return if is_told { Bill::Told } else { Bill::Unknown };
        };
        if !usage.estimated {
            return Bill::Told;
        }
        let seconds = self.took.as_secs_f64();
        let begun = self.relay.first_content.map(|at| at.elapsed().as_secs_f64().max(0.05));
        let seen = begun.map_or(0.0, |begun| usage.completion_tokens as f64 / begun);
        let target = self.served.as_ref().map(|served| &served.target);
        let said = target.and_then(|target| target.tokens_per_second);
        let assumed = said.unwrap_or(0).max(TOKENS_PER_SECOND).saturating_mul(request.answers);
        let rate = (2.0 * seen).max(assumed as f64);
        // The cast saturates.
        usage.completion_tokens = usage.completion_tokens.max((seconds * rate).ceil() as u64);
        usage.total_tokens = usage.prompt_tokens.saturating_add(usage.completion_tokens);
        // Tokens count as estimated, and money as the most that they can be.
        self.charged = target.and_then(|target| {
            let is_told = self.relay.tally().is_prompt_told();
            let prompt = PromptBound::new(ceiling, &request.headers);
            let most = if is_told { 0 } else { prompt.tokens(target) };
            let mut usage = usage.clone();
            usage.prompt_tokens = usage.prompt_tokens.max(most);
            if !is_told {
                // Nobody knows what the provider wrote to its cache.
                let for_an_hour = may_cache_for_an_hour(&request.body);
                let written = usage.prompt_tokens;
                usage.written(written, if for_an_hour { written } else { 0 });
            }
            target.prices.as_ref()?.cost(&usage)
        });
        Bill::AtMost
    }

    fn read_usage(&self, dialect: Dialect, prompt_tokens: u64) -> Option<Usage> {
        if self.relay.stream {
            return Some(self.relay.tally().usage_or_estimate(prompt_tokens));
        }
        if let Some(translated) = self.relay.filter.whole() {
            return translated.usage.clone();
        }
        if self.is_truncated() {
            return dialect.read_usage_at_end(&self.relay.ending);
        }
        let (headers, body) = match &self.answer {
            Some(answer) => (&answer.headers, &answer.body[..]),
            None => (&self.relay.headers, &self.relay.body[..]),
        };
        dialect.read_usage(body).or_else(|| usage_within(dialect, headers, body, prompt_tokens))
    }

    /// Empty if there is no answer.
    pub(super) fn into_answer(self) -> (HeaderMap, Bytes) {
        match self.answer {
            Some(answer) => (answer.headers, answer.body),
            None if self.relay.committed => (self.relay.headers, self.relay.body.freeze()),
            None => Default::default(),
        }
    }

    pub(super) fn is_stream(&self) -> bool {
        self.answer.as_ref().map_or(self.relay.stream, |answer| answer.stream)
    }

    /// Whether the answer is a stream that broke off before its terminal event.
    pub(super) fn breaks_off(&self) -> bool {
        self.is_stream() && !self.relay.has_said_all()
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.relay.body_truncated && self.answer.is_none()
    }

    pub(super) fn has_body(&self) -> bool {
        match &self.answer {
            Some(answer) => !answer.body.is_empty(),
            None => self.relay.committed && !self.relay.body.is_empty(),
        }
    }

    pub(super) fn first_content_after(&self, start: std::time::Instant) -> Option<Duration> {
        let at: Instant = self.relay.first_content?;
        Some(at.into_std().saturating_duration_since(start))
    }

    pub(super) fn cost_usd(&self) -> Option<f64> {
        self.charged.or(self.billed)
    }

    /// Tokens of the prompt and of the answer, and the counts of the kinds of usage.
    pub(super) fn used(&self) -> (u64, u64, UsageCounts) {
        let told = |usage: &Usage| (usage.prompt_tokens, usage.output_tokens(), usage.counts);
        self.usage.as_ref().map(told).unwrap_or_default()
    }

    /// Limits what a stream costs that its client left.
    pub(super) fn limit_charge(&mut self, most_usd: f64) {
        self.charged = self.charged.map(|charged| charged.min(most_usd));
    }

    pub(super) fn target(&self) -> Option<&Target> {
        self.served.as_ref().map(|served| &*served.target)
    }

    pub(super) fn served(&self) -> Option<Served> {
        let served = self.served.as_ref()?;
        Some(Served {
            provider: served.target.provider.name.clone(),
            model: served.target.model.clone(),
            node: served.node.as_ref().map(ToString::to_string),
        })
    }

    /// The status of the last answer without success, passed on or not.
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

    /// `status` is the status that the client got.
    pub(super) fn state(&self, status: u16) -> CaptureState {
        match self.failure {
            Some(AttemptFailure::ClientGone) => CaptureState::Aborted,
            Some(_) => CaptureState::Failed,
            None if status >= 500 || status == 429 => CaptureState::Failed,
            None => CaptureState::Completed,
        }
    }

    /// The error if no provider answered in a way that could be passed on: 502, or, if no provider
    /// was even asked, the error that a new decision would have.
    pub(super) fn error(&self) -> Error {
        let words =
            || self.attempts.iter().map(|attempt| attempt.error.as_deref().unwrap_or("no answer"));
        let is_any = |word: &str, failures: &[AttemptFailure]| {
            failures.iter().any(|failure| failure.as_str() == word)
        };
        let tried = self
            .attempts
            .iter()
            .zip(words())
            .map(|(attempt, word)| format!("{}/{}: {word}", attempt.provider, attempt.model));
        let tried = tried.collect::<Vec<_>>().join(", ");
        let asked = words().any(|word| !is_any(word, &AttemptFailure::BARRED));
        if asked || self.attempts.is_empty() {
            let refused = words().any(|word| is_any(word, &[AttemptFailure::Unauthorized]));
            let why = match refused {
                true => " `unauthorized`: the provider refuses the API key of the gateway.",
                false => "",
            };
            let told = format!("No provider answered ({tried}).{why}");
            return Error::new(Kind::ProviderFailed, told);
        }
        let broken = words()
            .any(|word| is_any(word, &[AttemptFailure::BreakerOpen, AttemptFailure::NoNode]));
        let kind = if broken { Kind::NoTarget } else { Kind::RateLimited };
        Error::new(kind, format!("No target can take the request now ({tried})."))
            .retry_after(Duration::from_secs(1))
    }
}

/// The failure of an answer for which no attempt has reported one.
fn failure_at_end(relay: &Relay) -> Option<AttemptFailure> {
    let is_over = relay.complete || relay.has_said_all();
    if is_over && relay.has_error() {
        Some(AttemptFailure::InBand)
    } else if relay.committed && !is_over {
        Some(AttemptFailure::Cut)
    } else {
        None
    }
}

/// The usage of a compressed answer that we asked to be uncompressed, if the answer is small
/// enough.
fn usage_within(
    dialect: Dialect,
    headers: &HeaderMap,
    body: &[u8],
    prompt_tokens: u64,
) -> Option<Usage> {
    let lines = headers.get_all(CONTENT_ENCODING).iter().map(HeaderValue::as_bytes);
    let decoded = coding::decode(lines, body, DECODED_ANSWER)?;
    if !says_event_stream(headers) {
        return dialect.read_usage(&decoded);
    }
    let mut tally = StreamTally::new(dialect);
    tally.feed(&decoded);
    tally.finish();
    Some(tally.usage_or_estimate(prompt_tokens))
}
