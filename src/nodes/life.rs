//! What is known of a node by what it tells: how it is, for how long that holds, and the nonces of its signatures.

use std::time::Instant;

use jiff::Timestamp;

use super::nonces::Nonces;

/// What is known by reports only.
#[derive(Default)]
pub(super) struct Life {
    /// Of these reports.
    pub(super) epoch: u64,
    /// The registration that came since, where the lease went on.
    pub(super) carried: Option<u64>,
    /// The last report's; none since this process runs.
    pub(super) seq: Option<u64>,
    pub(super) lease_until: Option<Timestamp>,
    /// When the lease began, by the clock that nobody sets.
    pub(super) leased: Option<Instant>,
    pub(super) status: Status,
    pub(super) reported: Load,
    /// Requests of ours that were there when it reported.
    pub(super) ours_then: u32,
    pub(super) nonces: Nonces,
}

impl Life {
    /// Whether the lease is one of this registration.
    pub(super) fn is_of(&self, epoch: u64) -> bool {
        self.epoch == epoch || self.carried == Some(epoch)
    }
}

/// Requests at a node, by its own word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Being served.
    pub running: u32,
    /// Waiting.
    pub queued: u32,
}

/// What a node says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// It serves.
    #[default]
    Ready,
    /// It takes no new requests.
    Draining,
    /// It cannot serve.
    Error,
}

impl Status {
    /// Reads the word of a report.
    pub fn parse(word: &str) -> Option<Status> {
        match word {
            "ready" => Some(Status::Ready),
            "draining" => Some(Status::Draining),
            "error" => Some(Status::Error),
            _ => None,
        }
    }
}

/// A report of a node.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The registration that it belongs to, where it says so.
    pub epoch: Option<u64>,
    /// When it was signed, in seconds since the epoch, by the clock of the node.
    pub signed_s: i64,
    /// Rises from report to report of an epoch.
    pub seq: u64,
    /// How it is.
    pub status: Status,
    /// What it is doing.
    pub load: Load,
}

/// Why a report is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untaken {
    /// Its number does not rise.
    Seq,
    /// It is of a process that registered earlier than the one that serves.
    Epoch,
    /// The node has not registered, or has left.
    Unregistered,
}
