//! The master keys that the store has had, and which pepper secrets are known by. The store holds no master key, only what it
//! knows each by, and of those before the last what is still needed of them, sealed under the last.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::accounts::{self, time};
use super::rows::{Change, Committed};
use super::sqlite::{DataDir, Sqlite};
use super::worker::open_to_look;
use super::{Backend, Event, Faults, NodeRow, Store, StoreError, audit, nodes, schema};
use crate::blocking::blocking;
use crate::id::{KeyId, SessionId};
use crate::secret::SecretBytes;

/// A master key as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterRow {
    /// The how manieth it is; digests made with its pepper say this number.
    pub number: u32,
    /// What it is known by.
    pub fingerprint: Vec<u8>,
    /// Since when the store has it, or knows that it does.
    pub since: Timestamp,
    /// Its pepper, sealed; of the last one none, and none when no secret is known by it any more.
    pub pepper: Option<Vec<u8>>,
    /// What its captures' keys are sealed under, sealed; of the last one none.
    pub captures: Option<Vec<u8>>,
}

/// How much is known by a pepper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Keys that have not ended.
    pub keys: u64,
    /// Sessions that have not.
    pub sessions: u64,
}

impl Left {
    /// Whether that is nothing.
    pub fn is_nothing(self) -> bool {
        self == Left::default()
    }
}

/// Whose a digest is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DigestOf {
    /// A key's secret, this one or the one before.
    Key(KeyId),
    /// A session's cookie.
    Cookie(SessionId),
    /// A session's token.
    Token(SessionId),
}

/// A digest in the place of another, of the same secret by another pepper.
#[derive(Clone, PartialEq, Eq)]
pub struct MovedDigest {
    /// Whose.
    pub of: DigestOf,
    /// The digest that is known.
    pub from: [u8; 32],
    /// The digest that is to be.
    pub to: [u8; 32],
    /// The pepper that made it.
    pub pepper: u32,
}

impl std::fmt::Debug for MovedDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MovedDigest")
            .field("of", &self.of)
            .field("pepper", &self.pepper)
            .finish_non_exhaustive()
    }
}

/// The master keys of a store that is being opened, in one transaction.
pub struct Masters<'a> {
    transaction: &'a Transaction<'a>,
}

impl Masters<'_> {
    /// All of them, the last one first; none where the store is new.
    pub fn rows(&self) -> Result<Vec<MasterRow>, StoreError> {
        let mut statement =
            self.transaction.prepare("SELECT * FROM master_keys ORDER BY number DESC")?;
        Ok(statement.query_map([], master)?.collect::<rusqlite::Result<_>>()?)
    }

    /// Within which all of it happens.
    pub(super) fn transaction(&self) -> &Transaction<'_> {
        self.transaction
    }

    /// Compares the last one with this, or begins with this in a new store.
    pub(super) fn claim(&self, fingerprint: &[u8]) -> Result<(), StoreError> {
        match self.rows()?.first() {
            None => self.begin(1, fingerprint, Timestamp::UNIX_EPOCH),
            Some(last) if crate::secret::constant_time_eq(&last.fingerprint, fingerprint) => Ok(()),
            Some(_) => Err(StoreError::OtherMasterKey),
        }
    }

    /// Adds one, which is the last from now on.
    pub fn begin(
        &self,
        number: u32,
        fingerprint: &[u8],
        since: Timestamp,
    ) -> Result<(), StoreError> {
        let insert = "INSERT INTO master_keys (number, fingerprint, since) VALUES (?1, ?2, ?3)";
        self.transaction.execute(insert, params![number, fingerprint, since.as_microsecond()])?;
        Ok(())
    }

    /// Writes down what is left of one, sealed under the one that is to be the last.
    pub fn retire(
        &self,
        number: u32,
        pepper: Option<&[u8]>,
        captures: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let update = "UPDATE master_keys SET pepper = ?2, captures = ?3 WHERE number = ?1";
        self.transaction.execute(update, params![number, pepper, captures])?;
        Ok(())
    }

    /// Writes a row of the audit, which is there when what was done is.
    pub fn note(&self, event: &Event) -> Result<(), StoreError> {
        audit::insert(self.transaction, event)
    }

    /// How much is known by the pepper of this one.
    pub fn left(&self, number: u32, now: Timestamp) -> Result<Left, StoreError> {
        left(self.transaction, number, now)
    }

    /// All nodes.
    pub fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        let mut statement = self.transaction.prepare("SELECT * FROM nodes ORDER BY id")?;
        Ok(statement.query_map([], nodes::node)?.collect::<rusqlite::Result<_>>()?)
    }

    /// Writes a node whose secrets are sealed anew.
    pub fn put_node(&self, node: NodeRow) -> Result<(), StoreError> {
        nodes::write(self.transaction, node).map(|_| ())
    }
}

