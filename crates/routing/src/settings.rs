//! Settings of a provider that are the same as written and as run.

use std::fmt;
use std::time::Duration;

pub(crate) use rerouter_dialect::protocol::KeyHeader;
pub use rerouter_dialect::protocol::Protocol;

/// When the gateway requests a stream's usage (`stream_options.include_usage`) that the client did
/// not request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamUsage {
    /// If the caller has a limit that needs it.
    #[default]
    Auto,
    Inject,
    /// Never: for providers that reject the field or always send usage.
    Never,
}

/// Deadlines of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until connected, including TLS.
    pub connect: Duration,
    /// From the end of the request to the first byte of the answer.
    pub first_byte: Duration,
    /// Between two reads of the answer.
    pub idle: Duration,
    /// For the whole attempt.
    pub total: Duration,
}

impl Default for Timeouts {
    /// Long enough for a reasoning model to start, short enough to leave a dead provider.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Timeouts {
            connect: seconds(5),
            first_byte: seconds(120),
            idle: seconds(60),
            total: seconds(600),
        }
    }
}

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Consecutive errors that open it.
    pub consecutive: u32,
    /// Error rate in percent, over the window, that opens it.
    pub error_percent: u16,
    /// Requests in the window before the error rate counts.
    pub min_requests: u32,
    /// Length of the window.
    pub window: Duration,
    /// Time open after the first failure. It doubles with each failure in a row, up to
    /// [`BREAKER_OPEN_MAX`](crate::health::BREAKER_OPEN_MAX).
    pub open: Duration,
}

impl Default for BreakerSettings {
    /// Leaves a provider quickly when it is down, and slowly when it fails now and then.
    fn default() -> Self {
        BreakerSettings {
            consecutive: 5,
            error_percent: 50,
            min_requests: 20,
            window: Duration::from_secs(30),
            open: Duration::from_secs(10),
        }
    }
}

/// Background health check of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Path of the GET request, absolute on the host.
    pub path: String,
    /// Time between two checks.
    pub interval: Duration,
}

/// Certificate authorities that may sign a server certificate.
pub struct Authorities {
    certificates: Vec<Vec<u8>>,
    fingerprint: u64,
}

impl Authorities {
    /// From checked certificates in DER.
    pub fn new(certificates: Vec<Vec<u8>>) -> Self {
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        certificates.iter().for_each(|certificate| hasher.update(certificate));
        Authorities { certificates, fingerprint: hasher.digest() }
    }

    /// The certificates in DER.
    pub fn certificates(&self) -> &[Vec<u8>] {
        &self.certificates
    }

    /// Hash of the set. Connections that were verified by one set are not reused under another.
    pub fn mark(&self) -> u64 {
        self.fingerprint
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities")
            .field("certificates", &self.certificates.len())
            .finish_non_exhaustive()
    }
}
