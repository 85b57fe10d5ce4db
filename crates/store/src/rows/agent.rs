//! The row of an agent.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::stored::row;
use rerouter_base::id::AgentId;

row! { "agents" =>
    /// A named preset that clients use as a model.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct AgentRow {
        pub id: AgentId,
        /// Unique; clients use it as the model.
        pub name: String,
        pub description: Option<String>,
        /// The alias or model that its requests are routed by.
        pub model: String,
        /// Put before each conversation.
        pub instructions: Option<String>,
        /// Request fields, such as `temperature`, for requests that do not set them.
        pub defaults: serde_json::Map<String, serde_json::Value>,
        /// Tools that it adds to requests.
        pub tools: Vec<serde_json::Value>,
        /// Whether it was last written by an authenticated caller.
        pub trusted: bool,
        pub metadata: BTreeMap<String, String>,
        pub created_at: Timestamp,
        pub updated_at: Timestamp,
    }
}
