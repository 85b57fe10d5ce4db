//! Prometheus metrics, on a registry of our own; `docs/reference/metrics.md` lists them. Label
//! values come from configuration only (routes are the table's patterns, never paths), so their
//! number is bounded. Series of targets and rules that a reload removed are removed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{
    CounterVec, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

const TARGET: &[&str] = &["provider", "model"];
/// Results of an offered routing document.
const RELOADS: [&str; 3] = ["success", "unchanged", "failure"];
/// Outcomes of a capture.
const CAPTURES: [&str; 6] =
    ["stored", "deleted", "dropped_full", "dropped_store", "dropped_disk_full", "dropped_panic"];
/// Which limit a connection exceeded.
const REFUSED: [&str; 2] = ["all", "address"];
/// Outcomes of a shadow request.
const SHADOWS: [&str; 5] = ["completed", "failed", "aborted", "dropped", "ineligible"];
/// Five milliseconds to five minutes: from a refusal to a long stream.
const DURATION: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// Ten microseconds to a tenth of a second.
const OVERHEAD: &[f64] = &[
    0.000_01, 0.000_025, 0.000_05, 0.000_075, 0.000_1, 0.000_15, 0.000_25, 0.000_5, 0.001, 0.002_5,
    0.005, 0.01, 0.025, 0.1,
];

/// Every metric of the process. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    duration: HistogramVec,
    overhead: Histogram,
    first_token: HistogramVec,
    attempts: IntCounterVec,
    decisions: IntCounterVec,
    tokens: IntCounterVec,
    cost: CounterVec,
    inflight: IntGaugeVec,
    breaker_open: IntGaugeVec,
    connections_refused: IntCounterVec,
    shadows: IntCounterVec,
    auth_failures: IntCounterVec,
    keys: IntGaugeVec,
    unsaved_endings: IntGaugeVec,
    nodes: IntGaugeVec,
    agent_open: IntGauge,
    captures: IntCounterVec,
    blocks_damaged: IntCounter,
    body_memory: Gauge,
    capture_queue: Gauge,
    routing: IntGaugeVec,
    /// Held while the live revision changes and while series are read, so that exactly one shows.
    changing: Arc<Mutex<()>>,
    reloads: IntCounterVec,
    names_gone: IntCounter,
    log_dropped: IntCounter,
    panics: IntCounter,
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("rerouter_{name}"), help)
}

fn buckets(name: &str, help: &str, bounds: &[f64]) -> HistogramOpts {
    HistogramOpts::from(opts(name, help)).buckets(bounds.to_vec())
}

fn kept<C: Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<C>,
) -> Result<C, String> {
    let metric = made.map_err(|error| error.to_string())?;
    registry.register(Box::new(metric.clone())).map_err(|error| error.to_string())?;
    Ok(metric)
}

