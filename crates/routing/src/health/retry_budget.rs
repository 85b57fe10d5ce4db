//! The retry budget of a recipe: retries must not double the load of a provider in trouble.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::sliding_window::SlidingWindow;

/// Window of a retry budget.
const RETRY_SPAN: Duration = Duration::from_secs(10);
/// Retries per second that a retry budget always allows.
const RETRIES_A_SECOND: u64 = 3;

/// Requests and retries of one recipe over the last ten seconds. Reloads keep it by the recipe's
/// name.
#[derive(Debug)]
pub struct RetryBudget {
    counts: Mutex<SlidingWindow<10>>,
}

impl Default for RetryBudget {
    fn default() -> Self {
        let span = i64::try_from(RETRY_SPAN.as_micros()).unwrap_or(i64::MAX);
        RetryBudget { counts: Mutex::new(SlidingWindow::new(span)) }
    }
}

impl RetryBudget {
    pub fn request(&self, at: Timestamp) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).add(at.as_microsecond(), 1, 0);
    }

    /// Whether one more retry is allowed: within `percent` of the requests, or within the fixed
    /// minimum.
    pub fn has_room(&self, percent: u16, at: Timestamp) -> bool {
        room(
            self.counts.lock().unwrap_or_else(PoisonError::into_inner).sums(at.as_microsecond()),
            percent,
        )
    }

    /// Counts a retry if it is allowed.
    pub fn take(&self, percent: u16, at: Timestamp) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let room = room(counts.sums(at.as_microsecond()), percent);
        if room {
            counts.add(at.as_microsecond(), 0, 1);
        }
        room
    }
}

fn room((requests, retries): (u64, u64), percent: u16) -> bool {
    let always = RETRIES_A_SECOND * RETRY_SPAN.as_secs();
    retries < always.max(requests * u64::from(percent) / 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(1_764_000_000_000 + ms).unwrap()
    }

    #[test]
    fn a_few_are_always_there_and_come_back() {
        let budget = RetryBudget::default();
        let taken = (0..100).filter(|_| budget.take(20, at(0))).count();
        assert_eq!(taken, 30, "three a second over ten");
        assert!(!budget.has_room(20, at(8_999)) && budget.has_room(20, at(10_000)));
    }

    #[test]
    fn many_requests_make_room_for_a_share_of_them() {
        let budget = RetryBudget::default();
        (0..1_000).for_each(|_| budget.request(at(0)));
        assert_eq!((0..1_000).filter(|_| budget.take(20, at(5_000))).count(), 200);
        assert_eq!(
            (0..1_000).filter(|_| budget.take(50, at(5_000))).count(),
            300,
            "a reload that allows more"
        );
    }

    proptest! {
        #[test]
        fn retries_stay_within_the_share(
            steps in prop::collection::vec((any::<bool>(), 0i64..300), 1..300),
            percent in 0u16..200,
        ) {
            let (budget, mut now) = (RetryBudget::default(), 0);
            let (mut requests, mut retries) = (Vec::new(), Vec::new());
            for (request, wait) in steps {
                now += wait;
                if request {
                    budget.request(at(now));
                    requests.push(now);
                } else if budget.take(percent, at(now)) {
                    retries.push(now);
                }
                // The ring forgets up to a second early, never late.
                let within = |times: &[i64], span: i64| {
                    times.iter().filter(|time| now - **time < span).count() as u64
                };
                prop_assert!(
                    within(&retries, 9_000)
                        <= 30.max(requests.len() as u64 * u64::from(percent) / 100)
                );
            }
        }
    }
}
