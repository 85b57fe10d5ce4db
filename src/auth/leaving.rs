//! What has ended here, and the store has yet to hear of: revocations and disablings whose write has failed are tried on, ever more
//! seldom. When the process leaves there is no later: they are tried at once.

use std::sync::PoisonError;
use std::time::Duration;

use super::Auth;

/// The first wait between tries, and every one of a process that leaves.
pub(super) const FIRST: Duration = Duration::from_millis(100);
/// The longest.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

impl Auth {
    /// How many revocations the store has yet to take.
    pub fn unsaved_revocations(&self) -> usize {
        self.0.revoking.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// How many disabled users the store has yet to hear of.
    pub fn unsaved_disablings(&self) -> usize {
        self.0.disabling.len()
    }

    /// Has all of that tried at once, and waits until the store has it, for so long at most; gives the ids of what it has not. To
    /// be called when the process leaves: from then on there is no long wait between tries.
    pub async fn hurry(&self, patience: Duration) -> Vec<String> {
        self.0.leaving.send_replace(true);
        let saved = async {
            while self.unsaved_revocations() + self.unsaved_disablings() > 0 {
                tokio::time::sleep(FIRST / 10).await;
            }
        };
        if tokio::time::timeout(patience, saved).await.is_ok() {
            return Vec::new();
        }
        let revoking = self.0.revoking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left: Vec<String> = revoking.iter().map(|(id, _)| id.to_string()).collect();
        left.extend(self.0.disabling.iter().map(|id| id.to_string()));
        left
    }

    /// Waits before another try.
    pub(super) async fn pause(&self, wait: Duration) {
        let mut leaving = self.0.leaving.subscribe();
        if *leaving.borrow_and_update() {
            return tokio::time::sleep(wait.min(FIRST)).await;
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = leaving.changed() => {}
        }
    }
}

#[cfg(test)]
#[path = "leaving_tests.rs"]
mod tests;
