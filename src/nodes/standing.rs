//! How nodes stand, as operators and metrics are told.

/// How a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Enrolled, and never heard of.
    Pending,
    /// It serves.
    Ready,
    /// It is there and takes no new requests: it drains, or said that it cannot.
    Draining,
    /// Its lease ran out.
    Unreachable,
    /// It said that it leaves.
    Gone,
}

impl Standing {
    /// All of them.
    pub const ALL: [Standing; 5] = [
        Standing::Pending,
        Standing::Ready,
        Standing::Draining,
        Standing::Unreachable,
        Standing::Gone,
    ];

    /// The word in answers and metrics.
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
