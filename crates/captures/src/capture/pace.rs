//! The pace at which a batch of captures is written: the effort of compression, and how long
//! requests have priority.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Longest time after [`CAPTURE_LINGER`](super::bounds::CAPTURE_LINGER) that the writer yields to
/// other work: on busy processors each yield may take milliseconds.
pub(super) const CAPTURE_YIELD_MAX: Duration = Duration::from_millis(100);
/// Bytes of captures per second up to which compression is best: a tenth of a core. Above this rate
/// speed counts more than disk space.
const CAPTURE_CALM: usize = 8 << 20;
/// Shortest time between two yields of a thread that writes captures.
const CAPTURE_SLICE: Duration = Duration::from_micros(100);

/// The effort of compression: the more captures arrive or wait, the less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// zstd level 1: higher levels save hardly more.
    Usual,
    /// Takes half the time of `Usual`.
    Less,
    None,
}

impl Effort {
    /// The effort if `used` of a queue's `limit` is in use.
    pub fn at(used: usize, limit: usize) -> Self {
        match used {
            _ if used > limit / 4 * 3 => Effort::None,
            _ if used > limit / 4 => Effort::Less,
            _ => Effort::Usual,
        }
    }
}

/// The rate of captures to write: a leaky bucket, from which [`CAPTURE_CALM`] bytes leave each
/// second.
pub(super) struct CaptureRate {
    /// Bytes in the bucket, at most as many as leave in two seconds.
    level: usize,
    at: Instant,
}

impl CaptureRate {
    pub(super) fn new(at: Instant) -> Self {
        CaptureRate { level: 0, at }
    }

    /// Adds bytes that have come by the time `at`. Returns the effort that fits their rate.
    pub(super) fn add(&mut self, bytes: usize, at: Instant) -> Effort {
        let since = at.saturating_duration_since(std::mem::replace(&mut self.at, at));
        let left = (CAPTURE_CALM as f64 * since.as_secs_f64()) as usize;
        let level = self.level.saturating_sub(left).saturating_add(bytes);
        self.level = level.min(2 * CAPTURE_CALM);
        if self.level > CAPTURE_CALM { Effort::Less } else { Effort::Usual }
    }
}

thread_local! {
    /// When this thread last yielded.
    static YIELDED: Cell<Option<Instant>> = const { Cell::new(None) };
}

#[derive(Clone, Copy, Debug)]
pub struct WritePace {
    pub effort: Effort,
    /// When the writer stops yielding; `None` for never. On a busy machine endless yielding could
    /// stop it for seconds.
    pub until: Option<Instant>,
}

impl WritePace {
    /// The pace of work that a caller waits for.
    pub fn awaited() -> Self {
        WritePace { effort: Effort::Usual, until: Some(Instant::now() + CAPTURE_YIELD_MAX) }
    }

    /// Yields the processor to another thread, unless this thread yielded a moment ago, or `until`
    /// has passed. Background work calls this more often than every tenth of a millisecond;
    /// otherwise the scheduler lets it use its slice of milliseconds while requests wait. Returns
    /// whether it yielded.
    pub fn give_way(self) -> bool {
        let now = Instant::now();
        let yields = self.until.is_none_or(|until| now < until)
            && YIELDED.get().is_none_or(|last| now.duration_since(last) >= CAPTURE_SLICE);
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
    fn what_comes_fast_for_a_while_is_compressed_fast_until_it_has_been_slow_for_as_long() {
        let start = Instant::now();
        let mut rate = CaptureRate::new(start);
        let mut each_tenth = |tenths: std::ops::Range<u64>, bytes: usize| -> Vec<Effort> {
            let at = |tenth: u64| start + Duration::from_millis(tenth * 100);
            tenths.map(|tenth| rate.add(bytes, at(tenth))).collect()
        };
        let calm = CAPTURE_CALM / 10;
        assert_eq!(each_tenth(1..50, calm), [Effort::Usual; 49]);
        let fast = each_tenth(50..100, calm * 5);
        assert!(fast.first() == Some(&Effort::Usual) && fast.last() == Some(&Effort::Less));
        let slow = each_tenth(100..150, 0);
        assert!(slow.first() == Some(&Effort::Less) && slow.get(12) == Some(&Effort::Usual));
    }

    #[test]
    fn a_batch_yields_until_it_has_waited_for_too_long() {
        let now = Instant::now();
        let later = Some(now + Duration::from_secs(600));
        let yields = |until: Option<Instant>| {
            YIELDED.set(None);
            WritePace { effort: Effort::Less, until }.give_way()
        };
        assert!(yields(None) && yields(later) && !yields(Some(now)));
        YIELDED.set(Some(now + Duration::from_secs(600)));
        assert!(!WritePace::from(Effort::Usual).give_way(), "it did a moment ago");
    }
}
