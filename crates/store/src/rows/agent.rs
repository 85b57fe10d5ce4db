//! The row of an agent.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::StoreError;
use crate::columns::Columns;
use crate::sql::Row;
use rerouter_base::id::AgentId;

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

pub(crate) fn agent(row: &Row<'_>) -> Result<AgentRow, StoreError> {
    let mut columns = Columns::of(row);
    Ok(AgentRow {
        id: AgentId::known(columns.text()?),
        name: columns.get()?,
        description: columns.maybe()?,
        model: columns.get()?,
        instructions: columns.maybe()?,
        defaults: columns.json()?,
        tools: columns.json()?,
        trusted: columns.get()?,
        metadata: columns.json()?,
        created_at: columns.get()?,
        updated_at: columns.get()?,
    })
}
