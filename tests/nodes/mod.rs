//! Machines that serve models and report themselves, and `rerouter node` beside them.

mod abilities;
pub mod enrolment;
mod leases;
mod load;
mod processes;
mod reach;
pub mod servers;
mod signatures;
mod store;
