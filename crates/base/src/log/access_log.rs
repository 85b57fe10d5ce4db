//! The access log: a queue of lines, and a thread that writes them.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use super::access_line::AccessLine;
use super::form::LogForm;
use super::text;
use crate::blocking;

/// Limit on the access lines that wait for a slow standard output. Further lines are dropped and
/// counted.
const LOG_QUEUE: usize = 8_192;
/// Time for which the first line of a batch waits, so that the writer wakes once per batch.
const LOG_LINGER: Duration = Duration::from_millis(10);
/// Bytes of access lines that are written at once.
const LOG_BUFFER: usize = 64 << 10;

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
    pub fn stdout(form: LogForm) -> std::io::Result<Self> {
        AccessLog::formed(std::io::stdout(), LOG_QUEUE, form)
    }

    /// A log of JSON lines to `out`, with a queue of `waiting` lines.
    pub fn to(out: impl Write + Send + 'static, waiting: usize) -> std::io::Result<Self> {
        AccessLog::formed(out, waiting, LogForm::Json)
    }

    fn formed(
        out: impl Write + Send + 'static,
        waiting: usize,
        form: LogForm,
    ) -> std::io::Result<Self> {
        let (queue, lines) = sync_channel(waiting);
        std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || write_lines(out, &lines, form))?;
        Ok(AccessLog { queue: Some(queue), dropped: Arc::default() })
    }

    /// Queues a line. Returns false if it was dropped because the queue is full.
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

    /// Waits until the queued lines are written, but at most `patience`. It blocks, and is meant
    /// for the end of the process.
    pub fn flush(&self, patience: Duration) {
        if let Some(queue) = &self.queue {
            blocking::flush(queue, LogMessage::Flush, patience);
        }
    }
}

fn write_lines(mut out: impl Write, lines: &Receiver<LogMessage>, form: LogForm) {
    let mut ready = Vec::with_capacity(LOG_BUFFER);
    while let Ok(first) = lines.recv() {
        if matches!(first, LogMessage::Line(_)) {
            // Waking this thread costs a request more than its line does, so it waits for more
            // lines.
            std::thread::park_timeout(LOG_LINGER);
        }
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                LogMessage::Line(line) => {
                    write_line(&line, form, &mut ready);
                    if ready.len() >= LOG_BUFFER {
                        write_out(&mut out, &mut ready);
                    }
                }
                LogMessage::Flush(done) => {
                    write_out(&mut out, &mut ready);
                    // The caller may have stopped waiting.
                    let _gone = done.send(());
                }
            }
            next = lines.try_recv().ok();
        }
        write_out(&mut out, &mut ready);
    }
}

fn write_line(line: &AccessLine, form: LogForm, ready: &mut Vec<u8>) {
    let before = ready.len();
    match form {
        LogForm::Json => match serde_json::to_writer(&mut *ready, line) {
            Ok(()) => ready.push(b'\n'),
            Err(_) => ready.truncate(before),
        },
        LogForm::Text { color } => ready.extend_from_slice(text::access(line, color).as_bytes()),
    }
}

/// Writes the collected lines. If the output is closed they are dropped, so senders see no
/// difference.
fn write_out(out: &mut impl Write, ready: &mut Vec<u8>) {
    let _closed = out.write_all(ready).and_then(|()| out.flush());
    ready.clear();
    ready.shrink_to(2 * LOG_BUFFER);
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use jiff::Timestamp;

    use std::time::Instant;

    use super::*;
    use crate::id::RequestId;

    #[derive(Clone, Default)]
    struct Sink {
        bytes: Arc<Mutex<Vec<u8>>>,
        writes: Arc<Mutex<()>>,
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _open = self.writes.lock().unwrap();
            self.bytes.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
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
        let closed = sink.writes.lock().unwrap();
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
