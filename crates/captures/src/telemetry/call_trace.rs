//! The data of a finished call for its trace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::capture::record::Head;
use rerouter_base::trace_context::TraceContext;
use rerouter_routing::Target;

pub struct AttemptStep {
    pub target: Arc<Target>,
    pub began: Instant,
    pub took: Duration,
}

/// A finished call, without bodies and headers.
pub struct CallTrace {
    pub context: Arc<TraceContext>,
    /// The capture's head, without headers and inputs.
    pub head: Head,
    /// The model that the client asked for, without credentials.
    pub model: String,
    pub began: Instant,
    pub took: Duration,
    /// One step for each attempt in the head, in the same order.
    pub steps: Vec<AttemptStep>,
}

impl CallTrace {
    pub(super) fn spans(&self) -> u64 {
        1 + self.steps.len() as u64
    }
}
