//! Prometheus metrics, in a registry of the gateway. `docs/reference/metrics.md` lists them, with
//! the help texts of `metrics/families.rs`. Label values come from configuration only (routes are
//! the table's patterns, never paths), so their number is bounded; those of a label of keys have a
//! bound of their own. A reload removes the series of removed targets and rules.

mod families;
mod label_meters;
mod target_meters;

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use jiff::SignedDuration;
use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{IntCounter, Registry, TextEncoder};

pub use families::{
    CaptureMetrics, ClusterMetrics, MetricRow, ProcessMetrics, RequestMetrics, TargetMetrics,
};
use families::{LabelMetrics, Registrar, TARGET};
use label_meters::LabelMeters;
pub use target_meters::TargetMeters;

/// Results of an offered routing document.
const RELOADS: [&str; 3] = ["success", "unchanged", "failure"];
/// Outcomes of a capture.
const CAPTURES: [&str; 6] =
    ["stored", "deleted", "dropped_full", "dropped_store", "dropped_disk_full", "dropped_panic"];
/// Outcomes of an upload.
const UPLOADS: [&str; 2] = ["stored", "failed"];
/// The limit for which a connection was refused.
const REFUSED: [&str; 3] = ["all", "address", "handshakes"];
/// Outcomes of an inference call.
const CALLS: [&str; 6] =
    ["answered", "failed", "refused_limit", "refused_target", "refused_model", "refused_request"];
/// The limit of a caller that refused a call.
const LIMITS: [&str; 2] = ["rate", "budget"];
/// Outcomes of a span.
const SPANS: [&str; 3] = ["sent", "dropped_full", "dropped_unsent"];
/// Outcomes of a shadow request.
const SHADOWS: [&str; 5] = ["completed", "failed", "aborted", "dropped", "ineligible"];

/// Every metric of the process. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    pub request: RequestMetrics,
    /// By outcome, as [`CALLS`].
    calls: [IntCounter; CALLS.len()],
    pub target: TargetMetrics,
    label: Arc<LabelMeters>,
    pub capture: CaptureMetrics,
    pub process: ProcessMetrics,
    pub cluster: ClusterMetrics,
    rows: Arc<[MetricRow]>,
    /// Held while the live revision changes and while metrics are read, so that readers see exactly
    /// one.
    changing: Arc<Mutex<()>>,
}

impl Metrics {
    /// All metrics at zero. Fails only if two of them have the same name.
    pub fn new() -> Result<Self, String> {
        let registry = Registry::new();
        let to = Registrar { registry: &registry, rows: RefCell::default() };
        let request = RequestMetrics::new(&to)?;
        let made = Metrics {
            calls: CALLS.map(|outcome| request.calls.with_label_values(&[outcome])),
            request,
            target: TargetMetrics::new(&to)?,
            label: Arc::new(LabelMeters::new(LabelMetrics::new(&to)?)),
            capture: CaptureMetrics::new(&to)?,
            process: ProcessMetrics::new(&to)?,
            cluster: ClusterMetrics::new(&to)?,
            changing: Arc::default(),
            rows: to.rows.take().into(),
            registry,
        };
        // Counters exist at zero from the start. Otherwise `rate()` would miss the first failure.
        for (metric, words) in [
            (&made.process.reloads, &RELOADS[..]),
            (&made.capture.captures, &CAPTURES),
            (&made.capture.uploads, &UPLOADS),
            (&made.request.connections_refused, &REFUSED),
            (&made.request.shadows, &SHADOWS),
            (&made.request.limit_refusals, &LIMITS),
            (&made.request.spans, &SPANS),
        ] {
            words.iter().for_each(|word| drop(metric.with_label_values(&[word])));
        }
        Ok(made)
    }

    pub fn request(&self, interface: &str, route: &str, code: u16, took: Duration) {
        let status = StatusCode::from_u16(code);
        let code = status.as_ref().map_or("0", StatusCode::as_str);
        self.request.requests.with_label_values(&[interface, route, code]).inc();
        self.request.duration.with_label_values(&[interface, route]).observe(took.as_secs_f64());
    }

    pub fn rows(&self) -> &[MetricRow] {
        &self.rows
    }

    /// The series of a target, which callers keep for reuse.
    pub fn of_target(&self, provider: &str, model: &str) -> TargetMeters {
        TargetMeters::new(&self.target, provider, model)
    }

    /// `outcome` is a fixed word.
    pub fn attempt(&self, provider: &str, model: &str, outcome: &str) {
        self.target.attempts.with_label_values(&[provider, model, outcome]).inc();
    }

    /// Counts a decision by the first target of its plan.
    pub fn decision(&self, recipe: &str, rule: &str, provider: &str, model: &str) {
        self.target.decisions.with_label_values(&[recipe, rule, provider, model]).inc();
    }

    /// Amounts that are not positive are ignored.
    pub fn cost(&self, provider: &str, model: &str, usd: f64) {
        if usd.is_finite() && usd > 0.0 {
            self.target.cost.with_label_values(&[provider, model]).inc_by(usd);
        }
    }

