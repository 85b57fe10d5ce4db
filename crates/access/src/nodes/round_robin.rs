//! Round robin among equally loaded nodes: the one that was used longest ago is next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Position of a node in the rotation. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundRobin {
    /// Value of `counter` at the node's last use; 0 before the first.
    last: Arc<AtomicU64>,
    /// Counts the uses of all nodes in the rotation.
    counter: Arc<AtomicU64>,
}

impl RoundRobin {
    /// Another node in the same rotation.
    pub(super) fn another(&self) -> RoundRobin {
        RoundRobin { last: Arc::default(), counter: self.counter.clone() }
    }

    pub(super) fn take(&self) {
        self.last.store(1 + self.counter.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The lower, the longer ago the node was used.
    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }
}
