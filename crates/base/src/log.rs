//! Two logs: diagnostics on standard error, the access log on standard output. Programs read JSON
//! lines, people at a terminal read text. A slow reader delays no request. No credential, header
//! value or body is ever written.

mod access_line;
#[warn(missing_docs)]
mod access_log;
mod diagnostic;
mod form;
mod text;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::io::Write;
use std::os::fd::AsFd;
use std::panic::PanicHookInfo;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub use self::access_line::ACCESS_FIELDS;
pub use self::access_line::AccessLine;
pub use self::access_log::AccessLog;
pub use self::diagnostic::DIAGNOSTIC_FIELDS;
use self::diagnostic::Diagnostic;
pub use self::form::LogForm;
pub use self::form::LogFormat;
use crate::clock::{Clock, rfc3339};

/// Shortest time between two log lines about an event that anybody can cause.
const LOG_THROTTLE: Duration = Duration::from_secs(60);

/// Starts the diagnostics log. `filter` has `env_logger`'s syntax (`info`, `rerouter=debug,warn`).
/// Call it once per process. Other crates never log below `info`, as they print heads and bodies
/// there.
pub fn init(filter: &str, form: LogForm) -> Result<(), String> {
    let inner = env_logger::Builder::new()
        .parse_filters(filter)
        .format(move |out, record| {
            if !may_be_written(record.target(), record.level()) {
                return Ok(());
            }
            let line = Diagnostic {
                at: rfc3339(Clock::System.now()),
                level: record.level().as_str(),
                target: record.target(),
                message: record.args().to_string(),
            };
            match form {
                LogForm::Json => {
                    writeln!(out, "{}", serde_json::to_string(&line).unwrap_or_default())
                }
                LogForm::Text { color } => out.write_all(text::diagnostic(&line, color).as_bytes()),
            }
        })
        .build();
    log::set_max_level(inner.filter());
    let logger = DiagnosticLog { inner, dropped: Mutex::new(0) };
    log::set_boxed_logger(Box::new(logger)).map_err(|error| error.to_string())
}

/// Logs modules of all our crates under `rerouter::…`, so that the filter sees those names. Drops
/// lines for which standard error has no room, because a reader that stalls must not stop requests.
struct DiagnosticLog {
    inner: env_logger::Logger,
    /// Number of lines that were dropped since the last one that was written.
    dropped: Mutex<u64>,
}

impl log::Log for DiagnosticLog {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        let target = target(metadata.target());
        self.inner
            .enabled(&log::Metadata::builder().target(&target).level(metadata.level()).build())
    }

    fn log(&self, record: &log::Record<'_>) {
        let target = target(record.target());
        let mut named = log::Record::builder();
        named.target(&target).level(record.level());
        named.module_path(record.module_path()).file(record.file()).line(record.line());
        if !self.inner.matches(&named.build()) {
            return;
        }
        // Written before the lock is taken, as this may log or panic itself.
        let message = record.args().to_string();
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        let error = std::io::stderr();
        if *dropped > 0 && has_room(&error) {
            let count = std::mem::take(&mut *dropped);
            let mut told = log::Record::builder();
            told.target("rerouter::log").level(log::Level::Warn);
            self.inner
                .log(&told.args(format_args!("{count} lines of this log had no room")).build());
        }
        match has_room(&error) {
            true => self.inner.log(&named.args(format_args!("{message}")).build()),
            false => *dropped += 1,
        }
    }

    fn flush(&self) {
        self.inner.flush();
    }
}

/// Whether 4 KiB can be written to a pipe without waiting for its reader; a longer line may wait.
/// Files always have room.
fn has_room(output: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(output, PollFlags::OUT)];
    !matches!(poll(&mut polled, Some(&Timespec::default())), Ok(0))
}

