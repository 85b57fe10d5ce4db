//! The states of a node.

/// State of a node, for operators and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    Pending,
    Ready,
    /// Takes no new requests: it drains, or reported an error.
    Draining,
    /// Its lease has expired.
    Unreachable,
    Gone,
}

impl NodeState {
    pub const ALL: [NodeState; 5] = [
        NodeState::Pending,
        NodeState::Ready,
        NodeState::Draining,
        NodeState::Unreachable,
        NodeState::Gone,
    ];

    /// Name in answers and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            NodeState::Pending => "pending",
            NodeState::Ready => "ready",
            NodeState::Draining => "draining",
            NodeState::Unreachable => "unreachable",
            NodeState::Gone => "gone",
        }
    }
}
