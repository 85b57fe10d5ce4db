//! Nonces of signatures that the store cannot keep, for example on a full disk. Traffic to nodes
//! must not stop then, so their heartbeats are accepted; but no signature may be accepted twice,
//! not even after a restart, when this memory is gone. Therefore, in this order: the nonce is spent
//! here; the time of the signature becomes a durable mark, written in place so that it needs no
//! disk space ([`crate::store::Store::mark_node`]); the store, which can be read, must not know the
//! nonce. A nonce that the store keeps later is looked up here as well ([`Nodes::is_aside`]), so
//! that of two copies at most one is accepted. After a restart every signature up to the mark is
//! rejected. A node signs in the order of its clock, so its next signature is newer and nothing
//! waits. A signature that cannot be marked is rejected.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use jiff::Timestamp;

use super::Nodes;
use crate::bounds;
use crate::id::NodeId;
use crate::store::NodeMark;

/// Why a nonce is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonceError {
    /// It was spent before, or may have been.
    Before,
    /// The node has sent too many signatures recently.
    TooMany,
}

/// Nonces of one node that were accepted while the store could not keep them.
#[derive(Default)]
pub(super) struct SpentNonces {
    /// Signatures up to this second since 1970 count as spent: an earlier process may have accepted
    /// them, or this one has dropped their nonces.
    until: Option<i64>,
    taken: HashMap<String, i64>,
}

impl SpentNonces {
    /// Rejects all signatures up to this second.
    pub(super) fn close_until(&mut self, second: i64) {
        self.until = self.until.max(Some(second));
    }

    /// Whether a nonce is spent, or may be.
    pub(super) fn holds(&self, nonce: &str, created: i64) -> bool {
        self.until.is_some_and(|until| created <= until) || self.taken.contains_key(nonce)
    }

    pub(super) fn take(
        &mut self,
        nonce: &str,
        created: i64,
        now: Timestamp,
    ) -> Result<(), NonceError> {
        if self.holds(nonce, created) {
            return Err(NonceError::Before);
        }
        if self.taken.len() >= bounds::NODE_NONCES {
            // Nonces older than the permitted clock skew are dropped. Their signatures stay
            // rejected, also if the clock goes back.
            let skew = i64::try_from(bounds::NODE_SKEW.as_secs()).unwrap_or(i64::MAX);
            let before = now.as_second() - 2 * skew;
            let oldest = self
                .taken
                .values()
                .copied()
                .filter(|made| *made < before)
                .min()
                .ok_or(NonceError::TooMany)?;
            self.close_until(oldest);
            self.taken.retain(|_, made| *made > oldest);
            if self.holds(nonce, created) {
                return Err(NonceError::Before);
            }
        }
        self.taken.insert(nonce.to_owned(), created);
        Ok(())
    }
}

impl Nodes {
    /// Spends a nonce that the store cannot keep now.
    pub fn take_aside(
        &self,
        id: &NodeId,
        nonce: &str,
        created: i64,
        now: Timestamp,
    ) -> Result<(), NonceError> {
        self.get(id).ok_or(NonceError::Before)?.lease().nonces.take(nonce, created, now)
    }

    /// Whether a nonce was spent while the store could not keep it, or may have been.
    pub fn is_aside(&self, id: &NodeId, nonce: &str, created: i64) -> bool {
        self.get(id).is_some_and(|node| node.lease().nonces.holds(nonce, created))
    }

    /// Records whether the store keeps nonces. Returns whether that changed.
    pub fn puts_aside(&self, aside: bool) -> bool {
        self.0.aside.load(Ordering::Relaxed) != aside
            && self.0.aside.swap(aside, Ordering::Relaxed) != aside
    }

    /// Whether a signature of this generation needs no write to the store. The first use of a new
    /// generation does: it ends the previous one.
    pub fn may_be_aside(&self, id: &NodeId, generation: u32) -> bool {
        self.get(id)
            .is_some_and(|node| node.row.previous.is_none() || node.row.generation != generation)
    }

    /// Takes in the marks of the previous process.
    pub fn load_marks(&self, marks: Vec<NodeMark>) {
        for mark in marks {
            if let Some(node) = self.get(&mark.node) {
                node.lease().nonces.close_until(mark.until);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_nonce_is_spent_once_whatever_the_clock_does() {
        let mut nonces = SpentNonces::default();
        nonces.take("a", 1_000, at(1_000)).unwrap();
        assert_eq!(nonces.take("a", 1_000, at(1_000)), Err(NonceError::Before));
        nonces.take("b", 40_000, at(40_000)).unwrap();
        assert_eq!(
            nonces.take("a", 1_000, at(1_000)),
            Err(NonceError::Before),
            "under a clock that was set back"
        );
        nonces.take("c", 1_000, at(1_000)).unwrap();
        for number in nonces.taken.len()..=bounds::NODE_NONCES {
            nonces.take(&number.to_string(), 1_900, at(2_021)).unwrap();
        }
        assert!(
            !nonces.taken.contains_key("a") && nonces.holds("a", 1_000) && nonces.holds("d", 1_000),
            "what is forgotten is not good"
        );
        nonces.close_until(2_000);
        assert!(nonces.holds("c", 2_000) && !nonces.holds("c", 2_001), "of the process before");
        nonces.close_until(1_500);
        assert!(nonces.holds("c", 2_000));
    }

    #[test]
    fn the_number_of_nonces_is_bounded() {
        let mut nonces = SpentNonces::default();
        for number in 0..bounds::NODE_NONCES {
            nonces.take(&number.to_string(), 1_000, at(1_000)).unwrap();
        }
        assert_eq!(nonces.take("one more", 1_000, at(1_000)), Err(NonceError::TooMany));
        nonces.take("one more", 1_121, at(1_121)).unwrap();
        assert_eq!(nonces.taken.len(), 1);
    }
}
