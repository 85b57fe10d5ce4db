//! A request from its bytes to its end: bodies, connections, refusals, streams, and real clients.

mod bodies;
/// The bound on bodies in memory: 503 beyond it, and answers whole though their copies are cut.
mod body_memory;
mod codings;
mod compatibility;
mod connections;
pub mod endpoints;
mod hostile;
mod incident;
mod refusals;
pub mod sdk;
mod segments;
mod strangers;
mod streams;
