//! Copies of databases that another process may be writing to, each a consistent snapshot.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::super::{Result, StoreError};
use super::capture_file::{drop_segments, segment_numbers};
use super::connection::open_to_read;

/// Maximum number of tries of `rerouter backup` on a busy database, or on a list of segments that
/// changes.
const BACKUP_TRIES: usize = 50;
/// Wait between these tries.
const BACKUP_WAIT: Duration = Duration::from_millis(100);

const ACCOUNTS: &str = "accounts.db";
const CAPTURES: &str = "captures.db";

/// Copies the database of accounts into another directory, which must not have one.
pub fn copy_accounts(from: &Path, to: &Path) -> Result<()> {
    let to = to.join(ACCOUNTS);
    close_checked(copy(&from.join(ACCOUNTS), &to)?, &to)
}

/// Checks a copy and closes it; [`StoreError::Damaged`] if it is damaged.
pub(super) fn close_checked(copy: Connection, path: &Path) -> Result<()> {
    let check: String = copy.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if check == "ok" { close(copy, path) } else { Err(StoreError::Damaged(check)) }
}

/// Copies the index of captures; returns the numbers of its segments.
pub fn copy_capture_index(from: &Path, to: &Path) -> Result<Vec<i64>> {
    let path = to.join(CAPTURES);
    let copy = copy(&from.join(CAPTURES), &path)?;
    let segments = segment_numbers(&copy)?;
    close(copy, &path)?;
    Ok(segments)
}

/// Deletes segments and their captures from the copy in `to`.
pub fn drop_segments_of_copy(to: &Path, gone: &[i64]) -> Result<()> {
    let path = to.join(CAPTURES);
    let mut copy = Connection::open(&path)?;
    drop_segments(&mut copy, gone)?;
    close(copy, &path)
}

/// Copies in one step, within one read transaction: with more steps, each write in between would
/// restart the copy.
pub(super) fn copy(from: &Path, to: &Path) -> Result<Connection> {
    let source = open_to_read(from)?;
    File::options().create_new(true).write(true).mode(0o600).open(to)?;
    let mut copy = Connection::open(to)?;
    let backup = Backup::new(&source, &mut copy)?;
    for _ in 0..BACKUP_TRIES {
        match backup.step(-1)? {
            StepResult::Done => {
                drop(backup);
                return Ok(copy);
            }
            // A process is recovering the log.
            _ => std::thread::park_timeout(BACKUP_WAIT),
        }
    }
    Err(StoreError::unavailable(format!("{} is busy", from.display())))
}

/// Closes a copy as one durable file, without a journal.
fn close(copy: Connection, path: &Path) -> Result<()> {
    copy.pragma_update(None, "journal_mode", "DELETE")?;
    copy.close().map_err(|(_, error)| error)?;
    Ok(File::open(path)?.sync_all()?)
}
