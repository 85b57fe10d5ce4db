//! The series of one target. They are looked up once per document, not once per request.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge};

use super::families::TargetMetrics;
use crate::usage_kind::UsageCounts;

#[derive(Clone, Debug)]
pub struct TargetMeters {
    first_token: Histogram,
    duration: Histogram,
    token_rate: Histogram,
    prompt: IntCounter,
    completion: IntCounter,
    /// By kind of usage, as [`UsageCounts::all`].
    kinds: Arc<[OnceLock<IntCounter>; UsageCounts::NAMES.len()]>,
    of_kinds: (IntCounterVec, [String; 2]),
    unknown: IntCounter,
    inflight: IntGauge,
}

impl TargetMeters {
    pub(super) fn new(of: &TargetMetrics, provider: &str, model: &str) -> Self {
        let target = [provider, model];
        let tokens = |kind| of.tokens.with_label_values(&[provider, model, kind]);
        TargetMeters {
            first_token: of.first_token.with_label_values(&target),
            duration: of.duration.with_label_values(&target),
            token_rate: of.token_rate.with_label_values(&target),
            prompt: tokens("prompt"),
            completion: tokens("completion"),
            kinds: Arc::default(),
            of_kinds: (of.tokens.clone(), target.map(str::to_owned)),
            unknown: of.usage_unknown.with_label_values(&target),
            inflight: of.inflight.with_label_values(&target),
        }
    }

    /// Records the time to the first content event of a stream.
    pub fn first_token(&self, took: Duration) {
        self.first_token.observe(took.as_secs_f64());
    }

    /// Records a whole successful answer: its duration, and its tokens if the provider counted
    /// them.
    pub fn answered(&self, took: Duration, completion: Option<u64>) {
        let seconds = took.as_secs_f64();
        self.duration.observe(seconds);
        if let Some(tokens) = completion.filter(|tokens| *tokens > 0 && seconds > 0.0) {
            #[allow(clippy::cast_precision_loss)] // far below 2^52
            self.token_rate.observe(tokens as f64 / seconds);
        }
    }

    /// Counts what an answer used. `unknown`: it used something of unknown meaning or price.
    pub fn used(&self, prompt: u64, completion: u64, counts: &UsageCounts, unknown: bool) {
        self.prompt.inc_by(prompt);
        self.completion.inc_by(completion);
        self.unknown.inc_by(u64::from(unknown));
        let counts = counts.all();
        let told = self.kinds.iter().zip(&UsageCounts::NAMES).zip(&counts);
        for ((counter, name), count) in told {
            let Some(count) = count.filter(|count| *count > 0) else { continue };
            let (tokens, [provider, model]) = &self.of_kinds;
            let kind = name.trim_end_matches("_tokens");
            let make = || tokens.with_label_values(&[provider, model, kind]);
            counter.get_or_init(make).inc_by(count);
        }
    }

    /// Changes the number of attempts under way.
    pub fn inflight(&self, change: i64) {
        self.inflight.add(change);
    }
}
