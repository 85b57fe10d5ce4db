//! What the tables know before the store does: when keys and sessions were last used, and which sessions are over.

use jiff::Timestamp;

use super::Auth;
use crate::bounds;
use crate::store::{Store, StoreError};

impl Auth {
    /// Brings to the store when keys were last used, as many at a time as one transaction takes. To be called every minute or so,
    /// and at the end.
    pub async fn sweep_uses(&self, store: &Store) -> Result<(), StoreError> {
        // Those of now; what comes meanwhile waits for the next time.
        for _ in 0..=self.0.keys.unsaved_uses() / bounds::USES_BATCH {
            let used = self.0.keys.take_unsaved(bounds::USES_BATCH);
            if used.is_empty() {
                break;
            }
            if let Err(error) = store.note_used(used.clone()).await {
                self.0.keys.still_unsaved(&used);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Brings to the store when sessions were last used, and ends those that are over. To be called every minute or so.
    pub async fn sweep_sessions(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let (seen, over) = self.0.sessions.unsaved(self.0.idle, now);
        // Others who write have their turn between two steps.
        let (mut seen, mut over) = (seen.as_slice(), over.as_slice());
        while !(seen.is_empty() && over.is_empty()) {
            let (step, seen_later) = seen.split_at(seen.len().min(bounds::USES_BATCH));
            let (ended, over_later) = over.split_at(over.len().min(bounds::USES_BATCH));
            if let Err(error) = store.sweep_sessions(step.to_vec(), ended.to_vec()).await {
                self.0.sessions.still_unsaved(seen);
                return Err(error);
            }
            (seen, over) = (seen_later, over_later);
        }
        Ok(())
    }
}
