//! The metrics of [`Metrics`](super::Metrics) by subject, with their names, help texts and labels.

use std::cell::RefCell;

use prometheus::core::{Collector, Desc};
use prometheus::{
    CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry,
};

pub(super) const TARGET: &[&str] = &["provider", "model"];
/// Five milliseconds to five minutes: from a refusal to a long stream.
const DURATION: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// Tokens a second: from a model on a processor to the fastest services.
const TOKEN_RATE: &[f64] =
    &[1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 50.0, 75.0, 100.0, 150.0, 250.0, 500.0, 1000.0, 2500.0];
/// Ten microseconds to a tenth of a second.
const OVERHEAD: &[f64] = &[
    0.000_01, 0.000_025, 0.000_05, 0.000_075, 0.000_1, 0.000_15, 0.000_25, 0.000_5, 0.001, 0.002_5,
    0.005, 0.01, 0.025, 0.1,
];

/// Metrics of requests and connections.
#[derive(Clone, Debug)]
pub(super) struct RequestMetrics {
    pub(super) requests: IntCounterVec,
    pub(super) duration: HistogramVec,
    pub(super) overhead: Histogram,
    pub(super) connections_refused: IntCounterVec,
    pub(super) auth_failures: IntCounterVec,
    pub(super) limit_refusals: IntCounterVec,
    pub(super) shadows: IntCounterVec,
    pub(super) spans: IntCounterVec,
}

impl RequestMetrics {
    pub(super) fn new(to: &Registrar<'_>) -> Result<Self, String> {
        Ok(RequestMetrics {
            requests: to.counters(
                "requests_total",
                "Requests answered.",
                &["interface", "route", "code"],
            )?,
            duration: to.histograms(
                "request_duration_seconds",
                "Time from the request head to the last byte of the answer.",
                DURATION,
                &["interface", "route"],
            )?,
            overhead: to.histogram(
                "overhead_seconds",
                "The gateway's own share of a proxied request.",
                OVERHEAD,
            )?,
            connections_refused: to.counters(
                "connections_refused_total",
                "Connections and further HTTP/2 requests on them beyond a limit, by reason: `all`, \
                 `address` or `handshakes`. They were closed, or answered one request.",
                &["reason"],
            )?,
            auth_failures: to.counters(
                "auth_failures_total",
                "Credentials refused.",
                &["interface", "reason"],
            )?,
            limit_refusals: to.counters(
                "limit_refusals_total",
                "Calls refused by a limit of a key or user: `rate` or `budget`.",
                &["limit"],
            )?,
            shadows: to.counters(
                "shadows_total",
                "Shadow requests by outcome: `completed`, `failed`, `aborted`, `dropped`, \
                 `ineligible`.",
                &["outcome"],
            )?,
            spans: to.counters(
                "spans_total",
                "Spans of sampled traces by outcome: `sent`, `dropped_full` for lack of room, \
                 `dropped_unsent` where the collector did not take them.",
                &["outcome"],
            )?,
        })
    }
}

/// Metrics of targets; series of targets that a reload removed are removed.
#[derive(Clone, Debug)]
pub(super) struct TargetMetrics {
    pub(super) first_token: HistogramVec,
    pub(super) duration: HistogramVec,
    pub(super) token_rate: HistogramVec,
    pub(super) attempts: IntCounterVec,
    pub(super) decisions: IntCounterVec,
    pub(super) tokens: IntCounterVec,
    pub(super) cost: CounterVec,
    pub(super) inflight: IntGaugeVec,
    pub(super) breaker_open: IntGaugeVec,
}

