//! Routing documents: the text of every revision that was live. A text may hold credentials in
//! clear, so it is sealed under a key derived from the root key.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::{Backend, DocumentRow, Opening, Store, StoreError, audit};
use crate::id::Random;
use crate::secret::{SecretBytes, open, seal};

/// The document that was made live last.
const LIVE: &str =
    "SELECT revision, sealed FROM documents WHERE ?1 IS NULL ORDER BY live_at DESC LIMIT 1";

impl Store {
    /// Keeps the text of a routing document as the one that is live from now on.
    pub async fn keep_document(
        &self,
        revision: &str,
        text: &str,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let sealed = sealed(&self.documents, revision, text)?;
        let (revision, event) = (revision.to_owned(), self.event.clone());
        let keep = move |transaction: &Transaction<'_>| {
            insert(transaction, &revision, &sealed, at)?;
            // No table in memory follows documents, so there is no change to speak of.
            event.map_or(Ok(()), |event| audit::insert(transaction, &event)).map(|()| Vec::new())
        };
        sqlite.mutate(self, keep).await.map(|_| ())
    }

    /// The text of a routing document that was kept.
    pub async fn document(&self, revision: &str) -> Result<Option<String>, StoreError> {
        self.text("SELECT revision, sealed FROM documents WHERE revision = ?1", Some(revision))
            .await
    }

    /// The text of the routing document that was made live last.
    pub async fn live_document(&self) -> Result<Option<String>, StoreError> {
        self.text(LIVE, None).await
    }

    async fn text(
        &self,
        select: &'static str,
        revision: Option<&str>,
    ) -> Result<Option<String>, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let revision = revision.map(str::to_owned);
        let read = move |connection: &mut Connection| {
            let row = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?));
            Ok(connection.query_row(select, [revision], row).optional()?)
        };
        let found = sqlite.accounts.read(&self.faults, read).await?;
        found.map(|(revision, sealed)| opened(&self.documents, &revision, &sealed)).transpose()
    }

    /// Routing documents, the one that was made live last first, those after the revision `after`,
    /// up to `limit`.
    pub async fn documents(
        &self,
        limit: usize,
        after: Option<String>,
    ) -> Result<Vec<DocumentRow>, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite
            .accounts
            .read(&self.faults, move |connection| list(connection, limit, after.as_deref()))
            .await
    }
}

impl Opening<'_> {
    /// The text of the routing document that was made live last, sealed under this key.
    pub fn live_document(&self, key: &SecretBytes) -> Result<Option<String>, StoreError> {
        let row = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?));
        let found = self.transaction().query_row(LIVE, [None::<&str>], row).optional()?;
        found.map(|(revision, sealed)| opened(key, &revision, &sealed)).transpose()
    }
}

/// Seals the texts that a build kept in clear, and leaves nothing of them in the files.
pub(super) fn seal_clear(connection: &mut Connection, key: &SecretBytes) -> Result<(), StoreError> {
    const CLEAR: &str = "SELECT revision FROM documents WHERE sealed IS NULL";
    if revisions(connection, CLEAR)?.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for revision in revisions(&transaction, CLEAR)? {
        let select = "SELECT text FROM documents WHERE revision = ?1";
        let text = transaction.query_row(select, [&revision], |row| row.get::<_, String>(0))?;
        put(&transaction, &revision, &sealed(key, &revision, &text)?)?;
    }
    transaction.commit()?;
    // What was overwritten is still in pages that are not in use, and in the journal.
    connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")?;
    log::info!("the texts of routing documents that were in accounts.db in clear are sealed");
    Ok(())
}

fn revisions(connection: &Connection, select: &str) -> Result<Vec<String>, StoreError> {
    let mut statement = connection.prepare(select)?;
    Ok(statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
}

fn put(connection: &Connection, revision: &str, sealed: &[u8]) -> Result<(), StoreError> {
    connection.execute(
        "UPDATE documents SET text = '', sealed = ?2 WHERE revision = ?1",
        params![revision, sealed],
    )?;
    Ok(())
}

/// The newest wording of a revision is kept: it differs in comments and spelling only. Made live
/// twice at one moment, it still comes after what was live before.
fn insert(
    connection: &Connection,
    revision: &str,
    sealed: &[u8],
    at: Timestamp,
) -> Result<(), StoreError> {
    connection.execute(
        "INSERT INTO documents (revision, text, sealed, created_at, live_at)
         VALUES (?1, '', ?2, ?3, max(?3, 1 + (SELECT coalesce(max(live_at), 0) FROM documents)))
         ON CONFLICT (revision) DO UPDATE SET text = '', sealed = excluded.sealed, live_at = excluded.live_at",
        params![revision, sealed, at.as_microsecond()],
    )?;
    Ok(())
}

/// Documents from the one that was made live last on, those after `after` in that order.
fn list(
    connection: &Connection,
    limit: usize,
    after: Option<&str>,
) -> Result<Vec<DocumentRow>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT revision, created_at, live_at FROM documents
         WHERE ?1 IS NULL OR live_at < (SELECT live_at FROM documents WHERE revision = ?1)
         ORDER BY live_at DESC LIMIT ?2",
    )?;
    let read = |row: &Row<'_>| {
        let time = |at: i64| Timestamp::from_microsecond(at).unwrap_or(Timestamp::UNIX_EPOCH);
        Ok(DocumentRow {
            revision: row.get(0)?,
            created_at: time(row.get(1)?),
            live_at: time(row.get(2)?),
        })
    };
    let rows =
        statement.query_map(params![after, i64::try_from(limit).unwrap_or(i64::MAX)], read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// A sealed text opens for its revision only.
fn context(revision: &str) -> Vec<u8> {
    format!("document {revision}").into_bytes()
}

fn sealed(key: &SecretBytes, revision: &str, text: &str) -> Result<Vec<u8>, StoreError> {
    let sealed = seal(key, &context(revision), text.as_bytes(), &Random::System);
    sealed
        .ok_or_else(|| StoreError::unavailable(format!("document {revision} could not be sealed")))
}

fn opened(key: &SecretBytes, revision: &str, sealed: &[u8]) -> Result<String, StoreError> {
    let text = open(key, &context(revision), sealed).and_then(|text| String::from_utf8(text).ok());
    text.ok_or_else(|| {
        StoreError::Damaged(format!("the text of document {revision} does not open"))
    })
}

#[cfg(test)]
#[path = "documents_tests.rs"]
mod tests;
