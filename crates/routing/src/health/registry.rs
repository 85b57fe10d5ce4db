//! The states of the live document's targets and providers.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use jiff::Timestamp;

use super::provider_state::ProviderState;
use super::retry_budget::RetryBudget;
use super::target_state::TargetState;
use crate::compiled::Routing;
use crate::inputs::TargetHealth;
use crate::provider::ProviderIdentity;

/// A state that neither the document nor a request under an older document uses is dropped.
#[derive(Debug, Default)]
pub struct HealthRegistry {
    pub(super) known: Mutex<States>,
}

#[derive(Debug, Default)]
pub(super) struct States {
    pub(super) targets: HashMap<HealthKey, Weak<TargetState>>,
    pub(super) providers: HashMap<HealthKey, Weak<ProviderState>>,
    pub(super) budgets: HashMap<Arc<str>, Weak<RetryBudget>>,
}

/// Name of a target or provider, and identity of the provider.
type HealthKey = (Arc<str>, ProviderIdentity);

/// The state in use under this key, else a new one.
fn shared<K: Hash + Eq, T: Default>(known: &mut HashMap<K, Weak<T>>, key: K) -> Arc<T> {
    if let Some(state) = known.get(&key).and_then(Weak::upgrade) {
        return state;
    }
    let state = Arc::<T>::default();
    known.insert(key, Arc::downgrade(&state));
    state
}

impl HealthRegistry {
    /// Sets the states of the targets and providers of a document that is about to go live.
    pub fn attach(&self, routing: &Routing) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // A document is attached once, before requests use it. A state that is already set stays.
        for provider in &routing.providers {
            let key = (provider.name.clone(), provider.identity);
            let _ = provider.state.set(shared(&mut known.providers, key));
        }
        for target in routing.targets() {
            let key = (target.name.clone(), target.provider.identity);
            let _ = target.state.set(shared(&mut known.targets, key));
        }
        for recipe in &routing.recipes {
            let _ = recipe.budget.set(shared(&mut known.budgets, recipe.name.clone()));
        }
        known.targets.retain(|_, state| state.strong_count() > 0);
        known.providers.retain(|_, state| state.strong_count() > 0);
        known.budgets.retain(|_, state| state.strong_count() > 0);
    }

    /// How many targets and providers have a state.
    #[cfg(any(test, feature = "testing"))]
    pub fn known(&self) -> (usize, usize) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        (known.targets.len(), known.providers.len())
    }

    /// The state at `at` of every target of the document that is not healthy and idle.
    pub fn snapshot(&self, routing: &Routing, at: Timestamp) -> BTreeMap<String, TargetHealth> {
        let mut snapshot = BTreeMap::new();
        for target in routing.targets() {
            if let Some(health) = target.state().health_at(&target.provider, at) {
                snapshot.insert(target.name.to_string(), health);
            }
        }
        snapshot
    }
}
