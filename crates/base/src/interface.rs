//! Which interface a path belongs to, and so the form of its errors. Whole path segments decide
//! this before anything else, so that unknown routes get the right form too.

crate::words! {
    /// One of the three interfaces; each has its own key table.
    pub enum Interface {
        /// Accounts, users, nodes and their keys.
        Pin = "pin",
        /// The collection of agents.
        Agent = "agent",
        /// Inference, captures and routing.
        Router = "router",
    }
}

impl Interface {
    pub fn key_prefix(self) -> &'static str {
        match self {
            Interface::Pin => "pin",
            Interface::Agent => "agt",
            Interface::Router => "rtr",
        }
    }
}

/// A set of paths with the same authentication and error envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// PIN, and every path outside `/v1` and `/console`.
    Pin,
    /// `/console`: pages for browsers, which send the session's cookie.
    Console,
    /// `/v1/agent/*`: signed callbacks of nodes.
    NodeCallback,
    Agent,
    RouterManagement,
    /// `/v1/messages…`: inference in Anthropic's API.
    Messages,
    /// Every other `/v1/*`: inference in OpenAI's API.
    DataPlane,
}

impl Surface {
    /// The surface of a request path, without query. `/v1/agentsx` is [`Surface::DataPlane`].
    pub fn of(path: &str) -> Self {
        let mut segments = path.split('/').skip(1);
        match segments.next() {
            Some("v1") => {}
            Some("console") => return Surface::Console,
            _ => return Surface::Pin,
        }
        match segments.next() {
            None | Some("auth" | "apikeys" | "users" | "nodes" | "audit" | "gateways") => {
                Surface::Pin
            }
            Some("agent") => Surface::NodeCallback,
            Some("agents" | "api-keys") => Surface::Agent,
            Some("router") => Surface::RouterManagement,
            Some("messages") => Surface::Messages,
            Some(_) => Surface::DataPlane,
        }
    }

    pub fn interface(self) -> Interface {
        match self {
            Surface::Pin | Surface::Console | Surface::NodeCallback => Interface::Pin,
            Surface::Agent => Interface::Agent,
            Surface::RouterManagement | Surface::Messages | Surface::DataPlane => Interface::Router,
        }
    }

    /// Whether it serves inference.
    pub fn is_data_plane(self) -> bool {
        matches!(self, Surface::Messages | Surface::DataPlane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_segments_decide() {
        for (path, surface) in [
            ("/health", Surface::Pin),
            ("/", Surface::Pin),
            ("/console", Surface::Console),
            ("/console/keys", Surface::Console),
            ("/consolex", Surface::Pin),
            ("/v1", Surface::Pin),
            ("/v10/agents", Surface::Pin),
            ("/v1/auth/me", Surface::Pin),
            ("/v1/authx", Surface::DataPlane),
            ("/v1/", Surface::DataPlane),
            ("/v1/agent", Surface::NodeCallback),
            ("/v1/agent/heartbeat", Surface::NodeCallback),
            ("/v1/agents", Surface::Agent),
            ("/v1/agentsx", Surface::DataPlane),
            ("/v1/api-keys/key_1", Surface::Agent),
            ("/v1/router/keys", Surface::RouterManagement),
            ("/v1/messages/count_tokens", Surface::Messages),
            ("/v1/chat/completions", Surface::DataPlane),
        ] {
            assert_eq!(Surface::of(path), surface, "{path}");
        }
    }
}
