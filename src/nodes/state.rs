//! The states of a node.

/// State of a node, for operators and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Enrolled, never registered.
    Pending,
    /// Takes requests.
    Ready,
    /// Takes no new requests: it drains, or reported an error.
    Draining,
    /// Its lease has expired.
    Unreachable,
    /// It deregistered.
    Gone,
}

impl Standing {
    /// Every state.
    pub const ALL: [Standing; 5] = [
        Standing::Pending,
        Standing::Ready,
        Standing::Draining,
        Standing::Unreachable,
        Standing::Gone,
    ];

    /// Name in answers and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Pending => "pending",
            Standing::Ready => "ready",
            Standing::Draining => "draining",
            Standing::Unreachable => "unreachable",
            Standing::Gone => "gone",
        }
    }
}
