//! Revocations and disablings that hold in this process and are not yet durable. Their writes are
//! repeated, with growing pauses, until the store takes them; when the process shuts down they are
//! repeated at once.

use std::sync::PoisonError;
use std::time::Duration;

use super::Auth;
use rerouter_store::StoreError;

/// The first pause, and every pause during a shutdown.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between two tries. After an outage of the store, other gateways may accept a
/// revoked key for this long.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

impl Auth {
    pub fn unsaved_revocations(&self) -> usize {
        self.0.revoking.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn unsaved_disablings(&self) -> usize {
        self.0.disabling.len()
    }

    /// For a shutdown: repeats all pending writes at once and waits until the store has them, for
    /// `patience` at most. Returns the ids of keys and users whose writes are still pending then.
    pub async fn flush_pending(&self, patience: Duration) -> Vec<String> {
        self.0.shutting_down.send_replace(true);
        let saved = async {
            while self.unsaved_revocations() + self.unsaved_disablings() > 0 {
                tokio::time::sleep(FIRST_PAUSE / 10).await;
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

    /// Repeats a write until `attempt` succeeds. `subject` names the write in the log.
    pub(super) async fn retry<F>(&self, subject: &str, attempt: impl Fn() -> F)
    where
        F: Future<Output = Result<(), StoreError>>,
    {
        let mut pause = FIRST_PAUSE;
        for tried in 1_u64.. {
            self.pause(pause).await;
            let Err(cause) = attempt().await else { return };
            if tried.is_power_of_two() {
                log::warn!("{subject} is not durable yet: {cause}");
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn pause(&self, pause: Duration) {
        let mut shutting_down = self.0.shutting_down.subscribe();
        if *shutting_down.borrow_and_update() {
            return tokio::time::sleep(pause.min(FIRST_PAUSE)).await;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = shutting_down.changed() => {}
        }
    }
}

#[cfg(test)]
#[path = "pending_writes_tests.rs"]
mod tests;
