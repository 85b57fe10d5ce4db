//! Which of a provider's keys an attempt uses: one after the other, and none that was limited or refused a moment ago.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::circuit::pending;
use crate::secret::Secret;

/// Keys that are to be left alone, and until when (microseconds since the epoch). A key is known by a hash of it, so that
/// it is the same one after a reload that adds another before it.
#[derive(Default)]
pub(super) struct Bench {
    /// How many there are: mostly none, and then nobody takes the lock.
    count: AtomicUsize,
    until: Mutex<Vec<(u64, i64)>>,
}

impl fmt::Debug for Bench {
    /// Shows no marks: they are made of secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Bench {
    /// Leaves a key alone until then.
    pub(super) fn put(&self, key: &Secret, until: i64, at: i64) {
        let mut benched = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = mark(key);
        // Bounded: what is over goes, and a document has only so many keys.
        benched.retain(|(other, until)| *other != mark && pending(*until, at));
        benched.push((mark, until));
        self.count.store(benched.len(), Ordering::Release);
    }

    /// Until when a key is to be left alone.
    pub(super) fn until(&self, key: &Secret, at: i64) -> Option<i64> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mark = mark(key);
        let benched = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        benched
            .iter()
            .find(|(other, until)| *other == mark && pending(*until, at))
            .map(|(_, until)| *until)
    }
}

fn mark(key: &Secret) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key.expose().as_bytes())
}

/// The keys of a provider as one attempt sees them: `benches` say which are to be left alone.
pub(super) struct Keys<'a> {
    pub(super) keys: &'a [Secret],
    pub(super) benches: [Option<&'a Bench>; 3],
}

impl Keys<'_> {
    /// The place of the next key in turn that may be used; when none may, of that which may
    /// soonest. The turn goes on where it is `taken`.
    pub(super) fn pick(&self, turn: &AtomicUsize, taken: bool, at: i64) -> Option<usize> {
        match self.keys.len() {
            0 => None,
            1 => Some(0),
            count => {
                let first = turn.fetch_add(usize::from(taken), Ordering::Relaxed);
                (0..count)
                    .map(|step| first.wrapping_add(step) % count)
                    .min_by_key(|place| self.until(*place, at).unwrap_or(i64::MIN))
            }
        }
    }

    /// Until when none may be used; `None` when one may.
    pub(super) fn all_benched(&self, at: i64) -> Option<i64> {
        let until: Option<Vec<i64>> =
            (0..self.keys.len()).map(|place| self.until(place, at)).collect();
        until?.into_iter().min()
    }

    fn until(&self, place: usize, at: i64) -> Option<i64> {
        let key = self.keys.get(place)?;
        self.benches.iter().flatten().filter_map(|bench| bench.until(key, at)).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_take_turns_and_benched_ones_are_passed_over() {
        let keys: Vec<Secret> = ["sk-a", "sk-b", "sk-c"].map(Secret::new).into();
        let (limited, refused, turn) = (Bench::default(), Bench::default(), AtomicUsize::new(0));
        let all = Keys { keys: &keys, benches: [Some(&limited), Some(&refused), None] };
        let picks = |at: i64| [(); 4].map(|()| all.pick(&turn, true, at).unwrap());
        assert_eq!(picks(100), [0, 1, 2, 0]);
        limited.put(&keys[1], 200, 100);
        assert_eq!((picks(100), all.all_benched(100)), ([2, 2, 0, 2], None));
        refused.put(&keys[0], 400, 100);
        limited.put(&keys[2], 300, 100);
        assert_eq!(
            (all.all_benched(100), picks(100)),
            (Some(200), [1; 4]),
            "the one that is free soonest"
        );
        assert!(all.all_benched(200).is_none());
        let reordered: Vec<Secret> = ["sk-new", "sk-b"].map(Secret::new).into();
        let after = Keys { keys: &reordered, benches: [Some(&limited), Some(&refused), None] };
        assert_eq!(
            [(); 2].map(|()| after.pick(&turn, true, 150).unwrap()),
            [0, 0],
            "after a reload the same key is benched"
        );
        assert_eq!(
            Keys { keys: &[], benches: [Some(&limited), Some(&refused), None] }
                .pick(&turn, true, 0),
            None
        );
    }
}
