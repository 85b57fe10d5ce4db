//! Limits the bytes of answers that their clients do not read, per network and in total. Beyond the
//! limit an answer ends: the one that has waited longest in the network with the most bytes.
//! Clients that read seldom wait that long, and no network ends the answers of a network with fewer
//! bytes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use tokio::sync::Notify;

/// The network of an address, of the size that one subscriber usually has: a single address in
/// IPv4, a /56 in IPv6.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 72)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

pub struct UnreadAnswers {
    most: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    bytes: usize,
    networks: HashMap<Option<IpAddr>, NetworkAnswers>,
    next: u64,
}

/// The waiting answers of one network by number, oldest first.
#[derive(Default)]
struct NetworkAnswers {
    bytes: usize,
    answers: BTreeMap<u64, WaitingAnswer>,
}

struct WaitingAnswer {
    bytes: usize,
    /// Notified when the answer has to end.
    ends: Arc<Notify>,
}

/// A waiting answer, which is removed on drop.
struct WaitingPlace<'a> {
    of: &'a UnreadAnswers,
    network: Option<IpAddr>,
    number: u64,
    ends: Arc<Notify>,
}

impl Waiting {
    fn push(&mut self, network: Option<IpAddr>, answer: WaitingAnswer) -> u64 {
        let number = self.next;
        self.next += 1;
        self.bytes += answer.bytes;
        let of = self.networks.entry(network).or_default();
        of.bytes += answer.bytes;
        of.answers.insert(number, answer);
        number
    }

    fn remove(&mut self, network: Option<IpAddr>, number: u64) -> Option<WaitingAnswer> {
        let of = self.networks.get_mut(&network)?;
        let answer = of.answers.remove(&number)?;
        of.bytes -= answer.bytes;
        self.bytes -= answer.bytes;
        if of.answers.is_empty() {
            self.networks.remove(&network);
        }
        Some(answer)
    }

    /// The next answer to end while a limit is exceeded. It began to wait before `newest`, the
    /// answer of `network` that was just added.
    fn excess(
        &self,
        most: usize,
        network: Option<IpAddr>,
        newest: u64,
    ) -> Option<(Option<IpAddr>, u64)> {
        let oldest = |(network, of): (&Option<IpAddr>, &NetworkAnswers)| {
            let number = *of.answers.range(..newest).next()?.0;
            Some((of.bytes, Reverse(number), *network))
        };
        let own = self.networks.get_key_value(&network).filter(|_| network.is_some());
        let found = match own.filter(|(_, of)| of.bytes > most / 2) {
            Some(own) => oldest(own),
            None if self.bytes > most => self.networks.iter().filter_map(oldest).max(),
            None => None,
        };
        found.map(|(_, Reverse(number), network)| (network, number))
    }
}

impl UnreadAnswers {
    /// The limit is `most` bytes in total, and half of that per network.
    pub fn new(most: usize) -> Self {
        UnreadAnswers { most, waiting: Mutex::default() }
    }

    /// Runs a write. If it does not finish at once, the bytes from `held` count against the limit
    /// of all, and against that of the network, if there is one. Returns `None` if the answer has
    /// to end to make room.
    pub async fn write<T>(
        &self,
        held: impl FnOnce() -> (Option<IpAddr>, usize),
        mut writing: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        if let Some(written) = writing.as_mut().now_or_never() {
            return Some(written);
        }
        let (network, bytes) = held();
        let place = self.wait(network, bytes);
        tokio::select! {
            biased;
            written = writing => Some(written),
            () = place.ends.notified() => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an answer, and ends older ones while a limit is exceeded. The newest answer stays,
    /// however large.
    fn wait(&self, network: Option<IpAddr>, bytes: usize) -> WaitingPlace<'_> {
        let ends = Arc::new(Notify::new());
        let mut waiting = self.lock();
        let number = waiting.push(network, WaitingAnswer { bytes, ends: ends.clone() });
        while let Some((of, oldest)) = waiting.excess(self.most, network, number) {
            let ended = waiting.remove(of, oldest);
            ended.iter().for_each(|answer| answer.ends.notify_one());
        }
        WaitingPlace { of: self, network, number, ends }
    }
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        self.of.lock().remove(self.network, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;

    use futures::future::join;
    use tokio::time::{Duration, timeout};

    use super::*;

    fn at(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    /// Which of the writes have ended, once all have been polled.
    async fn ended(unread: &UnreadAnswers, writes: &[(Option<IpAddr>, usize)]) -> Vec<bool> {
        let writes = writes.iter().map(|(client, bytes)| async move {
            let never = pin!(pending::<()>());
            let writing = unread.write(|| (*client, *bytes), never);
            timeout(Duration::from_secs(1), writing).await.is_ok_and(|left| left.is_none())
        });
        futures::future::join_all(writes).await
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_the_share_of_a_network_its_oldest_ends() {
        let unread = UnreadAnswers::new(100);
        let (a, b) = (at("192.0.2.1"), at("192.0.2.2"));
        let writes = [(b, 50), (a, 20), (a, 20), (a, 20), (a, 5)];
        assert_eq!(ended(&unread, &writes).await, [false, true, false, false, false]);
        // A single answer above the share is written all the same.
        assert_eq!(ended(&unread, &[(a, 10), (a, 70)]).await, [true, false]);
        assert!(unread.lock().networks.is_empty());
        assert_eq!(unread.lock().bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_the_whole_the_oldest_of_the_heaviest_network_ends() {
        let unread = UnreadAnswers::new(100);
        let [a, b, c] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(at);
        let writes = [(b, 30), (a, 25), (a, 20), (c, 20), (None, 10)];
        assert_eq!(ended(&unread, &writes).await, [false, true, false, false, false]);
        // Networks that fill the limit end the answers of each other, not those of a network with
        // few bytes.
        let writes = [(c, 1), (a, 50), (b, 50), (a, 50), (b, 50)];
        assert_eq!(ended(&unread, &writes).await, [false, true, true, true, false]);
        // Trusted proxies (`None`) have no share per network.
        let writes = [(None, 40), (None, 40), (a, 30)];
        assert_eq!(ended(&unread, &writes).await, [true, false, false]);
    }

    #[tokio::test]
    async fn what_the_client_takes_at_once_counts_nothing() {
        let unread = UnreadAnswers::new(10);
        let one = async {
            let slow = pin!(async {
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
                1
            });
            unread.write(|| (None, 8), slow).await
        };
        let read = async {
            assert_eq!(unread.lock().bytes, 8);
            unread.write(|| (None, 1 << 30), pin!(ready(2))).await
        };
        let (one, two) = join(one, read).await;
        assert_eq!((one, two), (Some(1), Some(2)));
    }
}
