//! Histograms of durations with bounds that double: cheap to add, and their sums yield quantiles.

use std::time::Duration;

use super::Result;

/// Number of buckets.
pub(super) const LATENCIES: usize = 14;
/// Upper bound of the first bucket, in milliseconds. The last bucket begins at 102.4 s.
const FIRST_MS: u64 = 25;

/// A histogram: how many durations were below 25 ms, from 25 ms to below 50 ms, and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyCounts([u64; LATENCIES]);

impl LatencyCounts {
    pub fn one(took: Duration) -> Self {
        let bounds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX) / FIRST_MS;
        let at = bounds.checked_ilog2().map_or(0, |log| log as usize + 1).min(LATENCIES - 1);
        let mut counts = LatencyCounts::default();
        if let Some(count) = counts.0.get_mut(at) {
            *count = 1;
        }
        counts
    }

    pub fn add(&mut self, other: &LatencyCounts) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count = count.saturating_add(more);
        }
    }

    /// The quantile of a share (0 to 1), in milliseconds; `None` without durations. It is
    /// interpolated within its bucket, so its error is at most the width of the bucket.
    pub fn quantile_ms(&self, share: f64) -> Option<f64> {
        let total = self.0.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        if total == 0 {
            return None;
        }
        let rank = total as f64 * share;
        let (mut below, mut low, mut high) = (0.0, 0.0, FIRST_MS as f64);
        for count in self.0 {
            let count = count as f64;
            if count > 0.0 && below + count >= rank {
                return Some(low + (high - low) * (rank - below) / count);
            }
            below += count;
            (low, high) = (high, high * 2.0);
        }
        Some(low)
    }

    pub(super) fn counts(&self) -> [u64; LATENCIES] {
        self.0
    }

    /// Reads the counts in order, one from each call of `next`.
    pub(super) fn read(mut next: impl FnMut() -> Result<u64>) -> Result<Self> {
        let mut counts = LatencyCounts::default();
        for count in &mut counts.0 {
            *count = next()?;
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(millis: &[u64]) -> LatencyCounts {
        let mut counts = LatencyCounts::default();
        millis.iter().for_each(|ms| counts.add(&LatencyCounts::one(Duration::from_millis(*ms))));
        counts
    }

    #[test]
    fn bounds_double() {
        for (ms, at) in [
            (0, 0),
            (24, 0),
            (25, 1),
            (49, 1),
            (50, 2),
            (102_399, 12),
            (102_400, 13),
            (u64::MAX, 13),
        ] {
            assert_eq!(of(&[ms]).counts().iter().position(|count| *count == 1), Some(at), "{ms}");
        }
        assert_eq!(LatencyCounts::default().quantile_ms(0.5), None);
        assert_eq!(of(&[10, 10]).quantile_ms(0.5), Some(12.5));
    }

    proptest! {
        /// The quantile is at most twice the real one, and at least half of it.
        #[test]
        fn a_quantile_is_between_the_bounds_of_the_real_one(
            mut millis in proptest::collection::vec(25_u64..102_400, 1..200), share in 0.01..0.99
        ) {
            let found = of(&millis).quantile_ms(share).unwrap();
            millis.sort_unstable();
            let rank = (millis.len() as f64 * share).ceil() as usize;
            let real = millis[rank.max(1) - 1] as f64;
            prop_assert!(found <= real * 2.0 && found * 2.0 >= real, "{found} for {real}");
        }
    }
}
