//! Waits between attempts.

use std::time::Duration;

use rerouter_base::bounds;
use rerouter_base::id::Random;

/// First wait of a node after a failed callback, doubled up to [`NODE_HEARTBEAT`]; also its
/// interval for checking what it waits for.
pub(super) const NODE_RETRY: Duration = Duration::from_secs(1);

/// Waits that double up to a bound, with jitter of up to a half: nodes that lose their gateway
/// together do not return together.
pub(super) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Backoff(NODE_RETRY)
    }
}

impl Backoff {
    pub(super) fn next(&mut self, random: &Random) -> Duration {
        let whole = self.0;
        self.0 = (whole * 2).min(bounds::NODE_HEARTBEAT);
        let half = u64::try_from(whole.as_millis() / 2).unwrap_or(u64::MAX - 1);
        whole / 2 + Duration::from_millis(random.next_u64() % (1 + half))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_differ() {
        let random = Random::seeded(7);
        let mut backoff = Backoff::default();
        for most in [1, 2, 4, 8, 10, 10, 10].map(Duration::from_secs) {
            let wait = backoff.next(&random);
            assert!(wait >= most / 2 && wait <= most, "{wait:?} of {most:?}");
        }
        let waits: std::collections::BTreeSet<Duration> =
            (0..50).map(|_| backoff.next(&random)).collect();
        assert!(waits.len() > 40, "{waits:?}");
    }
}
