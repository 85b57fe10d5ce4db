//! Limits on concurrent connections, in total and per network. A small reserve of slots comes on
//! top, for one request each, so that a flood that fills every slot does not lock out health checks
//! and management.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use rerouter_base::unread;

/// The reserve is the number of slots divided by this. Health checks and management calls find room
/// in the reserve when all other slots are taken.
const RESERVE_PART: usize = 4;
/// Smallest reserve: enough for some probes and an admin.
const RESERVE_MIN: usize = 16;
/// Largest reserve: its connections take memory and descriptors beyond `limits.connections`.
const RESERVE_MAX: usize = 128;

/// The limits of one service. Each connection holds a slot from accept to its end. Each further
/// HTTP/2 stream takes a slot too, because the stream may need a connection to a provider.
pub(super) struct ConnectionLimiter {
    most: usize,
    share: usize,
    reserve: usize,
    taken: Mutex<TakenSlots>,
}

#[derive(Default)]
struct TakenSlots {
    count: usize,
    by_network: HashMap<IpAddr, usize>,
    reserve: Vec<ReserveSlot>,
    arrivals: u64,
}

struct ReserveSlot {
    number: u64,
    network: Option<IpAddr>,
    /// The request is being answered: the slot cannot be revoked.
    kept: bool,
    revoked: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionRefusal {
    /// All slots are taken.
    All,
    /// The address already has its share.
    Address,
}

impl ConnectionRefusal {
    /// The label in metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            ConnectionRefusal::All => "all",
            ConnectionRefusal::Address => "address",
        }
    }
}

/// The slot of one connection, freed on drop.
pub(super) struct ConnectionSlot {
    limiter: Arc<ConnectionLimiter>,
    network: Option<IpAddr>,
    /// For a reserve slot: the slot's number, and what is notified when the slot is revoked.
    reserve: Option<(u64, Arc<Notify>)>,
}

