//! Budgets that want a grant. A budget that is drawn on is queued here, so that the writer need not
//! scan all of them. Once a day, before the day ends, all budgets are queued, a few at a time.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::budget::Period;
use super::draw::Subject;

/// Time between two writes of usage and spend. A crash may lose the usage of this time.
pub const USAGE_WRITE_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct GrantQueue {
    noted: Mutex<QueuedSubjects>,
    ahead: Mutex<LookAhead>,
    wake: Notify,
}

/// Each budget is queued once.
#[derive(Default)]
struct QueuedSubjects {
    /// Budgets for which requests wait; they come first.
    waited_for: HashSet<Subject>,
    others: HashSet<Subject>,
}

/// Budgets that may want the first grant of the next day.
#[derive(Default)]
struct LookAhead {
    /// The latest day that was looked ahead to.
    day: Option<Period>,
    left: Vec<Subject>,
}

impl GrantQueue {
    /// Queues a budget for the next round.
    pub(super) fn note(&self, subject: &Subject) {
        let mut noted = self.noted();
        if !noted.waited_for.contains(subject) && !noted.others.contains(subject) {
            noted.others.insert(subject.clone());
        }
    }

    /// Queues a budget that is drawn on now, and wakes the writer.
    pub(super) fn soon(&self, subject: &Subject) {
        let mut noted = self.noted();
        if !noted.waited_for.contains(subject) {
            let known = noted.others.take(subject);
            noted.waited_for.insert(known.unwrap_or_else(|| subject.clone()));
        }
        drop(noted);
        self.wake.notify_one();
    }

    /// Resolves when a request waits, or after [`USAGE_WRITE_INTERVAL`].
    pub(super) async fn due(&self) {
        // Nobody woke us in time: then it is time.
        let _elapsed = tokio::time::timeout(USAGE_WRITE_INTERVAL, self.wake.notified()).await;
    }

    /// How many are noted.
    pub(super) fn len(&self) -> usize {
        let noted = self.noted();
        noted.waited_for.len() + noted.others.len()
    }

    /// Takes up to `most` subjects.
    pub(super) fn take(&self, most: usize) -> Vec<Subject> {
        let mut noted = self.noted();
        let mut taken: Vec<Subject> = noted.waited_for.extract_if(|_| true).take(most).collect();
        let left = most.saturating_sub(taken.len());
        taken.extend(noted.others.extract_if(|_| true).take(left));
        taken
    }

    /// On a new `day`, starts over with `all`. Queues up to `most` of those left, with each call.
    pub(super) fn look_ahead(&self, day: Period, most: usize, all: impl FnOnce() -> Vec<Subject>) {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        match ahead.day {
            Some(before) if before >= day => {}
            // Who has an account by the first time was noted when that was opened.
            None => ahead.day = Some(day),
            Some(_) => *ahead = LookAhead { day: Some(day), left: all() },
        }
        let from = ahead.left.len().saturating_sub(most);
        ahead.left.drain(from..).for_each(|subject| self.note(&subject));
    }

    fn noted(&self) -> MutexGuard<'_, QueuedSubjects> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
