//! Whose turn it is: of nodes with as little to do, the one that was asked longest ago.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// When a node was last asked, counted in requests to any of those with which it takes turns. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    last: Arc<AtomicU64>,
    all: Arc<AtomicU64>,
}

impl Turn {
    /// Another one that takes turns with this one, and was not asked yet.
    pub(super) fn another(&self) -> Turn {
        Turn { last: Arc::default(), all: self.all.clone() }
    }

    /// It is asked.
    pub(super) fn take(&self) {
        self.last.store(1 + self.all.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The lower, the longer ago.
    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }
}
