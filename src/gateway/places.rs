//! How many connections there may be at once, in all and from one network. Where there is no place
//! left, a few may ask once all the same: so strangers who fill every place keep nobody from health
//! and management.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::bounds;

/// The places of connections. Each has one from accept to its end, with TLS or without; streams of
/// HTTP/2 have none.
pub(super) struct Places {
    most: usize,
    share: usize,
    reserve: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    places: usize,
    by_network: HashMap<Network, usize>,
    reserve: Vec<Standby>,
    arrivals: u64,
}

/// A connection in the reserve.
struct Standby {
    number: u64,
    network: Option<Network>,
    /// It is being answered, and gives way to nobody.
    kept: bool,
    /// Tells it to leave.
    leave: Arc<Notify>,
}

/// What counts as one address: what one subscriber usually has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Network {
    V4(Ipv4Addr),
    /// A /56, which is what of the address is kept.
    V6(u64),
}

impl Network {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Network::V4(address),
            IpAddr::V6(address) => Network::V6((address.to_bits() >> 72) as u64),
        }
    }
}

/// Why there was no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// All are taken.
    All,
    /// The address has its share.
    Share,
}

impl Full {
    /// Its word in metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Full::All => "all",
            Full::Share => "address",
        }
    }
}

/// The place of one connection, for as long as it lasts.
pub(super) struct Place {
    places: Arc<Places>,
    network: Option<Network>,
    /// Its number in the reserve, and what tells it to leave.
    standby: Option<(u64, Arc<Notify>)>,
}