impl ConnectionLimiter {
    /// Allows `most` slots in total, and at most `share` of them for one address.
    pub(super) fn new(most: usize, share: usize) -> Self {
        let reserve = (most / RESERVE_PART).clamp(RESERVE_MIN, RESERVE_MAX);
        ConnectionLimiter { most, share, reserve, taken: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, TakenSlots> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Without an address, only the total is limited.
    pub(super) fn take(
        self: &Arc<Self>,
        address: Option<IpAddr>,
    ) -> Result<ConnectionSlot, ConnectionRefusal> {
        let network = address.map(unread::network);
        let mut taken = self.lock();
        if taken.count >= self.most {
            return Err(ConnectionRefusal::All);
        }
        if let Some(network) = network {
            let count = taken.by_network.entry(network).or_default();
            if *count >= self.share {
                return Err(ConnectionRefusal::Address);
            }
            *count += 1;
        }
        taken.count += 1;
        Ok(ConnectionSlot { limiter: self.clone(), network, reserve: None })
    }

    /// Takes a reserve slot, for one request. If all are taken, revokes a slot whose request has
    /// not come yet: the oldest of the same network, else the oldest of all. So a client that sends
    /// its request at once is answered, no matter how many connect after it.
    pub(super) fn reserve(self: &Arc<Self>, address: Option<IpAddr>) -> Option<ConnectionSlot> {
        let network = address.map(unread::network);
        let mut taken = self.lock();
        if taken.reserve.len() >= self.reserve {
            let waiting = taken.reserve.iter().enumerate().filter(|(_, slot)| !slot.kept);
            let (oldest, _) =
                waiting.min_by_key(|(_, slot)| (slot.network != network, slot.number))?;
            taken.reserve.swap_remove(oldest).revoked.notify_one();
        }
        taken.arrivals += 1;
        let number = taken.arrivals;
        let revoked = Arc::new(Notify::new());
        let slot = ReserveSlot { number, network, kept: false, revoked: revoked.clone() };
        taken.reserve.push(slot);
        let reserve = Some((number, revoked));
        Some(ConnectionSlot { limiter: self.clone(), network: None, reserve })
    }
}

impl ConnectionSlot {
    pub(super) fn is_reserve(&self) -> bool {
        self.reserve.is_some()
    }

    /// Resolves when the slot is revoked: the connection must close.
    pub(super) async fn revoked(&self) {
        match &self.reserve {
            Some((_, revoked)) => revoked.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Protects the slot from being revoked, because its request has come, until
    /// [`ConnectionSlot::release`]. Returns `false` if the slot was revoked already.
    pub(super) fn keep(&self) -> bool {
        self.set_kept(true)
    }

    /// Allows the slot to be revoked again, because its request is answered.
    pub(super) fn release(&self) {
        self.set_kept(false);
    }

    /// A slot for a further stream of this connection.
    pub(super) fn beside(&self) -> Result<ConnectionSlot, ConnectionRefusal> {
        self.limiter.take(self.network)
    }

    fn set_kept(&self, kept: bool) -> bool {
        let Some((number, _)) = &self.reserve else { return true };
        let mut taken = self.limiter.lock();
        let own = taken.reserve.iter_mut().find(|slot| slot.number == *number);
        own.map(|slot| slot.kept = kept).is_some()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = self.limiter.lock();
        if let Some((number, _)) = &self.reserve {
            taken.reserve.retain(|slot| slot.number != *number);
            return;
        }
        taken.count -= 1;
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

    fn limiter(most: usize, share: usize) -> Arc<ConnectionLimiter> {
        Arc::new(ConnectionLimiter::new(most, share))
    }

    fn at(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn each_network_has_its_share_of_all() {
        let limiter = limiter(5, 2);
        let first = limiter.take(at("192.0.2.1")).unwrap();
        let _second = limiter.take(at("::ffff:192.0.2.1")).unwrap();
        assert_eq!(limiter.take(at("192.0.2.1")).err(), Some(ConnectionRefusal::Address));
        let _neighbour = limiter.take(at("192.0.2.2")).unwrap();
        drop(first);
        let _again = limiter.take(at("192.0.2.1")).unwrap();
        let _v6 = limiter.take(at("2001:db8:0:100::1")).unwrap();
        let in_its_56 = limiter.take(at("2001:db8:0:1ff::2")).unwrap();
        assert_eq!(limiter.take(at("2001:db8:0:200::1")).err(), Some(ConnectionRefusal::All));
        drop(in_its_56);
        let _last = limiter.take(at("2001:db8:0:1aa::3")).unwrap();
        assert_eq!(limiter.take(None).err(), Some(ConnectionRefusal::All));
    }

    #[test]
    fn a_56_is_one_address() {
        let limiter = limiter(10, 2);
        let _held = [
            limiter.take(at("2001:db8:0:100::1")).unwrap(),
            limiter.take(at("2001:db8:0:1ff::2")).unwrap(),
        ];
        assert_eq!(limiter.take(at("2001:db8:0:155::3")).err(), Some(ConnectionRefusal::Address));
        assert!(limiter.take(at("2001:db8:0:200::1")).is_ok());
        let _unknown = [(); 4].map(|()| limiter.take(None).unwrap());
    }

    #[test]
    fn closed_connections_free_their_slots() {
        let limiter = limiter(2, 1);
        for _ in 0..3 {
            let held =
                [limiter.take(at("192.0.2.1")).unwrap(), limiter.take(at("2001:db8::1")).unwrap()];
            let reserve = limiter.reserve(at("192.0.2.1")).unwrap();
            drop((held, reserve));
        }
        let taken = limiter.lock();
        assert!(taken.count == 0 && taken.by_network.is_empty() && taken.reserve.is_empty());
    }

    #[test]
    fn silent_connections_lose_their_reserve_slots_to_new_ones() {
        let limiter = limiter(0, 0);
        let other = limiter.reserve(at("198.51.100.1")).unwrap();
        let mut flood: Vec<ConnectionSlot> =
            (1..limiter.reserve).map(|_| limiter.reserve(at("192.0.2.1")).unwrap()).collect();
        assert!(flood.iter().all(|slot| slot.revoked().now_or_never().is_none()));
        // A flood revokes its own slots first.
        flood.push(limiter.reserve(at("192.0.2.1")).unwrap());
        assert!(flood[0].revoked().now_or_never().is_some() && !flood[0].keep());
        assert!(other.revoked().now_or_never().is_none());
        // A newcomer from a third network revokes the oldest slot of all.
        let newcomer = limiter.reserve(at("203.0.113.1")).unwrap();
        assert!(other.revoked().now_or_never().is_some() && !other.keep());
        // A slot whose request has come stays.
        assert!(newcomer.keep() && flood[1].keep());
        let more: Vec<ConnectionSlot> =
            (0..3 * limiter.reserve).map(|_| limiter.reserve(at("192.0.2.1")).unwrap()).collect();
        assert!(newcomer.keep() && flood[1].keep());
        assert!(flood[1].revoked().now_or_never().is_none());
        drop(more);
        let served: Vec<ConnectionSlot> =
            std::iter::from_fn(|| limiter.reserve(at("192.0.2.9")).filter(ConnectionSlot::keep))
                .collect();
        assert!(limiter.reserve(at("192.0.2.10")).is_none(), "all are being answered");
        assert!(served.len() < limiter.reserve);
        served[0].release();
        assert!(limiter.reserve(at("192.0.2.10")).is_some(), "one is answered");
        assert!(served[0].revoked().now_or_never().is_some());
    }
}
