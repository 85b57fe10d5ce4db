//! Agents: named presets that clients use as a model.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Time;
use crate::page::object;
use rerouter_base::id::AgentId;
use rerouter_store::AgentRow;

/// Limit on the characters of an agent's description.
const DESCRIPTION_CHARS: usize = 1_024;

object!(AgentObject "agent");

/// An agent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Agent")]
pub struct AgentRecord {
    pub object: AgentObject,
    pub id: AgentId,
    pub name: String,
    pub description: Option<String>,
    pub model: String,
    pub instructions: Option<String>,
    /// Default fields of requests.
    pub defaults: Map<String, Value>,
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub tools: Vec<Value>,
    /// Whether its last writer had a credential.
    pub trusted: bool,
    pub metadata: BTreeMap<String, String>,
    pub created_at: Time,
    pub updated_at: Time,
}

impl From<&AgentRow> for AgentRecord {
    fn from(row: &AgentRow) -> Self {
        AgentRecord {
            object: AgentObject::It,
            id: row.id.clone(),
            name: row.name.clone(),
            description: row.description.clone(),
            model: row.model.clone(),
            instructions: row.instructions.clone(),
            defaults: row.defaults.clone(),
            tools: row.tools.clone(),
            trusted: row.trusted,
            metadata: row.metadata.clone(),
            created_at: row.created_at.into(),
            updated_at: row.updated_at.into(),
        }
    }
}

/// What a client writes of an agent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAgent {
    #[schemars(extend("pattern" = "^[a-z0-9-]{1,63}$"))]
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = DESCRIPTION_CHARS))]
    pub description: Option<String>,
    /// An alias of the routing document.
    pub model: String,
    /// Up to 32 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Sampling parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Map<String, Value>>,
    /// Functions in the form of chat completions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Map<String, Value>>>")]
    pub tools: Option<Vec<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
}

impl From<&AgentRow> for NewAgent {
    fn from(row: &AgentRow) -> Self {
        NewAgent {
            name: row.name.clone(),
            description: row.description.clone(),
            model: row.model.clone(),
            instructions: row.instructions.clone(),
            defaults: Some(row.defaults.clone()),
            tools: Some(row.tools.clone()),
            metadata: Some(row.metadata.clone()),
        }
    }
}