impl Metrics {
    /// All metrics at zero. Fails only if two of them have the same name.
    pub fn new() -> Result<Self, String> {
        let registry = Registry::new();
        let r = &registry;
        let counters =
            |name, help, labels: &[&str]| kept(r, IntCounterVec::new(opts(name, help), labels));
        let gauges =
            |name, help, labels: &[&str]| kept(r, IntGaugeVec::new(opts(name, help), labels));
        let times = |name, help, bounds, labels: &[&str]| {
            kept(r, HistogramVec::new(buckets(name, help, bounds), labels))
        };
        let made = Metrics {
            requests: counters(
                "requests_total",
                "Requests answered.",
                &["interface", "route", "code"],
            )?,
            duration: times(
                "request_duration_seconds",
                "Time from the request head to the last byte of the answer.",
                DURATION,
                &["interface", "route"],
            )?,
            overhead: kept(
                r,
                Histogram::with_opts(buckets(
                    "overhead_seconds",
                    "The gateway's own share of a proxied request.",
                    OVERHEAD,
                )),
            )?,
            first_token: times(
                "time_to_first_token_seconds",
                "Time from the request to the first content event.",
                DURATION,
                TARGET,
            )?,
            attempts: counters(
                "upstream_attempts_total",
                "Attempts at providers.",
                &["provider", "model", "outcome"],
            )?,
            decisions: counters(
                "decisions_total",
                "Decisions by the first target of the plan.",
                &["recipe", "rule", "provider", "model"],
            )?,
            tokens: counters(
                "tokens_total",
                "Tokens used, by kind.",
                &["provider", "model", "kind"],
            )?,
            cost: kept(
                r,
                CounterVec::new(
                    opts("cost_usd_total", "Cost in US dollars, where prices are known."),
                    TARGET,
                ),
            )?,
            inflight: gauges("inflight", "Attempts under way.", TARGET)?,
            breaker_open: gauges(
                "breaker_open",
                "1 while the breaker is open or half-open.",
                TARGET,
            )?,
            connections_refused: counters(
                "connections_refused_total",
                "Connections beyond a limit, by reason.",
                &["reason"],
            )?,
            shadows: counters("shadows_total", "Shadow requests by outcome.", &["outcome"])?,
            auth_failures: counters(
                "auth_failures_total",
                "Credentials refused.",
                &["interface", "reason"],
            )?,
            keys: gauges("keys", "Keys in memory.", &["interface", "status"])?,
            unsaved_endings: gauges(
                "unsaved_endings",
                "Revoked keys and disabled users that the store has not written yet.",
                &["kind"],
            )?,
            nodes: gauges("nodes", "Nodes by state.", &["state"])?,
            agent_open: kept(
                r,
                IntGauge::with_opts(opts("agent_open", "1 while AGENT asks for no credential.")),
            )?,
            captures: counters("captures_total", "Captures by outcome.", &["outcome"])?,
            blocks_damaged: kept(
                r,
                IntCounter::with_opts(opts(
                    "capture_blocks_damaged_total",
                    "Blocks of captures that could not be read.",
                )),
            )?,
            body_memory: kept(
                r,
                Gauge::with_opts(opts("body_memory_bytes", "Bytes of bodies held now.")),
            )?,
            capture_queue: kept(
                r,
                Gauge::with_opts(opts(
                    "capture_queue_bytes",
                    "Bytes waiting for the capture writer.",
                )),
            )?,
            routing: gauges("routing_info", "1 for the live routing document.", &["revision"])?,
            changing: Arc::default(),
            reloads: counters(
                "reloads_total",
                "Routing documents offered, by result.",
                &["result"],
            )?,
            names_gone: kept(
                r,
                IntCounter::with_opts(opts(
                    "names_gone_total",
                    "Names (aliases, targets) that a new routing document removed.",
                )),
            )?,
            panics: kept(
                r,
                IntCounter::with_opts(opts(
                    "panics_total",
                    "Panics in requests or background tasks.",
                )),
            )?,
            log_dropped: kept(
                r,
                IntCounter::with_opts(opts(
                    "log_lines_dropped_total",
                    "Access log lines dropped for lack of room.",
                )),
            )?,
            registry,
        };
        // Present at zero from the start: a rate sees the first failure only if there was a value
        // before.
        RELOADS.iter().for_each(|result| drop(made.reloads.with_label_values(&[result])));
        CAPTURES.iter().for_each(|outcome| drop(made.captures.with_label_values(&[outcome])));
        REFUSED
            .iter()
            .for_each(|reason| drop(made.connections_refused.with_label_values(&[reason])));
        SHADOWS.iter().for_each(|outcome| drop(made.shadows.with_label_values(&[outcome])));
        Ok(made)
    }

    /// Counts an answered request.
    pub fn request(&self, interface: &str, route: &str, code: u16, took: Duration) {
        self.requests.with_label_values(&[interface, route, code.to_string().as_str()]).inc();
        self.duration.with_label_values(&[interface, route]).observe(took.as_secs_f64());
    }

    /// Records the gateway's own share of a proxied request.
    pub fn overhead(&self, took: Duration) {
        self.overhead.observe(took.as_secs_f64());
    }

    /// Records the time to the first content event of a stream.
    pub fn first_token(&self, provider: &str, model: &str, took: Duration) {
        self.first_token.with_label_values(&[provider, model]).observe(took.as_secs_f64());
    }

    /// Counts an attempt; `outcome` is a word of ours.
    pub fn attempt(&self, provider: &str, model: &str, outcome: &str) {
        self.attempts.with_label_values(&[provider, model, outcome]).inc();
    }

    /// Counts a decision by the first target of its plan.
    pub fn decision(&self, recipe: &str, rule: &str, provider: &str, model: &str) {
        self.decisions.with_label_values(&[recipe, rule, provider, model]).inc();
    }

    /// Counts tokens of one kind: `prompt`, `completion`, `cached`.
    pub fn tokens(&self, provider: &str, model: &str, kind: &str, count: u64) {
        self.tokens.with_label_values(&[provider, model, kind]).inc_by(count);
    }

    /// Adds the cost of an answer. Amounts that are not positive are ignored.
    pub fn cost(&self, provider: &str, model: &str, usd: f64) {
        if usd.is_finite() && usd > 0.0 {
            self.cost.with_label_values(&[provider, model]).inc_by(usd);
        }
    }

    /// Changes the number of attempts under way at a target.
    pub fn inflight(&self, provider: &str, model: &str, change: i64) {
        self.inflight.with_label_values(&[provider, model]).add(change);
    }

