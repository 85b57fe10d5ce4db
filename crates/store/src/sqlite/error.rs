//! What errors of SQLite mean for the store.

use rusqlite::ErrorCode::{DatabaseCorrupt, DiskFull, NotADatabase};

use super::super::StoreError;

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(DatabaseCorrupt | NotADatabase) => StoreError::Damaged(error.to_string()),
            Some(DiskFull) => StoreError::Full(error.to_string()),
            _ => StoreError::unavailable(error),
        }
    }
}
