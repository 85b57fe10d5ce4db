//! One bound on the memory that bodies take in the whole process: those of requests, and the
//! copies of answers that are kept while a call runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::error::{Error, Kind};

/// The bytes that may be held at once, and those that are. Cloning is cheap.
#[derive(Clone)]
pub struct BodyMemory(Arc<Pool>);

struct Pool {
    limit: usize,
    held: AtomicUsize,
}

/// What is held, and so how much of the memory it may fill: the more it matters, the more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Bodies of management calls: all of it. Operators are heard when nobody else is.
    Management,
    /// Bodies of requests: all but a sixteenth.
    Requests,
    /// Copies, of answers for captures and of requests for shadows: a half.
    Copies,
}

impl Room {
    fn of(self, limit: usize) -> usize {
        match self {
            Room::Management => limit,
            Room::Requests => limit - limit / 16,
            Room::Copies => limit / 2,
        }
    }
}

/// What one body holds; given back when it is dropped.
pub struct Held {
    memory: BodyMemory,
    room: Room,
    bytes: usize,
}

impl BodyMemory {
    /// `limit` bytes in all.
    pub fn new(limit: usize) -> Self {
        BodyMemory(Arc::new(Pool { limit, held: AtomicUsize::new(0) }))
    }

    /// For a body of which nothing is there yet.
    pub fn begin(&self, room: Room) -> Held {
        Held { memory: self.clone(), room, bytes: 0 }
    }

    /// Bytes that are held now.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize, room: Room) -> bool {
        let Pool { limit, held } = &*self.0;
        let most = room.of(*limit);
        let taken = |now: usize| now.checked_add(bytes).filter(|then| *then <= most);
        held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }
}

impl Held {
    /// Holds `bytes` in all from now on, where there is room for them; else all stays as it is.
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

    /// The refusal for when there is no room: it may come again a moment later.
    pub fn full() -> Error {
        Error::new(Kind::Unavailable, "Too many bodies are held in memory at the moment.")
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
        let begin = || memory.begin(Room::Management);
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
        let rooms = [Room::Copies, Room::Requests, Room::Management];
        let [mut copies, mut requests, mut management] = rooms.map(|room| memory.begin(room));
        assert!(!copies.set(81) && copies.set(80));
        assert!(!requests.set(71) && requests.set(70));
        assert!(!management.set(11) && management.set(10));
    }
}
