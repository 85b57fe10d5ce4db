//! What a finished call leaves for its trace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::capture::record::Head;
use rerouter_base::trace_context::TraceContext;
use rerouter_routing::Target;

/// When an attempt was made, and at which target.
pub struct AttemptStep {
    pub target: Arc<Target>,
    pub began: Instant,
    pub took: Duration,
}

/// A finished call. It holds no body and no header.
pub struct CallTrace {
    pub context: Arc<TraceContext>,
    /// The capture's head, without headers and inputs.
    pub head: Head,
    /// The model as the client asked for it, without credentials.
    pub model: String,
    pub began: Instant,
    pub took: Duration,
    /// One for each attempt of the head, in the same order.
    pub steps: Vec<AttemptStep>,
}

impl CallTrace {
    /// The number of its spans.
    pub(super) fn spans(&self) -> u64 {
        1 + self.steps.len() as u64
    }
}
