//! Routing documents: the text of every revision that was live, sealed.

use jiff::Timestamp;

use super::changes::{Change, Committed, LiveDocument};
use super::document_texts::{LIVE, live, opened, sealed, sealed_row};
use super::root_key::Opening;
use super::rows::{DocumentRow, Stored};
use super::sql::{Transaction, params};
use super::{Result, Store, StoreError, audit};
use rerouter_base::secret::{Secret, SecretBytes};

const ONE: &str = "SELECT revision, sealed FROM documents WHERE revision = ?1";

impl Store {
    /// Keeps the text of a routing document, which is live from now on.
    pub async fn keep_document(&self, revision: &str, text: &str, at: Timestamp) -> Result<()> {
        let sealed = sealed(&self.documents, revision, text)?;
        let (revision, event) = (revision.to_owned(), self.event.clone());
        let keep = move |transaction: &Transaction<'_>| {
            insert(transaction, &revision, &sealed, at)?;
            event.map_or(Ok(()), |event| audit::insert(transaction, &event))
        };
        self.write(keep).await
    }

    /// Keeps the text of a routing document and makes it live. When this is acknowledged, it is
    /// live on every gateway that shares the store. [`StoreError::Stale`] if the live document has
    /// another revision than `expected`; an empty `expected` means that no document is live.
    pub async fn make_live(
        &self,
        revision: &str,
        text: &str,
        at: Timestamp,
        expected: Option<&str>,
    ) -> Result<Committed> {
        let sealed = sealed(&self.documents, revision, text)?;
        let expected = expected.map(str::to_owned);
        let document = LiveDocument { revision: revision.to_owned(), text: Secret::new(text) };
        let make = move |transaction: &Transaction<'_>| {
            let live = transaction.row(LIVE, &[], sealed_row)?;
            let live = live.map(|(revision, _)| revision).unwrap_or_default();
            if expected.is_some_and(|expected| expected != live) {
                return Err(StoreError::Stale);
            }
            insert(transaction, &document.revision, &sealed, at)?;
            Ok(vec![Change::Document(document)])
        };
        self.mutate(make).await
    }

    pub async fn document(&self, revision: &str) -> Result<Option<String>> {
        let revision = revision.to_owned();
        let read = move |transaction: &Transaction<'_>| {
            transaction.row(ONE, &params![revision], sealed_row)
        };
        self.read_after_writes(read).await?.map(|row| opened(&self.documents, &row)).transpose()
    }

    pub async fn live_document(&self) -> Result<Option<String>> {
        let key = self.documents.clone();
        let live = move |transaction: &Transaction<'_>| live(transaction, &key);
        let found = self.read_after_writes(live).await?;
        Ok(found.map(|document| document.text.expose().to_owned()))
    }

    /// Up to `limit` routing documents after the revision `after`, the one that was made live last
    /// first.
    pub async fn documents(&self, limit: usize, after: Option<String>) -> Result<Vec<DocumentRow>> {
        self.read_after_writes(move |transaction| list(transaction, limit, after.as_deref())).await
    }
}

impl Opening<'_> {
    /// The text of the live routing document, which is sealed under `key`.
    pub fn live_document(&self, key: &SecretBytes) -> Result<Option<String>> {
        let found = live(self.transaction, key)?;
        Ok(found.map(|document| document.text.expose().to_owned()))
    }
}

/// Keeps a text. It replaces an earlier text of its revision, which can differ in comments and
/// notation only. `live_at` rises even if two documents are made live in the same microsecond.
fn insert(
    transaction: &Transaction<'_>,
    revision: &str,
    sealed: &[u8],
    at: Timestamp,
) -> Result<()> {
    let last = transaction.int("SELECT max(live_at) FROM documents", &[])?.unwrap_or(0);
    let put =
        "INSERT INTO documents (revision, sealed, created_at, live_at) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (revision) DO UPDATE SET sealed = excluded.sealed, live_at = excluded.live_at";
    let live_at = at.as_microsecond().max(last + 1);
    transaction.execute(put, &params![revision, sealed, at, live_at]).map(drop)
}

fn list(
    transaction: &Transaction<'_>,
    limit: usize,
    after: Option<&str>,
) -> Result<Vec<DocumentRow>> {
    let before = match after {
        Some(_) => "WHERE live_at < (SELECT live_at FROM documents WHERE revision = ?2)",
        None => "",
    };
    let list = DocumentRow::select(&format!("{before} ORDER BY live_at DESC LIMIT ?1"));
    let params = params![limit, after];
    let params = if after.is_some() { &params[..] } else { &params[..1] };
    transaction.rows(&list, params, DocumentRow::of)
}
