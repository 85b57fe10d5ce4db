//! What is known of a node by what it tells: how it is, for how long that holds, and the nonces that the store could not keep.

use std::collections::HashMap;
use std::time::Instant;

use jiff::Timestamp;

use crate::bounds;

/// What is known by reports only.
#[derive(Default)]
pub(super) struct Life {
    /// Of these reports.
    pub(super) epoch: u64,
    /// The registration that came since, where the lease went on.
    pub(super) carried: Option<u64>,
    /// The last report's; none since this process runs.
    pub(super) seq: Option<u64>,
    pub(super) lease_until: Option<Timestamp>,
    /// When the lease began, by the clock that nobody sets.
    pub(super) leased: Option<Instant>,
    pub(super) status: Status,
    pub(super) reported: Load,
    /// Requests of ours that were there when it reported.
    pub(super) ours_then: u32,
    pub(super) aside: Aside,
}

impl Life {
    /// Whether the lease is one of this registration.
    pub(super) fn is_of(&self, epoch: u64) -> bool {
        self.epoch == epoch || self.carried == Some(epoch)
    }
}

/// Requests at a node, by its own word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Being served.
    pub running: u32,
    /// Waiting.
    pub queued: u32,
}

/// What a node says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// It serves.
    #[default]
    Ready,
    /// It takes no new requests.
    Draining,
    /// It cannot serve.
    Error,
}

impl Status {
    /// Reads the word of a report.
    pub fn parse(word: &str) -> Option<Status> {
        match word {
            "ready" => Some(Status::Ready),
            "draining" => Some(Status::Draining),
            "error" => Some(Status::Error),
            _ => None,
        }
    }
}

/// A report of a node.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The registration that it belongs to, where it says so.
    pub epoch: Option<u64>,
    /// When it was signed, in seconds since the epoch, by the clock of the node.
    pub signed_s: i64,
    /// Rises from report to report of an epoch.
    pub seq: u64,
    /// How it is.
    pub status: Status,
    /// What it is doing.
    pub load: Load,
}

/// Why a report is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untaken {
    /// Its number does not rise.
    Seq,
    /// It is of a process that registered earlier than the one that serves.
    Epoch,
    /// The node has not registered, or has left.
    Unregistered,
}

/// Why a nonce is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// It was taken before, or may have been.
    Before,
    /// The node signed too much of late.
    TooMany,
}

/// Nonces of reports that were taken while the store took nothing; see [`super::Nodes::take_aside`].
#[derive(Default)]
pub(super) struct Aside {
    /// Signatures made until then, in seconds since the epoch, may have been taken by a process before this one, or have been
    /// forgotten by this one.
    until: Option<i64>,
    taken: HashMap<String, i64>,
}

impl Aside {
    /// What the last process left: it may have taken anything that was signed until then.
    pub(super) fn close_until(&mut self, second: i64) {
        self.until = self.until.max(Some(second));
    }

    /// Whether a nonce is in here, or may have been.
    pub(super) fn holds(&self, nonce: &str, created: i64) -> bool {
        self.until.is_some_and(|until| created <= until) || self.taken.contains_key(nonce)
    }

    /// Takes a nonce that is not in here yet.
    pub(super) fn take(&mut self, nonce: &str, created: i64, now: Timestamp) -> Result<(), Spent> {
        if self.holds(nonce, created) {
            return Err(Spent::Before);
        }
        if self.taken.len() >= bounds::NODE_NONCES {
            // As the store forgets: what is older can come no more, unless the clock is set back, and then it is refused.
            let skew = i64::try_from(bounds::NODE_SKEW.as_secs()).unwrap_or(i64::MAX);
            let before = now.as_second() - 2 * skew;
            let oldest = self
                .taken
                .values()
                .copied()
                .filter(|made| *made < before)
                .min()
                .ok_or(Spent::TooMany)?;
            self.close_until(oldest);
            self.taken.retain(|_, made| *made > oldest);
            if self.holds(nonce, created) {
                return Err(Spent::Before);
            }
        }
        self.taken.insert(nonce.to_owned(), created);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn what_is_aside_is_taken_once_whatever_the_clock_does() {
        let mut aside = Aside::default();
        aside.take("a", 1_000, at(1_000)).unwrap();
        assert_eq!(aside.take("a", 1_000, at(1_000)), Err(Spent::Before));
        aside.take("b", 40_000, at(40_000)).unwrap();
        assert_eq!(
            aside.take("a", 1_000, at(1_000)),
            Err(Spent::Before),
            "under a clock that was set back"
        );
        aside.take("c", 1_000, at(1_000)).unwrap();
        for number in aside.taken.len()..=bounds::NODE_NONCES {
            aside.take(&number.to_string(), 1_900, at(2_021)).unwrap();
        }
        assert!(
            !aside.taken.contains_key("a") && aside.holds("a", 1_000) && aside.holds("d", 1_000),
            "what is forgotten is not good"
        );
        aside.close_until(2_000);
        assert!(aside.holds("c", 2_000) && !aside.holds("c", 2_001), "of the process before");
        aside.close_until(1_500);
        assert!(aside.holds("c", 2_000));
    }

    #[test]
    fn a_node_keeps_no_more_aside_than_it_may() {
        let mut aside = Aside::default();
        for number in 0..bounds::NODE_NONCES {
            aside.take(&number.to_string(), 1_000, at(1_000)).unwrap();
        }
        assert_eq!(aside.take("one more", 1_000, at(1_000)), Err(Spent::TooMany));
        aside.take("one more", 1_121, at(1_121)).unwrap();
        assert_eq!(aside.taken.len(), 1);
    }
}
