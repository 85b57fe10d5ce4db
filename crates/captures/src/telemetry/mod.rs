//! Traces of finished calls for an OpenTelemetry collector: OTLP over HTTP, as JSON. At its end a
//! call leaves its data in a bounded queue. A separate thread turns them into spans and sends
//! these. No request waits for that, and if the queue is full a trace is dropped and counted.
//!
//! JSON, because the program already has all that this needs: `serde_json` and the HTTP client of
//! the command line. OpenTelemetry's own crates would be a dozen more, and record spans while a
//! request runs.

mod call_trace;
mod exporter;
mod otlp;

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use http::HeaderMap;
use ureq::unversioned::resolver::Resolver;

pub use self::call_trace::{AttemptStep, CallTrace};
pub use self::exporter::OtlpSettings;
use self::exporter::{Exporter, TraceMessage};
use rerouter_base::blocking;
use rerouter_base::id::Random;
use rerouter_base::metrics::Metrics;
use rerouter_base::trace_context::TraceContext;

/// Most finished calls that wait to be exported, of one or two kilobytes each. Further ones are
/// dropped and counted.
const TRACE_QUEUE: usize = 2_048;

/// The export of traces. Clones share it.
#[derive(Clone, Default)]
pub struct Telemetry(Option<Arc<TraceQueue>>);

struct TraceQueue {
    sender: SyncSender<TraceMessage>,
    sample: f64,
    metrics: Arc<Metrics>,
}

impl Telemetry {
    /// Exports nothing, and does not change the trace contexts of clients.
    pub fn off() -> Self {
        Telemetry::default()
    }

    /// Starts the exporting thread. It connects only to addresses that the resolver returns.
    pub fn start(
        settings: &OtlpSettings,
        metrics: &Arc<Metrics>,
        random: &Random,
        resolver: impl Resolver,
    ) -> std::io::Result<Self> {
        let (sender, calls) = sync_channel(TRACE_QUEUE);
        let exporter = Exporter::new(settings, metrics.clone(), random, resolver);
        std::thread::Builder::new().name("telemetry".into()).spawn(move || exporter.run(&calls))?;
        let queue = TraceQueue { sender, sample: settings.sample, metrics: metrics.clone() };
        Ok(Telemetry(Some(Arc::new(queue))))
    }

    /// The trace context of a request with these headers; `None` if nothing is exported.
    pub fn begin(&self, headers: &HeaderMap, random: &Random) -> Option<Arc<TraceContext>> {
        let queue = self.0.as_ref()?;
        Some(Arc::new(TraceContext::of(headers, random, queue.sample)))
    }

    /// Queues a finished call for export. Never waits.
    pub fn offer(&self, call: CallTrace) {
        let Some(queue) = &self.0 else { return };
        let spans = call.spans();
        if queue.sender.try_send(TraceMessage::Call(Box::new(call))).is_err() {
            let dropped = &queue.metrics.request.spans;
            dropped.with_label_values(&["dropped_full"]).inc_by(spans);
        }
    }

    /// Waits, at most for `patience`, until all queued calls are sent. Blocks. Meant for the end of
    /// the process.
    pub fn flush(&self, patience: Duration) {
        if let Some(queue) = &self.0 {
            blocking::flush(&queue.sender, TraceMessage::Flush, patience);
        }
    }
}
