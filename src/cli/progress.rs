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
            let text = columns(std::io::stderr()).map_or(text.clone(), |columns| cut(&text, columns.saturating_sub(1)));
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

/// How far captures have come that come newest first, to an end that a number says, or a time, or nothing.
pub(super) struct Way {
    limit: Option<u64>,
    since: Option<Timestamp>,
    newest: Option<Timestamp>,
    begun: Instant,
}

impl Way {
    /// It begins now.
    pub(super) fn new(limit: Option<u64>, since: Option<Timestamp>) -> Way {
        Way { limit, since, newest: None, begun: Instant::now() }
    }

    /// So many have come, the last of them of this time. A bar where the end is known; else how many, how fast, and of when.
    pub(super) fn show(&mut self, progress: &mut Progress, come: u64, at: Option<Timestamp>) {
        self.newest = self.newest.or(at);
        let rate = come as f64 / self.begun.elapsed().as_secs_f64().max(0.001);
        let back = at.map_or_else(String::new, |at| format!(", back to {at:.0}"));
        let text = format!("{come} captures, {rate:.0}/s{back}");
        match self.share(come, at) {
            Some(share) => progress.bar(share, WHOLE, &text),
            None => progress.write(&text),
        }
    }

    /// Of [`WHOLE`], what is done: by whichever end is nearer.
    fn share(&self, come: u64, at: Option<Timestamp>) -> Option<u64> {
        let of = |done: i128, all: i128| u64::try_from((done * i128::from(WHOLE)).checked_div(all)?.clamp(0, i128::from(WHOLE))).ok();
        let by_number = self.limit.and_then(|limit| of(come.into(), limit.into()));
        let us = |from: Timestamp, to: Timestamp| i128::from(from.as_microsecond()) - i128::from(to.as_microsecond());
        let by_time = self.newest.zip(at).zip(self.since).and_then(|((newest, at), since)| of(us(newest, at), us(newest, since)));
        by_number.max(by_time)
    }
}

/// Parts that a way is told in.
const WHOLE: u64 = 10_000;

fn bar(done: u64, all: u64) -> String {
    let all = all.max(1);
    let done = done.min(all);
    let of = |whole: u64| u64::try_from(u128::from(done) * u128::from(whole) / u128::from(all)).unwrap_or(whole);
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

    #[test]
    fn a_way_ends_where_its_nearer_end_is() {
        let at = |second: i64| Some(Timestamp::from_second(1_764_000_000 + second).unwrap());
        let share = |limit: Option<u64>, since: Option<Timestamp>, come: u64, now: Option<Timestamp>| {
            Way { newest: at(100), ..Way::new(limit, since) }.share(come, now)
        };
        assert_eq!(share(None, None, 5, at(50)), None, "nobody knows");
        assert_eq!(share(Some(20), None, 5, at(50)), Some(2_500));
        assert_eq!(share(None, at(0), 5, at(40)), Some(6_000));
        assert_eq!(share(Some(10), at(0), 5, at(90)), Some(5_000));
        assert_eq!(share(Some(100), at(0), 5, at(10)), Some(9_000));
        // A clock that was set back between two captures; ends that are none.
        assert_eq!(share(None, at(0), 5, at(-10)), Some(10_000));
        assert_eq!(share(None, at(0), 5, at(110)), Some(0));
        assert_eq!((share(None, at(100), 5, at(100)), share(Some(5), at(100), 5, None)), (None, Some(10_000)));
    }
}
