//! The agents in memory, by name and newest first. Like the key tables they change only by
//! following the store.

use std::collections::BTreeMap;
use std::ops::{Bound, Deref};
use std::sync::{Arc, PoisonError, RwLock};

use rerouter_base::id::AgentId;
use rerouter_store::AgentRow;

#[derive(Debug)]
pub struct Agent {
    row: Arc<AgentRow>,
    etag: String,
}

impl Agent {
    /// The entity tag of its present state, without quotes.
    pub fn etag(&self) -> &str {
        &self.etag
    }
}

impl Deref for Agent {
    type Target = AgentRow;

    fn deref(&self) -> &AgentRow {
        &self.row
    }
}

/// All agents; they are few enough for one lock.
#[derive(Debug, Default)]
pub struct Agents(RwLock<AgentTables>);

#[derive(Debug, Default)]
struct AgentTables {
    by_id: BTreeMap<AgentId, Arc<Agent>>,
    by_name: BTreeMap<String, AgentId>,
}

impl AgentTables {
    /// Frees the name of a row, unless another agent has it by now.
    fn release(&mut self, old: &AgentRow) {
        if self.by_name.get(&old.name) == Some(&old.id) {
            self.by_name.remove(&old.name);
        }
    }
}

impl Agents {
    /// An agent by its id or name. No text can be both an id and a name.
    pub fn find(&self, id_or_name: &str) -> Option<Arc<Agent>> {
        let tables = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let id = AgentId::parse(id_or_name).or_else(|| tables.by_name.get(id_or_name).cloned())?;
        tables.by_id.get(&id).cloned()
    }

    pub fn named(&self, name: &str) -> Option<Arc<Agent>> {
        let tables = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tables.by_id.get(tables.by_name.get(name)?).cloned()
    }

    pub fn by_name(&self) -> Vec<Arc<Agent>> {
        let tables = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tables.by_name.values().filter_map(|id| tables.by_id.get(id).cloned()).collect()
    }

    /// Up to `limit` agents, newest first, older than `after`.
    pub fn page(&self, after: Option<&AgentId>, limit: usize) -> Vec<Arc<Agent>> {
        let tables = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let older = (Bound::Unbounded, after.map_or(Bound::Unbounded, Bound::Excluded));
        let newest = tables.by_id.range::<AgentId, _>(older).rev().take(limit);
        newest.map(|(_, agent)| Arc::clone(agent)).collect()
    }

    pub(super) fn apply(&self, row: Arc<AgentRow>) {
        let mut tables = self.0.write().unwrap_or_else(PoisonError::into_inner);
        tables.by_name.insert(row.name.clone(), row.id.clone());
        let agent = Arc::new(Agent { etag: row.etag(), row: Arc::clone(&row) });
        if let Some(old) = tables.by_id.insert(row.id.clone(), agent)
            && old.name != row.name
        {
            tables.release(&old);
        }
    }

    pub(super) fn remove(&self, id: &AgentId) {
        let mut tables = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = tables.by_id.remove(id) {
            tables.release(&old);
        }
    }
}
