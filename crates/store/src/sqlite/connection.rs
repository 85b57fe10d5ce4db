//! Connections to the files of SQLite, and their write-ahead logs.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Row};

use super::super::{Result, StoreError};

/// What an acknowledged write survives.
#[derive(Clone, Copy)]
pub(super) enum Durability {
    /// A loss of power: each commit is synced.
    Full,
    /// The end of the process. A loss of power may lose the last commits.
    Process,
}

/// How long a connection waits for the transaction of another.
pub(super) const BUSY: Duration = Duration::from_secs(5);

/// Moves the write-ahead log into the database, durably, and empties it. If a reader is in the way,
/// it moves as much as it can, leaves the log and returns `false`: it does not let writers wait for
/// a reader.
pub(super) fn checkpoint(connection: &mut Connection) -> Result<bool> {
    connection.busy_timeout(Duration::ZERO)?;
    let busy: rusqlite::Result<bool> =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
    connection.busy_timeout(BUSY)?;
    Ok(!busy?)
}

/// Moves all commits of this connection into the database, and discards the rest of the write-ahead
/// log. It waits for readers.
pub(super) fn discard_log(connection: &Connection) -> Result<()> {
    let busy = |row: &Row<'_>| row.get::<_, bool>(0);
    match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], busy)? {
        true => Err(StoreError::unavailable("a reader is in the way")),
        false => Ok(()),
    }
}

/// Opens or creates a database for writing.
pub(super) fn open(path: &Path, durability: Durability) -> Result<Connection> {
    // SQLite gives its journals the mode of the database.
    File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(StoreError::unavailable)?;
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(
        None,
        "synchronous",
        if matches!(durability, Durability::Full) { "FULL" } else { "NORMAL" },
    )?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    // Deleted values are overwritten: salts of captures, wrappings of the root key.
    connection.pragma_update(None, "secure_delete", true)?;
    without_files(&connection)?;
    Ok(connection)
}

/// Keeps sorts and statement journals in memory, as no directory for temporary files may be
/// writable.
fn without_files(connection: &Connection) -> Result<()> {
    Ok(connection.pragma_update(None, "temp_store", "MEMORY")?)
}

pub(super) fn open_to_read(path: &Path) -> Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    without_files(&connection)?;
    Ok(connection)
}

/// Opens a database to read it, and creates no journal: a journal of the caller's user could not be
/// written by the gateway. `None` if there is no database, or it cannot be read without a journal.
pub(super) fn open_to_look(path: &Path) -> Result<Option<Connection>> {
    let beside = |extension: &str| path.with_extension(extension).exists();
    match (path.exists(), beside("db-wal"), beside("db-shm")) {
        // A process uses it, or one was killed.
        (true, true, true) => open_to_read(path).map(Some),
        // No process uses it. One that begins to write meanwhile writes to a journal first.
        (true, false, _) => {
            let mut uri = "file:".to_owned();
            for byte in path.as_os_str().as_encoded_bytes() {
                match byte {
                    b'/' | b'-' | b'_' | b'.' => uri.push(char::from(*byte)),
                    _ if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
                    _ => uri.push_str(&format!("%{byte:02X}")),
                }
            }
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
                | OpenFlags::SQLITE_OPEN_URI
                | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            Ok(Some(Connection::open_with_flags(uri + "?immutable=1", flags)?))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_tells_that_a_reader_was_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let mut writer = open(&path, Durability::Process).unwrap();
        writer.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").unwrap();
        let reader = open_to_read(&path).unwrap();
        for connection in [&writer, &reader] {
            let store = |row: &Row<'_>| row.get::<_, i64>(0);
            let store = connection.query_row("PRAGMA temp_store", [], store).unwrap();
            assert_eq!(store, 2, "temporary files are in memory");
        }
        reader.execute_batch("BEGIN; SELECT * FROM t").unwrap();
        writer.execute_batch("INSERT INTO t VALUES (2)").unwrap();
        assert!(!checkpoint(&mut writer).unwrap());
        reader.execute_batch("COMMIT").unwrap();
        assert!(checkpoint(&mut writer).unwrap());
    }
}
