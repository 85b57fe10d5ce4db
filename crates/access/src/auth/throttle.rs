//! Rate limits of logins and registrations, in bounded memory.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use rerouter_base::error::{Error, Kind, Result};

/// Maximum number of logins of one e-mail from one network in [`LOGIN_WINDOW`], failed or not.
pub const LOGINS: u32 = 10;
/// Window of the login throttle.
pub const LOGIN_WINDOW: Duration = Duration::from_secs(15 * 60);
/// Maximum number of refused logins in [`LOGIN_WINDOW`] that get an audit row, for one user and for
/// all unknown e-mails together, so that guessing does not fill the audit.
const AUDITED_REFUSALS: u32 = 10;
/// Maximum number of logins from one network in [`LOGIN_WINDOW`], for all e-mails together: enough
/// for an office in the morning, and few guesses.
pub const NETWORK_LOGINS: u32 = 100;
/// Maximum number of pairs, and of networks, that the login throttle remembers. Entries whose
/// window is over are removed first, then those with the fewest logins.
const LOGIN_PAIRS: usize = 100_000;
/// Maximum number of registrations from one network in an hour.
pub const REGISTRATIONS: u32 = 20;

/// How long a registration counts.
pub(super) const REGISTRATION_WINDOW: Duration = Duration::from_secs(60 * 60);

/// The user of a login with an unknown e-mail, in the audit.
pub const UNKNOWN_USER: &str = "unknown";

#[derive(Debug)]
pub struct Throttle {
    logins: AttemptWindow<(String, Option<IpAddr>)>,
    /// Logins by network, for all e-mails together, so that made-up e-mails are limited too.
    networks: AttemptWindow<Option<IpAddr>>,
    registrations: AttemptWindow<Option<IpAddr>>,
    /// Refused logins by user, with one entry for all unknown users.
    refusals: AttemptWindow<String>,
}

impl Default for Throttle {
    fn default() -> Self {
        Throttle {
            logins: AttemptWindow::new(LOGINS, LOGIN_WINDOW, LOGIN_PAIRS),
            networks: AttemptWindow::new(NETWORK_LOGINS, LOGIN_WINDOW, LOGIN_PAIRS),
            registrations: AttemptWindow::new(REGISTRATIONS, REGISTRATION_WINDOW, LOGIN_PAIRS),
            refusals: AttemptWindow::new(AUDITED_REFUSALS, LOGIN_WINDOW, LOGIN_PAIRS),
        }
    }
}

impl Throttle {
    pub fn login(&self, email: &str, address: Option<IpAddr>, now: Timestamp) -> Result<()> {
        let network = address.map(network);
        let pair = (email.to_owned(), network);
        // A login that is refused for its pair costs nothing, so it does not count against its
        // network.
        self.logins.check(&pair, now)?;
        self.networks.count(&network, now)?;
        self.logins.count(&pair, now)
    }

    /// Refuses what [`login`](Self::login) would refuse, and counts nothing.
    pub fn check_login(&self, email: &str, address: Option<IpAddr>, now: Timestamp) -> Result<()> {
        let network = address.map(network);
        self.logins.check(&(email.to_owned(), network), now)?;
        self.networks.check(&network, now)
    }

    /// Refuses what [`register`](Self::register) would refuse, and counts nothing.
    pub fn check_registration(&self, address: Option<IpAddr>, now: Timestamp) -> Result<()> {
        self.registrations.check(&address.map(network), now)
    }

    pub fn register(&self, address: Option<IpAddr>, now: Timestamp) -> Result<()> {
        self.registrations.count(&address.map(network), now)
    }

    /// Counts a refused login of a user, or of [`UNKNOWN_USER`]. Returns whether it is one of the
    /// few that are audited.
    pub fn note_refusal(&self, user: &str, now: Timestamp) -> bool {
        self.refusals.count(&user.to_owned(), now).is_ok()
    }
}

