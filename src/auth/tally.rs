//! How many keys stand how, kept as keys change: nobody looks at a million of them to fill a gauge. What time alone changes, the
//! end of a key, is counted by the moment it comes at.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// What is counted of a key. An end is in microseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Ended for good.
    Revoked,
    /// Switched off.
    Inactive { end_us: Option<i64> },
    /// Good.
    Active { end_us: Option<i64> },
}

/// Keys by how they stand at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) revoked: usize,
    pub(super) expired: usize,
    pub(super) inactive: usize,
    pub(super) active: usize,
}

/// The counts, and the ends that are to come.
#[derive(Debug, Default)]
pub(super) struct Tally {
    counts: Counts,
    /// Active and inactive keys by their end.
    ends: BTreeMap<i64, (usize, usize)>,
    /// Ends up to here are over and out of `ends`.
    over_us: Option<i64>,
}

impl Tally {
    /// Counts a key.
    pub(super) fn add(&mut self, sort: Sort) {
        self.change(sort, |count| *count += 1);
    }

    /// Counts a key no more; it was counted as this.
    pub(super) fn remove(&mut self, sort: Sort) {
        self.change(sort, |count| *count = count.saturating_sub(1));
    }

    fn change(&mut self, sort: Sort, change: impl Fn(&mut usize)) {
        let (end_us, active) = match sort {
            Sort::Revoked => return change(&mut self.counts.revoked),
            Sort::Inactive { end_us } => (end_us, false),
            Sort::Active { end_us } => (end_us, true),
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

    /// The counts at `now`.
    pub(super) fn counts(&mut self, now: Timestamp) -> Counts {
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

    fn counted(sorts: &[Sort], now: i64) -> Counts {
        let mut counts = Counts::default();
        for sort in sorts {
            match *sort {
                Sort::Revoked => counts.revoked += 1,
                Sort::Inactive { end_us: Some(end) } | Sort::Active { end_us: Some(end) }
                    if end <= now =>
                {
                    counts.expired += 1
                }
                Sort::Inactive { .. } => counts.inactive += 1,
                Sort::Active { .. } => counts.active += 1,
            }
        }
        counts
    }

    fn sort() -> impl Strategy<Value = Sort> {
        let end = || proptest::option::of(0i64..50);
        prop_oneof![
            Just(Sort::Revoked),
            end().prop_map(|end_us| Sort::Inactive { end_us }),
            end().prop_map(|end_us| Sort::Active { end_us })
        ]
    }

    proptest! {
        /// Whatever comes, changes, goes and ends in whatever order, the counts are what looking at each key would give.
        #[test]
        fn the_counts_are_those_of_the_keys(steps in proptest::collection::vec((sort(), 0usize..40, 0i64..4), 1..200)) {
            let (mut tally, mut keys, mut now) = (Tally::default(), Vec::<Sort>::new(), 0);
            for (sort, which, pause) in steps {
                match keys.get(which).copied() {
                    // Another key, another state of this one, or its end.
                    None => keys.push(sort),
                    Some(old) if which % 2 == 0 => {
                        tally.remove(old);
                        keys[which] = sort;
                    }
                    Some(old) => {
                        tally.remove(old);
                        keys.swap_remove(which);
                        now += pause;
                        prop_assert_eq!(tally.counts(at(now)), counted(&keys, now));
                        continue;
                    }
                }
                tally.add(sort);
                now += pause;
                prop_assert_eq!(tally.counts(at(now)), counted(&keys, now));
            }
            prop_assert!(tally.ends.len() <= keys.len());
        }
    }
}
