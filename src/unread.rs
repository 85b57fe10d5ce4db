//! Answers whose clients do not read them: a bound on their bytes, by network and in all. Beyond it
//! the answer that has waited longest ends: a client that reads has seldom waited so long.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use tokio::sync::Notify;

/// What counts as one address: the usual size of one subscriber's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Network {
    V4(Ipv4Addr),
    /// The first 56 bits of the address.
    V6(u64),
}

impl Network {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Network::V4(address),
            IpAddr::V6(address) => Network::V6((address.to_bits() >> 72) as u64),
        }
    }
}

/// The bound and what waits.
pub(crate) struct UnreadAnswers {
    most: usize,
    share: usize,
    waiting: Mutex<WaitingAnswers>,
}

#[derive(Default)]
struct WaitingAnswers {
    bytes: usize,
    by_network: HashMap<Option<Network>, usize>,
    /// By network and number: the oldest of a network first.
    answers: BTreeMap<(Option<Network>, u64), WaitingAnswer>,
    arrivals: u64,
}

struct WaitingAnswer {
    bytes: usize,
    /// Notified when the answer has to end.
    ends: Arc<Notify>,
}

/// An answer that waits, until it is dropped.
struct Waiting<'a> {
    of: &'a UnreadAnswers,
    place: (Option<Network>, u64),
    ends: Arc<Notify>,
}

impl UnreadAnswers {
    /// `most` bytes in all, of which one network has at most `share`.
    pub(crate) fn new(most: usize, share: usize) -> Self {
        UnreadAnswers { most, share, waiting: Mutex::default() }
    }

    /// Runs a write that holds `bytes`. They count from the moment at which the client does not
    /// take them at once, for the network of `client` where it has one. `None` where the answer
    /// has to end.
    pub(crate) async fn write<T>(
        &self,
        client: impl FnOnce() -> Option<IpAddr>,
        bytes: usize,
        writing: impl Future<Output = T>,
    ) -> Option<T> {
        let mut writing = pin!(writing);
        if let Some(written) = writing.as_mut().now_or_never() {
            return Some(written);
        }
        let waiting = self.wait(client().map(Network::of), bytes);
        tokio::select! {
            biased;
            written = writing => Some(written),
            () = waiting.ends.notified() => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, WaitingAnswers> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an answer, and ends older ones where there are too many bytes now: those of its own
    /// network, else those of the network that has the most.
    fn wait(&self, network: Option<Network>, bytes: usize) -> Waiting<'_> {
        let mut all = self.lock();
        all.arrivals += 1;
        let (place, ends) = ((network, all.arrivals), Arc::new(Notify::new()));
        all.bytes += bytes;
        *all.by_network.entry(network).or_default() += bytes;
        all.answers.insert(place, WaitingAnswer { bytes, ends: ends.clone() });
        loop {
            let of = |network| all.by_network.get(network).copied().unwrap_or_default();
            let over = if network.is_some() && of(&network) > self.share {
                network
            } else if all.bytes > self.most {
                all.by_network.iter().max_by_key(|(_, bytes)| **bytes).map_or(network, |own| *own.0)
            } else {
                break;
            };
            let oldest = all.answers.range((over, 0)..).next().map(|(place, _)| *place);
            match oldest.filter(|oldest| *oldest != place).and_then(|oldest| all.remove(oldest)) {
                Some(ended) => ended.ends.notify_one(),
                None => break,
            }
        }
        Waiting { of: self, place, ends }
    }
}

impl WaitingAnswers {
    fn remove(&mut self, place: (Option<Network>, u64)) -> Option<WaitingAnswer> {
        let left = self.answers.remove(&place)?;
        self.bytes -= left.bytes;
        if let Some(bytes) = self.by_network.get_mut(&place.0) {
            *bytes -= left.bytes;
            if *bytes == 0 {
                self.by_network.remove(&place.0);
            }
        }
        Some(left)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.of.lock().remove(self.place);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::future::join;
    use tokio::time::{Duration, timeout};

    use super::*;

    fn at(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    /// Which of the writes has ended, once all have been polled.
    async fn ended(unread: &UnreadAnswers, writes: &[(Option<IpAddr>, usize)]) -> Vec<bool> {
        let writes = writes.iter().map(|(client, bytes)| {
            let writing = unread.write(|| *client, *bytes, pending::<()>());
            async {
                timeout(Duration::from_secs(1), writing).await.is_ok_and(|left| left.is_none())
            }
        });
        futures::future::join_all(writes).await
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_the_share_of_a_network_its_oldest_ends() {
        let unread = UnreadAnswers::new(100, 50);
        let (a, b) = (at("192.0.2.1"), at("192.0.2.2"));
        let writes = [(b, 50), (a, 20), (a, 20), (a, 20), (a, 5)];
        assert_eq!(ended(&unread, &writes).await, [false, true, false, false, false]);
        // One answer that is larger than the share is written all the same.
        assert_eq!(ended(&unread, &[(a, 10), (a, 70)]).await, [true, false]);
        let all = unread.lock();
        assert!(all.bytes == 0 && all.by_network.is_empty() && all.answers.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_the_whole_the_network_that_has_the_most_loses_its_oldest() {
        let unread = UnreadAnswers::new(100, 50);
        let [a, b, c] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(at);
        let writes = [(b, 30), (a, 25), (a, 20), (c, 20), (None, 10)];
        assert_eq!(ended(&unread, &writes).await, [false, true, false, false, false]);
        // Trusted proxies have no share of their own.
        let writes = [(None, 40), (None, 40), (a, 30)];
        assert_eq!(ended(&unread, &writes).await, [true, false, false]);
    }

    #[tokio::test]
    async fn what_the_client_takes_at_once_counts_nothing() {
        let unread = UnreadAnswers::new(10, 10);
        let unread_one = unread.write(|| None, 8, async {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            1
        });
        let read = async {
            assert_eq!(unread.lock().bytes, 8);
            unread.write(|| None, 1 << 30, ready(2)).await
        };
        let (one, two) = join(unread_one, read).await;
        assert_eq!((one, two), (Some(1), Some(2)));
    }
}
