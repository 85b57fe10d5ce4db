//! Fair turns for work that only a few callers may do at once. A caller first waits for its own
//! calls to end, then in order of arrival for a free place.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The places and the callers that use them. Cloning is cheap.
#[derive(Clone)]
pub struct Turns(Arc<TurnsState>);

struct TurnsState {
    places: Arc<Semaphore>,
    share: usize,
    patience: Duration,
    callers: Mutex<HashMap<String, Caller>>,
}

struct Caller {
    share: Arc<Semaphore>,
    /// Number of the caller's calls that work or wait.
    calls: usize,
}

/// A place, which is free again when this is dropped.
pub struct WorkTurn {
    _place: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    _entry: CallerEntry,
}

/// A caller's entry in the table. The last call removes it.
struct CallerEntry {
    turns: Turns,
    caller: String,
}

impl Turns {
    /// There are `places` in all, and at most `share` for one caller. A caller waits at most
    /// `patience`.
    pub fn new(places: usize, share: usize, patience: Duration) -> Self {
        let places = Arc::new(Semaphore::new(places));
        Turns(Arc::new(TurnsState { places, share, patience, callers: Mutex::default() }))
    }

    /// Waits for a place; `None` if no place is free in time.
    pub async fn take(&self, caller: &str) -> Option<WorkTurn> {
        timeout(self.0.patience, self.wait(caller)).await.ok().flatten()
    }

    async fn wait(&self, caller: &str) -> Option<WorkTurn> {
        let (entry, share) = self.enter(caller);
        let own = share.acquire_owned().await.ok()?;
        let place = self.0.places.clone().acquire_owned().await.ok()?;
        Some(WorkTurn { _place: place, _own: own, _entry: entry })
    }

    fn enter(&self, caller: &str) -> (CallerEntry, Arc<Semaphore>) {
        let mut callers = self.callers();
        let known = callers
            .entry(caller.to_owned())
            .or_insert_with(|| Caller { share: Arc::new(Semaphore::new(self.0.share)), calls: 0 });
        known.calls += 1;
        let share = known.share.clone();
        (CallerEntry { turns: self.clone(), caller: caller.to_owned() }, share)
    }

    fn callers(&self) -> MutexGuard<'_, HashMap<String, Caller>> {
        self.0.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallerEntry {
    fn drop(&mut self) {
        let mut callers = self.turns.callers();
        if let Some(caller) = callers.get_mut(&self.caller) {
            caller.calls -= 1;
            if caller.calls == 0 {
                callers.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn one_caller_never_has_more_than_its_share() {
        let turns = Turns::new(2, 1, LONG);
        let first = turns.take("a").await.unwrap();
        let mut second = Box::pin(turns.take("a"));
        assert!((&mut second).now_or_never().is_none(), "its share is used up");
        let other = turns.take("b").now_or_never().flatten().expect("the other place is free");
        let mut third = Box::pin(turns.take("c"));
        assert!((&mut third).now_or_never().is_none(), "both places are taken");
        drop(first);
        // The caller that waited for a place comes before the one that waited for its own share.
        let third = (&mut third).now_or_never().flatten().expect("first come, first served");
        assert!((&mut second).now_or_never().is_none());
        drop((other, third));
        assert!(second.await.is_some());
        assert!(turns.callers().is_empty(), "nothing is left behind");
    }

    #[tokio::test]
    async fn patience_ends() {
        let turns = Turns::new(1, 1, Duration::from_millis(1));
        let first = turns.take("a").await.unwrap();
        assert!(turns.take("b").await.is_none() && turns.take("a").await.is_none());
        drop(first);
        assert!(turns.take("b").await.is_some());
        assert!(turns.callers().is_empty());
    }
}
