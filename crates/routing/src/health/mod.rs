//! The current state of targets, as this process sees it. Each decision's inputs hold a copy. Every
//! compiled target holds its state, so that a request needs no lookup. [`HealthRegistry`] passes
//! the state on to the same `provider/model` of the next document as long as the provider's
//! identity stays the same. Callers pass the time. Replays and shadows change only the number of
//! attempts in flight.

mod breaker;
mod deadline;
mod key_rotation;
mod latency;
mod permit;
mod provider_state;
mod registry;
mod retry_budget;
mod sliding_window;
mod target_state;

pub use breaker::{BreakerChange, TripReason};
pub use deadline::COOLDOWN_MAX;
pub use permit::{AttemptOutcome, AttemptPermit, IsolatedCooldowns, PermitRefusal};
pub use provider_state::ProviderState;
pub use registry::HealthRegistry;
pub use retry_budget::RetryBudget;
pub use target_state::{TargetState, TargetStatus};
