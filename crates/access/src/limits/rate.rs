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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_microsecond(1_764_000_000_000_000 + micros).unwrap()
    }

    fn full(limit: u64, now: Timestamp) -> Bucket {
        Bucket::full(limit, Duration::from_secs(60), now)
    }

    #[test]
    fn a_bucket_fills_with_time() {
        let mut bucket = full(60, at(0));
        assert_eq!(bucket.left(), RateLeft { limit: 60, remaining: 60, reset: Duration::ZERO });
        bucket.take(60);
        assert!(!bucket.has(1) && bucket.could_have(60) && !bucket.could_have(61));
        assert_eq!(bucket.wait_for(1), Duration::from_micros(1_000_001));
        bucket.fill(at(999_999));
        assert!(!bucket.has(1));
        bucket.fill(at(1_000_000));
        assert!(bucket.has(1) && !bucket.has(2));
        assert_eq!(bucket.left().reset, Duration::from_secs(59));
        bucket.fill(at(-5_000_000));
        assert_eq!(bucket.left().remaining, 1, "a clock that goes back takes nothing");
        bucket.fill(at(-4_000_000));
        assert_eq!(bucket.left().remaining, 2, "and does not stop the flow");
        bucket.fill(at(600_000_000));
        assert!(bucket.is_full());
    }

    #[test]
    fn requests_out_of_order_make_no_time() {
        let mut bucket = full(60, at(0));
        bucket.take(60);
        for _ in 0..1_000 {
            // Two that looked at the clock in one order and came here in the other.
            bucket.fill(at(900_000));
            bucket.fill(at(899_000));
        }
        assert!(!bucket.has(1));
        bucket.fill(at(1_000_000));
        assert!(bucket.has(1) && !bucket.has(2));
    }

    #[test]
    fn what_was_used_beyond_is_owed_for_a_minute_at_most() {
        let mut bucket = full(10, at(0));
        bucket.take(1_000);
        assert_eq!(bucket.left().remaining, 0);
        bucket.fill(at(60_000_000));
        assert!(!bucket.has(1));
        bucket.fill(at(120_000_000));
        assert!(bucket.is_full());
        bucket.take(-50);
        assert!(bucket.is_full(), "nothing is put back that was not taken");
    }

    #[test]
    fn another_rate_keeps_what_was_used() {
        let mut bucket = full(10, at(0));
        bucket.take(4);
        bucket.follow(100, at(0));
        assert_eq!(bucket.left().remaining, 96);
        bucket.follow(5, at(0));
        assert_eq!(bucket.left().remaining, 1);
        let mut huge = full(u64::MAX, at(0));
        huge.take(i64::MAX);
        huge.fill(at(i64::from(u32::MAX)));
        assert!(huge.could_have(1));
    }

    proptest! {
        /// Over any span, no more passes than a full bucket and what flowed in.
        #[test]
        fn never_more_than_the_rate(limit in 1u64..500,
            steps in proptest::collection::vec((0i64..5_000_000, 1u64..40), 1..200)) {
            let mut bucket = full(limit, at(0));
            let (mut now, mut taken) = (0, 0u64);
            for (pause, count) in steps {
                now += pause;
                bucket.fill(at(now));
                if bucket.has(count) {
                    bucket.take(i64::try_from(count).unwrap());
                    taken += count;
                } else {
                    let wait = i64::try_from(bucket.wait_for(count).as_micros()).unwrap();
                    let mut later = Bucket { ..bucket };
                    later.fill(at(now + wait));
                    prop_assert!(
                        !bucket.could_have(count) || wait > 120_000_000 || later.has(count)
                    );
                }
                let minutes = 60_000_000 + u128::try_from(now).unwrap();
                let most = u128::from(limit) * minutes;
                prop_assert!(u128::from(taken) * 60_000_000 <= most);
                prop_assert!(bucket.left().remaining <= limit);
            }
        }
    }
}
