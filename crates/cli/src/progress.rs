//! Progress of a long command, on one line of standard error. Shown only on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;

use super::table::clean;

/// A line that is overwritten, and cleared at the end.
pub(super) struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// A bar for work of known size, followed by a text.
    pub(super) fn bar() -> ProgressLine {
        ProgressLine::new("[{bar:30}] {percent:>3} % {wide_msg}")
    }

    /// Only a text, for work of unknown size.
    pub(super) fn text() -> ProgressLine {
        ProgressLine::new("{wide_msg}")
    }

    fn new(template: &str) -> ProgressLine {
        let style = ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("#.");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style);
        ProgressLine(bar)
    }

    /// Shows that `done` of `all` units are finished, with a text.
    pub(super) fn advance(&self, done: u64, all: u64, text: &str) {
        self.0.set_length(all.max(1));
        self.0.set_position(done);
        self.show(text);
    }

    pub(super) fn show(&self, text: &str) {
        self.0.set_message(clean(text));
    }

    /// Shows how fast captures arrive, newest first, and the time of the last one.
    pub(super) fn pace(&self, captures: u64, last: Option<Timestamp>) {
        let rate = captures as f64 / self.0.elapsed().as_secs_f64().max(0.001);
        let back = last.map_or_else(String::new, |at| format!(", back to {at:.0}"));
        self.show(&format!("{captures} captures, {rate:.0}/s{back}"));
    }

    pub(super) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
