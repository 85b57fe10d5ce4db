//! Periodic writes of what the tables know before the store does: when keys and sessions were last
//! used, and which sessions are over.

use std::sync::PoisonError;
use std::time::Duration;

use jiff::Timestamp;

use super::Auth;
use rerouter_store::{Store, StoreError};

/// Time between two sweeps that end expired sessions and write the use of the others.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// A use of a session or key is in the store of other gateways after this time: each gateway writes
/// it within two minutes.
const USES_SLACK: Duration = Duration::from_secs(3 * 60);
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
        let learnt = *self.0.uses_learnt.lock().unwrap_or_else(PoisonError::into_inner);
        // The clock may have been set back.
        let learnt = learnt.unwrap_or(now).min(now);
        let since = learnt.checked_sub(USES_SLACK).unwrap_or(learnt);
        let uses = store.last_uses_since(since).await?;
        uses.keys.iter().for_each(|(id, at)| self.0.keys.learn_use(id, *at));
        uses.sessions.iter().for_each(|(id, at)| self.0.sessions.learn_use(id, *at));
        *self.0.uses_learnt.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        Ok(())
    }

    /// Writes when sessions were last used, and ends those that are over. To be called about every
    /// minute, after [`Auth::learn_uses`].
    pub async fn sweep_sessions(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let slack = if store.is_shared() { USES_SLACK } else { Duration::ZERO };
        let idle = self.0.idle + slack;
        let ends = (now.checked_sub(idle).unwrap_or(now), now);
        let (seen, over) = self.0.sessions.take_unsaved(idle, now);
        // The writes are split, so that other writers have their turns in between.
        let (mut seen, mut over) = (seen.as_slice(), over.as_slice());
        while !(seen.is_empty() && over.is_empty()) {
            let (step, seen_later) = seen.split_at(seen.len().min(USES_BATCH));
            let (ended, over_later) = over.split_at(over.len().min(USES_BATCH));
            if let Err(error) = store.sweep_sessions(step.to_vec(), ended.to_vec(), ends).await {
                self.0.sessions.put_back_unsaved(seen);
                return Err(error);
            }
            (seen, over) = (seen_later, over_later);
        }
        Ok(())
    }
}
