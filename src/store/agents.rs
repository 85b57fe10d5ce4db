//! The statements of agents, in `accounts.db` beside the keys: one transaction each, as every mutation of accounts.

use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::StoreError;
use super::accounts::{from_json, json, time};
use super::rows::{AgentRow, Change};
use crate::bounds;
use crate::id::AgentId;

/// Adds an agent whose name is free, while there are not too many.
pub(super) fn insert(transaction: &Transaction<'_>, agent: AgentRow) -> Result<Vec<Change>, StoreError> {
    let taken = transaction.query_row("SELECT 1 FROM agents WHERE name = ?1", [&agent.name], |_| Ok(())).optional()?;
    if taken.is_some() {
        return Err(StoreError::Conflict);
    }
    let count: i64 = transaction.query_row("SELECT count(*) FROM agents", [], |row| row.get(0))?;
    if usize::try_from(count).unwrap_or(usize::MAX) >= bounds::AGENTS {
        return Err(StoreError::LimitReached);
    }
    transaction.execute(
        "INSERT INTO agents (id, name, description, model, instructions, defaults, tools, trusted, metadata, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        params![
            agent.id.as_str(),
            agent.name,
            agent.description,
            agent.model,
            agent.instructions,
            json(&agent.defaults)?,
            json(&agent.tools)?,
            agent.trusted,
            json(&agent.metadata)?,
            agent.created_at.as_microsecond(),
            agent.updated_at.as_microsecond()
        ],
    )?;
    Ok(vec![Change::Agent(agent.into())])
}

/// Deletes an agent; one that is not there is no change.
pub(super) fn delete(transaction: &Transaction<'_>, id: &AgentId) -> Result<Vec<Change>, StoreError> {
    match transaction.execute("DELETE FROM agents WHERE id = ?1", [id.as_str()])? {
        0 => Ok(Vec::new()),
        _ => Ok(vec![Change::AgentDeleted(id.clone())]),
    }
}

pub(super) fn agent(row: &Row<'_>) -> rusqlite::Result<AgentRow> {
    Ok(AgentRow {
        id: AgentId::known(&row.get::<_, String>("id")?),
        name: row.get("name")?,
        description: row.get("description")?,
        model: row.get("model")?,
        instructions: row.get("instructions")?,
        defaults: from_json(row, "defaults")?,
        tools: from_json(row, "tools")?,
        trusted: row.get("trusted")?,
        metadata: from_json(row, "metadata")?,
        created_at: time(row, "created_at")?,
        updated_at: time(row, "updated_at")?,
    })
}
