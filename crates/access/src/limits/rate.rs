//! A token bucket that fills continuously, over a window. The caller passes the time. Time that
//! goes back fills nothing.

use std::time::Duration;

use jiff::Timestamp;

/// If the time goes back by less than this, requests read the clock in another order, and the
/// bucket was filled for that time already. If it goes back by more, the clock was set back, and
/// the bucket fills from the new time on.
const OUT_OF_ORDER_US: i64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLeft {
    pub limit: u64,
    /// The count that could be taken now.
    pub remaining: u64,
    /// Time until the bucket is full; zero if it does not fill with time.
    pub reset: Duration,
}

/// A bucket. Its level is negative, down to minus the limit, if more was used than was there.
#[derive(Debug)]
pub(super) struct Bucket {
    limit: i64,
    /// Microseconds of the window. The level is in units of 1/window, so that `limit` units flow in
    /// during one microsecond.
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

    /// What was used stays used.
    pub(super) fn follow(&mut self, limit: u64, now: Timestamp) {
        self.fill(now);
        let limit = bounded(limit, self.window);
        if limit != self.limit {
            let used = self.limit * self.window - self.level;
            self.limit = limit;
            self.level = self.bound((limit * self.window).saturating_sub(used));
        }
    }

    /// Fills the bucket for the time since the last call.
    pub(super) fn fill(&mut self, now: Timestamp) {
        let passed = now.as_microsecond().saturating_sub(self.at.as_microsecond());
        if (-OUT_OF_ORDER_US..0).contains(&passed) {
            return;
        }
        let passed = passed.clamp(0, 2 * self.window);
        self.at = now;
        self.level = self.bound(self.level.saturating_add(passed * self.limit));
    }

    pub(super) fn has(&self, count: u64) -> bool {
        self.level >= self.weight(count)
    }

    /// Whether this count could be taken from a full bucket.
    pub(super) fn could_have(&self, count: u64) -> bool {
        self.limit * self.window >= self.weight(count)
    }

    /// Takes this count, even if the bucket has less. A negative count is put back.
    pub(super) fn take(&mut self, count: i64) {
        self.level = self.bound(self.level.saturating_sub(count.saturating_mul(self.window)));
    }

    /// Time until this count can be taken. The bucket must be filled up to now.
    pub(super) fn wait_for(&self, count: u64) -> Duration {
        let missing = self.weight(count).saturating_sub(self.level).max(0);
        Duration::from_micros(u64::try_from(missing / self.limit.max(1) + 1).unwrap_or(u64::MAX))
    }

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

/// The limit, lowered so that twice its level fits into 63 bits.
fn bounded(limit: u64, window: i64) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).min(i64::MAX / window / 2)
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
