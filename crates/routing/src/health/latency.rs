//! Peak EWMA of latency, as in Twitter's Finagle: a rise shows at once, a fall gradually, and old
//! samples decay.

use std::time::Duration;

/// Time after which the weight of a measured latency has fallen to about a third (1/e).
const LATENCY_DECAY: Duration = Duration::from_secs(10);

/// Peak EWMA of one target's time to first content.
#[derive(Debug, Default)]
pub(super) struct PeakEwma {
    /// Average in microseconds, as of `stamp`.
    cost: f64,
    /// Microseconds since the epoch.
    stamp: i64,
}

impl PeakEwma {
    pub(super) fn took(&mut self, sample_us: u64, at: i64) {
        let sample = sample_us as f64;
        let weight = self.weight(at);
        self.cost = if sample > self.cost * weight {
            sample
        } else {
            self.cost * weight + sample * (1.0 - weight)
        };
        self.stamp = self.stamp.max(at);
    }

    /// The average in microseconds, decayed to `at`; `None` below one microsecond.
    pub(super) fn at(&self, at: i64) -> Option<u64> {
        let cost = self.cost * self.weight(at);
        // The cast truncates, and saturates at the ends.
        (cost >= 1.0).then_some(cost as u64)
    }

    fn weight(&self, at: i64) -> f64 {
        let age = at.saturating_sub(self.stamp).max(0) as f64;
        libm::exp(-age / (LATENCY_DECAY.as_micros() as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: i64 = 1_764_000_000_000_000;
    const SECOND: i64 = 1_000_000;

    #[test]
    fn peaks_show_at_once_and_fade() {
        let mut latency = PeakEwma::default();
        assert_eq!(latency.at(START), None);
        latency.took(100_000, START);
        assert_eq!(latency.at(START), Some(100_000));
        latency.took(900_000, START + SECOND);
        assert_eq!(latency.at(START + SECOND), Some(900_000));
        latency.took(100_000, START + SECOND);
        assert_eq!(
            latency.at(START + SECOND),
            Some(900_000),
            "no time has passed that could soften it"
        );
        latency.took(100_000, START + 11 * SECOND);
        let softened = latency.at(START + 11 * SECOND).unwrap();
        assert!((390_000..400_000).contains(&softened), "{softened}");
        assert_eq!(latency.at(START + 600 * SECOND), None);
        assert_eq!(latency.at(START), Some(softened), "a clock that went back");
    }

    proptest! {
        #[test]
        fn it_stays_between_nothing_and_the_longest(
            samples in prop::collection::vec((0u64..10_000_000, -5i64..30), 1..50),
        ) {
            let (mut latency, mut at, mut longest) = (PeakEwma::default(), START, 0);
            for (sample, seconds) in samples {
                at += seconds * SECOND;
                longest = longest.max(sample);
                latency.took(sample, at);
                let now = latency.at(at).unwrap_or(0);
                prop_assert!(now <= longest, "{} over {}", now, longest);
                prop_assert!(now + 1 >= sample.min(longest) || seconds <= 0 || now <= longest);
                prop_assert!(latency.at(at + SECOND).unwrap_or(0) <= now);
            }
        }
    }
}
