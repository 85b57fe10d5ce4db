//! Where a request goes: documents, rules, agents, targets, and what follows a failure.

mod agent_surface;
/// Agents as models: each dialect's bytes, trust, limits, captures, replays, shadows.
mod agents;
/// The routing document by the API: read, replaced, looked at, rolled back; in a file and in the
/// store; under load.
mod configuration;
/// Rules by the texts of a request: each dialect, agents, captures, evaluations.
mod content;
mod decide;
mod failover;
/// Breakers, cool-downs, places, keys and retry budgets, as clients notice them.
mod health;
mod models;
mod names;
mod shadows;
/// The signals that are found out for a document's conditions only, live and in reroutes under
/// another document.
mod signals;
/// A routing document's file while somebody writes into it, under load; what a document must have,
/// and what one takes away.
mod whole_documents;
