//! The texts of routing documents. A text may hold credentials, so it is sealed under a key derived
//! from the root key.

use super::changes::LiveDocument;
use super::columns::Columns;
use super::sql::{Row, Transaction};
use super::{Result, StoreError};
use rerouter_base::id::Random;
use rerouter_base::secret::{Secret, SecretBytes, open, seal};

/// The live document: the one that was made live last.
pub(super) const LIVE: &str =
    "SELECT revision, sealed FROM documents ORDER BY live_at DESC LIMIT 1";

pub(super) fn live(
    transaction: &Transaction<'_>,
    key: &SecretBytes,
) -> Result<Option<LiveDocument>> {
    let Some(row) = transaction.row(LIVE, &[], sealed_row)? else { return Ok(None) };
    let text = Secret::new(opened(key, &row)?);
    Ok(Some(LiveDocument { revision: row.0, text }))
}

/// A revision and its sealed text.
pub(super) fn sealed_row(row: &Row<'_>) -> Result<(String, Vec<u8>)> {
    Columns::new(row).two()
}

/// The context of a seal: a sealed text can be opened for its revision only.
fn context(revision: &str) -> Vec<u8> {
    format!("document {revision}").into_bytes()
}

pub(super) fn sealed(key: &SecretBytes, revision: &str, text: &str) -> Result<Vec<u8>> {
    let sealed = seal(key, &context(revision), text.as_bytes(), &Random::System);
    sealed
        .ok_or_else(|| StoreError::unavailable(format!("document {revision} could not be sealed")))
}

pub(super) fn opened(key: &SecretBytes, (revision, sealed): &(String, Vec<u8>)) -> Result<String> {
    let text = open(key, &context(revision), sealed).and_then(|text| String::from_utf8(text).ok());
    text.ok_or_else(|| {
        StoreError::Damaged(format!("the text of document {revision} does not open"))
    })
}
