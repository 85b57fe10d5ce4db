//! A sliding window of two counts: a ring of buckets, so that memory and work do not grow with
//! traffic.

/// Two counts over the last `N` buckets.
#[derive(Debug)]
pub(super) struct SlidingWindow<const N: usize> {
    buckets: [(u32, u32); N],
    /// Number of the newest bucket: time since the epoch divided by `width`.
    newest: i64,
    /// Width of a bucket in microseconds.
    width: i64,
}

impl<const N: usize> SlidingWindow<N> {
    pub(super) fn new(span_us: i64) -> Self {
        SlidingWindow { buckets: [(0, 0); N], newest: i64::MIN, width: Self::width_of(span_us) }
    }

    fn width_of(span_us: i64) -> i64 {
        span_us.checked_div(i64::try_from(N).unwrap_or(1)).unwrap_or(1).max(1)
    }

    /// Changes the span. A different span clears the counts.
    pub(super) fn span(&mut self, span_us: i64) {
        if self.width != Self::width_of(span_us) {
            *self = Self::new(span_us);
        }
    }

    /// Adds to both counts at `at`, in microseconds since the epoch.
    pub(super) fn add(&mut self, at: i64, first: u32, second: u32) {
        self.advance(at);
        if let Some(bucket) = self.buckets.get_mut(Self::place(self.newest)) {
            *bucket = (bucket.0.saturating_add(first), bucket.1.saturating_add(second));
        }
    }

    /// Both sums over the span that ends at `at`.
    pub(super) fn sums(&mut self, at: i64) -> (u64, u64) {
        self.advance(at);
        self.buckets
            .iter()
            .fold((0, 0), |sum, bucket| (sum.0 + u64::from(bucket.0), sum.1 + u64::from(bucket.1)))
    }

    pub(super) fn clear(&mut self) {
        self.buckets = [(0, 0); N];
    }

    fn place(bucket: i64) -> usize {
        usize::try_from(bucket.rem_euclid(i64::try_from(N).unwrap_or(1))).unwrap_or(0)
    }

    /// Moves on to the slot of `at` and clears the slots between. If the clock went back by less
    /// than the span, the newest slot stays current. If it went back by more, the window starts
    /// over.
    fn advance(&mut self, at: i64) {
        let bucket = at.div_euclid(self.width);
        let buckets = i64::try_from(N).unwrap_or(1);
        let ahead = bucket.saturating_sub(self.newest);
        if ahead >= buckets || ahead <= -buckets {
            self.clear();
            self.newest = bucket;
            return;
        }
        while self.newest < bucket {
            self.newest += 1;
            if let Some(entry) = self.buckets.get_mut(Self::place(self.newest)) {
                *entry = (0, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: i64 = 1_764_000_000_000_000;

    #[test]
    fn what_is_older_than_the_span_is_gone() {
        let mut window = SlidingWindow::<10>::new(10_000_000);
        window.add(START, 1, 0);
        window.add(START + 9_000_000, 1, 1);
        assert_eq!(window.sums(START + 9_999_999), (2, 1));
        assert_eq!(window.sums(START + 10_000_000), (1, 1));
        assert_eq!(window.sums(START + 60_000_000), (0, 0));
        window.add(START + 60_000_000, 5, 0);
        assert_eq!(window.sums(START + 59_000_000), (5, 0), "a clock that goes back a little");
        assert_eq!(window.sums(START), (0, 0), "and one that goes back far");
        window.add(START, 1, 0);
        window.span(10_000_000);
        assert_eq!(window.sums(START), (1, 0));
        window.span(20_000_000);
        assert_eq!(window.sums(START), (0, 0));
    }

    proptest! {
        #[test]
        fn the_sum_is_that_of_the_buckets_in_reach(
            steps in prop::collection::vec(0i64..4_000_000, 1..60),
        ) {
            let mut window = SlidingWindow::<10>::new(10_000_000);
            let (mut at, mut times) = (START, Vec::new());
            for step in steps {
                at += step;
                times.push(at);
                window.add(at, 1, 2);
                let reach = at.div_euclid(1_000_000) - 9;
                let count =
                    times.iter().filter(|time| time.div_euclid(1_000_000) >= reach).count() as u64;
                prop_assert_eq!(window.sums(at), (count, 2 * count));
            }
        }

        #[test]
        fn no_time_panics(times in prop::collection::vec(any::<i64>(), 1..20)) {
            let mut window = SlidingWindow::<12>::new(60_000_000);
            for at in times {
                window.add(at, 1, u32::MAX);
                prop_assert!(window.sums(at).0 >= 1);
            }
        }
    }
}
