//! Settings of a provider that are the same in the written and the compiled document.

use std::fmt;
use std::time::Duration;

use rerouter_document::kinds::{duration_in, percent, text_as, whole};
use rerouter_document::{ValueKind, section};

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

/// Longest time that a breaker stays open.
pub(crate) const BREAKER_OPEN_MAX: Duration = Duration::from_secs(600);
/// Longest deadline. A longer one is a mistake in the unit.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest window of a breaker. Older errors say nothing about the present.
const BREAKER_WINDOW_MAX: Duration = Duration::from_secs(3600);

fn timeout() -> impl ValueKind<Value = Duration> {
    duration_in(Duration::from_millis(1), TIMEOUT_MAX)
}

section! {
    /// Deadlines of one attempt. The defaults are long enough for a reasoning model to start, and
    /// short enough to leave a dead provider.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Timeouts: Default {
        /// Until connected, TLS included.
        pub connect: Duration = timeout(), or Duration::from_secs(5);
        /// From the connection to the first content of the answer, the request sent meanwhile.
        pub first_byte: Duration = timeout(), or Duration::from_secs(120);
        /// The longest silence within an answer, once it has content.
        pub idle: Duration = timeout(), or Duration::from_secs(60);
        /// One attempt.
        pub total: Duration = timeout(), or Duration::from_secs(600);
    }
}

section! {
    /// When a breaker opens, and for how long. The defaults leave a provider quickly when it is
    /// down, and slowly when it fails now and then.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BreakerSettings: Default {
        /// Errors in a row that leave a target out.
        pub consecutive: u32 = whole(1, 1_000_000), or 5;
        /// The share of errors that leaves a target out.
        pub error_rate: u16 = percent(1, 100), or 50;
        /// Requests in the window before the error rate counts.
        pub min_requests: u32 = whole(1, 1_000_000), or 20;
        /// The time over which the error rate counts.
        pub window: Duration =
            duration_in(Duration::from_millis(1), BREAKER_WINDOW_MAX), or Duration::from_secs(30);
        /// How long it is left out; doubled each time, up to ten minutes.
        pub open: Duration =
            duration_in(Duration::from_millis(1), BREAKER_OPEN_MAX), or Duration::from_secs(10);
    }
}

section! {
    /// A check in the background; a failure opens the breakers.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct HealthCheck {
        /// Path of the GET request, from the root of the host.
        pub path: String = path_of_host(), required;
        /// Time between two checks.
        pub interval: Duration =
            duration_in(Duration::from_secs(1), Duration::from_secs(3_600)),
            or Duration::from_secs(30);
    }
}

fn path_of_host() -> impl ValueKind<Value = String> {
    text_as("^/[^#]*$", |field, faults| {
        let path = field.text(faults)?;
        let whole = path.starts_with('/') && path.parse::<http::uri::PathAndQuery>().is_ok();
        if !whole || path.contains('#') {
            let hint = "from the root of the host, for example `/v1/models`";
            field.reject(faults, "must be a path", hint);
        }
        Some(path.to_owned())
    })
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
