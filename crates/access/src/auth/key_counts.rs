//! Counts of keys by state, kept up to date as keys change, so that a gauge need not look at a
//! million keys. A key expires without a change of its row, so future expiries are kept by their
//! time.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// The state that a key is counted in. An expiry is in microseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedKey {
    Revoked,
    Inactive { end_us: Option<i64> },
    Active { end_us: Option<i64> },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyTotals {
    pub(super) revoked: usize,
    pub(super) expired: usize,
    pub(super) inactive: usize,
    pub(super) active: usize,
}

#[derive(Debug, Default)]
pub(super) struct KeyCounts {
    counts: KeyTotals,
    /// Active and inactive keys by expiry.
    ends: BTreeMap<i64, (usize, usize)>,
    /// Expiries up to this moment are over, and no longer in `ends`.
    over_us: Option<i64>,
}

impl KeyCounts {
    pub(super) fn add(&mut self, counted_key: CountedKey) {
        self.change(counted_key, |count| *count += 1);
    }

    pub(super) fn remove(&mut self, counted_key: CountedKey) {
        self.change(counted_key, |count| *count = count.saturating_sub(1));
    }

    fn change(&mut self, counted_key: CountedKey, change: impl Fn(&mut usize)) {
        let (end_us, active) = match counted_key {
            CountedKey::Revoked => return change(&mut self.counts.revoked),
            CountedKey::Inactive { end_us } => (end_us, false),
            CountedKey::Active { end_us } => (end_us, true),
        };
        if end_us.is_some_and(|end| self.over_us.is_some_and(|over| end <= over)) {
            return change(&mut self.counts.expired);
        }
        change(if active { &mut self.counts.active } else { &mut self.counts.inactive });
        if let Some(end) = end_us {
            let (with, without) = self.ends.entry(end).or_default();
            change(if active { with } else { without });
            if (*with, *without) == (0, 0) {
                self.ends.remove(&end);
            }
        }
    }

    pub(super) fn counts(&mut self, now: Timestamp) -> KeyTotals {
        let now_us = now.as_microsecond();
        while let Some(first) = self.ends.first_entry().filter(|first| *first.key() <= now_us) {
            let (active, inactive) = first.remove();
            self.counts.active = self.counts.active.saturating_sub(active);
            self.counts.inactive = self.counts.inactive.saturating_sub(inactive);
            self.counts.expired += active + inactive;
        }
        self.over_us = self.over_us.max(Some(now_us));
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(us: i64) -> Timestamp {
        Timestamp::from_microsecond(us).unwrap()
    }

    fn counted(counted_keys: &[CountedKey], now: i64) -> KeyTotals {
        let mut counts = KeyTotals::default();
        for counted_key in counted_keys {
            match *counted_key {
                CountedKey::Revoked => counts.revoked += 1,
                CountedKey::Inactive { end_us: Some(end) }
                | CountedKey::Active { end_us: Some(end) }
                    if end <= now =>
                {
                    counts.expired += 1
                }
                CountedKey::Inactive { .. } => counts.inactive += 1,
                CountedKey::Active { .. } => counts.active += 1,
            }
        }
        counts
    }

    fn counted_key() -> impl Strategy<Value = CountedKey> {
        let end = || proptest::option::of(0i64..50);
        prop_oneof![
            Just(CountedKey::Revoked),
            end().prop_map(|end_us| CountedKey::Inactive { end_us }),
            end().prop_map(|end_us| CountedKey::Active { end_us })
        ]
    }

    proptest! {
        /// In whatever order keys are added, changed, removed and expire, the counts are the same
        /// as if each key were looked at.
        #[test]
        fn the_counts_are_those_of_the_keys(steps in proptest::collection::vec((counted_key(),
                    0usize..40, 0i64..4), 1..200)) {
            let (mut key_counts, mut keys, mut now) = (
                KeyCounts::default(), Vec::<CountedKey>::new(), 0
            );
            for (counted_key, which, pause) in steps {
                match keys.get(which).copied() {
                    // Another key, another state of this one, or its removal.
                    None => keys.push(counted_key),
                    Some(old) if which % 2 == 0 => {
                        key_counts.remove(old);
                        keys[which] = counted_key;
                    }
                    Some(old) => {
                        key_counts.remove(old);
                        keys.swap_remove(which);
                        now += pause;
                        prop_assert_eq!(key_counts.counts(at(now)), counted(&keys, now));
                        continue;
                    }
                }
                key_counts.add(counted_key);
                now += pause;
                prop_assert_eq!(key_counts.counts(at(now)), counted(&keys, now));
            }
            prop_assert!(key_counts.ends.len() <= keys.len());
        }
    }
}
