//! Limits of nodes and their callbacks.

use std::time::Duration;

/// Nodes: all are in memory, and each that serves is in the inputs of every decision on nodes.
pub const NODES: usize = 256;
/// Model patterns in a node's enrolment.
pub const NODE_PATTERNS: usize = 32;
/// Models that a node serves at once.
pub const NODE_MODELS: usize = 64;
/// Bytes of a node's endpoint, key, version and model names, each.
pub const NODE_TEXT_BYTES: usize = 512;
/// Largest difference between a node's clock and the gateway's.
pub const NODE_SKEW: Duration = Duration::from_secs(60);
/// Nonces remembered of a node, one a signature; it signs at most so many within twice the
/// skew.
pub const NODE_NONCES: usize = 4_096;
/// Time between two heartbeats of a node.
pub const NODE_HEARTBEAT: Duration = Duration::from_secs(10);
/// Time for which a heartbeat counts: two may be lost.
pub const NODE_LEASE: Duration = Duration::from_secs(30);
/// Time between two checks of a node's lease by a request that waits for it.
pub const NODE_LEASE_CHECK: Duration = Duration::from_secs(1);
/// First wait of a node after a failed callback, doubled up to [`NODE_HEARTBEAT`]; also its
/// interval for checking what it waits for.
pub const NODE_RETRY: Duration = Duration::from_secs(1);
/// Longest wait for the store to record or look up a nonce: a hanging disk counts as failing,
/// well before [`NODE_CALLBACK_TIMEOUT`].
pub const NODE_NONCE_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait of a node for the answer to a callback. With [`NODE_QUERY_TIMEOUT`] it leaves time
/// for two reports within a lease.
pub const NODE_CALLBACK_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for a node to ask its server all that a report needs.
pub const NODE_QUERY_TIMEOUT: Duration = Duration::from_secs(4);
/// Bytes of an answer of a server to its node: lists, metrics, slots with their prompts.
pub const NODE_RESPONSE_BYTES: u64 = 8 << 20;
/// Grace of a node's previous secret, unless the new one is used earlier.
pub const NODE_ROTATION: Duration = Duration::from_secs(600);
/// Bytes of a body of node events.
pub const NODE_EVENTS_BODY: usize = 1 << 20;
/// Events in one body.
pub const NODE_EVENTS: usize = 1_000;
/// Ids of node events that are remembered, so that what is sent twice is logged once.
pub const NODE_EVENT_IDS: usize = 4_096;
/// Time between two looks for what nodes reported to other gateways.
pub const NODE_REPORTS_INTERVAL: Duration = Duration::from_secs(2);