impl TargetMetrics {
    pub(super) fn new(to: &Registrar<'_>) -> Result<Self, String> {
        Ok(TargetMetrics {
            first_token: to.histograms(
                "time_to_first_token_seconds",
                "Time from the request to the first content event.",
                DURATION,
                TARGET,
            )?,
            duration: to.histograms(
                "provider_duration_seconds",
                "Time from the beginning of an attempt to the end of its answer, of whole good \
                 answers to live calls. A slow client makes it longer.",
                DURATION,
                TARGET,
            )?,
            token_rate: to.histograms(
                "tokens_per_second",
                "Tokens of such an answer by that time, where the provider counted them.",
                TOKEN_RATE,
                TARGET,
            )?,
            attempts: to.counters(
                "upstream_attempts_total",
                "Attempts at providers, by outcome: `ok`, or why they failed.",
                &["provider", "model", "outcome"],
            )?,
            decisions: to.counters(
                "decisions_total",
                "Decisions by the first target of the plan.",
                &["recipe", "rule", "provider", "model"],
            )?,
            tokens: to.counters(
                "tokens_total",
                "Tokens used, by kind: `prompt`, `completion`, `cached`.",
                &["provider", "model", "kind"],
            )?,
            cost: to.amounts(
                "cost_usd_total",
                "Cost in US dollars, where prices are known.",
                TARGET,
            )?,
            inflight: to.gauges("inflight", "Attempts under way.", TARGET)?,
            breaker_open: to.gauges(
                "breaker_open",
                "1 while the breaker is open or half-open.",
                TARGET,
            )?,
        })
    }
}

/// Metrics of captures and bodies.
#[derive(Clone, Debug)]
pub(super) struct CaptureMetrics {
    pub(super) captures: IntCounterVec,
    pub(super) blocks_damaged: IntCounter,
    pub(super) body_memory: Gauge,
    pub(super) capture_queue: Gauge,
    pub(super) uploads: IntCounterVec,
    pub(super) upload_lag: Gauge,
}

impl CaptureMetrics {
    pub(super) fn new(to: &Registrar<'_>) -> Result<Self, String> {
        Ok(CaptureMetrics {
            captures: to.counters(
                "captures_total",
                "Captures by outcome: `stored`, `deleted`, `dropped_full`, `dropped_store`, \
                 `dropped_disk_full`, `dropped_panic`.",
                &["outcome"],
            )?,
            blocks_damaged: to.counter(
                "capture_blocks_damaged_total",
                "Captures that could not be read; each counts once.",
            )?,
            body_memory: to
                .bytes("body_memory_bytes", "Bytes of bodies held now, of `limits.body_memory`.")?,
            capture_queue: to
                .bytes("capture_queue_bytes", "Bytes waiting for the capture writer.")?,
            uploads: to.counters(
                "capture_uploads_total",
                "Segments of captures sent to the object store: `stored`, or `failed` and tried \
                 again.",
                &["outcome"],
            )?,
            upload_lag: to.seconds(
                "capture_upload_lag_seconds",
                "Age of the newest capture in the oldest complete segment that the object store \
                 lacks.",
            )?,
        })
    }
}

/// Metrics of the process, its keys, nodes and documents.
#[derive(Clone, Debug)]
pub(super) struct ProcessMetrics {
    pub(super) keys: IntGaugeVec,
    pub(super) unsaved_endings: IntGaugeVec,
    pub(super) nodes: IntGaugeVec,
    pub(super) agent_open: IntGauge,
    pub(super) certificates: IntGaugeVec,
    pub(super) routing: IntGaugeVec,
    pub(super) reloads: IntCounterVec,
    pub(super) names_gone: IntCounter,
    pub(super) log_dropped: IntCounter,
    pub(super) panics: IntCounter,
}

impl ProcessMetrics {
    pub(super) fn new(to: &Registrar<'_>) -> Result<Self, String> {
        Ok(ProcessMetrics {
            keys: to.gauges("keys", "Keys in memory.", &["interface", "status"])?,
            unsaved_endings: to.gauges(
                "unsaved_endings",
                "Revoked `keys` and disabled `users` that the store has not written yet.",
                &["kind"],
            )?,
            nodes: to.gauges(
                "nodes",
                "Nodes by state: `pending`, `ready`, `draining`, `unreachable`, `gone`.",
                &["state"],
            )?,
            agent_open: to.gauge("agent_open", "1 while AGENT asks for no credential.")?,
            certificates: to.gauges(
                "certificate_expiration_timestamp_seconds",
                "When the certificate in use ends, in seconds since 1970.",
                &["listener"],
            )?,
            routing: to.gauges(
                "routing_info",
                "1 for the live routing document.",
                &["revision"],
            )?,
            reloads: to.counters(
                "reloads_total",
                "Routing documents offered, by result: `success`, `unchanged`, `failure`.",
                &["result"],
            )?,
            names_gone: to.counter(
                "names_gone_total",
                "Names (aliases, targets) that a new routing document removed.",
            )?,
            log_dropped: to
                .counter("log_lines_dropped_total", "Access log lines dropped for lack of room.")?,
            panics: to.counter("panics_total", "Panics in requests or background tasks.")?,
        })
    }
}

