//! Agents.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::changes::{Change, Committed};
use super::columns::json;
use super::rows::{AgentRow, agent};
use super::sql::{Transaction, params};
use super::{Store, StoreError};
use rerouter_base::id::AgentId;

/// Agents: all are in memory, and while AGENT is open anybody makes them.
pub(super) const AGENTS: usize = 1_000;

impl AgentRow {
    /// Its strong entity tag, without quotes (RFC 9110 section 8.8.3).
    pub fn etag(&self) -> String {
        let all = serde_json::json!([
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
        Sha256::digest(all.to_string()).iter().take(16).fold(
            String::with_capacity(32),
            |mut tag, byte| {
                // Writing into a string does not fail.
                let _ = write!(tag, "{byte:02x}");
                tag
            },
        )
    }
}

impl Store {
    /// Adds an agent; [`StoreError::Conflict`] if its name is taken, [`StoreError::LimitReached`]
    /// if there are too many.
    pub async fn create_agent(&self, agent: AgentRow) -> Result<Committed, StoreError> {
        self.mutate(move |transaction| insert(transaction, agent)).await
    }

    /// Replaces the agent with the entity tag `seen`; [`StoreError::Stale`] if it has another now,
    /// [`StoreError::Conflict`] if its new name is taken.
    pub async fn update_agent(
        &self,
        agent: AgentRow,
        seen: String,
    ) -> Result<Committed, StoreError> {
        self.mutate(move |transaction| update(transaction, agent, &seen)).await
    }

    /// Deletes an agent; [`StoreError::Stale`] if it no longer has the entity tag `seen`. No change
    /// if there is no such agent.
    pub async fn delete_agent(
        &self,
        id: &AgentId,
        seen: Option<String>,
    ) -> Result<Committed, StoreError> {
        let id = id.clone();
        self.mutate(move |transaction| delete(transaction, &id, seen.as_deref())).await
    }
}

fn insert(transaction: &Transaction<'_>, agent: AgentRow) -> Result<Vec<Change>, StoreError> {
    check_name(transaction, &agent)?;
    let count = transaction.int("SELECT count(*) FROM agents", &[])?.unwrap_or(0);
    if usize::try_from(count).unwrap_or(usize::MAX) >= AGENTS {
        return Err(StoreError::LimitReached);
    }
    transaction.execute(
        "INSERT INTO agents
           (id, name, description, model, instructions, defaults, tools, trusted, metadata,
            created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        &params![
            agent.id,
            agent.name,
            agent.description,
            agent.model,
            agent.instructions,
            json(&agent.defaults)?,
            json(&agent.tools)?,
            agent.trusted,
            json(&agent.metadata)?,
            agent.created_at,
            agent.updated_at
        ],
    )?;
    Ok(vec![Change::Agent(agent.into())])
}

fn update(
    transaction: &Transaction<'_>,
    agent: AgentRow,
    seen: &str,
) -> Result<Vec<Change>, StoreError> {
    let known = find(transaction, &agent.id)?.ok_or(StoreError::NotFound)?;
    if known.etag() != seen {
        return Err(StoreError::Stale);
    }
    check_name(transaction, &agent)?;
    transaction.execute(
        "UPDATE agents SET name = ?2, description = ?3, model = ?4, instructions = ?5,
           defaults = ?6, tools = ?7, trusted = ?8, metadata = ?9, updated_at = ?10
         WHERE id = ?1",
        &params![
            agent.id,
            agent.name,
            agent.description,
            agent.model,
            agent.instructions,
            json(&agent.defaults)?,
            json(&agent.tools)?,
            agent.trusted,
            json(&agent.metadata)?,
            agent.updated_at
        ],
    )?;
    Ok(vec![Change::Agent(agent.into())])
}

fn find(transaction: &Transaction<'_>, id: &AgentId) -> Result<Option<AgentRow>, StoreError> {
    transaction.row("SELECT * FROM agents WHERE id = ?1", &params![id], agent)
}

/// [`StoreError::Conflict`] if another agent has the name.
fn check_name(transaction: &Transaction<'_>, agent: &AgentRow) -> Result<(), StoreError> {
    let other = "SELECT 1 FROM agents WHERE name = ?1 AND id <> ?2";
    match transaction.exists(other, &params![agent.name, agent.id])? {
        true => Err(StoreError::Conflict),
        false => Ok(()),
    }
}

fn delete(
    transaction: &Transaction<'_>,
    id: &AgentId,
    seen: Option<&str>,
) -> Result<Vec<Change>, StoreError> {
    if let (Some(seen), Some(known)) = (seen, find(transaction, id)?)
        && known.etag() != seen
    {
        return Err(StoreError::Stale);
    }
    match transaction.execute("DELETE FROM agents WHERE id = ?1", &params![id])? {
        0 => Ok(Vec::new()),
        _ => Ok(vec![Change::AgentDeleted(id.clone())]),
    }
}
