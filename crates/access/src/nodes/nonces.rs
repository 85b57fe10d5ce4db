//! The nonces of one node's signatures that this process accepted. If gateways share the store, the
//! store has the nonces that all of them accepted. A signature that an earlier process accepted is
//! refused by its time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use rerouter_base::bounds;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonceRefusal {
    /// It was spent before, or may have been.
    Spent,
    /// The node made too many signatures recently.
    TooMany,
}

/// How long signatures from before a start are refused. Later they are not timely any more, unless
/// the clock was set back. A start while the clock is ahead refuses nodes no longer than this.
const START: Duration = bounds::NODE_SKEW.saturating_mul(2);

/// Spent nonces, with the second at which each signature says it was made.
#[derive(Default)]
pub(super) struct SpentNonces {
    /// The second in which this process started, by its clock, and when that was.
    started: Option<(i64, Instant)>,
    /// Signatures made in this second or before are refused: their nonces are not known.
    forgotten: Option<i64>,
    spent: HashMap<String, i64>,
}

impl SpentNonces {
    /// Refuses for `START` after `at` what was signed in `second` or before.
    pub(super) fn start(&mut self, second: i64, at: Instant) {
        self.started = Some((second, at));
    }

    /// Spends a nonce of a signature that is timely at `now`.
    pub(super) fn spend(
        &mut self,
        nonce: &str,
        created: i64,
        now: Timestamp,
    ) -> Result<(), NonceRefusal> {
        let before_start =
            self.started.is_some_and(|(second, at)| created <= second && at.elapsed() < START);
        let forgotten = self.forgotten >= Some(created);
        if before_start || forgotten || self.spent.contains_key(nonce) {
            return Err(NonceRefusal::Spent);
        }
        if self.spent.len() >= bounds::NODE_NONCES {
            // Older signatures are refused because of their time, whichever of the two clocks is
            // ahead. Their nonces are kept until there is no room: if a clock is set back by an
            // hour, signatures of that hour are timely again, and new ones must not be refused with
            // them.
            let skew = i64::try_from(bounds::NODE_SKEW.as_secs()).unwrap_or(i64::MAX);
            let oldest = now.as_second() - 2 * skew;
            let old = self.spent.extract_if(|_, created| *created < oldest);
            let newest = old.map(|(_, created)| created).max().ok_or(NonceRefusal::TooMany)?;
            self.forgotten = self.forgotten.max(Some(newest));
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
    fn a_nonce_is_spent_once_and_no_more_are_kept_than_the_bound() {
        let mut nonces = SpentNonces::default();
        let many = i64::try_from(bounds::NODE_NONCES).unwrap();
        for second in 1_000..1_000 + 2 * many {
            let nonce = second.to_string();
            nonces.spend(&nonce, second, at(second)).unwrap();
            assert_eq!(nonces.spend(&nonce, second, at(second)), Err(NonceRefusal::Spent));
            assert!(nonces.spent.len() <= bounds::NODE_NONCES);
        }
        // The clock is set back.
        for second in [1_000, 1_000 + many / 2, 1_000 + 2 * many - 100] {
            let again = nonces.spend(&second.to_string(), second, at(second));
            assert_eq!(again, Err(NonceRefusal::Spent), "{second}");
        }
        nonces.spend("new", 1_000 + 2 * many - 1, at(1_000)).unwrap();
    }

    #[test]
    fn a_clock_that_is_set_back_locks_no_node_out() {
        let mut nonces = SpentNonces::default();
        for (nonce, second) in [("a", 0), ("b", 40_000), ("c", 10), ("d", 4_000_000_000)] {
            nonces.spend(nonce, second, at(second)).unwrap();
        }
        nonces.spend("e", 40_010, at(40_010)).unwrap();
        assert_eq!(nonces.spend("a", 0, at(0)), Err(NonceRefusal::Spent), "whatever the clock is");
    }

    #[test]
    fn a_signature_from_before_the_process_is_refused() {
        let mut nonces = SpentNonces::default();
        nonces.start(1_000, Instant::now());
        for second in [999, 1_000] {
            assert_eq!(nonces.spend("a", second, at(1_005)), Err(NonceRefusal::Spent));
        }
        nonces.spend("a", 1_001, at(1_005)).unwrap();
    }

    #[test]
    fn a_start_while_the_clock_was_ahead_locks_no_node_out() {
        let mut nonces = SpentNonces::default();
        nonces.start(1_000_000, Instant::now() - START);
        nonces.spend("a", 1_000, at(1_000)).unwrap();
    }

    #[test]
    fn a_node_that_signs_too_much_waits_until_its_nonces_are_old() {
        let mut nonces = SpentNonces::default();
        for number in 0..bounds::NODE_NONCES {
            nonces.spend(&number.to_string(), 1_000, at(1_000)).unwrap();
        }
        assert_eq!(nonces.spend("one more", 1_000, at(1_000)), Err(NonceRefusal::TooMany));
        assert_eq!(nonces.spend("one more", 1_120, at(1_120)), Err(NonceRefusal::TooMany));
        nonces.spend("one more", 1_121, at(1_121)).unwrap();
        assert_eq!(nonces.spent.len(), 1);
        assert_eq!(nonces.spend("0", 1_000, at(1_000)), Err(NonceRefusal::Spent));
    }
}
