//! SQLite, in two files of the data directory: `accounts.db`, where an acknowledged write survives
//! a loss of power, and `captures.db`, the index of captures. Each has a separate writer thread, so
//! that a burst of captures does not delay a write of keys. Only this folder uses `rusqlite`.

mod accounts;
mod backup;
mod capture_file;
mod capture_insert;
mod connection;
mod error;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
pub(super) mod fixtures;
mod transaction;

pub(super) use accounts::{SqliteBackend, look, open_current};
pub use backup::{copy_accounts, copy_capture_index, drop_segments_of_copy};
pub(super) use capture_file::CaptureDatabase;
pub(super) use transaction::{SqliteRow, SqliteTransaction};

#[cfg(test)]
pub(super) mod tests;
