//! What the targets are doing right now, as far as this process sees it; copied into every decision's inputs. States hang
//! on the built targets, so that a request looks nothing up; [`Health`] hands the same state to the same `provider/model`
//! of the next document, as long as the provider's endpoint and credentials stay the same. Time is
//! handed in. Replays and shadows change no state but the number of attempts under way.
//!
//! `circuit` is the breaker, `latency` the peak EWMA, `budget` the retries of a recipe, `keys` the turns of a provider's
//! keys, `permit` one attempt.

mod budget;
mod circuit;
mod keys;
mod latency;
mod permit;
#[cfg(test)]
mod tests;
mod window;

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use jiff::Timestamp;

use super::inputs::{Breaker, TargetHealth};
use super::provider::{Identity, Provider};
use super::recipe::Routing;
pub use budget::Budget;
use circuit::Circuit;
use circuit::pending;
pub use circuit::{BreakerSettings, Change, Why};
use keys::{Bench, Keys};
use latency::Latency;
pub use permit::{Apart, Barred, Ended, Ending, Permit};
use window::Window;

/// The states of what the live document names, by identity. One that nothing uses any more, neither the document nor a
/// request under an older one, is gone.
#[derive(Debug, Default)]
pub struct Health {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    targets: HashMap<Endpoint, Weak<TargetState>>,
    providers: HashMap<Endpoint, Weak<ProviderState>>,
    budgets: HashMap<Arc<str>, Weak<Budget>>,
}

/// What health belongs to: the name of a target or provider, and what the provider is reached by.
type Endpoint = (Arc<str>, Identity);

/// The state that is known by this: the one that is in use, else a new one.
fn same<K: Hash + Eq, T: Default>(known: &mut HashMap<K, Weak<T>>, by: K) -> Arc<T> {
    if let Some(state) = known.get(&by).and_then(Weak::upgrade) {
        return state;
    }
    let state = Arc::<T>::default();
    known.insert(by, Arc::downgrade(&state));
    state
}

impl Health {
    /// Gives a document that is about to go live the states of what it names.
    pub fn attach(&self, routing: &Routing) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // A document is attached once, before anybody sees it; where it has states already they stay.
        for provider in routing.providers() {
            let _ = provider
                .state
                .set(same(&mut known.providers, (provider.name.clone(), provider.identity)));
        }
        for target in routing.targets() {
            let _ = target
                .state
                .set(same(&mut known.targets, (target.name.clone(), target.provider.identity)));
        }
        for recipe in routing.recipes() {
            let _ = recipe.budget.set(same(&mut known.budgets, recipe.name.clone()));
        }
        known.targets.retain(|_, state| state.strong_count() > 0);
        known.providers.retain(|_, state| state.strong_count() > 0);
        known.budgets.retain(|_, state| state.strong_count() > 0);
    }

    /// The state at `at` of every target of the document that is not healthy and idle.
    pub fn snapshot(&self, routing: &Routing, at: Timestamp) -> BTreeMap<String, TargetHealth> {
        let mut snapshot = BTreeMap::new();
        for target in routing.targets() {
            if let Some(health) = target.state().look(&target.provider, at) {
                snapshot.insert(target.name.to_string(), health);
            }
        }
        snapshot
    }
}

/// What one target is doing.
#[derive(Debug, Default)]
pub struct TargetState {
    inflight: AtomicU32,
    /// Something may be told of `vitals`; a target that has long been quiet is passed over without its lock.
    stirred: AtomicBool,
    vitals: Mutex<Vitals>,
    limited: Bench,
}

#[derive(Debug)]
struct Vitals {
    circuit: Circuit,
    /// Microseconds since the epoch.
    cooldown_until: i64,
    latency: Latency,
    /// Attempts of the last minute, and how many of them failed.
    minute: Window<12>,
}

impl Default for Vitals {
    fn default() -> Self {
        Vitals {
            circuit: Circuit::default(),
            cooldown_until: i64::MIN,
            latency: Latency::default(),
            minute: Window::new(60_000_000),
        }
    }
}

/// What an operator is shown of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// State of its breaker.
    pub breaker: Breaker,
    /// When it is asked again, if it is left alone now.
    pub retry_at: Option<Timestamp>,
    /// Peak EWMA of the time to first content, in microseconds.
    pub ewma_us: Option<u64>,
    /// Attempts under way.
    pub inflight: u32,
    /// Attempts of live traffic that ended within the last minute.
    pub requests_1m: u64,
    /// Those of them that failed.
    pub errors_1m: u64,
}

