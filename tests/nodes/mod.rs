//! Machines that serve models and report to the gateway, and `rerouter node` next to them.

mod abilities;
pub mod enrolment;
mod leases;
mod load;
mod processes;
mod reach;
pub mod servers;
mod signatures;
mod store;