/// Has `look` read a store that is there, and changes nothing, also beside a process that has it.
/// None where there is no store, or one that cannot be read without writing: one of an earlier
/// build, which a start brings up to date first, or what a crash has left.
pub fn look<T, E>(
    dir: &Path,
    look: impl FnOnce(&Masters<'_>) -> Result<T, E>,
) -> Result<Option<T>, E>
where
    E: From<StoreError>,
{
    let Some(mut connection) = open_to_look(&dir.join("accounts.db"))? else { return Ok(None) };
    let transaction = connection.transaction().map_err(StoreError::from)?;
    if !schema::is_of_this_build(&transaction, schema::ACCOUNTS)? {
        return Ok(None);
    }
    look(&Masters { transaction: &transaction }).map(Some)
}

/// Has `claim` look at the master keys, and holds what it does to them if it is well.
pub(super) fn claim<T, E: From<StoreError>>(
    connection: &mut Connection,
    claim: impl FnOnce(&Masters<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(StoreError::from)?;
    let claimed = claim(&Masters { transaction: &transaction })?;
    transaction.commit().map_err(StoreError::from)?;
    Ok(claimed)
}

impl Store {
    /// Opens the embedded store in a directory that was taken before, making it when there is none,
    /// if `claim` will have the master keys that the store has had. What that does to them is one
    /// transaction: it holds when `claim` is well, and else nothing has changed. It gives the key
    /// that texts of documents are sealed under, and whatever the caller wants to have. A newer
    /// schema is refused.
    pub async fn open_in<T, E>(
        dir: DataDir,
        claim: impl FnOnce(&Masters<'_>) -> Result<(SecretBytes, T), E> + Send + 'static,
    ) -> Result<(Store, T), E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let opened = blocking(move || Sqlite::open(dir, claim)).await;
        let (sqlite, documents, claimed) = opened.map_err(StoreError::from)??;
        let backend = Arc::new(Backend::Sqlite(sqlite));
        Ok((
            Store {
                backend,
                faults: Faults::default(),
                probe: Default::default(),
                event: None,
                documents,
            },
            claimed,
        ))
    }

    /// Puts digests of another pepper in the place of those that are known, where they still are: no key or session is another
    /// for it, so nothing that was decided on it is void, and what has ended stays as it is.
    pub async fn move_digests(&self, moved: Vec<MovedDigest>) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let write = move |transaction: &Transaction<'_>| {
            let mut changes = Vec::new();
            for moved in &moved {
                changes.extend(move_digest(transaction, moved)?);
            }
            Ok(changes)
        };
        sqlite.mutate(self, write).await
    }

    /// How much is known by the pepper of this master key. Looks at every key.
    pub async fn known_by_pepper(&self, number: u32, now: Timestamp) -> Result<Left, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite
            .accounts_reader
            .read(&self.faults, move |connection| left(connection, number, now))
            .await
    }

    /// Forgets the pepper of a master key before the last: no secret is known by it.
    pub async fn forget_pepper(&self, number: u32) -> Result<(), StoreError> {
        self.forget_of(number, "UPDATE master_keys SET pepper = NULL WHERE number = ?1").await
    }

    /// Forgets what captures of the time of a master key before the last are sealed under: there are none.
    pub async fn forget_capture_key(&self, number: u32) -> Result<(), StoreError> {
        self.forget_of(number, "UPDATE master_keys SET captures = NULL WHERE number = ?1").await
    }

    async fn forget_of(&self, number: u32, update: &'static str) -> Result<(), StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        // No table in memory follows them.
        let write = move |transaction: &Transaction<'_>| {
            transaction.execute(update, [number]).map(|_| Vec::new()).map_err(StoreError::from)
        };
        sqlite.mutate(self, write).await.map(|_| ())
    }
}

