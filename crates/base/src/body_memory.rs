//! A limit on the memory of all bodies in the process: requests, and copies of answers that are
//! kept while a call runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::error::{Error, Kind};

/// The pool of bytes. Cloning is cheap.
#[derive(Clone)]
pub struct BodyMemory(Arc<Pool>);

struct Pool {
    limit: usize,
    held: AtomicUsize,
}

/// The class of a body decides how much of the pool it may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyClass {
    /// Bodies of management calls may fill all of it, so that operators can act on a full gateway.
    Management,
    /// Bodies of requests, and answers held for translation, may fill fifteen sixteenths.
    Requests,
    /// Copies of answers for captures, and of requests for shadows, may fill half.
    Copies,
}

impl BodyClass {
    fn share_of(self, limit: usize) -> usize {
        match self {
            BodyClass::Management => limit,
            BodyClass::Requests => limit - limit / 16,
            BodyClass::Copies => limit / 2,
        }
    }
}

/// The reserved bytes of one body, which are released on drop.
pub struct Held {
    memory: BodyMemory,
    room: BodyClass,
    bytes: usize,
}

impl BodyMemory {
    /// A pool of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        BodyMemory(Arc::new(Pool { limit, held: AtomicUsize::new(0) }))
    }

    /// Starts a reservation of 0 bytes.
    pub fn begin(&self, room: BodyClass) -> Held {
        Held { memory: self.clone(), room, bytes: 0 }
    }

    /// Bytes that are reserved in the whole pool.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize, room: BodyClass) -> bool {
        let Pool { limit, held } = &*self.0;
        let most = room.share_of(*limit);
        let taken = |now: usize| now.checked_add(bytes).filter(|then| *then <= most);
        held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }
}

impl Held {
    /// Sets the reservation to `bytes`. Returns `false`, and changes nothing, if there is no room.
    #[must_use]
    pub fn set(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes {
            if !self.memory.take(bytes - self.bytes, self.room) {
                return false;
            }
        } else {
            self.memory.0.held.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        true
    }

    /// Starts another reservation of 0 bytes in the same pool.
    pub fn beside(&self, room: BodyClass) -> Held {
        self.memory.begin(room)
    }

    /// The error (503) for a full pool.
    pub fn full() -> Error {
        Error::new(Kind::Unavailable, "Too many bodies are in memory. Retry in a second.")
            .retry_after(Duration::from_secs(1))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.0.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_never_exceeds_the_limit_and_comes_back() {
        let memory = BodyMemory::new(100);
        let begin = || memory.begin(BodyClass::Management);
        let (mut a, mut b) = (begin(), begin());
        assert!(a.set(60) && !b.set(41) && b.set(40) && !a.set(61));
        assert_eq!(memory.held(), 100);
        assert!(a.set(10) && b.set(90) && !b.set(usize::MAX));
        drop(a);
        assert_eq!(memory.held(), 90);
        drop(b);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn what_matters_more_finds_room_for_longer() {
        let memory = BodyMemory::new(160);
        let rooms = [BodyClass::Copies, BodyClass::Requests, BodyClass::Management];
        let [mut copies, mut requests, mut management] = rooms.map(|room| memory.begin(room));
        assert!(!copies.set(81) && copies.set(80));
        assert!(!requests.set(71) && requests.set(70));
        assert!(!management.set(11) && management.set(10));
    }
}
