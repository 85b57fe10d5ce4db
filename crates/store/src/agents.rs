//! Agents in the store: creation, changes, deletion.

use sha2::{Digest, Sha256};

use super::changes::{Change, Committed};
use super::rows::{self, AgentRow};
use super::sql::{Transaction, params};
use super::{Result, Store, StoreError};
use rerouter_base::id::AgentId;

/// Maximum number of agents. All are held in memory, and anybody can create them while the AGENT
/// interface is open.
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
        let digest = Sha256::digest(all.to_string());
        digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Store {
    /// Adds an agent; [`StoreError::Conflict`] if its name is taken, [`StoreError::LimitReached`]
    /// if there are too many.
    pub async fn create_agent(&self, agent: AgentRow) -> Result<Committed> {
        self.mutate(move |transaction| insert(transaction, agent)).await
    }

    /// Replaces an agent that has the entity tag `seen`; [`StoreError::Stale`] if it has another
    /// tag now, [`StoreError::Conflict`] if its new name is taken.
    pub async fn update_agent(&self, agent: AgentRow, seen: String) -> Result<Committed> {
        self.mutate(move |transaction| update(transaction, agent, &seen)).await
    }

    /// Deletes an agent; [`StoreError::Stale`] if it no longer has the entity tag `seen`. No change
    /// if there is no such agent.
    pub async fn delete_agent(&self, id: &AgentId, seen: Option<String>) -> Result<Committed> {
        let id = id.clone();
        self.mutate(move |transaction| delete(transaction, &id, seen.as_deref())).await
    }
}

fn insert(transaction: &Transaction<'_>, agent: AgentRow) -> Result<Vec<Change>> {
    check_name(transaction, &agent)?;
    let count = transaction.int("SELECT count(*) FROM agents", &[])?.unwrap_or(0);
    if usize::try_from(count).unwrap_or(usize::MAX) >= AGENTS {
        return Err(StoreError::LimitReached);
    }
    rows::insert(transaction, &agent)?;
    Ok(vec![Change::Agent(agent.into())])
}

fn update(transaction: &Transaction<'_>, agent: AgentRow, seen: &str) -> Result<Vec<Change>> {
    let known: Option<AgentRow> = rows::find(transaction, agent.id.as_str())?;
    let known = known.ok_or(StoreError::NotFound)?;
    if known.etag() != seen {
        return Err(StoreError::Stale);
    }
    check_name(transaction, &agent)?;
    rows::update(transaction, &agent)?;
    Ok(vec![Change::Agent(agent.into())])
}

/// Returns [`StoreError::Conflict`] if another agent has the name.
fn check_name(transaction: &Transaction<'_>, agent: &AgentRow) -> Result<()> {
    let other = "SELECT 1 FROM agents WHERE name = ?1 AND id <> ?2";
    match transaction.exists(other, &params![agent.name, agent.id])? {
        true => Err(StoreError::Conflict),
        false => Ok(()),
    }
}

fn delete(transaction: &Transaction<'_>, id: &AgentId, seen: Option<&str>) -> Result<Vec<Change>> {
    if let (Some(seen), Some(known)) = (seen, rows::find::<AgentRow>(transaction, id.as_str())?)
        && known.etag() != seen
    {
        return Err(StoreError::Stale);
    }
    match transaction.execute("DELETE FROM agents WHERE id = ?1", &params![id])? {
        0 => Ok(Vec::new()),
        _ => Ok(vec![Change::AgentDeleted(id.clone())]),
    }
}
