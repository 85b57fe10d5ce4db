//! Clients of one dialect, and providers of another.

pub mod coding_agents;
pub mod dialects;
mod faults;
mod sdk;
