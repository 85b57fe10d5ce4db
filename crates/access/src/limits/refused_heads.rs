//! Which refusals by limits are captured: one a second of each key, and of each user's sessions.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use super::draw::Subject;
use rerouter_base::id::{KeyId, UserId};

/// Most callers of one second; refusals of further ones are only counted.
const CALLERS: usize = 1_000;

#[derive(Default)]
pub(super) struct RefusedHeads(Mutex<(i64, HashSet<Subject>)>);

impl RefusedHeads {
    pub(super) fn is_first(&self, user: &UserId, key: Option<&KeyId>, at: Timestamp) -> bool {
        let caller = match key {
            Some(key) => Subject::Key(key.clone()),
            None => Subject::User(user.clone()),
        };
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Requests that overlap may come in another order than their times.
        if !(seen.0 - 1..=seen.0).contains(&at.as_second()) {
            *seen = (at.as_second(), HashSet::new());
        }
        seen.1.len() < CALLERS && seen.1.insert(caller)
    }
}
