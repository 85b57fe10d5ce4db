//! Limits of the export of traces.

use std::time::Duration;

/// Finished calls waiting to be exported, a kilobyte or two each; more are dropped and counted.
pub const TRACE_QUEUE: usize = 2_048;
/// Calls of one export request: a megabyte or two of JSON.
pub const TRACE_BATCH: usize = 512;
/// Longest wait of a finished call for others before it is exported.
pub const TRACE_LINGER: Duration = Duration::from_secs(1);
/// Longest time of an export request, as in OpenTelemetry's own exporters.
pub const TRACE_SEND_TIME: Duration = Duration::from_secs(10);
/// Tries of a batch that the collector does not take now.
pub const TRACE_TRIES: u32 = 5;
/// Wait after the first try that failed; doubled each time.
pub const TRACE_RETRY: Duration = Duration::from_secs(1);
/// Longest wait between two tries, whatever the collector asks for.
pub const TRACE_RETRY_MAX: Duration = Duration::from_secs(30);
/// Bytes that are read of a collector's answer.
pub const TRACE_ANSWER: u64 = 64 << 10;
