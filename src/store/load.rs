//! Reads all tables of `accounts.db` at a start.

use std::collections::HashMap;

use rusqlite::{Connection, Row, Transaction};

use super::changes::Change;
use super::keys::key_with;
use super::{Store, StoreError, agents, nodes, sessions, users};
use crate::id::UserId;

impl Store {
    /// Calls `take` with every row of users, keys, sessions, agents and nodes. Returns their
    /// revision.
    pub async fn each<F: FnMut(Change) + Send + 'static>(
        &self,
        take: F,
    ) -> Result<u64, StoreError> {
        self.sqlite.accounts.run(move |connection| each(connection, take)).await
    }

    /// All tables, for tests.
    #[cfg(test)]
    pub(crate) async fn load(&self) -> Result<super::Snapshot, StoreError> {
        let load = |connection: &mut Connection| {
            let mut snapshot = super::Snapshot::default();
            snapshot.rev = each(connection, |change| match change {
                Change::User(user) => snapshot.users.push((*user).clone()),
                Change::Key(key) => snapshot.keys.push((*key).clone()),
                Change::Session(session) => snapshot.sessions.push(session),
                Change::Agent(agent) => snapshot.agents.push((*agent).clone()),
                Change::Node(node) => snapshot.nodes.push((*node).clone()),
                gone => unreachable!("{gone:?}"),
            })?;
            Ok(snapshot)
        };
        self.sqlite.accounts.run(load).await
    }
}

fn each(connection: &mut Connection, mut take: impl FnMut(Change)) -> Result<u64, StoreError> {
    let transaction = connection.transaction()?;
    let rev: i64 = transaction.query_row("SELECT rev FROM state", [], |row| row.get(0))?;
    let mut scan = |table: &str, read: &mut dyn FnMut(&Row<'_>) -> rusqlite::Result<Change>| {
        rows(&transaction, table, |row| read(row).map(&mut take))
    };
    scan("users", &mut |row| Ok(Change::User(users::user(row)?.into())))?;
    // The id of an owner is in memory once for all keys.
    let mut known: HashMap<Box<str>, UserId> = HashMap::new();
    let mut owner = |id: &str| match known.get(id) {
        Some(owner) => owner.clone(),
        None => known.entry(id.into()).or_insert(UserId::known(id)).clone(),
    };
    scan("keys", &mut |row| Ok(Change::Key(key_with(row, &mut owner)?.into())))?;
    scan("sessions", &mut |row| Ok(Change::Session(sessions::session(row)?)))?;
    scan("agents", &mut |row| Ok(Change::Agent(agents::agent(row)?.into())))?;
    scan("nodes", &mut |row| Ok(Change::Node(nodes::node(row)?.into())))?;
    Ok(u64::try_from(rev).unwrap_or(0))
}

fn rows(
    transaction: &Transaction<'_>,
    table: &str,
    mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> Result<(), StoreError> {
    let mut statement = transaction.prepare(&format!("SELECT * FROM {table}"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        read(row)?;
    }
    Ok(())
}