fn left(connection: &Connection, number: u32, now: Timestamp) -> Result<Left, StoreError> {
    let count = |what: &str| {
        let count = connection
            .query_row(what, params![number, now.as_microsecond()], |row| row.get::<_, i64>(0))?;
        Ok::<_, StoreError>(u64::try_from(count).unwrap_or(0))
    };
    Ok(Left {
        keys: count(
            "SELECT count(*) FROM keys WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2)
             AND (pepper = ?1 OR previous_digest IS NOT NULL AND previous_pepper = ?1 AND previous_expires_at > ?2)",
        )?,
        sessions: count("SELECT count(*) FROM sessions WHERE expires_at > ?2 AND (cookie_pepper = ?1 OR token_pepper = ?1)")?,
    })
}

/// A digest that is no more what it was, since its secret was replaced or has ended, stays what it is.
fn move_digest(
    transaction: &Transaction<'_>,
    moved: &MovedDigest,
) -> Result<Option<Change>, StoreError> {
    let (statements, id): (&[&str], &str) = match &moved.of {
        DigestOf::Key(id) => (
            &[
                "UPDATE OR IGNORE keys SET digest = ?3, pepper = ?4 WHERE id = ?1 AND digest = ?2 AND revoked_at IS NULL",
                "UPDATE OR IGNORE keys SET previous_digest = ?3, previous_pepper = ?4
                 WHERE id = ?1 AND previous_digest = ?2 AND revoked_at IS NULL",
            ],
            id.as_str(),
        ),
        DigestOf::Cookie(id) => (
            &[
                "UPDATE OR IGNORE sessions SET cookie_digest = ?3, cookie_pepper = ?4 WHERE id = ?1 AND cookie_digest = ?2",
            ],
            id.as_str(),
        ),
        DigestOf::Token(id) => (
            &[
                "UPDATE OR IGNORE sessions SET token_digest = ?3, token_pepper = ?4 WHERE id = ?1 AND token_digest = ?2",
            ],
            id.as_str(),
        ),
    };
    let mut done = 0;
    for statement in statements {
        done += transaction.prepare_cached(statement)?.execute(params![
            id,
            moved.from,
            moved.to,
            moved.pepper
        ])?;
    }
    if done == 0 {
        return Ok(None);
    }
    let change = match &moved.of {
        DigestOf::Key(_) => {
            let mut one = transaction.prepare_cached("SELECT * FROM keys WHERE id = ?1")?;
            one.query_row([id], accounts::key).optional()?.map(|key| Change::Key(key.into()))
        }
        DigestOf::Cookie(_) | DigestOf::Token(_) => {
            let mut one = transaction.prepare_cached("SELECT * FROM sessions WHERE id = ?1")?;
            one.query_row([id], accounts::session).optional()?.map(Change::Session)
        }
    };
    Ok(change)
}

fn master(row: &Row<'_>) -> rusqlite::Result<MasterRow> {
    Ok(MasterRow {
        number: row.get("number")?,
        fingerprint: row.get("fingerprint")?,
        since: time(row, "since")?,
        pepper: row.get("pepper")?,
        captures: row.get("captures")?,
    })
}

#[cfg(test)]
#[path = "masters_tests.rs"]
mod tests;
