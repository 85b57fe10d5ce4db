//! How a batch of captures is written: how much work goes into it, and how long requests go first.

use std::cell::Cell;
use std::time::Instant;

use crate::bounds;

/// How much work goes into compression: the more captures wait, the less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// zstd level 1: higher levels hardly save more.
    Usual,
    Less,
    None,
}

impl Effort {
    /// The effort for a queue in which `used` of `limit` are taken.
    pub fn at(used: usize, limit: usize) -> Self {
        match used {
            _ if used > limit / 4 * 3 => Effort::None,
            _ if used > limit / 4 => Effort::Less,
            _ => Effort::Usual,
        }
    }
}

thread_local! {
    /// When this thread last yielded.
    static YIELDED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The pace of a batch.
#[derive(Clone, Copy, Debug)]
pub struct WritePace {
    pub effort: Effort,
    /// When the writer stops yielding; `None` for never. On a busy machine it would otherwise stand
    /// still for seconds.
    pub until: Option<Instant>,
}

impl WritePace {
    /// The pace of work whose caller waits for it.
    pub fn awaited() -> Self {
        WritePace { effort: Effort::Usual, until: Some(Instant::now() + bounds::CAPTURE_YIELD_MAX) }
    }

    /// Yields the processor to another thread, unless this one yielded a moment ago, too much waits
    /// to be written, or it has waited for too long. Work beside requests calls this more often
    /// than every tenth of a millisecond, or the scheduler lets it use its slice of milliseconds
    /// while requests wait. Returns whether it yielded.
    pub fn give_way(self) -> bool {
        if self.effort != Effort::Usual {
            return false;
        }
        let now = Instant::now();
        let yields = self.until.is_none_or(|until| now < until)
            && YIELDED.get().is_none_or(|last| now.duration_since(last) >= bounds::CAPTURE_SLICE);
        if yields {
            std::thread::yield_now();
            YIELDED.set(Some(Instant::now()));
        }
        yields
    }
}

impl From<Effort> for WritePace {
    fn from(effort: Effort) -> Self {
        WritePace { effort, until: None }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_more_waits_the_less_is_done() {
        let efforts = [0, 25, 26, 75, 76, 100].map(|used| Effort::at(used, 100));
        use Effort::{Less, None, Usual};
        assert_eq!(efforts, [Usual, Usual, Less, Less, None, None]);
        assert_eq!(Usual.max(Less).max(None), None);
    }

    #[test]
    fn a_batch_yields_until_it_has_waited_for_too_long() {
        let now = Instant::now();
        let later = Some(now + Duration::from_secs(600));
        let yields = |effort: Effort, until: Option<Instant>| {
            YIELDED.set(None);
            WritePace { effort, until }.give_way()
        };
        assert!(yields(Effort::Usual, Option::None) && yields(Effort::Usual, later));
        assert!(
            !yields(Effort::Usual, Some(now))
                && !yields(Effort::Less, later)
                && !yields(Effort::None, Option::None)
        );
        YIELDED.set(Some(now + Duration::from_secs(600)));
        assert!(!WritePace::from(Effort::Usual).give_way(), "it did a moment ago");
    }
}
