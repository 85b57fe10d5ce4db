//! Counts what is under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts one more in a shared number until it is dropped.
pub struct CountGuard(Arc<AtomicUsize>);

impl CountGuard {
    pub fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        CountGuard(count.clone())
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
