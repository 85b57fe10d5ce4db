//! Rate limits of logins and registrations, in bounded memory.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::bounds;
use crate::error::{Error, Kind, Result};

/// How long a registration counts.
const REGISTRATION_WINDOW: Duration = Duration::from_secs(60 * 60);

/// The user of a login with an unknown e-mail, in the audit.
pub(crate) const UNKNOWN_USER: &str = "unknown";

/// The counters of logins and registrations.
#[derive(Debug)]
pub struct Throttle {
    logins: AttemptWindow<(String, Option<IpAddr>)>,
    /// By network, whatever the e-mails: made-up ones get no further than this.
    networks: AttemptWindow<Option<IpAddr>>,
    registrations: AttemptWindow<Option<IpAddr>>,
    /// By user, and one for all unknown ones.
    refusals: AttemptWindow<String>,
}

impl Default for Throttle {
    fn default() -> Self {
        Throttle {
            logins: AttemptWindow::new(bounds::LOGINS, bounds::LOGIN_WINDOW, bounds::LOGIN_PAIRS),
            networks: AttemptWindow::new(
                bounds::NETWORK_LOGINS,
                bounds::LOGIN_WINDOW,
                bounds::LOGIN_PAIRS,
            ),
            registrations: AttemptWindow::new(
                bounds::REGISTRATIONS,
                REGISTRATION_WINDOW,
                bounds::LOGIN_PAIRS,
            ),
            refusals: AttemptWindow::new(
                bounds::AUDITED_REFUSALS,
                bounds::LOGIN_WINDOW,
                bounds::LOGIN_PAIRS,
            ),
        }
    }
}

impl Throttle {
    /// Counts a login of `email` from `address`, or refuses it.
    pub(crate) fn login(&self, email: &str, address: Option<IpAddr>, now: Timestamp) -> Result<()> {
        let network = address.map(network);
        let pair = (email.to_owned(), network);
        // A login that is refused for its pair costs nothing, so it does not count for its
        // neighbours.
        self.logins.check(&pair, now)?;
        self.networks.count(&network, now)?;
        self.logins.count(&pair, now)
    }

    /// Refuses what [`login`](Self::login) would refuse, and counts nothing.
    pub(crate) fn check_login(
        &self,
        email: &str,
        address: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<()> {
        let network = address.map(network);
        self.logins.check(&(email.to_owned(), network), now)?;
        self.networks.check(&network, now)
    }

    /// Refuses what [`register`](Self::register) would refuse, and counts nothing.
    pub(crate) fn check_registration(&self, address: Option<IpAddr>, now: Timestamp) -> Result<()> {
        self.registrations.check(&address.map(network), now)
    }

    /// Counts a registration from `address`, or refuses it.
    pub(crate) fn register(&self, address: Option<IpAddr>, now: Timestamp) -> Result<()> {
        self.registrations.count(&address.map(network), now)
    }

    /// Counts a refused login of a user, or of [`UNKNOWN_USER`]; whether it is one of the few that
    /// are audited.
    pub(crate) fn note_refusal(&self, user: &str, now: Timestamp) -> bool {
        self.refusals.count(&user.to_owned(), now).is_ok()
    }
}

/// The network of one subscriber: /24 in IPv4, /56 in IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & (u32::MAX << 8)).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 72)).into(),
    }
}

/// A sliding window of events for each key. Keys are stored as a keyed hash, so that each takes the
/// same memory. When there are too many, those whose window is over leave first, then those with
/// the fewest events: a flood of new keys displaces itself, and not a key that is about to be
/// refused.
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
    /// By the last event.
    by_time: BTreeSet<(i64, u64)>,
    /// By the number of events, then the last.
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

    /// Refuses where `key` has had its events.
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
mod tests {
    use super::*;
    use crate::clock::Clock;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn ten_logins_a_quarter_of_an_hour_by_email_and_network() {
        let (throttle, clock) =
            (Throttle::default(), Clock::manual(Timestamp::from_second(1_764_000_000).unwrap()));
        for last in 0..10 {
            throttle.login("a@b.c", address(&format!("192.0.2.{last}")), clock.now()).unwrap();
            clock.advance(Duration::from_secs(1));
        }
        let error = throttle.login("a@b.c", address("192.0.2.99"), clock.now()).unwrap_err();
        assert_eq!((error.kind(), error.retry_after_s()), (Kind::RateLimited, Some(15 * 60 - 10)));
        throttle.login("a@b.c", address("192.0.3.1"), clock.now()).unwrap();
        throttle.login("d@e.f", address("192.0.2.1"), clock.now()).unwrap();
        clock.advance(Duration::from_secs(15 * 60 - 10));
        throttle.login("a@b.c", address("192.0.2.1"), clock.now()).unwrap();
        throttle.login("a@b.c", address("192.0.2.1"), clock.now()).unwrap_err();
    }

