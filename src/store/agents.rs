//! The statements of agents, in `accounts.db` beside the keys: one transaction each, as every
//! mutation of accounts.

use std::fmt::Write;

use rusqlite::{OptionalExtension, Row, Transaction, params};
use sha2::{Digest, Sha256};

use super::StoreError;
use super::accounts::{from_json, json, time};
use super::rows::{AgentRow, Change};
use crate::bounds;
use crate::id::AgentId;

impl AgentRow {
    /// The strong entity tag of what is known of it, without quotes (RFC 9110 section 8.8.3):
    /// another value, another tag.
    pub fn etag(&self) -> String {
        let said = serde_json::json!([
            self.id,
            self.name,
            self.description,
            self.model,
            self.instructions,
            self.defaults,
            self.tools,
            self.trusted,
            self.metadata,
            self.created_at.as_microsecond(),
            self.updated_at.as_microsecond(),
        ]);
        Sha256::digest(said.to_string()).iter().take(16).fold(
            String::with_capacity(32),
            |mut tag, byte| {
                // Writing into a string does not fail.
                let _ = write!(tag, "{byte:02x}");
                tag
            },
        )
    }
}

/// Adds an agent whose name is free, while there are not too many.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    agent: AgentRow,
) -> Result<Vec<Change>, StoreError> {
    free(transaction, &agent)?;
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

/// Writes an agent over the one that was seen, where its name is still free.
pub(super) fn update(
    transaction: &Transaction<'_>,
    agent: AgentRow,
    seen: &str,
) -> Result<Vec<Change>, StoreError> {
    let known = find(transaction, &agent.id)?.ok_or(StoreError::NotFound)?;
    if known.etag() != seen {
        return Err(StoreError::Stale);
    }
    free(transaction, &agent)?;
    transaction.execute(
        "UPDATE agents SET name = ?2, description = ?3, model = ?4, instructions = ?5, defaults = ?6, tools = ?7, trusted = ?8,
         metadata = ?9, updated_at = ?10 WHERE id = ?1",
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
            agent.updated_at.as_microsecond()
        ],
    )?;
    Ok(vec![Change::Agent(agent.into())])
}

fn find(transaction: &Transaction<'_>, id: &AgentId) -> Result<Option<AgentRow>, StoreError> {
    Ok(transaction
        .query_row("SELECT * FROM agents WHERE id = ?1", [id.as_str()], agent)
        .optional()?)
}

/// Refuses a name that another agent has.
fn free(transaction: &Transaction<'_>, agent: &AgentRow) -> Result<(), StoreError> {
    let other = "SELECT 1 FROM agents WHERE name = ?1 AND id <> ?2";
    match transaction
        .query_row(other, [agent.name.as_str(), agent.id.as_str()], |_| Ok(()))
        .optional()?
    {
        Some(()) => Err(StoreError::Conflict),
        None => Ok(()),
    }
}

/// Deletes an agent, if it is what was `seen`; one that is not there is no change.
pub(super) fn delete(
    transaction: &Transaction<'_>,
    id: &AgentId,
    seen: Option<&str>,
) -> Result<Vec<Change>, StoreError> {
    if let (Some(seen), Some(known)) = (seen, find(transaction, id)?)
        && known.etag() != seen
    {
        return Err(StoreError::Stale);
    }
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