/// The network of one subscriber: /24 in IPv4, /56 in IPv6.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & (u32::MAX << 8)).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 72)).into(),
    }
}

/// A sliding window of events for each key. Keys are stored as a keyed hash, so that each takes the
/// same memory. When there are too many keys, those whose window is over are removed first, then
/// those with the fewest events: a flood of new keys displaces itself, and not a key that is about
/// to be refused.
#[derive(Debug)]
struct AttemptWindow<K> {
    events: u32,
    lasting: Duration,
    keys: usize,
    hash: RandomState,
    entries: Mutex<WindowEntries>,
    of: PhantomData<fn(K)>,
}

#[derive(Debug, Default)]
struct WindowEntries {
    /// Times of events in microseconds, oldest first; at most `events` each.
    log: HashMap<u64, VecDeque<i64>>,
    /// Entries by their last event.
    by_time: BTreeSet<(i64, u64)>,
    /// Entries by the number of their events, then by the last event.
    by_count: BTreeSet<(usize, i64, u64)>,
}

impl WindowEntries {
    /// Removes an entry from both orders, if it is there.
    fn unlist(&mut self, key: u64) {
        if let Some(times) = self.log.get(&key)
            && let Some(last) = times.back()
        {
            self.by_time.remove(&(*last, key));
            self.by_count.remove(&(times.len(), *last, key));
        }
    }

    /// The entry to displace.
    fn least(&self, over: i64) -> Option<u64> {
        let ended = self.by_time.first().filter(|(last, _)| *last <= over).map(|(_, key)| *key);
        ended.or_else(|| self.by_count.first().map(|(.., key)| *key))
    }
}

impl<K: Hash> AttemptWindow<K> {
    fn new(events: u32, lasting: Duration, keys: usize) -> Self {
        AttemptWindow {
            events,
            lasting,
            keys,
            hash: RandomState::new(),
            entries: Mutex::default(),
            of: PhantomData,
        }
    }

    fn lasting(&self) -> i64 {
        i64::try_from(self.lasting.as_micros()).unwrap_or(i64::MAX)
    }

    fn check(&self, key: &K, now: Timestamp) -> Result<()> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries
            .log
            .get(&self.hash.hash_one(key))
            .map_or(Ok(()), |times| self.refuse(times, now.as_microsecond()))
    }

    fn refuse(&self, times: &VecDeque<i64>, now: i64) -> Result<()> {
        let mut live = times.iter().filter(|time| now.saturating_sub(**time) < self.lasting());
        match live.next() {
            Some(first) if live.count() + 1 >= self.events as usize => {
                let wait = first.saturating_add(self.lasting()).saturating_sub(now);
                let wait = Duration::from_micros(u64::try_from(wait).unwrap_or(0));
                Err(Error::new(Kind::RateLimited, "Too many attempts; try again later.")
                    .retry_after(wait))
            }
            _ => Ok(()),
        }
    }

    /// Counts an event of `key`, or refuses it.
    fn count(&self, key: &K, now: Timestamp) -> Result<()> {
        let (key, now) = (self.hash.hash_one(key), now.as_microsecond());
        let over = now.saturating_sub(self.lasting());
        let mut guard = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = &mut *guard;
        if let Some(times) = entries.log.get(&key) {
            self.refuse(times, now)?;
        } else if entries.log.len() >= self.keys
            && let Some(least) = entries.least(over)
        {
            entries.unlist(least);
            entries.log.remove(&least);
        }
        entries.unlist(key);
        let times = entries.log.entry(key).or_default();
        while times.front().is_some_and(|time| *time <= over) {
            times.pop_front();
        }
        // A clock that was set back makes no event older than the one before.
        let last = times.back().map_or(now, |last| now.max(*last));
        times.push_back(last);
        let count = times.len();
        entries.by_time.insert((last, key));
        entries.by_count.insert((count, last, key));
        Ok(())
    }
}

#[cfg(test)]
#[path = "throttle_tests.rs"]
mod tests;
