//! The peppers that secrets are known by. One is that of the master key of now; those before it are left while a key or a session
//! is known by them. A secret that is shown and good is moved to the pepper of now, by the store's writer, and its request does not
//! wait for that. Where no other pepper is left a request costs one HMAC, as it did before there was another.

use std::collections::BTreeSet;

use arc_swap::ArcSwap;
use dashmap::DashMap;
use jiff::Timestamp;
use tokio::sync::Notify;

use super::principal::{AgentCredential, Credential, Principal};
use super::session::Shown;
use super::{Auth, UNKNOWN, token};
use crate::bounds;
use crate::clock::Clock;
use crate::secret::{Keyring, Secret};
use crate::store::{DigestOf, Left, MovedDigest, Store, StoreError};

/// All of them, and what is to be moved to the newest.
pub(super) struct Peppers {
    number: u32,
    newest: token::Pepper,
    /// The last one first.
    older: ArcSwap<Vec<Older>>,
    /// By the digest that is known. As many at most as there are digests of older peppers.
    due: DashMap<[u8; 32], MovedDigest>,
    comes: Notify,
}

struct Older {
    number: u32,
    pepper: token::Pepper,
}

impl Peppers {
    pub(super) fn new(keys: &Keyring) -> Self {
        let older = keys
            .older_peppers()
            .map(|(number, key)| Older { number, pepper: token::Pepper::new(key) })
            .collect();
        Peppers {
            number: keys.number(),
            newest: token::Pepper::new(keys.pepper()),
            older: ArcSwap::from_pointee(older),
            due: DashMap::new(),
            comes: Notify::new(),
        }
    }

    /// The number of the pepper of now.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The digest by it.
    pub(super) fn digest(&self, secret: &str) -> [u8; 32] {
        self.newest.digest(secret)
    }

    /// Notes that a digest is to be another.
    fn move_from(&self, from: [u8; 32], to: [u8; 32], of: DigestOf) {
        if !self.due.contains_key(&from) {
            self.due.insert(from, MovedDigest { of, from, to, pepper: self.number });
            self.comes.notify_one();
        }
    }

    fn older_numbers(&self) -> BTreeSet<u32> {
        self.older.load().iter().map(|older| older.number).collect()
    }

    fn forget(&self, number: u32) {
        self.older.rcu(|older| {
            let left = older.iter().filter(|older| older.number != number);
            left.map(|older| Older { number: older.number, pepper: older.pepper.clone() })
                .collect::<Vec<_>>()
        });
    }
}

impl Auth {
    /// What is stored of a secret, by the pepper of now ([`Auth::pepper`]).
    pub fn digest(&self, secret: &Secret) -> [u8; 32] {
        self.0.peppers.digest(secret.expose())
    }

    /// Which pepper makes digests: its number in stored rows.
    pub fn pepper(&self) -> u32 {
        self.0.peppers.number()
    }

    /// Whose a secret is: `find` looks for its digest by the newest pepper, which is `digest`, and by older ones while there are
    /// any. What is found by an older one is to be moved.
    pub(super) fn known(
        &self,
        secret: &str,
        digest: &[u8; 32],
        shown: Shown,
        find: impl Fn(&[u8; 32]) -> Result<Principal, &'static str>,
    ) -> Result<Principal, &'static str> {
        let peppers = &self.0.peppers;
        // Taken before the first look: a secret that is moved while we look is then found by one of the looks.
        let older = peppers.older.load();
        let found = find(digest);
        if older.is_empty() || !matches!(found, Err(UNKNOWN)) {
            return found;
        }
        for older in older.iter() {
            let old = older.pepper.digest(secret);
            let found = find(&old);
            if let Ok(principal) = &found
                && let Some(of) = whose(principal, shown)
            {
                peppers.move_from(old, *digest, of);
            }
            if !matches!(found, Err(UNKNOWN)) {
                return found;
            }
        }
        find(digest)
    }

    /// How much is known by older peppers: at least so many keys, and so many sessions.
    pub fn unmoved(&self, now: Timestamp) -> Left {
        if self.0.peppers.older.load().is_empty() {
            return Left::default();
        }
        let sessions = self.0.sessions.of_older(self.pepper(), now).into_values().sum::<usize>();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Left { keys: count(self.0.keys.unmoved()), sessions: count(sessions) }
    }

    /// Brings to the store what is to be moved, and forgets peppers that nothing is known by any more; until there is only the
    /// pepper of now.
    pub async fn keep_moving(&self, store: &Store, clock: &Clock) {
        let mut failing = false;
        let mut tick = tokio::time::interval(bounds::SWEEP_INTERVAL);
        while !self.0.peppers.older.load().is_empty() {
            let due = self.0.peppers.due.len();
            let looks = tokio::select! {
                // What failed is tried again, and a batch may leave some.
                () = self.0.peppers.comes.notified(), if due == 0 => false,
                () = std::future::ready(()), if due > 0 => false,
                _ = tick.tick() => true,
            };
            // Others come meanwhile, and while the store fails it is not asked all the time.
            tokio::time::sleep(bounds::MOVES_INTERVAL).await;
            let moved = match self.move_due(store).await {
                // That looks at every key of an older pepper: while there are many, not after each batch.
                Ok(()) if looks || self.0.keys.unmoved() <= bounds::MOVES_BATCH => {
                    self.forget_peppers(store, clock.now()).await
                }
                moved => moved,
            };
            if let Err(error) = &moved
                && !failing
            {
                log::warn!(
                    "secrets are known by an earlier master key's pepper for longer, as the store fails: {error}"
                );
            }
            failing = moved.is_err();
        }
    }

    /// Brings to the store what is to be moved, as many at a time as one transaction takes.
    pub async fn move_due(&self, store: &Store) -> Result<(), StoreError> {
        let due = &self.0.peppers.due;
        // Those of now; what comes meanwhile waits for the next time.
        for _ in 0..=due.len() / bounds::MOVES_BATCH {
            let batch: Vec<MovedDigest> =
                due.iter().take(bounds::MOVES_BATCH).map(|moved| moved.value().clone()).collect();
            if batch.is_empty() {
                break;
            }
            store.move_digests(batch.clone()).await?;
            batch.iter().for_each(|moved| _ = due.remove(&moved.from));
        }
        Ok(())
    }

    /// Forgets the peppers that nothing is known by any more, here and in the store.
    pub async fn forget_peppers(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let peppers = &self.0.peppers;
        let (keys, sessions) =
            (self.0.keys.of_older(now), self.0.sessions.of_older(self.pepper(), now));
        for number in peppers.older_numbers() {
            // The tables know first, and the store has the last word.
            let left = keys.contains_key(&number) || sessions.contains_key(&number);
            if !left && store.known_by_pepper(number, now).await?.is_nothing() {
                store.forget_pepper(number).await?;
                peppers.forget(number);
                log::info!(
                    "no key and no session is known by the pepper of master key {number} any more: it is forgotten"
                );
            }
        }
        Ok(())
    }
}

/// Whose secret made a principal; `shown` says which of a session's.
fn whose(principal: &Principal, shown: Shown) -> Option<DigestOf> {
    match principal {
        Principal::User { via: Credential::Key(key), .. }
        | Principal::AgentTenant { via: AgentCredential::Key(key) } => {
            Some(DigestOf::Key(key.id.clone()))
        }
        Principal::User { via: Credential::Session(id), .. } => Some(match shown {
            Shown::Cookie => DigestOf::Cookie(id.clone()),
            Shown::Token => DigestOf::Token(id.clone()),
        }),
        _ => None,
    }
}

#[cfg(test)]
#[path = "peppers_tests.rs"]
mod tests;
