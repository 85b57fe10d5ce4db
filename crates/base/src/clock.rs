//! The current time, passed as a value, so that tests can move it instead of sleeping.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// Difference between the machine's clock and the store's from which people are warned.
const CLOCK_WRONG: Duration = Duration::from_secs(5);

/// A clock. Clones share its time.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The clock of the machine.
    #[default]
    System,
    /// A store's clock: its offset from the time since boot, in microseconds. [`Clock::learn`] sets
    /// it.
    Store(Arc<AtomicI64>),
    /// A clock that [`Clock::advance`] moves, in microseconds since the epoch.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A manual clock that starts at `start`.
    pub fn manual(start: Timestamp) -> Self {
        Clock::Manual(Arc::new(AtomicI64::new(start.as_microsecond())))
    }

    /// Sets the clock from the store's time, in microseconds since the epoch. `asked` is the time
    /// since boot when the store was asked. A clock that agrees with the answer is not changed, so
    /// it goes back only if the store's clock did.
    pub fn learn(&self, told_us: i64, asked: Duration) {
        let Clock::Store(ahead) = self else { return };
        let (least, most) = (told_us - micros(since_boot()), told_us - micros(asked));
        if !(least..=most).contains(&ahead.load(Ordering::Acquire)) {
            ahead.store(least.midpoint(most), Ordering::Release);
        }
    }

    /// Microseconds by which the machine's clock is ahead of the store's. `None` without a store's
    /// clock.
    pub fn machine_ahead(&self) -> Option<i64> {
        let ahead = Timestamp::now().as_microsecond() - self.now().as_microsecond();
        matches!(self, Clock::Store(_)).then_some(ahead)
    }

    /// The current time in whole microseconds, so that it is equal after storing and loading.
    pub fn now(&self) -> Timestamp {
        let micros = match self {
            Clock::System => Timestamp::now().as_microsecond(),
            Clock::Store(ahead) => micros(since_boot()) + ahead.load(Ordering::Acquire),
            Clock::Manual(at) => at.load(Ordering::Acquire),
        };
        Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Moves a manual clock forward; does nothing to the others.
    pub fn advance(&self, by: Duration) {
        if let Clock::Manual(at) = self {
            at.fetch_add(micros(by), Ordering::AcqRel);
        }
    }
}

/// Time since the machine started, including suspension. Nobody can set this clock.
pub fn since_boot() -> Duration {
    // Outside Linux, the monotonic clock comes nearest.
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// A text on how far the machine's clock is ahead of the store's or behind it; `None` if the
/// difference is small.
pub fn wrong_clock(ahead_us: i64) -> Option<String> {
    let ahead = SignedDuration::from_micros(ahead_us);
    let seconds = SignedDuration::from_secs((ahead_us.abs() + 500_000) / 1_000_000);
    let side = if ahead.is_negative() { "behind" } else { "ahead of" };
    (ahead.unsigned_abs() >= CLOCK_WRONG).then(|| format!("{seconds:#} {side} the store's"))
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// RFC 3339 in UTC with microseconds, the form of times in all answers and records.
pub fn rfc3339(at: Timestamp) -> String {
    format!("{at:.6}")
}

/// Times for unit tests of all crates.
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
pub mod fixtures {
    use jiff::Timestamp;

    /// The time `second` seconds after a fixed start.
    pub fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_764_000_000 + second).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::fixtures::at;
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = Clock::manual(at(0));
        let shared = clock.clone();
        assert_eq!(rfc3339(clock.now()), "2025-11-24T16:00:00.000000Z");
        shared.advance(Duration::from_millis(1500));
        assert_eq!(rfc3339(clock.now()), "2025-11-24T16:00:01.500000Z");
    }

    #[test]
    fn the_clock_of_a_store_is_within_the_way_there_and_back_and_does_not_waver() {
        const HOUR: i64 = 3_600_000_000;
        assert!(Clock::System.machine_ahead().is_none());
        let clock = Clock::Store(Arc::default());
        let shared = clock.clone();
        // The answer took two seconds, and the store is an hour behind.
        let asked = since_boot() - Duration::from_secs(2);
        let told = Timestamp::now().as_microsecond() - HOUR;
        clock.learn(told, asked);
        let ahead = shared.machine_ahead().unwrap() - HOUR;
        assert!((-2_000_000..=2_000_000).contains(&ahead), "{ahead}");
        // A clock that agrees with the answer does not move.
        let Clock::Store(offset) = &clock else { unreachable!() };
        let before = offset.load(Ordering::Acquire);
        for _ in 0..3 {
            clock.learn(told + 300_000, asked);
            clock.learn(told - 300_000, asked);
        }
        assert_eq!(offset.load(Ordering::Acquire), before);
        // If the store's clock was set back, this one follows.
        clock.learn(told - HOUR, asked);
        assert_eq!((before - offset.load(Ordering::Acquire)) / HOUR, 1);
    }

    #[test]
    fn a_clock_that_is_wrong_is_told_in_words() {
        let told =
            [2_700_000_000, -2_700_000_000, 5_000_000, 4_999_999, 0, -4_999_999].map(wrong_clock);
        let words =
            ["45m ahead of the store's", "45m behind the store's", "5s ahead of the store's"];
        assert_eq!(told[..3], words.map(|told| Some(told.to_owned())));
        assert_eq!(told[3..], [None, None, None]);
    }
}
