//! How often one may try to log in or to register. Bounded memory: the oldest that is remembered leaves first.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::bounds;
use crate::error::{Error, Kind, Result};

/// How long a registration counts.
const REGISTRATION_WINDOW: Duration = Duration::from_secs(60 * 60);

/// The counters of logins and registrations.
#[derive(Debug)]
pub struct Throttle {
    logins: Window<(String, Option<IpAddr>)>,
    registrations: Window<Option<IpAddr>>,
}

impl Default for Throttle {
    fn default() -> Self {
        Throttle {
            logins: Window::new(bounds::LOGINS, bounds::LOGIN_WINDOW, bounds::LOGIN_PAIRS),
            registrations: Window::new(bounds::REGISTRATIONS, REGISTRATION_WINDOW, bounds::LOGIN_PAIRS),
        }
    }
}

impl Throttle {
    /// Counts a login of `email` from `address`, or refuses it.
    pub fn login(&self, email: &str, address: Option<IpAddr>, now: Timestamp) -> Result<()> {
        self.logins.count((email.to_owned(), address.map(network)), now)
    }

    /// Counts a registration from `address`, or refuses it.
    pub fn register(&self, address: Option<IpAddr>, now: Timestamp) -> Result<()> {
        self.registrations.count(address.map(network), now)
    }
}

/// The network that one subscriber usually has: /24 in IPv4, /56 in IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & (u32::MAX << 8)).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 72)).into(),
    }
}

/// A log of the last events of each key.
#[derive(Debug)]
struct Window<K> {
    events: u32,
    lasting: Duration,
    keys: usize,
    entries: Mutex<Entries<K>>,
}

#[derive(Debug)]
struct Entries<K> {
    /// Times of events in microseconds, oldest first; at most `events` each.
    log: HashMap<K, VecDeque<i64>>,
    /// Keys in the order they came.
    order: VecDeque<K>,
}

impl<K: Hash + Eq + Clone> Window<K> {
    fn new(events: u32, lasting: Duration, keys: usize) -> Self {
        Window { events, lasting, keys, entries: Mutex::new(Entries { log: HashMap::new(), order: VecDeque::new() }) }
    }

    fn count(&self, key: K, now: Timestamp) -> Result<()> {
        let now = now.as_microsecond();
        let lasting = i64::try_from(self.lasting.as_micros()).unwrap_or(i64::MAX);
        let mut guard = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = &mut *guard;
        if !entries.log.contains_key(&key) {
            if entries.log.len() >= self.keys
                && let Some(oldest) = entries.order.pop_front()
            {
                entries.log.remove(&oldest);
            }
            entries.order.push_back(key.clone());
        }
        let times = entries.log.entry(key).or_default();
        while times.front().is_some_and(|time| now.saturating_sub(*time) >= lasting) {
            times.pop_front();
        }
        match times.front() {
            Some(first) if times.len() >= self.events as usize => {
                let wait = first.saturating_add(lasting).saturating_sub(now);
                let wait = Duration::from_micros(u64::try_from(wait).unwrap_or(0));
                Err(Error::new(Kind::RateLimited, "Too many attempts; try again later.").retry_after(wait))
            }
            _ => {
                times.push_back(now);
                Ok(())
            }
        }
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
        let (throttle, clock) = (Throttle::default(), Clock::manual(Timestamp::from_second(1_764_000_000).unwrap()));
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
        let (throttle, clock) = (Throttle::default(), Clock::manual(Timestamp::from_second(1_764_000_000).unwrap()));
        for last in 0..20 {
            throttle.register(address(&format!("2001:db8:0:ff{last:02}::1")), clock.now()).unwrap();
        }
        throttle.register(address("2001:db8:0:ff00::2"), clock.now()).unwrap_err();
        throttle.register(address("2001:db8:0:fe00::2"), clock.now()).unwrap();
        clock.advance(REGISTRATION_WINDOW);
        throttle.register(address("2001:db8:0:ff00::2"), clock.now()).unwrap();
    }

    #[test]
    fn memory_is_bounded_and_a_mapped_address_is_its_own() {
        let window = Window::new(1, Duration::from_secs(60), 3);
        for key in 0..10 {
            window.count(key, Timestamp::UNIX_EPOCH).unwrap();
        }
        assert_eq!(window.entries.lock().unwrap().log.len(), 3);
        assert_eq!(window.entries.lock().unwrap().order.len(), 3);
        assert_eq!(network("::ffff:192.0.2.7".parse().unwrap()), "192.0.2.0".parse::<IpAddr>().unwrap());
    }
}
