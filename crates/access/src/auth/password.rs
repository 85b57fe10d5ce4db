//! Passwords: Argon2id at OWASP's cost, off the async threads, on half of the cores, with a short
//! queue. One network may take a quarter of the queue. A login of an unknown user costs one run,
//! too: the time must not tell whether a user exists.

use std::net::IpAddr;
use std::num::NonZero;
#[cfg(any(test, feature = "testing"))]
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version};
use tokio::sync::Semaphore;

use super::throttle::network;
use rerouter_base::blocking::blocking;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::Random;
use rerouter_base::secret::Secret;

/// Maximum number of Argon2 runs that wait for a core. Each run takes 19 MiB, so further runs are
/// refused with 503.
pub const PASSWORD_QUEUE: usize = 64;
/// Denominator of the share of that queue which one network may have.
const PASSWORD_SHARE: usize = 4;

/// Memory in KiB, passes and lanes (OWASP's first recommendation).
const COST: (u32, u32, u32) = (19_456, 2, 1);

#[derive(Clone, Debug)]
pub struct Passwords {
    cores: Arc<Semaphore>,
    /// The network of each slot that is taken.
    inside: Arc<Mutex<Vec<Option<IpAddr>>>>,
    most: usize,
    share: usize,
    #[cfg(any(test, feature = "testing"))]
    runs: Arc<std::sync::atomic::AtomicU64>,
    random: Random,
}

impl Passwords {
    /// Hashes on half of the cores, with [`PASSWORD_QUEUE`] waiting at most.
    pub fn new(random: Random) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get).div_ceil(2);
        Self::bounded(random, cores, PASSWORD_QUEUE)
    }

    fn bounded(random: Random, cores: usize, waiting: usize) -> Self {
        Passwords {
            cores: Arc::new(Semaphore::new(cores)),
            inside: Arc::default(),
            most: cores + waiting,
            share: (waiting / PASSWORD_SHARE).max(1),
            #[cfg(any(test, feature = "testing"))]
            runs: Arc::default(),
            random,
        }
    }

    /// The hash to store, in PHC form.
    pub async fn hash(&self, password: Secret) -> Result<String> {
        self.hash_at(self.slot(None)?, password).await
    }

    pub async fn hash_at(&self, slot: HashSlot, password: Secret) -> Result<String> {
        let mut salt = [0; 16];
        self.random.fill(&mut salt);
        self.run(slot, move || {
            let hash = argon2()?
                .hash_password_with_salt(password.expose().as_bytes(), &salt)
                .map_err(Error::internal)?;
            Ok(hash.to_string())
        })
        .await
    }

    /// Takes a slot at the cores or in the queue; 503 if all slots are taken, or if the network of
    /// `client` has its share of them.
    pub fn slot(&self, client: Option<IpAddr>) -> Result<HashSlot> {
        let network = client.map(network);
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let own = inside.iter().filter(|one| one.is_some() && **one == network).count();
        if inside.len() >= self.most || own >= self.share {
            return Err(Error::new(Kind::Unavailable, "Too many logins at once; try again.")
                .retry_after(Duration::from_secs(1)));
        }
        inside.push(network);
        Ok(HashSlot { inside: Arc::clone(&self.inside), network })
    }

    /// Whether a password has the hash `stored`. Without a hash (an unknown user) it takes as long
    /// and returns false.
    pub async fn verify_at(
        &self,
        slot: HashSlot,
        stored: Option<String>,
        password: Secret,
    ) -> Result<bool> {
        self.run(slot, move || {
            let Some(stored) = stored else {
                argon2()?
                    .hash_password_with_salt(password.expose().as_bytes(), &[0; 16])
                    .map_err(Error::internal)?;
                return Ok(false);
            };
            let hash = PasswordHash::new(&stored).map_err(Error::internal)?;
            Ok(argon2()?.verify_password(password.expose().as_bytes(), &hash).is_ok())
        })
        .await
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn runs(&self) -> u64 {
        self.runs.load(Ordering::Acquire)
    }

    async fn run<T: Send + 'static>(
        &self,
        slot: HashSlot,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let permit = Arc::clone(&self.cores).acquire_owned().await.map_err(Error::internal)?;
        #[cfg(any(test, feature = "testing"))]
        self.runs.fetch_add(1, Ordering::AcqRel);
        // Slot and permit move along: if the caller goes away, a core that is still at work does
        // not count as free.
        let work = move || {
            let _held = (slot, permit);
            work()
        };
        blocking(work).await?
    }
}

/// A slot at the cores or in the queue, free again on drop.
#[derive(Debug)]
pub struct HashSlot {
    inside: Arc<Mutex<Vec<Option<IpAddr>>>>,
    network: Option<IpAddr>,
}

impl Drop for HashSlot {
    fn drop(&mut self) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = inside.iter().position(|one| *one == self.network) {
            inside.swap_remove(own);
        }
    }
}

fn argon2() -> Result<Argon2<'static>> {
    let (memory, passes, lanes) = COST;
    let params = Params::new(memory, passes, lanes, None).map_err(Error::internal)?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn verify(passwords: &Passwords, stored: Option<String>, password: &str) -> Result<bool> {
        passwords.verify_at(passwords.slot(None)?, stored, Secret::new(password)).await
    }

    #[tokio::test]
    async fn only_the_password_verifies() {
        let passwords = Passwords::new(Random::seeded(1));
        let hash = passwords.hash(Secret::new("correct horse")).await.unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert!(verify(&passwords, Some(hash.clone()), "correct horse").await.unwrap());
        assert!(!verify(&passwords, Some(hash.clone()), "battery staple").await.unwrap());
        assert!(!verify(&passwords, Some(hash.clone()), &hash).await.unwrap());
        assert!(!verify(&passwords, None, "correct horse").await.unwrap());
    }

    #[tokio::test]
    async fn a_full_queue_sheds() {
        let passwords = Passwords::bounded(Random::seeded(1), 1, 0);
        let held = passwords.slot(None).unwrap();
        let error = verify(&passwords, None, "x").await.unwrap_err();
        assert_eq!((error.kind(), error.retry_after_s()), (Kind::Unavailable, Some(1)));
        drop(held);
        assert!(!verify(&passwords, None, "x").await.unwrap());
    }

    #[tokio::test]
    async fn one_network_has_a_share_of_the_queue() {
        let passwords = Passwords::bounded(Random::seeded(1), 1, 8);
        let [ann, bob, eve] = ["192.0.2.1", "192.0.2.9", "198.51.100.1"].map(|a| a.parse().ok());
        let held = [passwords.slot(ann).unwrap(), passwords.slot(bob).unwrap()];
        let refused = passwords.slot(ann).unwrap_err();
        assert_eq!((refused.kind(), refused.retry_after_s()), (Kind::Unavailable, Some(1)));
        let other = passwords.slot(eve).unwrap();
        drop(held);
        assert!(passwords.slot(bob).is_ok());
        drop(other);
        assert!(passwords.inside.lock().unwrap().is_empty());
    }
}