/// The log target of a module: `rerouter::` and its room. Modules of other crates keep theirs.
pub fn target(module: &str) -> Cow<'_, str> {
    let Some(inner) = module.strip_prefix("rerouter_") else { return module.into() };
    let (name, rest) = inner.split_once("::").unwrap_or((inner, ""));
    let room = rest.split("::").next().unwrap_or_default();
    let is_room = matches!(
        (name, room),
        ("base" | "access" | "captures" | "core", _)
            | ("dialect", "wire")
            | ("gateway", "mock" | "server")
    );
    match (is_room, rest) {
        (true, _) => format!("rerouter::{rest}").into(),
        (false, "") => format!("rerouter::{name}").into(),
        (false, _) => format!("rerouter::{name}::{rest}").into(),
    }
}

/// Installs a panic hook that logs [`panicked`]. Only for the gateway's own process.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|info| log::error!("{}", panicked(info))));
}

/// The log line of a panic: its location and, with `RUST_BACKTRACE`, a backtrace. It leaves out the
/// message, which may contain a prompt or a key.
pub fn panicked(info: &PanicHookInfo<'_>) -> String {
    let at = info.location().map_or_else(|| "an unknown location".to_owned(), ToString::to_string);
    let trace = Backtrace::capture();
    match trace.status() {
        BacktraceStatus::Captured => format!("panic at {at}\n{trace}"),
        _ => format!("panic at {at}"),
    }
}

/// Whether a diagnostic may be written. Below `info` other crates are silenced, as Pingora prints
/// heads with provider credentials, and bodies, at these levels. Other loggers have to call this
/// too.
pub fn may_be_written(target: &str, level: log::Level) -> bool {
    let own = target.strip_prefix("rerouter");
    level <= log::Level::Info
        || own
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("::") || rest.starts_with('_'))
}

/// Limits a log line to one per [`LOG_THROTTLE`], and counts the suppressed ones.
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<(Option<Instant>, u64)>);

impl LogThrottle {
    /// Counts an event. If a line is due, calls `say` with the number of events since the last
    /// line.
    pub fn tell(&self, say: impl FnOnce(u64)) {
        let count = {
            let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            told.1 += 1;
            if told.0.is_some_and(|last| last.elapsed() < LOG_THROTTLE) {
                return;
            }
            told.0 = Some(Instant::now());
            std::mem::take(&mut told.1)
        };
        say(count);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_pipe_that_nobody_reads_has_no_room() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let mut written = 0;
        while has_room(&writer) {
            writer.write_all(&[b'a'; 4096]).unwrap();
            written += 4096;
            assert!(written <= 1 << 20);
        }
        reader.read_exact(&mut [0; 8192]).unwrap();
        assert!(has_room(&writer) && has_room(&tempfile::tempfile().unwrap()));
    }

    #[test]
    fn other_crates_write_nothing_below_info() {
        use log::Level;
        for (target, level, written) in [
            ("rerouter::gateway::edge", Level::Trace, true),
            ("rerouter", Level::Debug, true),
            (module_path!(), Level::Debug, true),
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
    fn a_target_is_of_a_room_whichever_crate_it_is_in() {
        for (module, shown) in [
            (module_path!(), "rerouter::log::tests"),
            ("rerouter_core::api::routing", "rerouter::api::routing"),
            ("rerouter_store::postgres::listen", "rerouter::store::postgres::listen"),
            ("rerouter_gateway::edge", "rerouter::gateway::edge"),
            ("rerouter_gateway::server::boot", "rerouter::server::boot"),
            ("rerouter_cli::server_source", "rerouter::cli::server_source"),
            ("rerouter_dialect", "rerouter::dialect"),
            ("pingora_core::server", "pingora_core::server"),
        ] {
            assert_eq!(target(module), shown);
        }
    }

    #[test]
    fn frequent_events_are_logged_seldom() {
        let (seldom, mut said) = (LogThrottle::default(), Vec::new());
        (0..100).for_each(|_| seldom.tell(|count| said.push(count)));
        assert_eq!(said, [1]);
        let long_ago = Instant::now().checked_sub(LOG_THROTTLE);
        seldom.0.lock().unwrap().0 = long_ago;
        (0..100).for_each(|_| seldom.tell(|count| said.push(count)));
        assert_eq!(said, [1, 100]);
    }
}