impl TargetState {
    /// What a decision is told; `None` when it is healthy and idle.
    fn look(&self, provider: &Provider, at: Timestamp) -> Option<TargetHealth> {
        let now = at.as_microsecond();
        let inflight = self.inflight.load(Ordering::Relaxed);
        let free = provider
            .max_concurrency
            .map(|max| max.saturating_sub(provider.state().inflight.load(Ordering::Relaxed)));
        let mut told = TargetHealth {
            inflight,
            // What the provider's other models leave to this one.
            max: free.map(|free| inflight.saturating_add(free)),
            ..TargetHealth::default()
        };
        let keys_until = self.keys_until(provider, now);
        let stirred = self.stirred.load(Ordering::Acquire);
        if stirred {
            let vitals = self.vitals.lock().unwrap_or_else(PoisonError::into_inner);
            (told.breaker, told.probe_free) = vitals.circuit.look(now);
            told.ewma_us = vitals.latency.at(now);
            told.cooldown_until = [vitals.cooldown_until]
                .into_iter()
                .filter(|until| pending(*until, now))
                .max()
                .and_then(time);
            if told.breaker == Breaker::Closed
                && told.ewma_us.is_none()
                && told.cooldown_until.is_none()
            {
                self.stirred.store(false, Ordering::Release);
            }
        }
        told.cooldown_until = told.cooldown_until.max(keys_until.and_then(time));
        let idle = inflight == 0 && free != Some(0) && told.cooldown_until.is_none();
        let healthy = told.breaker == Breaker::Closed && told.ewma_us.is_none();
        (!(idle && healthy)).then_some(told)
    }

    /// What a decision is told of a node.
    pub fn at_node(&self, provider: &Provider, at: Timestamp) -> TargetHealth {
        self.look(provider, at).unwrap_or_default()
    }

    /// What an operator is shown of it, as a target of this provider.
    pub fn show(&self, provider: &Provider, at: Timestamp) -> Shown {
        let now = at.as_microsecond();
        let keys_until = self.keys_until(provider, now);
        let mut vitals = self.vitals.lock().unwrap_or_else(PoisonError::into_inner);
        let (requests_1m, errors_1m) = vitals.minute.sums(now);
        let cooldown = Some(vitals.cooldown_until).filter(|until| pending(*until, now));
        Shown {
            breaker: vitals.circuit.look(now).0,
            retry_at: cooldown.max(vitals.circuit.open_until(now)).max(keys_until).and_then(time),
            ewma_us: vitals.latency.at(now),
            inflight: self.inflight.load(Ordering::Relaxed),
            requests_1m,
            errors_1m,
        }
    }

    /// The provider's health check failed. Gives what that changed.
    pub fn check_failed(&self, settings: &BreakerSettings, at: Timestamp) -> Option<Change> {
        self.stir().circuit.check_failed(at.as_microsecond(), settings)
    }

    /// The provider's health check passed. Gives what that changed.
    pub fn check_passed(&self) -> Option<Change> {
        self.stir().circuit.check_passed()
    }

    /// Whether the breaker would let an attempt through now.
    fn lets_in(&self, now: i64) -> bool {
        let vitals = self.vitals.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(vitals.circuit.look(now), (Breaker::Closed, _) | (Breaker::HalfOpen, true))
    }

    /// What is behind the lock, to be changed.
    fn stir(&self) -> MutexGuard<'_, Vitals> {
        let vitals = self.vitals.lock().unwrap_or_else(PoisonError::into_inner);
        self.stirred.store(true, Ordering::Release);
        vitals
    }

    fn cooldown_until(&self, provider: &Provider, now: i64) -> Option<i64> {
        let keys_until = self.keys_until(provider, now);
        if !self.stirred.load(Ordering::Acquire) {
            return keys_until;
        }
        let until = self.vitals.lock().unwrap_or_else(PoisonError::into_inner).cooldown_until;
        Some(until).filter(|until| pending(*until, now)).max(keys_until)
    }

    /// Until when each of the provider's keys is to be left alone. A single key never is: then it is the target.
    fn keys_until(&self, provider: &Provider, now: i64) -> Option<i64> {
        if provider.api_keys.len() > 1 { self.keys(provider, None).all_benched(now) } else { None }
    }

    /// The provider's keys, as an attempt sees them that may have learnt of some apart.
    fn keys<'a>(&'a self, provider: &'a Provider, apart: Option<&'a Apart>) -> Keys<'a> {
        let benches =
            [Some(&self.limited), Some(&provider.state().refused), apart.map(Apart::bench)];
        Keys { keys: &provider.api_keys, benches }
    }

    fn begin(&self) {
        self.inflight.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.inflight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What one provider is doing, all its models together.
#[derive(Debug, Default)]
pub struct ProviderState {
    inflight: AtomicU32,
    /// Whose turn it is among its keys.
    turn: AtomicUsize,
    refused: Bench,
}

impl ProviderState {
    /// Requests under way.
    pub fn under_way(&self) -> u32 {
        self.inflight.load(Ordering::Relaxed)
    }

    /// Takes a place among `max` requests under way.
    fn enter(&self, max: Option<u32>) -> bool {
        let one_more = |inflight: u32| {
            if max.is_some_and(|max| inflight >= max) {
                None
            } else {
                Some(inflight.saturating_add(1))
            }
        };
        self.inflight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    fn leave(&self) {
        self.inflight.fetch_sub(1, Ordering::Relaxed);
    }
}

fn time(micros: i64) -> Option<Timestamp> {
    Timestamp::from_microsecond(micros).ok()
}
