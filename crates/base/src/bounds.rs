//! Limits that several crates share, each with its reason. A limit of a single crate is in the file
//! that uses it. Defaults of limits that operators set are in `config/`.

use std::time::Duration;

/// Idle time after which a kept-alive connection is closed.
pub const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// Timeout of a DNS look-up in the background.
pub const DNS_TIME: Duration = Duration::from_secs(5);
/// `Retry-After` of a refusal that ends when another request ends or the store has written.
pub const LIMIT_RETRY: Duration = Duration::from_secs(1);
/// Free bytes of a disk below which `doctor` fails. A burst of captures takes about as much.
pub const DOCTOR_DISK_LEAST: u64 = 256 << 20;
/// `doctor` warns when a certificate ends in fewer days.
pub const DOCTOR_CERTIFICATE_DAYS: i64 = 14;
/// Limit on the bytes of a configuration document. Large routing tables are far smaller.
pub const DOCUMENT_BYTES: usize = 1 << 20;
/// Tokens assumed for an answer when a limit or cost is estimated in advance. It also caps
/// `max_tokens` in such estimates, as few answers reach their limit.
pub const ANSWER_TOKENS: u64 = 1_024;
/// Limit on the configured delay of a `mock` provider.
pub const MOCK_LATENCY: Duration = Duration::from_secs(60);
/// Limit on the difference between a node's clock and the gateway's.
pub const NODE_SKEW: Duration = Duration::from_secs(60);
/// Limit on remembered nonces of a node. Each signature has a nonce, so a node can sign this often
/// within twice [`NODE_SKEW`].
pub const NODE_NONCES: usize = 4_096;
/// Interval between heartbeats of a node.
pub const NODE_HEARTBEAT: Duration = Duration::from_secs(10);
/// Time for which a heartbeat counts. Two heartbeats in a row may be lost.
pub const NODE_LEASE: Duration = Duration::from_secs(30);