impl Places {
    /// `most` places, of which one address has at most `share`.
    pub(super) fn new(most: usize, share: usize) -> Self {
        let reserve = (most / bounds::RESERVE_PART).clamp(bounds::RESERVE_MIN, bounds::RESERVE_MAX);
        Places { most, share, reserve, taken: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection from this address; without one its share is not counted.
    pub(super) fn take(self: &Arc<Self>, address: Option<IpAddr>) -> Result<Place, Full> {
        let network = address.map(Network::of);
        let mut taken = self.lock();
        if taken.places >= self.most {
            return Err(Full::All);
        }
        if let Some(network) = network {
            let count = taken.by_network.entry(network).or_default();
            if *count >= self.share {
                return Err(Full::Share);
            }
            *count += 1;
        }
        taken.places += 1;
        Ok(Place { places: self.clone(), network, standby: None })
    }

    /// A place in the reserve, for one request. Where none is left, one that has not asked yet
    /// gives way: the oldest of the same network, else the oldest of all. Who asks at once is
    /// answered, however many come after.
    pub(super) fn stand_by(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Place> {
        let network = address.map(Network::of);
        let mut taken = self.lock();
        if taken.reserve.len() >= self.reserve {
            let waiting = taken.reserve.iter().enumerate().filter(|(_, standby)| !standby.kept);
            let (oldest, _) =
                waiting.min_by_key(|(_, standby)| (standby.network != network, standby.number))?;
            taken.reserve.swap_remove(oldest).leave.notify_one();
        }
        taken.arrivals += 1;
        let number = taken.arrivals;
        let leave = Arc::new(Notify::new());
        taken.reserve.push(Standby { number, network, kept: false, leave: leave.clone() });
        Some(Place { places: self.clone(), network: None, standby: Some((number, leave)) })
    }
}

impl Place {
    /// Whether it is in the reserve.
    pub(super) fn is_standby(&self) -> bool {
        self.standby.is_some()
    }

    /// Resolves when the connection has to give way to another.
    pub(super) async fn pressed(&self) {
        match &self.standby {
            Some((_, leave)) => leave.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Its request has come: it gives way to nobody until [`Place::yields`]. False where it had to
    /// already.
    pub(super) fn keep(&self) -> bool {
        self.keeps(true)
    }

    /// Its request is answered: what is left may give way.
    pub(super) fn yields(&self) {
        self.keeps(false);
    }

    fn keeps(&self, kept: bool) -> bool {
        let Some((number, _)) = &self.standby else { return true };
        let mut taken = self.places.lock();
        let own = taken.reserve.iter_mut().find(|standby| standby.number == *number);
        own.map(|standby| standby.kept = kept).is_some()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        if let Some((number, _)) = &self.standby {
            taken.reserve.retain(|standby| standby.number != *number);
            return;
        }
        taken.places -= 1;
        if let Some(network) = self.network
            && let Some(count) = taken.by_network.get_mut(&network)
        {
            *count -= 1;
            if *count == 0 {
                taken.by_network.remove(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn places(most: usize, share: usize) -> Arc<Places> {
        Arc::new(Places::new(most, share))
    }

    fn at(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn each_network_has_its_share_of_all() {
        let places = places(5, 2);
        let first = places.take(at("192.0.2.1")).unwrap();
        let _second = places.take(at("::ffff:192.0.2.1")).unwrap();
        assert_eq!(places.take(at("192.0.2.1")).err(), Some(Full::Share));
        let _neighbour = places.take(at("192.0.2.2")).unwrap();
        drop(first);
        let _again = places.take(at("192.0.2.1")).unwrap();
        let _v6 = places.take(at("2001:db8:0:100::1")).unwrap();
        let in_its_56 = places.take(at("2001:db8:0:1ff::2")).unwrap();
        assert_eq!(places.take(at("2001:db8:0:200::1")).err(), Some(Full::All));
        drop(in_its_56);
        let _last = places.take(at("2001:db8:0:1aa::3")).unwrap();
        assert_eq!(places.take(None).err(), Some(Full::All));
    }

    #[test]
    fn a_56_is_one_address() {
        let places = places(10, 2);
        let _held = [
            places.take(at("2001:db8:0:100::1")).unwrap(),
            places.take(at("2001:db8:0:1ff::2")).unwrap(),
        ];
        assert_eq!(places.take(at("2001:db8:0:155::3")).err(), Some(Full::Share));
        assert!(places.take(at("2001:db8:0:200::1")).is_ok());
        let _whoever = [(); 4].map(|()| places.take(None).unwrap());
    }

    #[test]
    fn nothing_is_left_of_those_that_are_gone() {
        let places = places(2, 1);
        for _ in 0..3 {
            let held =
                [places.take(at("192.0.2.1")).unwrap(), places.take(at("2001:db8::1")).unwrap()];
            let reserve = places.stand_by(at("192.0.2.1")).unwrap();
            drop((held, reserve));
        }
        let taken = places.lock();
        assert!(taken.places == 0 && taken.by_network.is_empty() && taken.reserve.is_empty());
    }

    #[test]
    fn in_the_reserve_silence_gives_way_to_those_who_come() {
        let places = places(0, 0);
        let other = places.stand_by(at("198.51.100.1")).unwrap();
        let mut flood: Vec<Place> =
            (1..places.reserve).map(|_| places.stand_by(at("192.0.2.1")).unwrap()).collect();
        assert!(flood.iter().all(|place| place.pressed().now_or_never().is_none()));
        // A flood takes its own places first.
        flood.push(places.stand_by(at("192.0.2.1")).unwrap());
        assert!(flood[0].pressed().now_or_never().is_some() && !flood[0].keep());
        assert!(other.pressed().now_or_never().is_none());
        // Somebody new takes the oldest, whoever has it.
        let newcomer = places.stand_by(at("203.0.113.1")).unwrap();
        assert!(other.pressed().now_or_never().is_some() && !other.keep());
        // Who has asked stays.
        assert!(newcomer.keep() && flood[1].keep());
        let more: Vec<Place> =
            (0..3 * places.reserve).map(|_| places.stand_by(at("192.0.2.1")).unwrap()).collect();
        assert!(newcomer.keep() && flood[1].keep());
        assert!(flood[1].pressed().now_or_never().is_none());
        drop(more);
        let served: Vec<Place> =
            std::iter::from_fn(|| places.stand_by(at("192.0.2.9")).filter(Place::keep)).collect();
        assert!(places.stand_by(at("192.0.2.10")).is_none(), "all of them are being answered");
        assert!(served.len() < places.reserve);
        served[0].yields();
        assert!(places.stand_by(at("192.0.2.10")).is_some(), "but for one that is answered");
        assert!(served[0].pressed().now_or_never().is_some());
    }
}
