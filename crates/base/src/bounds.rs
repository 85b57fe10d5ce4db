//! Limits that several crates share, each with its reason. A limit of one crate stands in the file
//! that uses it. Nothing is unbounded. Limits that operators set have their defaults in `config/`.

use std::time::Duration;

/// Longest silence of a kept-alive connection.
pub const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// Longest time of a DNS look-up in the background.
pub const DNS_TIME: Duration = Duration::from_secs(5);
/// `Retry-After` of a refusal that ends with another request, or with a write of the store.
pub const LIMIT_RETRY: Duration = Duration::from_secs(1);
/// Free bytes of a disk below which `doctor` fails: a burst of captures takes as much.
pub const DOCTOR_DISK_LEAST: u64 = 256 << 20;
/// Days before the end of a certificate from which `doctor` warns.
pub const DOCTOR_CERTIFICATE_DAYS: i64 = 14;
/// Bytes of a configuration document: large routing tables stay far below.
pub const DOCUMENT_BYTES: usize = 1 << 20;
/// Tokens assumed for an answer when a limit or cost is estimated in advance; also the cap on
/// `max_tokens` there, as few answers are as long as they may be.
pub const ANSWER_TOKENS: u64 = 1_024;
/// Longest delay of a `mock` provider.
pub const MOCK_LATENCY: Duration = Duration::from_secs(60);
/// Largest difference between a node's clock and the gateway's.
pub const NODE_SKEW: Duration = Duration::from_secs(60);
/// Nonces remembered of a node, one a signature; it signs at most so many within twice the
/// skew.
pub const NODE_NONCES: usize = 4_096;
/// Time between two heartbeats of a node.
pub const NODE_HEARTBEAT: Duration = Duration::from_secs(10);
/// Time for which a heartbeat counts: two may be lost.
pub const NODE_LEASE: Duration = Duration::from_secs(30);
