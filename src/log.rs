//! Two logs of JSON lines: diagnostics on standard error, the access log on standard output. A slow
//! reader delays no request. No credential, header value or body is ever written.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write;
use std::net::IpAddr;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::Method;
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::bounds;
use crate::clock::{Clock, rfc3339};
use crate::id::{KeyId, RequestId, UserId};

/// Starts the diagnostics log; `filter` is in `env_logger`'s syntax (`info`,
/// `rerouter=debug,warn`). Call it once a process. Other crates never write below `info`: they
/// print heads and bodies there.
pub fn init(filter: &str) -> Result<(), String> {
    env_logger::Builder::new()
        .parse_filters(filter)
        .format(|out, record| {
            if !may_be_written(record.target(), record.level()) {
                return Ok(());
            }
            let line = Diagnostic {
                at: rfc3339(Clock::System.now()),
                level: record.level().as_str(),
                target: record.target(),
                message: record.args().to_string(),
            };
            writeln!(out, "{}", serde_json::to_string(&line).unwrap_or_default())
        })
        .try_init()
        .map_err(|error| error.to_string())
}

/// Installs a panic hook that logs [`panicked`]. Only for a process of our own.
pub(crate) fn log_panics() {
    std::panic::set_hook(Box::new(|info| log::error!("{}", panicked(info))));
}

/// The log line of a panic: its place, with `RUST_BACKTRACE` a backtrace, and never its message,
/// which may contain a prompt or a key.
pub fn panicked(info: &PanicHookInfo<'_>) -> String {
    let at = info.location().map_or_else(|| "an unknown location".to_owned(), ToString::to_string);
    let trace = Backtrace::capture();
    match trace.status() {
        BacktraceStatus::Captured => format!("panic at {at}\n{trace}"),
        _ => format!("panic at {at}"),
    }
}

/// Whether a diagnostic may be written. Other crates are cut off below `info`: there Pingora prints
/// whole heads, with provider credentials in clear, and bodies. Ask it in a logger of your own,
/// too.
pub fn may_be_written(target: &str, level: log::Level) -> bool {
    level <= log::Level::Info || target == "rerouter" || target.starts_with("rerouter::")
}

/// Limits a log line to once in [`bounds::LOG_THROTTLE`], and counts what it left out.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<(Option<Instant>, u64)>);

impl LogThrottle {
    /// Counts an event; calls `say` with the count since the last call if it is time.
    pub(crate) fn tell(&self, say: impl FnOnce(u64)) {
        let count = {
            let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            told.1 += 1;
            if told.0.is_some_and(|last| last.elapsed() < bounds::LOG_THROTTLE) {
                return;
            }
            told.0 = Some(Instant::now());
            std::mem::take(&mut told.1)
        };
        say(count);
    }
}

#[derive(Serialize)]
struct Diagnostic<'a> {
    at: String,
    level: &'a str,
    target: &'a str,
    message: String,
}

/// One line of the access log. `route` is the pattern, `path` has no query. The log's own thread
/// serialises it.
#[derive(Clone, Debug, Serialize)]
pub struct AccessLine {
    #[serde(serialize_with = "time")]
    pub at: Timestamp,
    pub request_id: RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_request_id: Option<String>,
    pub client: Option<IpAddr>,
    #[serde(serialize_with = "method")]
    pub method: Method,
    pub route: &'static str,
    pub path: String,
    pub status: u16,
    pub duration_us: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub interface: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<UserId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served_model: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub usage_estimated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

impl AccessLine {
    /// A line with nothing but a time and an id.
    pub fn new(at: Timestamp, request_id: RequestId) -> Self {
        AccessLine {
            at,
            request_id,
            client_request_id: None,
            client: None,
            method: Method::GET,
            route: "unknown",
            path: String::new(),
            status: 0,
            duration_us: 0,
            bytes_in: 0,
            bytes_out: 0,
            interface: "",
            key: None,
            user: None,
            model: None,
            recipe: None,
            rule: None,
            provider: None,
            served_model: None,
            attempts: None,
            prompt_tokens: None,
            completion_tokens: None,
            usage_estimated: false,
            cost_usd: None,
            routing_us: None,
            ttft_ms: None,
            state: None,
            error: None,
            cause: None,
        }
    }
}

fn time<S: Serializer>(at: &Timestamp, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&rfc3339(*at))
}

fn method<S: Serializer>(method: &Method, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(method.as_str())
}

enum LogMessage {
    Line(Box<AccessLine>),
    Flush(SyncSender<()>),
}

/// The access log. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct AccessLog {
    queue: Option<SyncSender<LogMessage>>,
    dropped: Arc<AtomicU64>,
}

impl AccessLog {
    /// A log that writes nothing.
    pub fn off() -> Self {
        AccessLog::default()
    }

    /// A log on standard output.
    pub fn stdout() -> std::io::Result<Self> {
        AccessLog::to(std::io::stdout(), bounds::LOG_QUEUE)
    }

