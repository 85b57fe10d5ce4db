//! The row of a routing document.

use jiff::Timestamp;

use crate::StoreError;
use crate::columns::Columns;
use crate::sql::Row;

/// A kept routing document, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentRow {
    /// First 12 hex digits of its hash.
    pub revision: String,
    /// When it was first kept.
    pub created_at: Timestamp,
    /// When it was last made live.
    pub live_at: Timestamp,
}

pub(crate) fn document(row: &Row<'_>) -> Result<DocumentRow, StoreError> {
    let mut columns = Columns::of(row);
    Ok(DocumentRow {
        revision: columns.get()?,
        created_at: columns.get()?,
        live_at: columns.get()?,
    })
}
