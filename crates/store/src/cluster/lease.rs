//! The lease of a gateway: how long the tables in memory can be relied on. Its clock continues
//! while the machine is suspended, and nobody can set it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rerouter_base::clock::since_boot;

/// The durations of the protocol. All follow from the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timing {
    pub(super) lease: Duration,
}

impl Timing {
    /// How far the clocks of two machines may drift apart during a lease.
    pub(super) fn margin(self) -> Duration {
        self.lease / 20
    }

    /// Time between two renewals.
    pub(super) fn heartbeat(self) -> Duration {
        self.lease / 5
    }

    /// How long a change waits for a slow gateway before that gateway loses its lease.
    pub(super) fn patience(self) -> Duration {
        self.lease / 4
    }

    /// Time from the moment at which a gateway can no longer renew until it has certainly stopped.
    pub(super) fn until_stopped(self) -> Duration {
        self.lease + self.margin()
    }
}

/// Whether this gateway may answer from its tables in memory. The check is cheap; clones share the
/// lease.
#[derive(Clone, Debug)]
pub struct Authority(Option<Arc<SharedLease>>);

#[derive(Debug)]
struct SharedLease {
    /// In nanoseconds since the machine was started; 0 without a lease.
    until_ns: AtomicU64,
    /// Whether the gateway goes on without a lease, once it had its first lease.
    serves_stale: bool,
    /// Whether the gateway must not answer, even with `serves_stale`, until its next lease.
    refused: AtomicBool,
}

impl Authority {
    /// The lease on a store that nobody shares: it never ends.
    pub(crate) fn sole() -> Self {
        Authority(None)
    }

    /// The lease of a gateway that shares its store. The gateway has no lease yet. With
    /// `serves_stale`, it goes on without a lease after its first one.
    pub(super) fn leased(serves_stale: bool) -> Self {
        let (until_ns, refused) = (AtomicU64::new(0), AtomicBool::new(false));
        Authority(Some(Arc::new(SharedLease { until_ns, serves_stale, refused })))
    }

    /// Whether requests may be answered.
    pub fn is_valid(&self) -> bool {
        self.0.as_ref().is_none_or(|lease| lease.is_held(since_boot()))
    }

    /// The rest of the lease; `None` if the store is not shared.
    pub fn left(&self) -> Option<Duration> {
        let until = self.0.as_ref()?.until_ns.load(Ordering::Acquire);
        Some(Duration::from_nanos(until).saturating_sub(since_boot()))
    }

    /// Whether it has no lease because another gateway runs on its data directory, or on a copy.
    pub fn is_refused(&self) -> bool {
        self.0.as_ref().is_some_and(|lease| lease.refused.load(Ordering::Acquire))
    }

    /// Sets the end of the lease, as the time since the machine was started.
    pub(super) fn hold_until(&self, until: Duration) {
        self.set(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX));
        self.set_refused(false);
    }

    pub(super) fn end(&self) {
        self.set(0);
    }

    /// Ends the lease. Until the next lease nothing is answered, even with `serves_stale`.
    pub(super) fn refuse(&self) {
        self.set_refused(true);
        self.end();
    }

    fn set_refused(&self, refused: bool) {
        if let Some(lease) = &self.0 {
            lease.refused.store(refused, Ordering::Release);
        }
    }

    fn set(&self, until_ns: u64) {
        if let Some(lease) = &self.0 {
            lease.until_ns.store(until_ns, Ordering::Release);
        }
    }
}

impl SharedLease {
    fn is_held(&self, now: Duration) -> bool {
        let is_leased = now.as_nanos() < u128::from(self.until_ns.load(Ordering::Acquire));
        (is_leased || self.serves_stale) && !self.refused.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_refused_answers_again_with_its_next_lease() {
        let later = since_boot() + Duration::from_secs(60);
        for serves_stale in [false, true] {
            let authority = Authority::leased(serves_stale);
            authority.hold_until(later);
            assert!(authority.is_valid() && !authority.is_refused());
            authority.refuse();
            assert!(!authority.is_valid() && authority.is_refused());
            authority.end();
            assert!(!authority.is_valid(), "it has no lease");
            authority.hold_until(later);
            assert!(authority.is_valid() && !authority.is_refused());
            authority.end();
            assert_eq!(authority.is_valid(), serves_stale, "as before");
        }
    }
}
