//! The nonces of one node's signatures that this process took. The store keeps them too, while it
//! can; what a process before this one took is refused by the time of its signature.

use std::collections::HashMap;

use jiff::Timestamp;

use rerouter_base::bounds;

/// Nonces that are kept before the old ones are looked for: a node that reports every ten seconds
/// has twelve.
const FEW: usize = 64;

/// Why a nonce is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonceError {
    /// It was spent before, or may have been.
    Spent,
    /// The node made too many signatures of late.
    TooMany,
}

/// Spent nonces, with the second at which each signature says it was made.
#[derive(Default)]
pub(super) struct SpentNonces {
    /// Signatures made before this second are refused: a process before this one may have taken
    /// them.
    since_s: Option<i64>,
    spent: HashMap<String, i64>,
    /// At how many the old ones are forgotten next.
    prune_at: usize,
}

impl SpentNonces {
    /// Refuses signatures that were made before this second from now on.
    pub(super) fn refuse_before(&mut self, second: i64) {
        self.since_s = Some(second);
    }

    /// Spends a nonce of a signature that is timely at `now`.
    pub(super) fn spend(
        &mut self,
        nonce: &str,
        created: i64,
        now: Timestamp,
    ) -> Result<(), NonceError> {
        if self.since_s.is_some_and(|since| created < since) || self.spent.contains_key(nonce) {
            return Err(NonceError::Spent);
        }
        if self.spent.len() >= self.prune_at.max(FEW) {
            // Older signatures are refused for their time, whichever of the two clocks is ahead.
            let skew = i64::try_from(bounds::NODE_SKEW.as_secs()).unwrap_or(i64::MAX);
            let oldest = now.as_second() - 2 * skew;
            self.spent.retain(|_, created| *created >= oldest);
            self.prune_at = (2 * self.spent.len()).min(bounds::NODE_NONCES);
        }
        if self.spent.len() >= bounds::NODE_NONCES {
            return Err(NonceError::TooMany);
        }
        self.spent.insert(nonce.to_owned(), created);
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
    fn a_nonce_is_spent_once_and_old_ones_take_no_memory() {
        let mut nonces = SpentNonces::default();
        for second in 1_000..3_000 {
            let nonce = second.to_string();
            nonces.spend(&nonce, second, at(second)).unwrap();
            assert_eq!(nonces.spend(&nonce, second, at(second)), Err(NonceError::Spent));
        }
        assert!(nonces.spent.len() <= 4 * 60 + FEW, "{}", nonces.spent.len());
        assert_eq!(nonces.spend("2900", 2_900, at(3_000)), Err(NonceError::Spent));
    }

    #[test]
    fn a_signature_from_before_the_process_is_refused() {
        let mut nonces = SpentNonces::default();
        nonces.refuse_before(1_000);
        assert_eq!(nonces.spend("a", 999, at(1_005)), Err(NonceError::Spent));
        nonces.spend("a", 1_000, at(1_005)).unwrap();
    }

    #[test]
    fn a_node_that_signs_too_much_waits_until_its_nonces_are_old() {
        let mut nonces = SpentNonces::default();
        for number in 0..bounds::NODE_NONCES {
            nonces.spend(&number.to_string(), 1_000, at(1_000)).unwrap();
        }
        assert_eq!(nonces.spend("one more", 1_000, at(1_000)), Err(NonceError::TooMany));
        assert_eq!(nonces.spend("one more", 1_120, at(1_120)), Err(NonceError::TooMany));
        nonces.spend("one more", 1_121, at(1_121)).unwrap();
        assert_eq!(nonces.spent.len(), 1);
    }
}