    /// Sets whether a target's breaker is open or half-open.
    pub fn breaker_open(&self, provider: &str, model: &str, open: bool) {
        self.breaker_open.with_label_values(&[provider, model]).set(i64::from(open));
    }

    /// Counts a connection beyond a limit.
    pub fn connection_refused(&self, reason: &str) {
        self.connections_refused.with_label_values(&[reason]).inc();
    }

    /// Counts a shadow request.
    pub fn shadow(&self, outcome: &str) {
        self.shadows.with_label_values(&[outcome]).inc();
    }

    /// Counts a refused credential; `reason` is a word of ours.
    pub fn auth_failure(&self, interface: &str, reason: &str) {
        self.auth_failures.with_label_values(&[interface, reason]).inc();
    }

    /// Sets the number of keys of a status.
    pub fn keys(&self, interface: &str, status: &str, count: usize) {
        self.keys
            .with_label_values(&[interface, status])
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the number of nodes in a state.
    pub fn nodes(&self, state: &str, count: usize) {
        self.nodes.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the number of revoked `keys` or disabled `users` that the store has not written yet.
    pub fn unsaved_endings(&self, kind: &str, count: usize) {
        self.unsaved_endings
            .with_label_values(&[kind])
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets whether AGENT is open.
    pub fn agent_open(&self, open: bool) {
        self.agent_open.set(i64::from(open));
    }

    /// Counts captures by outcome.
    pub fn captures(&self, outcome: &str, count: u64) {
        self.captures.with_label_values(&[outcome]).inc_by(count);
    }

    /// Captures counted for an outcome so far.
    pub fn captures_so_far(&self, outcome: &str) -> u64 {
        self.captures.with_label_values(&[outcome]).get()
    }

    /// Counts a damaged block of captures.
    pub fn capture_block_damaged(&self) {
        self.blocks_damaged.inc();
    }

    /// Sets the bytes of bodies held.
    pub fn body_memory(&self, bytes: usize) {
        #[allow(clippy::cast_precision_loss)] // far below 2^52
        self.body_memory.set(bytes as f64);
    }

    /// Sets the bytes waiting for the capture writer.
    pub fn capture_queue_bytes(&self, bytes: usize) {
        #[allow(clippy::cast_precision_loss)] // far below 2^52
        self.capture_queue.set(bytes as f64);
    }

    /// The bytes waiting for the capture writer, as last set.
    pub fn capture_queue_bytes_now(&self) -> usize {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it was a usize
        let bytes = self.capture_queue.get() as usize;
        bytes
    }

    /// Counts an offered routing document: `success`, `unchanged` or `failure`.
    pub fn reload(&self, result: &str) {
        self.reloads.with_label_values(&[result]).inc();
    }

    /// Counts names that a new routing document removed.
    pub fn names_gone(&self, count: usize) {
        self.names_gone.inc_by(count as u64);
    }

    /// Sets the live revision.
    pub fn live_revision(&self, revision: &str) {
        let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.routing.reset();
        self.routing.with_label_values(&[revision]).set(1);
    }

    /// Counts a dropped access log line.
    pub fn log_line_dropped(&self) {
        self.log_dropped.inc();
    }

    /// Counts a panic.
    pub fn panic(&self) {
        self.panics.inc();
    }

    /// Panics so far.
    pub fn panics_so_far(&self) -> u64 {
        self.panics.get()
    }

    /// Removes the series of each (provider, model) that is not in the list.
    pub fn retain_targets(&self, live: &[(String, String)]) {
        let keep = |values: &[&str], _: f64| matches!(values, [provider, model] if live.iter().any(|(p, m)| p == provider && m == model));
        retain(&self.first_token, TARGET, keep);
        retain(&self.attempts, TARGET, keep);
        retain(&self.decisions, TARGET, keep);
        retain(&self.tokens, TARGET, keep);
        retain(&self.cost, TARGET, keep);
        retain(&self.breaker_open, TARGET, keep);
        // An attempt under way decrements its gauge later: the series stays until it is zero.
        retain(&self.inflight, TARGET, |values, now| now != 0.0 || keep(values, now));
    }

    /// Removes the decisions of each (recipe, rule) that is not in the list, except `direct`.
    pub fn retain_rules(&self, live: &[(String, String)]) {
        retain(&self.decisions, &["recipe", "rule"], |values, _| match values {
            ["direct", _] => true,
            [recipe, rule] => live.iter().any(|(r, name)| r == recipe && name == rule),
            _ => false,
        });
    }

    /// All metrics in Prometheus' text format.
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

/// Removes the series that `keep` refuses by the values of the labels `of` and the value of a
/// gauge.
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
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn pair(a: &str, b: &str) -> (String, String) {
        (a.into(), b.into())
    }

    #[test]
    fn series_of_removed_targets_and_rules_are_removed() {
        let metrics = Metrics::new().unwrap();
        for model in ["old", "new"] {
            metrics.attempt("openai", model, "ok");
            metrics.decision("balanced", model, "openai", model);
            metrics.inflight("openai", model, 2);
            metrics.inflight("openai", model, -2);
            metrics.cost("openai", model, 0.25);
            metrics.breaker_open("openai", model, true);
            metrics.first_token("openai", model, Duration::from_millis(3));
        }
        metrics.decision("direct", "", "openai", "new");
        metrics.retain_targets(&[pair("openai", "new")]);
        let text = metrics.render();
        assert!(!text.contains("model=\"old\""), "{text}");
        assert!(
            text.contains("rerouter_cost_usd_total{model=\"new\",provider=\"openai\"} 0.25"),
            "{text}"
        );
        metrics.retain_rules(&[]);
        let text = metrics.render();
        assert!(text.contains("rerouter_decisions_total{model=\"new\",provider=\"openai\",recipe=\"direct\",rule=\"\"} 1"), "{text}");
        assert!(!text.contains("recipe=\"balanced\""), "{text}");
    }

    #[test]
    fn an_attempt_under_way_keeps_its_series() {
        let metrics = Metrics::new().unwrap();
        metrics.inflight("openai", "old", 1);
        metrics.retain_targets(&[]);
        metrics.inflight("openai", "old", -1);
        assert!(
            metrics.render().contains("rerouter_inflight{model=\"old\",provider=\"openai\"} 0")
        );
        metrics.retain_targets(&[]);
        assert!(!metrics.render().contains("rerouter_inflight{"));
    }

    #[test]
    fn series_for_alerts_exist_from_the_start() {
        let text = Metrics::new().unwrap().render();
        for series in [
            "reloads_total{result=\"failure\"}",
            "captures_total{outcome=\"dropped_full\"}",
            "captures_total{outcome=\"dropped_store\"}",
        ] {
            assert!(text.contains(&format!("rerouter_{series} 0")), "{series}");
        }
    }

    #[test]
    fn only_the_live_revision_shows() {
        let metrics = Metrics::new().unwrap();
        metrics.live_revision("aaaaaaaaaaaa");
        metrics.live_revision("bbbbbbbbbbbb");
        let text = metrics.render();
        assert!(text.contains("rerouter_routing_info{revision=\"bbbbbbbbbbbb\"} 1"));
        assert!(!text.contains("aaaaaaaaaaaa"));
    }

    #[test]
    fn exactly_one_revision_shows_at_any_time() {
        let metrics = Metrics::new().unwrap();
        metrics.live_revision("aaaaaaaaaaaa");
        std::thread::scope(|scope| {
            let changing = scope
                .spawn(|| (0..2_000).for_each(|n: u32| metrics.live_revision(&format!("{n:012}"))));
            while !changing.is_finished() {
                assert_eq!(metrics.render().matches("rerouter_routing_info{").count(), 1);
            }
        });
    }

    #[test]
    fn the_reference_names_every_metric() {
        let metrics = Metrics::new().unwrap();
        metrics.request("router", "/v1/models", 200, Duration::from_millis(1));
        metrics.overhead(Duration::from_micros(80));
        metrics.first_token("p", "m", Duration::ZERO);
        metrics.attempt("p", "m", "ok");
        metrics.decision("r", "u", "p", "m");
        metrics.tokens("p", "m", "prompt", 3);
        metrics.cost("p", "m", 1.0);
        metrics.inflight("p", "m", 1);
        metrics.breaker_open("p", "m", true);
        metrics.auth_failure("router", "unknown");
        metrics.keys("router", "active", 1);
        metrics.unsaved_endings("keys", 1);
        metrics.nodes("ready", 1);
        metrics.agent_open(true);
        metrics.connection_refused("all");
        metrics.captures("stored", 2);
        metrics.capture_queue_bytes(10);
        metrics.body_memory(10);
        metrics.live_revision("r");
        metrics.reload("success");
        metrics.names_gone(1);
        metrics.log_line_dropped();
        metrics.panic();
        let text = metrics.render();
        let page = include_str!("../docs/reference/metrics.md");
        let named: BTreeSet<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `rerouter_")?.split('`').next())
            .collect();
        let there: BTreeSet<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE rerouter_")?.split(' ').next())
            .collect();
        assert_eq!(named, there);
    }
}
