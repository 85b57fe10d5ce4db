//! A token bucket of one window that fills continuously. The caller passes the time. A clock that
//! goes back fills nothing, nor do requests out of order.

use std::time::Duration;

use jiff::Timestamp;

/// Time that goes back by less than this comes from requests that read the clock in another order:
/// that time has flowed in already. If it goes back by more, the clock was set back, and the flow
/// goes on from there.
const OUT_OF_ORDER_US: i64 = 1_000_000;

/// What is left of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLeft {
    pub limit: u64,
    /// What could be taken now.
    pub remaining: u64,
    /// Until all of it is, if it fills with time.
    pub reset: Duration,
}

/// What flows in during a window, and the level. What was used beyond its reserve is owed, up to
/// the limit.
#[derive(Debug)]
pub(super) struct Bucket {
    limit: i64,
    /// Microseconds of the window. The level counts in these units, so that the limit is what flows
    /// in during one microsecond.
    window: i64,
    level: i64,
    at: Timestamp,
}

impl Bucket {
    pub(super) fn full(limit: u64, window: Duration, now: Timestamp) -> Self {
        let window = i64::try_from(window.as_micros()).unwrap_or(i64::MAX).max(1);
        let limit = bounded(limit, window);
        Bucket { limit, window, level: limit * window, at: now }
    }

    /// Takes on another rate; what has been used stays used.
    pub(super) fn follow(&mut self, limit: u64, now: Timestamp) {
        self.fill(now);
        let limit = bounded(limit, self.window);
        if limit != self.limit {
            let used = self.limit * self.window - self.level;
            self.limit = limit;
            self.level = self.bound((limit * self.window).saturating_sub(used));
        }
    }

    /// Lets flow in what has come since the last look.
    pub(super) fn fill(&mut self, now: Timestamp) {
        let passed = now.as_microsecond().saturating_sub(self.at.as_microsecond());
        if (-OUT_OF_ORDER_US..0).contains(&passed) {
            return;
        }
        let passed = passed.clamp(0, 2 * self.window);
        self.at = now;
        self.level = self.bound(self.level.saturating_add(passed * self.limit));
    }

    /// Whether so many are there.
    pub(super) fn has(&self, count: u64) -> bool {
        self.level >= self.weight(count)
    }

    /// Whether so many could ever be there.
    pub(super) fn could_have(&self, count: u64) -> bool {
        self.limit * self.window >= self.weight(count)
    }

    /// Takes this many out of the bucket, also more than it has. A negative count puts them back.
    pub(super) fn take(&mut self, count: i64) {
        self.level = self.bound(self.level.saturating_sub(count.saturating_mul(self.window)));
    }

    /// How long until so many are there, to which the bucket must be filled up to now.
    pub(super) fn wait_for(&self, count: u64) -> Duration {
        let missing = self.weight(count).saturating_sub(self.level).max(0);
        Duration::from_micros(u64::try_from(missing / self.limit.max(1) + 1).unwrap_or(u64::MAX))
    }

    /// Whether nothing of it is used.
    pub(super) fn is_full(&self) -> bool {
        self.level == self.limit * self.window
    }

    pub(super) fn left(&self) -> RateLeft {
        let missing = (self.limit * self.window - self.level) / self.limit.max(1);
        RateLeft {
            limit: self.limit.unsigned_abs(),
            remaining: (self.level.max(0) / self.window).unsigned_abs(),
            reset: Duration::from_micros(missing.unsigned_abs()),
        }
    }

    fn bound(&self, level: i64) -> i64 {
        let most = self.limit * self.window;
        level.clamp(-most, most)
    }

    fn weight(&self, count: u64) -> i64 {
        i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(self.window)
    }
}

/// A limit whose level fits 63 bits twice.
fn bounded(limit: u64, window: i64) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).min(i64::MAX / window / 2)
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
