//! The state of one provider, all its models together.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::key_rotation::KeyCooldowns;

#[derive(Debug, Default)]
pub struct ProviderState {
    inflight: AtomicU32,
    /// Next key in the rotation.
    pub(super) turn: AtomicUsize,
    /// Keys that the provider rejected.
    pub(super) refused: KeyCooldowns,
}

impl ProviderState {
    pub fn under_way(&self) -> u32 {
        self.inflight.load(Ordering::Relaxed)
    }

    /// Counts one more request, unless `max` are in flight.
    pub(super) fn enter(&self, max: Option<u32>) -> bool {
        let one_more = |inflight: u32| {
            if max.is_some_and(|max| inflight >= max) {
                None
            } else {
                Some(inflight.saturating_add(1))
            }
        };
        self.inflight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    pub(super) fn leave(&self) {
        self.inflight.fetch_sub(1, Ordering::Relaxed);
    }
}
