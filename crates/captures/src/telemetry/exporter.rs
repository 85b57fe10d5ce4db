//! The thread that sends traces in batches. A batch is tried again, within limits, if the collector
//! asks for that or cannot be reached.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue};
use serde_json::Value;
use ureq::Agent;
use ureq::unversioned::resolver::Resolver;
use ureq::unversioned::transport::DefaultConnector;

use super::call_trace::CallTrace;
use super::otlp;
use rerouter_base::clock::Clock;
use rerouter_base::id::{Random, RequestId};
use rerouter_base::log::LogThrottle;
use rerouter_base::metrics::Metrics;

/// Most calls in one export request: a megabyte or two of JSON.
const TRACE_BATCH: usize = 512;
/// Longest time that a finished call waits for others before it is exported.
const TRACE_LINGER: Duration = Duration::from_secs(1);
/// Longest time of an export request, as in OpenTelemetry's own exporters.
const TRACE_SEND_TIME: Duration = Duration::from_secs(10);
/// How often a batch is tried if the collector cannot take it now.
const TRACE_TRIES: u32 = 5;
/// Wait after the first failed try; doubled after each further one.
const TRACE_RETRY: Duration = Duration::from_secs(1);
/// Longest wait between two tries, whatever the collector asks for.
const TRACE_RETRY_MAX: Duration = Duration::from_secs(30);
/// Most bytes that are read of a collector's answer.
const TRACE_ANSWER: u64 = 64 << 10;

/// The destination of traces: `telemetry.otlp` of the server document.
#[derive(Clone)]
pub struct OtlpSettings {
    /// URL of the collector's endpoint for traces.
    pub url: String,
    /// Headers of each request to the collector, marked as sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Share of the traces that begin in this gateway and are exported, from 0 to 1.
    pub sample: f64,
}

pub(super) enum TraceMessage {
    Call(Box<CallTrace>),
    Flush(SyncSender<()>),
}

/// Why a batch was not taken. The text does not name the destination, which may be a secret.
#[derive(Debug, PartialEq, Eq)]
enum ExportError {
    /// The collector may take it later: after this time, if the collector named one.
    Later(String, Option<Duration>),
    /// The collector will never take it.
    Never(String),
}

pub(super) struct Exporter {
    agent: Agent,
    url: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    resource: Value,
    metrics: Arc<Metrics>,
    lost: LogThrottle,
}