    /// Counts calls by the value of the label of keys that the server document names; empty without
    /// a value.
    pub fn label_used(&self, value: &str, requests: u64, tokens: u64, usd: f64) {
        self.label.used(value, requests, tokens, usd);
    }

    pub fn shadow(&self, outcome: &str) {
        self.request.shadows.with_label_values(&[outcome]).inc();
    }

    /// `outcome` is one of [`CALLS`].
    pub fn call(&self, outcome: &str) {
        let counters = CALLS.iter().zip(&self.calls).filter(|(known, _)| **known == outcome);
        counters.for_each(|(_, counter)| counter.inc());
    }

    pub fn captures_so_far(&self, outcome: &str) -> u64 {
        self.capture.captures.with_label_values(&[outcome]).get()
    }

    pub fn captures_dropped(&self) -> u64 {
        let dropped = CAPTURES.iter().filter(|outcome| outcome.starts_with("dropped"));
        dropped.map(|outcome| self.captures_so_far(outcome)).sum()
    }

    pub fn body_memory(&self, bytes: usize) {
        #[allow(clippy::cast_precision_loss)] // far below 2^52
        self.capture.body_memory.set(bytes as f64);
    }

    pub fn capture_queue_bytes(&self, bytes: usize) {
        #[allow(clippy::cast_precision_loss)] // far below 2^52
        self.capture.capture_queue.set(bytes as f64);
    }

    /// The bytes waiting for the capture writer, as last set.
    pub fn capture_queue_bytes_now(&self) -> usize {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it was a usize
        let bytes = self.capture.capture_queue.get() as usize;
        bytes
    }

    /// Counts an offered routing document: `success`, `unchanged` or `failure`.
    pub fn reload(&self, result: &str) {
        self.process.reloads.with_label_values(&[result]).inc();
    }

    pub fn live_revision(&self, revision: &str) {
        let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.process.routing.reset();
        self.process.routing.with_label_values(&[revision]).set(1);
    }

    /// Sets the remaining lease, and the microseconds by which the machine's clock is ahead.
    pub fn lease(&self, left: Duration, clock_ahead: i64) {
        let ahead = SignedDuration::from_micros(clock_ahead).as_secs_f64();
        self.cluster.clock_offset.with_label_values::<&str>(&[]).set(ahead);
        self.cluster.lease.with_label_values::<&str>(&[]).set(left.as_secs_f64());
    }

    /// Removes the series of each (provider, model) that is not in the list.
    pub fn retain_targets(&self, live: &[(String, String)]) {
        let keep = |values: &[&str], _: f64| {
            live.iter().any(|(provider, model)| *values == [provider.as_str(), model.as_str()])
        };
        retain(&self.target.first_token, TARGET, keep);
        retain(&self.target.duration, TARGET, keep);
        retain(&self.target.token_rate, TARGET, keep);
        retain(&self.target.attempts, TARGET, keep);
        retain(&self.target.decisions, TARGET, keep);
        retain(&self.target.tokens, TARGET, keep);
        retain(&self.target.usage_unknown, TARGET, keep);
        retain(&self.target.cost, TARGET, keep);
        retain(&self.target.breaker_open, TARGET, keep);
        // An attempt under way decrements its gauge later, so the series stays until it is zero.
        retain(&self.target.inflight, TARGET, |values, now| now != 0.0 || keep(values, now));
    }

    /// Removes the decisions of each (recipe, rule) that is not in the list, except for recipe
    /// `direct`.
    pub fn retain_rules(&self, live: &[(String, String)]) {
        retain(&self.target.decisions, &["recipe", "rule"], |values, _| match values {
            ["direct", _] => true,
            [recipe, rule] => live.iter().any(|(r, name)| r == recipe && name == rule),
            _ => false,
        });
    }

    pub fn render(&self) -> String {
        let gathered = {
            let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            self.registry.gather()
        };
        TextEncoder::new().encode_to_string(&gathered).unwrap_or_else(|error| {
            log::error!("cannot encode metrics: {error}");
            String::new()
        })
    }
}

/// The value of a gauge.
pub fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Removes the series for which `keep` returns false. Its arguments are the values of the labels
/// `of`, and the value if the series is a gauge.
fn retain<B: MetricVecBuilder>(
    metrics: &MetricVec<B>,
    of: &[&str],
    keep: impl Fn(&[&str], f64) -> bool,
) where
    MetricVec<B>: Collector,
{
    for family in metrics.collect() {
        for series in family.get_metric() {
            let labels: std::collections::HashMap<&str, &str> =
                series.get_label().iter().map(|pair| (pair.name(), pair.value())).collect();
            let values: Vec<&str> =
                of.iter().filter_map(|name| labels.get(name).copied()).collect();
            if !keep(&values, series.get_gauge().get_value()) && metrics.remove(&labels).is_err() {
                log::debug!("a series of {} was removed already", family.name());
            }
        }
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
