//! The file of the capture index, `captures.db`: one thread writes, another one reads beside it. A
//! damaged file is set aside with its segments.

use std::path::Path;

use rusqlite::Connection;

use super::super::StoreError;
use super::super::worker::Worker;
use super::connection::{Durability, checkpoint, open, open_to_read};
use super::schema;
use crate::bounds;

/// The threads of the index.
pub(in crate::store) struct CaptureDatabase {
    pub(super) writer: Worker<Connection>,
    pub(super) reader: Worker<Connection>,
}

impl CaptureDatabase {
    /// Opens or makes the file in `dir`. One that another process writes to as well is believed:
    /// its log is never empty, and it must not be moved. Blocking.
    pub(in crate::store) fn open(dir: &Path, in_use: bool) -> Result<Self, StoreError> {
        let path = dir.join("captures.db");
        let index = match in_use {
            true => {
                let mut index = open(&path, Durability::Process)?;
                schema::prepare(&mut index, &schema::CAPTURES)?;
                index
            }
            false => open_index(&path)?,
        };
        Ok(CaptureDatabase {
            reader: Worker::start("store-reader", open_to_read(&path)?)?,
            writer: Worker::start("store-captures", index)?,
        })
    }

    /// Moves the write-ahead log into the database.
    pub(in crate::store) async fn checkpoint(&self) -> Result<(), StoreError> {
        self.writer.run(checkpoint).await
    }
}

/// Opens or creates the index. A damaged one is moved to `captures-damaged-<n>/`, and with it the
/// segments: only this index holds the keys of their captures. Captures begin anew then.
fn open_index(path: &Path) -> Result<Connection, StoreError> {
    match open_checked(path) {
        Err(StoreError::Damaged(why)) => {
            set_aside(path, &why)?;
            open_checked(path)
        }
        opened => opened,
    }
}

fn open_checked(path: &Path) -> Result<Connection, StoreError> {
    let mut index = open(path, Durability::Process)?;
    let moved = index
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .map_err(StoreError::from);
    if let Err(StoreError::Damaged(why)) = moved {
        return Err(StoreError::Damaged(why));
    }
    let size: u64 = index.query_row(
        "SELECT c.page_count * s.page_size FROM pragma_page_count c, pragma_page_size s",
        [],
        |row| Ok(u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0)),
    )?;
    let length = std::fs::metadata(path).map_err(StoreError::unavailable)?.len();
    // On a full disk the write-ahead log may still hold the rest.
    if length < size && moved.is_ok() {
        return Err(StoreError::Damaged("it is cut off".into()));
    }
    if length <= bounds::INDEX_CHECK {
        let result: String = index.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if result != "ok" {
            return Err(StoreError::Damaged(result));
        }
    }
    schema::prepare(&mut index, &schema::CAPTURES)?;
    Ok(index)
}

fn set_aside(path: &Path, why: &str) -> Result<(), StoreError> {
    let aside = (1..)
        .map(|number: u32| path.with_file_name(format!("captures-damaged-{number}")))
        .find(|name| !name.exists())
        .ok_or_else(|| StoreError::Damaged("the index cannot be set aside".into()))?;
    log::error!(
        "the index of captures is damaged ({why}): it is moved to {} with its segments, and \
         captures begin anew; restore both from a backup, or delete them",
        aside.display()
    );
    std::fs::create_dir(&aside)?;
    // The index last: a start that breaks off here finds it damaged once more.
    for name in ["captures", "captures.db-wal", "captures.db-shm", "captures.db"] {
        match std::fs::rename(path.with_file_name(name), aside.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}