    #[test]
    fn twenty_registrations_an_hour_from_a_network() {
        let (throttle, clock) =
            (Throttle::default(), Clock::manual(Timestamp::from_second(1_764_000_000).unwrap()));
        for last in 0..20 {
            throttle.register(address(&format!("2001:db8:0:ff{last:02}::1")), clock.now()).unwrap();
        }
        throttle.register(address("2001:db8:0:ff00::2"), clock.now()).unwrap_err();
        throttle.register(address("2001:db8:0:fe00::2"), clock.now()).unwrap();
        clock.advance(REGISTRATION_WINDOW);
        throttle.register(address("2001:db8:0:ff00::2"), clock.now()).unwrap();
    }

    #[test]
    fn a_flood_of_made_up_pairs_frees_nobody() {
        let (throttle, clock) =
            (Throttle::default(), Clock::manual(Timestamp::from_second(1_764_000_000).unwrap()));
        let here = address("192.0.2.1");
        for _ in 0..bounds::LOGINS {
            throttle.login("victim@example.com", here, clock.now()).unwrap();
        }
        throttle.login("victim@example.com", here, clock.now()).unwrap_err();
        let mut networks = 0_u32;
        for made_up in 0..=bounds::LOGIN_PAIRS {
            if made_up % 50 == 0 {
                networks += 1;
            }
            let from = Some(IpAddr::V4(Ipv4Addr::from_bits((10 << 24) + (networks << 8))));
            throttle.login(&format!("{made_up}@example.com"), from, clock.now()).unwrap();
            clock.advance(Duration::from_micros(1));
        }
        throttle.login("victim@example.com", here, clock.now()).unwrap_err();
    }

    #[test]
    fn a_network_has_a_hundred_logins_and_what_a_pair_is_refused_is_not_counted() {
        let (throttle, clock) =
            (Throttle::default(), Clock::manual(Timestamp::from_second(1_764_000_000).unwrap()));
        let here = address("192.0.2.1");
        for _ in 0..1_000 {
            // Ten are let through.
            let _refused = throttle.login("one@example.com", here, clock.now());
        }
        for other in 0..bounds::NETWORK_LOGINS - bounds::LOGINS {
            throttle.login(&format!("{other}@example.com"), here, clock.now()).unwrap();
        }
        let error = throttle.login("another@example.com", here, clock.now()).unwrap_err();
        assert_eq!((error.kind(), error.retry_after_s()), (Kind::RateLimited, Some(15 * 60)));
        throttle.login("another@example.com", address("192.0.3.1"), clock.now()).unwrap();
        clock.advance(bounds::LOGIN_WINDOW);
        throttle.login("another@example.com", here, clock.now()).unwrap();
    }

    #[test]
    fn those_leave_first_whose_time_is_over() {
        let window: AttemptWindow<u32> = AttemptWindow::new(3, Duration::from_secs(60), 2);
        let at = |second| Timestamp::from_second(second).unwrap();
        for second in 0..3 {
            window.count(&1, at(second)).unwrap();
        }
        window.count(&2, at(50)).unwrap();
        // Full, and nobody's time over: the one with the fewest leaves.
        window.count(&3, at(55)).unwrap();
        window.count(&1, at(56)).unwrap_err();
        window.count(&3, at(57)).unwrap();
        // Now that of the first is, though it has the most.
        window.count(&4, at(63)).unwrap();
        window.count(&3, at(64)).unwrap();
        window.count(&3, at(65)).unwrap_err();
    }

    #[test]
    fn memory_is_bounded_and_a_mapped_address_is_its_own() {
        let window = AttemptWindow::new(1, Duration::from_secs(60), 3);
        for key in 0..10 {
            window.count(&key, Timestamp::UNIX_EPOCH).unwrap();
        }
        let entries = window.entries.lock().unwrap();
        assert_eq!((entries.log.len(), entries.by_time.len(), entries.by_count.len()), (3, 3, 3));
        assert_eq!(
            network("::ffff:192.0.2.7".parse().unwrap()),
            "192.0.2.0".parse::<IpAddr>().unwrap()
        );
    }
}
