//! Answers that are read to their end although their client has left: a budget pays what the
//! provider bills, and only the end of the answer says how much that is.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::call::InferenceCall;

/// Longest time that an answer is read on. One that takes longer is settled at its reserve.
const READ_ON_TIME: Duration = Duration::from_secs(300);
/// Largest rest of an answer that is read on, in bytes.
const READ_ON_BYTES: usize = 64 << 20;
/// Maximum number of answers that are read on at once: a client cannot leave more behind.
const READ_ON_ANSWERS: usize = 512;

static PLACES: Semaphore = Semaphore::const_new(READ_ON_ANSWERS);

pub(super) struct ReadingOn {
    _place: SemaphorePermit<'static>,
    pub(super) until: Instant,
    left: usize,
}

impl ReadingOn {
    /// `None` if too many answers are read on.
    pub(super) fn begin() -> Option<Self> {
        let place = PLACES.try_acquire().ok()?;
        let until = Instant::now() + READ_ON_TIME;
        Some(ReadingOn { _place: place, until, left: READ_ON_BYTES })
    }

    /// Counts bytes of the answer. `false` if there are too many.
    pub(super) fn read(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}

impl InferenceCall {
    /// Whether the answer is read on without its client: a budget pays, the answer is whole, and a
    /// provider works on it.
    pub(super) fn reads_on(&self) -> bool {
        let mut progress = self.progress();
        progress.left = self.request.paid.is_some()
            && !self.request.stream
            && progress.connected
            && progress.relay.may_be_served();
        progress.left
    }
}