impl Exporter {
    pub(super) fn new(
        settings: &OtlpSettings,
        metrics: Arc<Metrics>,
        random: &Random,
        resolver: impl Resolver,
    ) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // The headers must not follow a redirect to another host.
            .max_redirects(0)
            // The environment is not read, so no proxy is taken from it.
            .proxy(None)
            .timeout_global(Some(TRACE_SEND_TIME))
            .user_agent(concat!("rerouter/", env!("CARGO_PKG_VERSION")))
            .build();
        let instance = RequestId::new(Clock::System.now(), random);
        Exporter {
            agent: Agent::with_parts(config, DefaultConnector::default(), resolver),
            url: settings.url.clone(),
            headers: settings.headers.clone(),
            resource: otlp::resource(instance.as_str().trim_start_matches(RequestId::PREFIX)),
            metrics,
            lost: LogThrottle::default(),
        }
    }

    /// Sends traces as they come, until every handle of the queue is dropped.
    pub(super) fn run(self, calls: &Receiver<TraceMessage>) {
        while let Ok(first) = calls.recv() {
            let (batch, flushed) = gather(first, calls);
            self.send(&batch);
            if let Some(done) = flushed {
                // The caller may have timed out.
                let _gone = done.send(());
            }
        }
    }

    fn send(&self, batch: &[CallTrace]) {
        if batch.is_empty() {
            return;
        }
        let spans = batch.iter().map(CallTrace::spans).sum();
        let body = otlp::export(&self.resource, batch);
        let mut wait = TRACE_RETRY;
        for left in (0..TRACE_TRIES).rev() {
            let why = match self.post(&body) {
                Ok(refused) => return self.count(spans, refused),
                Err(ExportError::Later(_, after)) if left > 0 => {
                    let wanted = after.unwrap_or(wait).min(TRACE_RETRY_MAX);
                    std::thread::park_timeout(wanted);
                    wait *= 2;
                    continue;
                }
                Err(ExportError::Later(why, _) | ExportError::Never(why)) => why,
            };
            self.count_spans("dropped_unsent", spans);
            self.lost.tell(|batches| {
                log::warn!("{batches} batch(es) of spans were dropped: the collector: {why}");
            });
            return;
        }
    }

    fn count_spans(&self, outcome: &str, spans: u64) {
        self.metrics.request.spans.with_label_values(&[outcome]).inc_by(spans);
    }

    fn count(&self, spans: u64, refused: u64) {
        let refused = refused.min(spans);
        self.count_spans("sent", spans - refused);
        if refused > 0 {
            self.count_spans("dropped_unsent", refused);
            self.lost.tell(|_| log::warn!("the collector refused {refused} of {spans} spans"));
        }
    }

    /// Sends a body once. Returns how many of its spans the collector refused.
    fn post(&self, body: &[u8]) -> Result<u64, ExportError> {
        let mut request = self.agent.post(&self.url).header("content-type", "application/json");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut answer = request.send(body).map_err(|error| unreachable(&error))?;
        let (status, headers) = (answer.status().as_u16(), answer.headers());
        let after = headers.get("retry-after").and_then(|after| after.to_str().ok()?.parse().ok());
        let said = answer.body_mut().with_config().limit(TRACE_ANSWER).read_to_vec();
        match status {
            200..=299 => Ok(said.map_or(0, |said| refused_spans(&said))),
            429 | 502 | 503 | 504 => {
                Err(ExportError::Later(format!("status {status}"), after.map(Duration::from_secs)))
            }
            _ => Err(ExportError::Never(format!("status {status}"))),
        }
    }
}

/// Gathers a batch: the first message and what comes within [`TRACE_LINGER`], up to a full batch or
/// a flush.
fn gather(
    first: TraceMessage,
    calls: &Receiver<TraceMessage>,
) -> (Vec<CallTrace>, Option<SyncSender<()>>) {
    let (until, mut batch) = (Instant::now() + TRACE_LINGER, Vec::new());
    let mut next = Some(first);
    while let Some(message) = next {
        match message {
            TraceMessage::Call(call) => batch.push(*call),
            TraceMessage::Flush(done) => return (batch, Some(done)),
        }
        if batch.len() >= TRACE_BATCH {
            break;
        }
        let left = until.saturating_duration_since(Instant::now());
        next = calls.recv_timeout(left).ok();
    }
    (batch, None)
}

/// A connection error by its kind: the full text may hold the URL.
fn unreachable(error: &ureq::Error) -> ExportError {
    ExportError::Later(
        match error {
            ureq::Error::Timeout(_) => "no answer in time".to_owned(),
            ureq::Error::Io(error) => error.kind().to_string(),
            // The library makes no error of this kind, so it is the resolver's.
            ureq::Error::Other(why) => why.to_string(),
            ureq::Error::HostNotFound => "its host is not found".to_owned(),
            ureq::Error::Tls(_) | ureq::Error::Rustls(_) => "no TLS".to_owned(),
            _ => "it cannot be reached".to_owned(),
        },
        None,
    )
}

/// The number of spans that the collector's answer reports as refused.
fn refused_spans(answer: &[u8]) -> u64 {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let refused = answer.pointer("/partialSuccess/rejectedSpans");
    let count = |refused: &Value| refused.as_u64().or_else(|| refused.as_str()?.parse().ok());
    refused.and_then(count).unwrap_or(0)
}

#[cfg(test)]
#[path = "exporter_tests.rs"]
mod tests;
