//! What the targets are doing right now, as far as this process sees it; copied into every decision's inputs.
//! Kept by `provider/model`, so that it survives a reload; entries come from configuration only.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use dashmap::DashMap;

use super::inputs::TargetHealth;
use super::recipe::Routing;

/// Attempts under way, by target.
#[derive(Debug, Default)]
pub struct Health {
    inflight: DashMap<String, AtomicU32>,
}

impl Health {
    /// An attempt at `target` begins; gives how many there are now.
    pub fn begin(&self, target: &str) -> u32 {
        if let Some(count) = self.inflight.get(target) {
            return count.fetch_add(1, Ordering::Relaxed) + 1;
        }
        self.inflight.entry(target.to_string()).or_default().fetch_add(1, Ordering::Relaxed) + 1
    }

    /// An attempt at `target` is over; gives how many are left.
    pub fn end(&self, target: &str) -> u32 {
        self.inflight.get(target).map_or(0, |count| count.fetch_sub(1, Ordering::Relaxed).saturating_sub(1))
    }

    /// The state of every target of the document that is not idle; one that is missing is healthy and idle.
    pub fn snapshot(&self, routing: &Routing) -> BTreeMap<String, TargetHealth> {
        let mut snapshot = BTreeMap::new();
        for target in routing.targets() {
            let inflight = self.inflight.get(&*target.name).map_or(0, |count| count.load(Ordering::Relaxed));
            if inflight > 0 {
                snapshot.insert(target.name.to_string(), TargetHealth { inflight, ..TargetHealth::default() });
            }
        }
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_up_and_down() {
        let health = Health::default();
        assert_eq!(health.begin("a/b"), 1);
        assert_eq!(health.begin("a/b"), 2);
        assert_eq!(health.end("a/b"), 1);
        assert_eq!(health.end("a/b"), 0);
        assert_eq!(health.end("never/begun"), 0);
    }
}
