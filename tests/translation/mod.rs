//! Clients of one dialect, and providers of another.

mod agents;
pub mod coding_agents;
pub mod dialects;
mod faults;
mod sdk;
