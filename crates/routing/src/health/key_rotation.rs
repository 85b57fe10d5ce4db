//! Rotation of a provider's keys: attempts use them in turn, without those that were limited or
//! rejected recently.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::deadline::is_pending;
use rerouter_base::secret::Secret;

/// Cooldowns of keys. A key is identified by its hash, so that a reload which reorders keys keeps
/// them.
#[derive(Default)]
pub(super) struct KeyCooldowns {
    /// Number of entries. It is usually 0, and then the lock is not taken.
    count: AtomicUsize,
    /// Hash of a key, and the end of its cooldown in microseconds since the epoch.
    until: Mutex<Vec<(u64, i64)>>,
}

impl fmt::Debug for KeyCooldowns {
    /// Omits the hashes: they are made of secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCooldowns").field("count", &self.count).finish_non_exhaustive()
    }
}

impl KeyCooldowns {
    pub(super) fn put(&self, key: &Secret, until: i64, at: i64) {
        let mut entries = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let hash = hash(key);
        // Bounded by the keys of a document, because elapsed cooldowns are removed.
        entries.retain(|(other, until)| *other != hash && is_pending(*until, at));
        entries.push((hash, until));
        self.count.store(entries.len(), Ordering::Release);
    }

    /// End of a key's pending cooldown.
    pub(super) fn until(&self, key: &Secret, at: i64) -> Option<i64> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let hash = hash(key);
        let entries = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        entries
            .iter()
            .find(|(other, until)| *other == hash && is_pending(*until, at))
            .map(|(_, until)| *until)
    }
}

fn hash(key: &Secret) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key.expose().as_bytes())
}

/// The keys of a provider with all cooldowns that apply to one attempt.
pub(super) struct KeyRotation<'a> {
    pub(super) keys: &'a [Secret],
    pub(super) cooldowns: [Option<&'a KeyCooldowns>; 4],
}

impl KeyRotation<'_> {
    /// Index of the next usable key; if none is usable, of the one whose cooldown ends first.
    /// Advances the rotation if `taken`.
    pub(super) fn pick(&self, turn: &AtomicUsize, taken: bool, at: i64) -> Option<usize> {
        match self.keys.len() {
            0 => None,
            1 => Some(0),
            count => {
                let first = turn.fetch_add(usize::from(taken), Ordering::Relaxed);
                (0..count)
                    .map(|step| first.wrapping_add(step) % count)
                    .min_by_key(|index| self.until(*index, at).unwrap_or(i64::MIN))
            }
        }
    }

    /// Whether another key than this one has no cooldown.
    pub(super) fn has_other(&self, key: usize, at: i64) -> bool {
        (0..self.keys.len()).any(|other| other != key && self.until(other, at).is_none())
    }

    /// Time at which the first key is usable again; `None` if a key is usable now.
    pub(super) fn all_cooling_until(&self, at: i64) -> Option<i64> {
        let until: Option<Vec<i64>> =
            (0..self.keys.len()).map(|index| self.until(index, at)).collect();
        until?.into_iter().min()
    }

    fn until(&self, index: usize, at: i64) -> Option<i64> {
        let key = self.keys.get(index)?;
        self.cooldowns.iter().flatten().filter_map(|cooldowns| cooldowns.until(key, at)).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_rotate_without_cooling_ones() {
        let keys: Vec<Secret> = ["sk-a", "sk-b", "sk-c"].map(Secret::new).into();
        let (limited, refused, turn) =
            (KeyCooldowns::default(), KeyCooldowns::default(), AtomicUsize::new(0));
        let all =
            KeyRotation { keys: &keys, cooldowns: [Some(&limited), Some(&refused), None, None] };
        let picks = |at: i64| [(); 4].map(|()| all.pick(&turn, true, at).unwrap());
        assert_eq!(picks(100), [0, 1, 2, 0]);
        limited.put(&keys[1], 200, 100);
        assert_eq!((picks(100), all.all_cooling_until(100)), ([2, 2, 0, 2], None));
        refused.put(&keys[0], 400, 100);
        limited.put(&keys[2], 300, 100);
        assert_eq!(
            (all.all_cooling_until(100), picks(100)),
            (Some(200), [1; 4]),
            "the one that is free soonest"
        );
        assert!(all.all_cooling_until(200).is_none());
        let reordered: Vec<Secret> = ["sk-new", "sk-b"].map(Secret::new).into();
        let after = KeyRotation {
            keys: &reordered,
            cooldowns: [Some(&limited), Some(&refused), None, None],
        };
        assert_eq!(
            [(); 2].map(|()| after.pick(&turn, true, 150).unwrap()),
            [0, 0],
            "after a reload the same key is cooling down"
        );
        assert_eq!(
            KeyRotation { keys: &[], cooldowns: [Some(&limited), Some(&refused), None, None] }
                .pick(&turn, true, 0),
            None
        );
    }
}
