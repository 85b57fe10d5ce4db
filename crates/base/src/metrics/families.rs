//! The metrics of [`Metrics`](super::Metrics) by subject, with their names, help texts and labels.

use std::cell::RefCell;

use prometheus::core::{Collector, Desc};
use prometheus::{
    CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry,
};

pub(super) const TARGET: &[&str] = &["provider", "model"];
/// Buckets in seconds: five milliseconds to five minutes, from a refusal to a long stream.
const DURATION: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// Buckets in tokens per second, from a model on a CPU to the fastest services.
const TOKEN_RATE: &[f64] =
    &[1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 50.0, 75.0, 100.0, 150.0, 250.0, 500.0, 1000.0, 2500.0];
/// Buckets in seconds: ten microseconds to a tenth of a second.
const OVERHEAD: &[f64] = &[
    0.000_01, 0.000_025, 0.000_05, 0.000_075, 0.000_1, 0.000_15, 0.000_25, 0.000_5, 0.001, 0.002_5,
    0.005, 0.01, 0.025, 0.1,
];

pub(super) trait MetricKind: Collector + Clone + 'static {
    /// Its name in the reference.
    const KIND: &'static str;

    fn make(opts: Opts, labels: &[&str], bounds: &[f64]) -> prometheus::Result<Self>;
}

macro_rules! kinds {
    ($($metric:ident $kind:literal |$opts:ident, $labels:ident, $bounds:ident| $make:expr;)*) => {
        $(impl MetricKind for $metric {
            const KIND: &'static str = $kind;

            fn make(
                $opts: Opts,
                $labels: &[&str],
                $bounds: &[f64],
            ) -> prometheus::Result<Self> {
                $make
            }
        })*
    };
}
kinds! {
    IntCounter "counter" |opts, _labels, _bounds| Self::with_opts(opts);
    IntCounterVec "counter" |opts, labels, _bounds| Self::new(opts, labels);
    CounterVec "counter" |opts, labels, _bounds| Self::new(opts, labels);
    IntGauge "gauge" |opts, _labels, _bounds| Self::with_opts(opts);
    IntGaugeVec "gauge" |opts, labels, _bounds| Self::new(opts, labels);
    Gauge "gauge" |opts, _labels, _bounds| Self::with_opts(opts);
    GaugeVec "gauge" |opts, labels, _bounds| Self::new(opts, labels);
    Histogram "histogram" |opts, _labels, bounds| Self::with_opts(buckets(opts, bounds));
    HistogramVec "histogram" |opts, labels, bounds| Self::new(buckets(opts, bounds), labels);
}

