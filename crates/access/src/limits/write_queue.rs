//! Budgets that may need a write. A budget is queued here when it is used, so that the writer need
//! not scan all budgets.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::draw::Subject;

/// Time between two writes of usage and spend. A crash may lose the usage of this time.
pub const USAGE_WRITE_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct WriteQueue {
    queued: Mutex<QueuedSubjects>,
    wake: Notify,
}

/// Each budget is queued once.
#[derive(Default)]
struct QueuedSubjects {
    /// Budgets for which requests wait; they come first.
    waited_for: HashSet<Subject>,
    others: HashSet<Subject>,
}

impl WriteQueue {
    /// Queues a budget for the next round.
    pub(super) fn note(&self, subject: &Subject) {
        let mut queued = self.queued();
        if !queued.waited_for.contains(subject) && !queued.others.contains(subject) {
            queued.others.insert(subject.clone());
        }
    }

    /// Queues a budget for which a request waits, and wakes the writer.
    pub(super) fn soon(&self, subject: &Subject) {
        let mut queued = self.queued();
        if !queued.waited_for.contains(subject) {
            let known = queued.others.take(subject);
            queued.waited_for.insert(known.unwrap_or_else(|| subject.clone()));
        }
        drop(queued);
        self.wake.notify_one();
    }

    /// Resolves with `true` as soon as a request waits, else with `false` at this time.
    pub(super) async fn due(&self, at: Instant) -> bool {
        // Requests that wait again and again must not keep the other writes from their time.
        Instant::now() < at && tokio::time::timeout_at(at, self.wake.notified()).await.is_ok()
    }

    /// Takes up to `most` subjects: of all, or only of those for which requests wait.
    pub(super) fn take(&self, most: usize, all: bool) -> Vec<Subject> {
        let mut queued = self.queued();
        let mut taken: Vec<Subject> = queued.waited_for.extract_if(|_| true).take(most).collect();
        let left = if all { most.saturating_sub(taken.len()) } else { 0 };
        taken.extend(queued.others.extract_if(|_| true).take(left));
        taken
    }

    /// Number of queued subjects: of all, or only of those for which requests wait.
    pub(super) fn len(&self, all: bool) -> usize {
        let queued = self.queued();
        queued.waited_for.len() + if all { queued.others.len() } else { 0 }
    }

    fn queued(&self) -> MutexGuard<'_, QueuedSubjects> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
