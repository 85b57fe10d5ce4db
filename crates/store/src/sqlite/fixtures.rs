//! A reader beside the store, for the unit tests of all rooms.

use std::path::Path;

use rusqlite::Connection;

/// A reader of the accounts as they are now, until it is dropped: what is written stays in the log.
pub fn hold_accounts(dir: &Path) -> impl Sized {
    let reader = Connection::open(dir.join("accounts.db")).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let _rows: i64 =
        reader.query_row("SELECT count(*) FROM root_key", [], |row| row.get(0)).unwrap();
    reader
}