/// Declares metrics: `/// HELP`, then `FIELD: KIND = "NAME" [LABELS] in BOUNDS;`. Names get the
/// prefix `rerouter_`. A `GaugeVec` without labels is absent until it is first set.
macro_rules! metrics {
    ($(#[$about:meta])* $vis:vis struct $name:ident {
        $($(#[doc = $help:literal])+
        $field:ident: $kind:ident = $metric:literal [$($label:literal),*] $(in $bounds:ident)?;)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        $vis struct $name {
            $($(#[doc = $help])+ $vis $field: $kind,)+
        }

        impl $name {
            pub(super) fn new(to: &Registrar<'_>) -> Result<Self, String> {
                Ok($name {
                    $($field: to.add(
                        concat!("rerouter_", $metric),
                        concat!($($help),+).trim_start(),
                        &[$($label),*],
                        metrics!(@bounds $($bounds)?),
                    )?,)+
                })
            }
        }
    };
    (@bounds) => { &[] };
    (@bounds $bounds:ident) => { $bounds };
}

metrics! {
    /// Metrics of requests and connections.
    pub struct RequestMetrics {
        /// Requests answered.
        requests: IntCounterVec = "requests_total" ["interface", "route", "code"];
        /// Time from the request head to the last byte of the answer.
        duration: HistogramVec = "request_duration_seconds" ["interface", "route"] in DURATION;
        /// The gateway's own share of a proxied request.
        overhead: Histogram = "overhead_seconds" [] in OVERHEAD;
        /// Connections and further HTTP/2 requests on them beyond a limit, by reason: `all`,
        /// `address` or `handshakes`. They were closed, or answered one request.
        connections_refused: IntCounterVec = "connections_refused_total" ["reason"];
        /// Credentials refused.
        auth_failures: IntCounterVec = "auth_failures_total" ["interface", "reason"];
        /// Inference calls by outcome, without reroutes: `answered` (also if the client left),
        /// `failed`, or what the gateway refused: `refused_limit` by a limit of a key or user,
        /// `refused_target` for want of a target, `refused_model` if the document does not know
        /// the model, `refused_request` for what it asks or how it is written.
        calls: IntCounterVec = "calls_total" ["outcome"];
        /// Calls refused by a limit of a key or user: `rate` or `budget`.
        limit_refusals: IntCounterVec = "limit_refusals_total" ["limit"];
        /// Shadow requests by outcome: `completed`, `failed`, `aborted`, `dropped`, `ineligible`.
        shadows: IntCounterVec = "shadows_total" ["outcome"];
        /// Spans of sampled traces by outcome: `sent`, `dropped_full` for lack of room,
        /// `dropped_unsent` where the collector did not take them.
        spans: IntCounterVec = "spans_total" ["outcome"];
    }
}

metrics! {
    /// Metrics of targets; series of targets that a reload removed are removed.
    pub struct TargetMetrics {
        /// Time from the request to the first content event.
        first_token: HistogramVec = "time_to_first_token_seconds" ["provider", "model"] in DURATION;
        /// Time from the beginning of an attempt to the end of its answer, of whole good answers to
        /// live calls. A slow client makes it longer.
        duration: HistogramVec = "provider_duration_seconds" ["provider", "model"] in DURATION;
        /// Tokens of such an answer by that time, where the provider counted them.
        token_rate: HistogramVec = "tokens_per_second" ["provider", "model"] in TOKEN_RATE;
        /// Attempts at providers, by outcome: `ok`, or why they failed.
        attempts: IntCounterVec = "upstream_attempts_total" ["provider", "model", "outcome"];
        /// Decisions by the first target of the plan.
        decisions: IntCounterVec = "decisions_total" ["recipe", "rule", "provider", "model"];
        /// Tokens used, by kind: `prompt`, `completion`, and what is within them, such as `cached`.
        /// The kind `web_searches` counts searches.
        tokens: IntCounterVec = "tokens_total" ["provider", "model", "kind"];
        /// Answers that used something of unknown meaning or price, or whose usage cannot be read.
        usage_unknown: IntCounterVec = "usage_unknown_total" ["provider", "model"];
        /// Cost in US dollars, where prices are known.
        cost: CounterVec = "cost_usd_total" ["provider", "model"];
        /// Attempts under way.
        inflight: IntGaugeVec = "inflight" ["provider", "model"];
        /// 1 while the breaker is open or half-open.
        breaker_open: IntGaugeVec = "breaker_open" ["provider", "model"];
    }
}

metrics! {
    /// Metrics of the label of keys that `metrics.label` of the server document names.
    pub(super) struct LabelMetrics {
        /// Calls by the value that the key has of the label `metrics.label`: empty without the
        /// label or without a key, `other` beyond the first 100 values. None without
        /// `metrics.label`.
        requests: IntCounterVec = "label_requests_total" ["label"];
        /// Tokens of prompts and answers of these calls.
        tokens: IntCounterVec = "label_tokens_total" ["label"];
        /// Cost of these calls in US dollars, where prices are known.
        cost: CounterVec = "label_cost_usd_total" ["label"];
    }
}

metrics! {
    /// Metrics of captures and bodies.
    pub struct CaptureMetrics {
        /// Captures by outcome: `stored`, `deleted`, `dropped_full`, `dropped_store`,
        /// `dropped_disk_full`, `dropped_panic`.
        captures: IntCounterVec = "captures_total" ["outcome"];
        /// Captures that could not be read; each counts once.
        blocks_damaged: IntCounter = "capture_blocks_damaged_total" [];
        /// Bytes of bodies held now, of `limits.body_memory`.
        body_memory: Gauge = "body_memory_bytes" [];
        /// Bytes waiting for the capture writer.
        capture_queue: Gauge = "capture_queue_bytes" [];
        /// Segments of captures sent to the object store: `stored`, or `failed` and tried again.
        uploads: IntCounterVec = "capture_uploads_total" ["outcome"];
        /// Age of the newest capture in the oldest complete segment that the object store lacks.
        upload_lag: Gauge = "capture_upload_lag_seconds" [];
    }
}

metrics! {
    /// Metrics of the process, its keys, nodes and documents.
    pub struct ProcessMetrics {
        /// Keys in memory.
        keys: IntGaugeVec = "keys" ["interface", "status"];
        /// Revoked `keys` and disabled `users` that the store has not written yet.
        unsaved_endings: IntGaugeVec = "unsaved_endings" ["kind"];
        /// US dollars of budgets that this gateway holds for its requests.
        budget_held: Gauge = "budget_held_usd" [];
        /// US dollars of budgets of today and this month that gateways held when they died. They
        /// count until an admin settles them. The same at all gateways that share a store.
        budget_lost: Gauge = "budget_lost_usd" [];
        /// Sums of usage that the store has not written yet, by day or by hour.
        usage_waiting: IntGauge = "usage_waiting_sums" [];
        /// Nodes by state: `pending`, `ready`, `draining`, `unreachable`, `gone`.
        nodes: IntGaugeVec = "nodes" ["state"];
        /// 1 while AGENT asks for no credential.
        agent_open: IntGauge = "agent_open" [];
        /// When the certificate in use ends, in seconds since 1970.
        certificates: IntGaugeVec = "certificate_expiration_timestamp_seconds" ["listener"];
        /// 1 for the live routing document.
        routing: IntGaugeVec = "routing_info" ["revision"];
        /// Routing documents offered, by result: `success`, `unchanged`, `failure`.
        reloads: IntCounterVec = "reloads_total" ["result"];
        /// Names (aliases, targets) that a new routing document removed.
        names_gone: IntCounter = "names_gone_total" [];
        /// Access log lines dropped for lack of room.
        log_dropped: IntCounter = "log_lines_dropped_total" [];
        /// Panics in requests or background tasks.
        panics: IntCounter = "panics_total" [];
    }
}

metrics! {
    /// Metrics of gateways that share a store.
    pub struct ClusterMetrics {
        /// What is left of the lease; 0 once it is lost. Absent where the store is not shared.
        lease: GaugeVec = "lease_seconds" [];
        /// Time that a change waited for the other gateways.
        acknowledged: Histogram = "change_acknowledged_seconds" [] in DURATION;
        /// Changes that the gateway furthest behind has yet to apply.
        lag: IntGauge = "gateway_lag_changes" [];
        /// By how much the clock of the machine is ahead of the store's, which judges what has
        /// expired. Absent where the store is not shared.
        clock_offset: GaugeVec = "clock_offset_seconds" [];
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

pub(super) struct Registrar<'a> {
    pub(super) registry: &'a Registry,
    pub(super) rows: RefCell<Vec<MetricRow>>,
}

impl Registrar<'_> {
    fn add<M: MetricKind>(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        bounds: &[f64],
    ) -> Result<M, String> {
        let made = M::make(Opts::new(name, help), labels, bounds);
        let metric = made.map_err(|error| error.to_string())?;
        self.registry.register(Box::new(metric.clone())).map_err(|error| error.to_string())?;
        let row = |desc: &Desc| MetricRow {
            name: desc.fq_name.clone(),
            kind: M::KIND,
            labels: desc.variable_labels.clone(),
            help: desc.help.clone(),
        };
        self.rows.borrow_mut().extend(metric.desc().into_iter().map(row));
        Ok(metric)
    }
}

fn buckets(opts: Opts, bounds: &[f64]) -> HistogramOpts {
    HistogramOpts::from(opts).buckets(bounds.to_vec())
}
