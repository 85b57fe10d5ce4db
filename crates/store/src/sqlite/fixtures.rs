//! A second reader of the database, for the unit tests of all crates.

use std::path::Path;

use rusqlite::Connection;

/// Reads the accounts as they are now, until it is dropped. Meanwhile, writes stay in the log.
pub fn hold_accounts(dir: &Path) -> impl Sized {
    let reader = Connection::open(dir.join("accounts.db")).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let _rows: i64 =
        reader.query_row("SELECT count(*) FROM root_key", [], |row| row.get(0)).unwrap();
    reader
}
