//! What a finished call leaves for its trace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::capture::record::Head;
use crate::routing::Target;
use crate::trace_context::TraceContext;

/// When an attempt was made, and at which target.
pub(crate) struct AttemptStep {
    pub(crate) target: Arc<Target>,
    pub(crate) began: Instant,
    pub(crate) took: Duration,
}

/// A finished call. It holds no body and no header.
pub(crate) struct CallTrace {
    pub(crate) context: Arc<TraceContext>,
    /// The capture's head, without headers and inputs.
    pub(crate) head: Head,
    /// The model as the client asked for it, without credentials.
    pub(crate) model: String,
    pub(crate) began: Instant,
    pub(crate) took: Duration,
    /// One for each attempt of the head, in the same order.
    pub(crate) steps: Vec<AttemptStep>,
}

impl CallTrace {
    /// The number of its spans.
    pub(super) fn spans(&self) -> u64 {
        1 + self.steps.len() as u64
    }
}
