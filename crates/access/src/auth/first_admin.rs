//! The link that makes the first admin: a token that only the person who started this process has.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use rerouter_base::secret::constant_time_eq;

/// The digest of the token, and its expiry. Empty unless there was no admin at the start.
#[derive(Default)]
pub struct FirstAdminLink(Mutex<Option<([u8; 32], Timestamp)>>);

impl FirstAdminLink {
    /// Accepts this token from now on, and no earlier one.
    pub fn offer(&self, digest: [u8; 32], until: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((digest, until));
    }

    pub fn takes(&self, digest: &[u8; 32], now: Timestamp) -> bool {
        let offered = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        offered.is_some_and(|(own, until)| constant_time_eq(&own, digest) && now < until)
    }

    pub fn spend(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rerouter_base::clock::fixtures::at;

    #[test]
    fn a_token_is_good_until_it_ends_or_is_spent() {
        let link = FirstAdminLink::default();
        assert!(!link.takes(&[0; 32], at(0)));
        link.offer([1; 32], at(60));
        assert!(link.takes(&[1; 32], at(59)) && link.takes(&[1; 32], at(0)));
        assert!(!link.takes(&[1; 32], at(60)) && !link.takes(&[2; 32], at(0)));
        link.offer([2; 32], at(60));
        assert!(!link.takes(&[1; 32], at(0)) && link.takes(&[2; 32], at(0)));
        link.spend();
        assert!(!link.takes(&[2; 32], at(0)));
    }
}
