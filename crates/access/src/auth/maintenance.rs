//! Periodic writes of what the tables know before the store does: when keys and sessions were last
//! used, and which sessions are over.

use std::time::Duration;

use jiff::Timestamp;

use super::Auth;
use rerouter_store::{Store, StoreError};

/// Time between two sweeps that end expired sessions and write the use of the others.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Number of keys whose last use is written in one transaction. It takes some milliseconds, for
/// which other changes wait.
const USES_BATCH: usize = 1_000;

impl Auth {
    /// Writes when keys were last used, in transactions of bounded size. To be called about every
    /// minute, and at the end.
    pub async fn sweep_uses(&self, store: &Store) -> Result<(), StoreError> {
        // Uses that come meanwhile wait for the next sweep.
        for _ in 0..=self.0.keys.unsaved_uses() / USES_BATCH {
            let used = self.0.keys.take_unsaved(USES_BATCH);
            if used.is_empty() {
                break;
            }
            if let Err(error) = store.note_used(used.clone()).await {
                self.0.keys.put_back_unsaved(&used);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Applies the last uses of keys and sessions at other gateways. To be called about every
    /// minute.
    pub async fn learn_uses(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let since = now.checked_sub(3 * SWEEP_INTERVAL).unwrap_or(now);
        let uses = store.last_uses_since(since).await?;
        uses.keys.iter().for_each(|(id, at)| self.0.keys.learn_use(id, *at));
        uses.sessions.iter().for_each(|(id, at)| self.0.sessions.learn_use(id, *at));
        Ok(())
    }

    /// Writes when sessions were last used, and ends those that are over. To be called about every
    /// minute.
    pub async fn sweep_sessions(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        // A session that is idle here may be in use at another gateway, which writes that within
        // two minutes.
        let slack = if store.is_shared() { 3 * SWEEP_INTERVAL } else { Duration::ZERO };
        let (seen, over) = self.0.sessions.take_unsaved(self.0.idle + slack, now);
        // The writes are split, so that other writers have their turns in between.
        let (mut seen, mut over) = (seen.as_slice(), over.as_slice());
        while !(seen.is_empty() && over.is_empty()) {
            let (step, seen_later) = seen.split_at(seen.len().min(USES_BATCH));
            let (ended, over_later) = over.split_at(over.len().min(USES_BATCH));
            if let Err(error) = store.sweep_sessions(step.to_vec(), ended.to_vec()).await {
                self.0.sessions.put_back_unsaved(seen);
                return Err(error);
            }
            (seen, over) = (seen_later, over_later);
        }
        Ok(())
    }
}
