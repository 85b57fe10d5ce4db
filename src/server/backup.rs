//! A copy of a data directory that a gateway can be started on, taken while another one runs on it or while none does.

use std::collections::{HashMap, HashSet};
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::BootError;
use crate::bounds;
use crate::capture::segment::format;
use crate::store::{SegmentRow, StoreError, copy_accounts, copy_captures};

/// Segments of captures, in a data directory.
const CAPTURES: &str = "captures";

/// What was copied.
#[derive(Debug, Default)]
pub struct BackedUp {
    /// Files of captures.
    pub segments: usize,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Copies the store in `data` into the directory `out`, which must not be there yet, or be empty. The master key is not copied.
pub fn back_up(data: &Path, out: &Path) -> Result<BackedUp, BootError> {
    if !data.join("accounts.db").is_file() {
        return Err(BootError(format!("there is no store in {}", data.display())));
    }
    if !is_free(out).map_err(|error| cannot(out, &error))? {
        return Err(BootError(format!(
            "{} is there already: name a directory that is not",
            out.display()
        )));
    }
    let draft = draft(out)?;
    let made = DirBuilder::new().mode(0o700).recursive(true).create(beside(&draft));
    made.and_then(|()| DirBuilder::new().mode(0o700).create(&draft)).map_err(
        |error| match error.kind() {
            ErrorKind::AlreadyExists => BootError(format!(
                "{} was left by a backup that broke off: take it away",
                draft.display()
            )),
            _ => cannot(&draft, &error),
        },
    )?;
    let copied = copy_all(data, &draft)?;
    // Only what is whole has its name.
    let named = std::fs::rename(&draft, out).and_then(|()| sync(beside(out)));
    named.map_err(|error| cannot(out, &error))?;
    Ok(copied)
}

fn copy_all(data: &Path, draft: &Path) -> Result<BackedUp, BootError> {
    let of_captures = copy_segments(data, draft)?;
    // Last, as captures name documents, keys and users that must be known.
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
    Ok(BackedUp { segments: of_captures, bytes })
}

/// Copies the index of captures and the segments that it speaks of. A segment that is not there has left since the index was
/// copied, and a newer one does not speak of it; or it is lost, and stays so.
fn copy_segments(data: &Path, draft: &Path) -> Result<usize, BootError> {
    let (from, to) = (data.join(CAPTURES), draft.join(CAPTURES));
    DirBuilder::new().mode(0o700).create(&to).map_err(|error| cannot(&to, &error))?;
    let (mut copied, mut absent): (HashMap<i64, SegmentRow>, HashSet<i64>) = Default::default();
    for _ in 0..bounds::BACKUP_TRIES {
        let rows = copy_captures(data, draft)?;
        let mut left = false;
        for row in &rows {
            // One that was still written to is longer by now.
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
    Err(BootError("segments of captures leave faster than they can be copied".into()))
}

/// Takes away copies of segments that the index speaks of no more.
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

/// Whether a directory can have this name: nothing has it, or an empty directory.
fn is_free(out: &Path) -> io::Result<bool> {
    match std::fs::read_dir(out) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(false),
        Err(error) => Err(error),
    }
}

/// Where the copy is until it is whole.
fn draft(out: &Path) -> Result<PathBuf, BootError> {
    let name = out
        .file_name()
        .ok_or_else(|| BootError(format!("{} is not the name of a directory", out.display())))?;
    let mut name = name.to_owned();
    name.push(".partial");
    Ok(out.with_file_name(name))
}

/// The directory that a path is in.
fn beside(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
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
