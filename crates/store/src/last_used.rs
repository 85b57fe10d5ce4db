//! The last uses of keys and sessions, including those that other gateways wrote.

use jiff::Timestamp;

use super::columns::Columns;
use super::sql::{Transaction, params};
use super::{Result, Store};
use rerouter_base::id::{KeyId, SessionId};

#[derive(Debug, Default)]
pub struct LastUses {
    pub keys: Vec<(KeyId, Timestamp)>,
    pub sessions: Vec<(SessionId, Timestamp)>,
}

impl Store {
    /// The last uses since a time; none if the store is not shared.
    pub async fn last_uses_since(&self, since: Timestamp) -> Result<LastUses> {
        self.read_shared(LastUses::default(), move |transaction| read(transaction, since)).await
    }
}

fn read(transaction: &Transaction<'_>, since: Timestamp) -> Result<LastUses> {
    let keys = "SELECT id, last_used_at FROM keys WHERE last_used_at >= ?1";
    let keys = transaction.rows(keys, &params![since], |row| Columns::new(row).two())?;
    let sessions = "SELECT id, last_seen FROM sessions WHERE last_seen >= ?1";
    let sessions = transaction.rows(sessions, &params![since], |row| Columns::new(row).two())?;
    Ok(LastUses { keys, sessions })
}
