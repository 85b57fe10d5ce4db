//! What Prometheus reads, on a registry of our own. Label values come from configuration only (routes are the table's
//! patterns, never paths), so their number is bounded; series of what a reload removed are removed.
//!
//! | name | labels | what it tells |
//! |---|---|---|
//! | `rerouter_requests_total` | interface, route, code | requests answered |
//! | `rerouter_request_duration_seconds` | interface, route | from head to last byte |
//! | `rerouter_overhead_seconds` | | what of a proxied request the gateway itself took |
//! | `rerouter_time_to_first_token_seconds` | provider, model | from request to first content event |
//! | `rerouter_upstream_attempts_total` | provider, model, outcome | tries at a provider |
//! | `rerouter_decisions_total` | recipe, rule, provider, model | decisions by their first choice |
//! | `rerouter_tokens_total` | provider, model, kind | tokens used: prompt, completion, cached |
//! | `rerouter_cost_usd_total` | provider, model | what they cost, where prices are known |
//! | `rerouter_inflight` | provider, model | tries under way |
//! | `rerouter_breaker_open` | provider, model | 1 while the breaker lets nobody through, or one to try |
//! | `rerouter_connections_refused_total` | reason | connections that found no place: all are taken (`all`), or the address has its share (`address`); they were closed, or had one request answered |
//! | `rerouter_shadows_total` | outcome | copies of requests for shadows: completed, failed, aborted, dropped (too many under way), ineligible |
//! | `rerouter_auth_failures_total` | interface, reason | credentials refused |
//! | `rerouter_keys` | interface, status | keys in the tables |
//! | `rerouter_older_pepper_secrets` | kind | keys and sessions that are known by the pepper of an earlier master key; they move when they are used |
//! | `rerouter_unsaved_endings` | kind | keys revoked and users disabled here, of which the store has yet to hear: tried until it does, lost if the process is killed before |
//! | `rerouter_nodes` | state | nodes by how they stand: pending, ready, draining, unreachable, gone |
//! | `rerouter_agent_open` | | 1 while the AGENT interface asks for no credential |
//! | `rerouter_captures_total` | outcome | captures: stored, deleted (before it was written), dropped_full (no room in the queue), dropped_store (the store refused), dropped_disk_full, dropped_panic (a mistake of ours) |
//! | `rerouter_capture_blocks_damaged_total` | | captures that could not be read; each counts once |
//! | `rerouter_body_memory_bytes` | | bytes of bodies that are held now, of `limits.body_memory` |
//! | `rerouter_capture_queue_bytes` | | bytes that wait for the capture writer |
//! | `rerouter_routing_info` | revision | 1 for the live routing document |
//! | `rerouter_reloads_total` | result | routing documents offered: success, unchanged, failure |
//! | `rerouter_names_gone_total` | | names of models (aliases and targets) that clients could ask for and that a new routing document took away |
//! | `rerouter_log_lines_dropped_total` | | access log lines that found no room |
//! | `rerouter_panics_total` | | mistakes of ours that ended a request, which was answered with 500 or cut off, or a round of work beside requests |

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{
    CounterVec, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

const TARGET: &[&str] = &["provider", "model"];
/// What becomes of a routing document that is offered.
const RELOADS: [&str; 3] = ["success", "unchanged", "failure"];
/// What becomes of a capture.
const CAPTURES: [&str; 6] =
    ["stored", "deleted", "dropped_full", "dropped_store", "dropped_disk_full", "dropped_panic"];
/// Why a connection finds no place.
const REFUSED: [&str; 2] = ["all", "address"];
/// What becomes of a copy that is drawn for a shadow.
const SHADOWS: [&str; 5] = ["completed", "failed", "aborted", "dropped", "ineligible"];
/// Five milliseconds to five minutes: a refusal to a long stream.
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
    older_pepper: IntGaugeVec,
    unsaved_endings: IntGaugeVec,
    nodes: IntGaugeVec,
    agent_open: IntGauge,
    captures: IntCounterVec,
    blocks_damaged: IntCounter,
    body_memory: Gauge,
    capture_queue: Gauge,
    routing: IntGaugeVec,
    /// Held while the live revision changes and while series are read: nobody sees two, or none.
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
    /// All metrics at zero. Fails only if two of them had one name.
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
                "From head to last byte.",
                DURATION,
                &["interface", "route"],
            )?,
            overhead: kept(
                r,
                Histogram::with_opts(buckets(
                    "overhead_seconds",
                    "Gateway time of a proxied request.",
                    OVERHEAD,
                )),
            )?,
            first_token: times(
                "time_to_first_token_seconds",
                "From request to first content event.",
                DURATION,
                TARGET,
            )?,
            attempts: counters(
                "upstream_attempts_total",
                "Tries at a provider.",
                &["provider", "model", "outcome"],
            )?,
            decisions: counters(
                "decisions_total",
                "Decisions by their first choice.",
                &["recipe", "rule", "provider", "model"],
            )?,
            tokens: counters("tokens_total", "Tokens used.", &["provider", "model", "kind"])?,
            cost: kept(
                r,
                CounterVec::new(opts("cost_usd_total", "Cost where prices are known."), TARGET),
            )?,
            inflight: gauges("inflight", "Tries under way.", TARGET)?,
            breaker_open: gauges(
                "breaker_open",
                "1 while the breaker is open or half-open.",
                TARGET,
            )?,
            connections_refused: counters(
                "connections_refused_total",
                "Connections that found no place.",
                &["reason"],
            )?,
            shadows: counters(
                "shadows_total",
                "Copies of requests for shadows by what became of them.",
                &["outcome"],
            )?,
            auth_failures: counters(
                "auth_failures_total",
                "Credentials refused.",
                &["interface", "reason"],
            )?,
            keys: gauges("keys", "Keys in the tables.", &["interface", "status"])?,
            older_pepper: gauges(
                "older_pepper_secrets",
                "Keys and sessions known by the pepper of an earlier master key.",
                &["kind"],
            )?,
            unsaved_endings: gauges(
                "unsaved_endings",
                "Keys revoked and users disabled here that the store has yet to hear of.",
                &["kind"],
            )?,
            nodes: gauges("nodes", "Nodes by how they stand.", &["state"])?,
            agent_open: kept(
                r,
                IntGauge::with_opts(opts("agent_open", "1 while AGENT asks for no credential.")),
            )?,
            captures: counters("captures_total", "Captures by what became of them.", &["outcome"])?,
            blocks_damaged: kept(
                r,
                IntCounter::with_opts(opts(
                    "capture_blocks_damaged_total",
                    "Captures that could not be read.",
                )),
            )?,
            body_memory: kept(
                r,
                Gauge::with_opts(opts("body_memory_bytes", "Bytes of bodies that are held now.")),
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
            reloads: counters("reloads_total", "Routing documents offered.", &["result"])?,
            names_gone: kept(
                r,
                IntCounter::with_opts(opts(
                    "names_gone_total",
                    "Names of models that a new routing document took away.",
                )),
            )?,
            panics: kept(
                r,
                IntCounter::with_opts(opts(
                    "panics_total",
                    "Mistakes of ours that ended a request, or a round of work beside requests.",
                )),
            )?,
            log_dropped: kept(
                r,
                IntCounter::with_opts(opts(
                    "log_lines_dropped_total",
                    "Access log lines that found no room.",
                )),
            )?,
            registry,
        };
        // There from the start, at zero: a rate sees the first failure only if it knows what was before.
        RELOADS.iter().for_each(|result| drop(made.reloads.with_label_values(&[result])));
        CAPTURES.iter().for_each(|outcome| drop(made.captures.with_label_values(&[outcome])));
        REFUSED
            .iter()
            .for_each(|reason| drop(made.connections_refused.with_label_values(&[reason])));
        SHADOWS.iter().for_each(|outcome| drop(made.shadows.with_label_values(&[outcome])));
        Ok(made)
    }

    /// A request was answered.
    pub fn request(&self, interface: &str, route: &str, code: u16, took: Duration) {
        self.requests.with_label_values(&[interface, route, code.to_string().as_str()]).inc();
        self.duration.with_label_values(&[interface, route]).observe(took.as_secs_f64());
    }

    /// The gateway's own share of a proxied request.
    pub fn overhead(&self, took: Duration) {
        self.overhead.observe(took.as_secs_f64());
    }

    /// The first content event of a stream left for the client.
    pub fn first_token(&self, provider: &str, model: &str, took: Duration) {
        self.first_token.with_label_values(&[provider, model]).observe(took.as_secs_f64());
    }

    /// A try at a provider ended; `outcome` is one of our own words.
    pub fn attempt(&self, provider: &str, model: &str, outcome: &str) {
        self.attempts.with_label_values(&[provider, model, outcome]).inc();
    }

    /// A decision was made; these are its first choice.
    pub fn decision(&self, recipe: &str, rule: &str, provider: &str, model: &str) {
        self.decisions.with_label_values(&[recipe, rule, provider, model]).inc();
    }

    /// An answer used tokens of one kind: `prompt`, `completion`, `cached`.
    pub fn tokens(&self, provider: &str, model: &str, kind: &str, count: u64) {
        self.tokens.with_label_values(&[provider, model, kind]).inc_by(count);
    }

    /// An answer cost this much. What is not a positive amount is not counted.
    pub fn cost(&self, provider: &str, model: &str, usd: f64) {
        if usd.is_finite() && usd > 0.0 {
            self.cost.with_label_values(&[provider, model]).inc_by(usd);
        }
    }

    /// So many more (or less) tries at a target are under way.
    pub fn inflight(&self, provider: &str, model: &str, change: i64) {
        self.inflight.with_label_values(&[provider, model]).add(change);
    }

    /// Whether a target's breaker is open or half-open.
    pub fn breaker_open(&self, provider: &str, model: &str, open: bool) {
        self.breaker_open.with_label_values(&[provider, model]).set(i64::from(open));
    }

    /// Counts a connection that found no place.
    pub fn connection_refused(&self, reason: &str) {
        self.connections_refused.with_label_values(&[reason]).inc();
    }

    /// This became of a copy that was drawn for a shadow.
    pub fn shadow(&self, outcome: &str) {
        self.shadows.with_label_values(&[outcome]).inc();
    }

    /// A credential was refused; `reason` is one of our own words.
    pub fn auth_failure(&self, interface: &str, reason: &str) {
        self.auth_failures.with_label_values(&[interface, reason]).inc();
    }

    /// So many keys of a status are in a table.
    pub fn keys(&self, interface: &str, status: &str, count: usize) {
        self.keys
            .with_label_values(&[interface, status])
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// So many nodes stand so.
    pub fn nodes(&self, state: &str, count: usize) {
        self.nodes.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// So many of this kind, `keys` or `sessions`, are known by the pepper of an earlier master key.
    pub fn older_pepper_secrets(&self, kind: &str, count: u64) {
        self.older_pepper.with_label_values(&[kind]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// So many of this kind, `keys` or `users`, have ended here and not yet in the store.
    pub fn unsaved_endings(&self, kind: &str, count: usize) {
        self.unsaved_endings
            .with_label_values(&[kind])
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Whether AGENT is open.
    pub fn agent_open(&self, open: bool) {
        self.agent_open.set(i64::from(open));
    }

    /// This became of so many captures.
    pub fn captures(&self, outcome: &str, count: u64) {
        self.captures.with_label_values(&[outcome]).inc_by(count);
    }

    /// How many captures came to this so far.
    pub fn captures_so_far(&self, outcome: &str) -> u64 {
        self.captures.with_label_values(&[outcome]).get()
    }

    /// Counts a capture that could not be read.
    pub fn capture_block_damaged(&self) {
        self.blocks_damaged.inc();
    }

    /// So many bytes of bodies are held.
    pub fn body_memory(&self, bytes: usize) {
        #[allow(clippy::cast_precision_loss)] // far below 2^52
        self.body_memory.set(bytes as f64);
    }

    /// So many bytes wait for the capture writer.
    pub fn capture_queue_bytes(&self, bytes: usize) {
        #[allow(clippy::cast_precision_loss)] // far below 2^52
        self.capture_queue.set(bytes as f64);
    }

    /// How many bytes wait for the capture writer, as it was last told.
    pub fn capture_queue_bytes_now(&self) -> usize {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it was a usize
        let bytes = self.capture_queue.get() as usize;
        bytes
    }

    /// A routing document was offered: `success`, `unchanged` or `failure`.
    pub fn reload(&self, result: &str) {
        self.reloads.with_label_values(&[result]).inc();
    }

    /// A new routing document took so many names of models away.
    pub fn names_gone(&self, count: usize) {
        self.names_gone.inc_by(count as u64);
    }

    /// This revision is the live one, and no other.
    pub fn live_revision(&self, revision: &str) {
        let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.routing.reset();
        self.routing.with_label_values(&[revision]).set(1);
    }

    /// An access log line found no room.
    pub fn log_line_dropped(&self) {
        self.log_dropped.inc();
    }

    /// Counts a mistake of ours that ended a request, or a round of work beside requests.
    pub fn panic(&self) {
        self.panics.inc();
    }

    /// How many there were so far.
    pub fn panics_so_far(&self) -> u64 {
        self.panics.get()
    }

    /// Removes the series of every (provider, model) that is not in this list.
    pub fn retain_targets(&self, live: &[(String, String)]) {
        let keep = |values: &[&str], _: f64| matches!(values, [provider, model] if live.iter().any(|(p, m)| p == provider && m == model));
        retain(&self.first_token, TARGET, keep);
        retain(&self.attempts, TARGET, keep);
        retain(&self.decisions, TARGET, keep);
        retain(&self.tokens, TARGET, keep);
        retain(&self.cost, TARGET, keep);
        retain(&self.breaker_open, TARGET, keep);
        // A try that is still under way takes its count back later: its series stays until a reload finds it at zero.
        retain(&self.inflight, TARGET, |values, now| now != 0.0 || keep(values, now));
    }

    /// Removes the decisions of every (recipe, rule) that is not in this list; `direct` is no recipe of a document and stays.
    pub fn retain_rules(&self, live: &[(String, String)]) {
        retain(&self.decisions, &["recipe", "rule"], |values, _| match values {
            ["direct", _] => true,
            [recipe, rule] => live.iter().any(|(r, name)| r == recipe && name == rule),
            _ => false,
        });
    }

    /// Everything in Prometheus' text format.
    pub fn render(&self) -> String {
        let gathered = {
            let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            self.registry.gather()
        };
        TextEncoder::new().encode_to_string(&gathered).unwrap_or_else(|error| {
            log::error!("metrics do not encode: {error}");
            String::new()
        })
    }
}

/// Removes the series that are not to be kept, by their values of the labels `of` and, of gauges, what they stand at.
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
                log::debug!("series of {} went on its own", family.name());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(a: &str, b: &str) -> (String, String) {
        (a.into(), b.into())
    }

    #[test]
    fn what_a_reload_removed_is_gone_and_the_rest_stays() {
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
    fn a_try_under_way_keeps_its_series() {
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
    fn what_alarms_look_at_is_there_before_it_happens() {
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
    fn one_revision_shows_at_any_moment() {
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
    fn the_table_above_names_every_metric() {
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
        metrics.older_pepper_secrets("keys", 1);
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
        let source = include_str!("metrics.rs");
        let listed: Vec<&str> = source
            .lines()
            .filter_map(|line| line.strip_prefix("//! | `")?.split('`').next())
            .collect();
        assert_eq!(listed.len(), 27);
        for name in listed {
            assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
        }
        assert_eq!(text.matches("# TYPE").count(), 27);
    }
}