    /// A log into `out` with a queue of `waiting` lines.
    pub fn to(out: impl Write + Send + 'static, waiting: usize) -> std::io::Result<Self> {
        let (queue, lines) = sync_channel(waiting);
        std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || write_lines(out, &lines))?;
        Ok(AccessLog { queue: Some(queue), dropped: Arc::default() })
    }

    /// Queues a line; false if it was dropped for lack of room.
    pub fn line(&self, line: AccessLine) -> bool {
        let Some(queue) = &self.queue else { return true };
        let taken = queue.try_send(LogMessage::Line(Box::new(line))).is_ok();
        if !taken {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// Whether lines are written at all.
    pub fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Lines dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits up to `patience` until the queued lines are written. Blocks; for the end of the
    /// process.
    pub fn flush(&self, patience: Duration) {
        let Some(queue) = &self.queue else { return };
        let until = Instant::now() + patience;
        let (done, written) = sync_channel(1);
        let mut flush = LogMessage::Flush(done);
        // A full queue still has to be waited for.
        while let Err(refused) = queue.try_send(flush) {
            match refused {
                TrySendError::Full(back) if Instant::now() < until => flush = back,
                TrySendError::Full(_) | TrySendError::Disconnected(_) => return,
            }
            std::thread::park_timeout(bounds::LOG_FLUSH_INTERVAL);
        }
        // On a timeout the lines are lost with the process.
        let _late = written.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

fn write_lines(mut out: impl Write, lines: &Receiver<LogMessage>) {
    let mut ready = Vec::with_capacity(bounds::LOG_BUFFER);
    while let Ok(first) = lines.recv() {
        if matches!(first, LogMessage::Line(_)) {
            // Waking this thread costs a request more than its line does: wait for more lines.
            std::thread::park_timeout(bounds::LOG_LINGER);
        }
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                LogMessage::Line(line) => {
                    let before = ready.len();
                    match serde_json::to_writer(&mut ready, &line) {
                        Ok(()) => ready.push(b'\n'),
                        Err(_) => ready.truncate(before),
                    }
                    if ready.len() >= bounds::LOG_BUFFER {
                        write_out(&mut out, &mut ready);
                    }
                }
                LogMessage::Flush(done) => {
                    write_out(&mut out, &mut ready);
                    // The caller may have timed out.
                    let _gone = done.send(());
                }
            }
            next = lines.try_recv().ok();
        }
        write_out(&mut out, &mut ready);
    }
}

/// Writes the lines that are ready. Where the reader is gone they are dropped, so that senders see
/// no difference.
fn write_out(out: &mut impl Write, ready: &mut Vec<u8>) {
    let _closed = out.write_all(ready).and_then(|()| out.flush());
    ready.clear();
    ready.shrink_to(2 * bounds::LOG_BUFFER);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Sink {
        bytes: Arc<Mutex<Vec<u8>>>,
        gate: Arc<Mutex<()>>,
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _open = self.gate.lock().unwrap();
            self.bytes.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn other_crates_write_nothing_below_info() {
        use log::Level;
        for (target, level, written) in [
            ("rerouter::gateway::edge", Level::Trace, true),
            ("rerouter", Level::Debug, true),
            ("rerouters", Level::Debug, false),
            ("pingora_core::protocols::http::v1::client", Level::Trace, false),
            ("pingora_proxy::proxy_h1", Level::Debug, false),
            ("pingora_core::server", Level::Info, true),
            ("pingora_core::server", Level::Error, true),
        ] {
            assert_eq!(may_be_written(target, level), written, "{target} {level}");
        }
    }

    #[test]
    fn frequent_events_are_logged_seldom() {
        let (seldom, mut said) = (LogThrottle::default(), Vec::new());
        (0..100).for_each(|_| seldom.tell(|count| said.push(count)));
        assert_eq!(said, [1]);
        let long_ago = Instant::now().checked_sub(bounds::LOG_THROTTLE);
        seldom.0.lock().unwrap().0 = long_ago;
        (0..100).for_each(|_| seldom.tell(|count| said.push(count)));
        assert_eq!(said, [1, 100]);
    }

    fn blank(id: &str) -> AccessLine {
        AccessLine::new(Timestamp::UNIX_EPOCH, RequestId::known(id))
    }

    #[test]
    fn one_line_for_each_request() {
        let sink = Sink::default();
        let log = AccessLog::to(sink.clone(), 8).unwrap();
        assert!(log.line(AccessLine { path: "/v1/\n\"x".into(), status: 200, ..blank("req_1") }));
        assert!(log.line(blank("req_2")));
        log.flush(Duration::from_secs(10));
        let text = String::from_utf8(sink.bytes.lock().unwrap().clone()).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (&lines[0]["path"], &lines[0]["status"], lines[0].get("key")),
            (&"/v1/\n\"x".into(), &200.into(), None)
        );
    }

    #[test]
    fn a_stalled_reader_costs_lines_not_time() {
        let sink = Sink::default();
        let closed = sink.gate.lock().unwrap();
        let log = AccessLog::to(sink.clone(), 2).unwrap();
        let path = "x".repeat(10_000);
        let taken = (0..100)
            .filter(|_| log.line(AccessLine { path: path.clone(), ..blank("req_1") }))
            .count();
        assert!(taken < 100);
        assert_eq!(log.dropped(), 100 - taken as u64);
        let (began, patience) = (Instant::now(), Duration::from_millis(20));
        log.flush(patience);
        assert!(began.elapsed() >= patience, "the end of the process waits for a full queue too");
        drop(closed);
        log.flush(Duration::from_secs(10));
        assert_eq!(sink.bytes.lock().unwrap().iter().filter(|byte| **byte == b'\n').count(), taken);
        assert!(AccessLog::off().line(blank("req_1")));
        assert!(!AccessLog::off().is_on());
    }
}
