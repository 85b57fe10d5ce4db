//! A copy of a data directory that a gateway can start on, also of one that is in use.

use std::collections::{HashMap, HashSet};
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::BootError;
use crate::atomic_file::directory;
use crate::bounds;
use crate::capture::segment::format;
use crate::store::{SegmentRow, StoreError, copy_accounts, copy_captures};

const CAPTURES: &str = "captures";

/// What was copied.
#[derive(Debug, Default)]
pub struct BackedUp {
    /// Segments of captures.
    pub segments: usize,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Copies the store in `data` into the directory `out`, which must not exist, or be empty. The
/// master key is not copied.
pub fn back_up(data: &Path, out: &Path) -> Result<BackedUp, BootError> {
    if !data.join("accounts.db").is_file() {
        return Err(BootError(format!("there is no store in {}", data.display())));
    }
    if !is_free(out).map_err(|error| cannot(out, &error))? {
        return Err(BootError(format!("{} exists already: name a new directory", out.display())));
    }
    let draft = draft(out)?;
    let made = DirBuilder::new().mode(0o700).recursive(true).create(directory(&draft));
    made.and_then(|()| DirBuilder::new().mode(0o700).create(&draft)).map_err(
        |error| match error.kind() {
            ErrorKind::AlreadyExists => BootError(format!(
                "{} was left by an interrupted backup: delete it",
                draft.display()
            )),
            _ => cannot(&draft, &error),
        },
    )?;
    let copied = copy_all(data, &draft)?;
    // Only a complete copy gets its name.
    let named = std::fs::rename(&draft, out).and_then(|()| sync(directory(out)));
    named.map_err(|error| cannot(out, &error))?;
    Ok(copied)
}

fn copy_all(data: &Path, draft: &Path) -> Result<BackedUp, BootError> {
    let segments = copy_segments(data, draft)?;
    // After the captures, which refer to documents, keys and users.
    copy_accounts(data, draft)?;
    let all = || {
        let mut bytes = 0;
        for entry in std::fs::read_dir(draft)?.chain(std::fs::read_dir(draft.join(CAPTURES))?) {
            let path = entry?.path();
            sync(&path)?;
            bytes += std::fs::metadata(&path)?.len();
        }
        sync(draft)?;
        Ok(bytes)
    };
    let bytes = all().map_err(|error| cannot(draft, &error))?;
    Ok(BackedUp { segments, bytes })
}

/// Copies the index of captures and its segments. If a segment is missing, it was deleted since the
/// index was copied, and a newer index does not have it; or it is lost.
fn copy_segments(data: &Path, draft: &Path) -> Result<usize, BootError> {
    let (from, to) = (data.join(CAPTURES), draft.join(CAPTURES));
    DirBuilder::new().mode(0o700).create(&to).map_err(|error| cannot(&to, &error))?;
    let (mut copied, mut absent): (HashMap<i64, SegmentRow>, HashSet<i64>) = Default::default();
    for _ in 0..bounds::BACKUP_TRIES {
        let rows = copy_captures(data, draft)?;
        let mut left = false;
        for row in &rows {
            // A segment that was still being written is longer by now.
            if absent.contains(&row.number) || copied.get(&row.number) == Some(row) {
                continue;
            }
            match std::fs::copy(format::path(&from, row.number), format::path(&to, row.number)) {
                Ok(_) => _ = copied.insert(row.number, row.clone()),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    left |= absent.insert(row.number)
                }
                Err(error) => return Err(cannot(&format::path(&to, row.number), &error)),
            }
        }
        if !left {
            drop_others(&to, &rows, &copied).map_err(|error| cannot(&to, &error))?;
            return Ok(rows.len());
        }
    }
    Err(BootError("segments of captures are deleted faster than they can be copied".into()))
}

/// Deletes copies of segments that the index no longer has.
fn drop_others(
    to: &Path,
    rows: &[SegmentRow],
    copied: &HashMap<i64, SegmentRow>,
) -> io::Result<()> {
    for number in copied.keys().filter(|number| !rows.iter().any(|row| row.number == **number)) {
        std::fs::remove_file(format::path(to, *number))?;
    }
    Ok(())
}

/// Whether there is nothing at this path, or an empty directory.
fn is_free(out: &Path) -> io::Result<bool> {
    match std::fs::read_dir(out) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(false),
        Err(error) => Err(error),
    }
}

/// The path of the copy until it is complete.
fn draft(out: &Path) -> Result<PathBuf, BootError> {
    let name = out
        .file_name()
        .ok_or_else(|| BootError(format!("{} is not a path of a directory", out.display())))?;
    let mut name = name.to_owned();
    name.push(".partial");
    Ok(out.with_file_name(name))
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn cannot(path: &Path, error: &io::Error) -> BootError {
    match StoreError::from(io::Error::from(error.kind())) {
        StoreError::Full(_) => {
            BootError(format!("cannot write {}: the disk is full", path.display()))
        }
        _ => BootError(format!("cannot copy {}: {error}", path.display())),
    }
}