/// Metrics of gateways that share a store.
#[derive(Clone, Debug)]
pub(super) struct ClusterMetrics {
    /// Without a series until there is a lease to tell of.
    pub(super) lease: GaugeVec,
    pub(super) acknowledged: Histogram,
    pub(super) lag: IntGauge,
    pub(super) clock_offset: GaugeVec,
}

impl ClusterMetrics {
    pub(super) fn new(to: &Registrar<'_>) -> Result<Self, String> {
        Ok(ClusterMetrics {
            lease: to.seconds_if_told(
                "lease_seconds",
                "What is left of the lease; 0 once it is lost. Absent where the store is not \
                 shared.",
            )?,
            acknowledged: to.histogram(
                "change_acknowledged_seconds",
                "Time that a change waited for the other gateways.",
                DURATION,
            )?,
            lag: to.gauge(
                "gateway_lag_changes",
                "Changes that the gateway furthest behind has yet to apply.",
            )?,
            clock_offset: to.seconds_if_told(
                "clock_offset_seconds",
                "By how much the clock of the machine is ahead of the store's, which judges what \
                 has expired. Absent where the store is not shared.",
            )?,
        })
    }
}

/// A metric as the reference describes it.
#[derive(Clone, Debug)]
pub struct MetricRow {
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    pub labels: Vec<String>,
    pub help: String,
}

/// Creates metrics with the prefix `rerouter_` and registers them.
pub(super) struct Registrar<'a> {
    pub(super) registry: &'a Registry,
    pub(super) rows: RefCell<Vec<MetricRow>>,
}

impl Registrar<'_> {
    fn add<C: Collector + Clone + 'static>(
        &self,
        kind: &'static str,
        made: prometheus::Result<C>,
    ) -> Result<C, String> {
        let metric = made.map_err(|error| error.to_string())?;
        self.registry.register(Box::new(metric.clone())).map_err(|error| error.to_string())?;
        let row = |desc: &Desc| MetricRow {
            name: desc.fq_name.clone(),
            kind,
            labels: desc.variable_labels.clone(),
            help: desc.help.clone(),
        };
        self.rows.borrow_mut().extend(metric.desc().into_iter().map(row));
        Ok(metric)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, String> {
        self.add("counter", IntCounter::with_opts(opts(name, help)))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, String> {
        self.add("counter", IntCounterVec::new(opts(name, help), labels))
    }

    fn amounts(&self, name: &str, help: &str, labels: &[&str]) -> Result<CounterVec, String> {
        self.add("counter", CounterVec::new(opts(name, help), labels))
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, String> {
        self.add("gauge", IntGauge::with_opts(opts(name, help)))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, String> {
        self.add("gauge", IntGaugeVec::new(opts(name, help), labels))
    }

    fn bytes(&self, name: &str, help: &str) -> Result<Gauge, String> {
        self.add("gauge", Gauge::with_opts(opts(name, help)))
    }

    fn seconds(&self, name: &str, help: &str) -> Result<Gauge, String> {
        self.add("gauge", Gauge::with_opts(opts(name, help)))
    }

    /// A gauge that is absent until it is first set.
    fn seconds_if_told(&self, name: &str, help: &str) -> Result<GaugeVec, String> {
        self.add("gauge", GaugeVec::new(opts(name, help), &[]))
    }

    fn histogram(&self, name: &str, help: &str, bounds: &[f64]) -> Result<Histogram, String> {
        self.add("histogram", Histogram::with_opts(buckets(name, help, bounds)))
    }

    fn histograms(
        &self,
        name: &str,
        help: &str,
        bounds: &[f64],
        labels: &[&str],
    ) -> Result<HistogramVec, String> {
        self.add("histogram", HistogramVec::new(buckets(name, help, bounds), labels))
    }
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("rerouter_{name}"), help)
}

fn buckets(name: &str, help: &str, bounds: &[f64]) -> HistogramOpts {
    HistogramOpts::from(opts(name, help)).buckets(bounds.to_vec())
}
