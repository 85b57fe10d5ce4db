//! How far a command has come, on one line of a terminal; nothing where nobody looks.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use jiff::Timestamp;

use super::table::clean;
use super::terminal::{columns, cut};

/// Columns of the bar.
const WIDTH: u64 = 30;

/// The line.
pub(super) struct Progress {
    terminal: bool,
    shown: bool,
}

impl Progress {
    /// A line that is not there yet.
    pub(super) fn new() -> Progress {
        Progress { terminal: std::io::stderr().is_terminal(), shown: false }
    }

    /// A bar with text behind it.
    pub(super) fn bar(&mut self, done: u64, all: u64, text: &str) {
        self.write(&format!("{} {text}", bar(done, all)));
    }

    /// Text alone.
    pub(super) fn write(&mut self, text: &str) {
        if self.terminal {
            self.shown = true;
            // Nobody is left to tell when standard error is gone.
            let text = clean(text);
            // What is longer goes on in the next line, and would stay there.
            let text = columns(std::io::stderr())
                .map_or(text.clone(), |columns| cut(&text, columns.saturating_sub(1)));
            let _ = write!(std::io::stderr(), "\r\u{1b}[K{text}");
        }
    }

    /// Clears it.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}

/// How fast captures come, newest first. Nobody knows how many there are, so there is no bar.
pub(super) struct Pace {
    begun: Instant,
}

impl Pace {
    /// It begins now.
    pub(super) fn new() -> Pace {
        Pace { begun: Instant::now() }
    }

    /// So many have come, the last of them of this time.
    pub(super) fn show(&self, progress: &mut Progress, come: u64, at: Option<Timestamp>) {
        let rate = come as f64 / self.begun.elapsed().as_secs_f64().max(0.001);
        let back = at.map_or_else(String::new, |at| format!(", back to {at:.0}"));
        progress.write(&format!("{come} captures, {rate:.0}/s{back}"));
    }
}

fn bar(done: u64, all: u64) -> String {
    let all = all.max(1);
    let done = done.min(all);
    let of = |whole: u64| {
        u64::try_from(u128::from(done) * u128::from(whole) / u128::from(all)).unwrap_or(whole)
    };
    let full = usize::try_from(of(WIDTH)).unwrap_or(0);
    let left = usize::try_from(WIDTH).unwrap_or(0).saturating_sub(full);
    format!("[{}{}] {:3} %", "#".repeat(full), ".".repeat(left), of(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_the_work_is_done() {
        assert_eq!(bar(0, 10), "[..............................]   0 %");
        assert_eq!(bar(5, 10), "[###############...............]  50 %");
        assert_eq!(bar(99, 100), "[#############################.]  99 %");
        for (done, all) in [(10, 10), (11, 10), (u64::MAX, 1), (u64::MAX, u64::MAX)] {
            assert_eq!(bar(done, all), "[##############################] 100 %");
        }
        assert_eq!(bar(0, 0), "[..............................]   0 %");
    }
}
