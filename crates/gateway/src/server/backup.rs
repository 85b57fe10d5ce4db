//! Copies a data directory, even one in use, so that a gateway can start on the copy.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::BootError;
use rerouter_base::atomic_file::directory;
use rerouter_captures::archive::segment_folder::{FOLDER, file_name, segment_files};
use rerouter_store::{
    INSTANCE, StoreError, copy_accounts, copy_capture_index, drop_segments_of_copy,
};

#[derive(Debug, Default)]
pub struct BackedUp {
    pub segments: usize,
    /// Total size of all files in bytes.
    pub bytes: u64,
}

/// Copies the store in `data` into the directory `out`, which must be empty or not exist. Leaves
/// out the master key, and accounts that are in another database.
pub fn back_up(data: &Path, out: &Path, accounts: bool) -> Result<BackedUp, BootError> {
    let first = if accounts { "accounts.db" } else { "captures.db" };
    if !data.join(first).is_file() {
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
    let copied = copy_all(data, &draft, accounts)?;
    // The copy gets its final name only when it is complete.
    let named = std::fs::rename(&draft, out).and_then(|()| sync(directory(out)));
    named.map_err(|error| cannot(out, &error))?;
    Ok(copied)
}

fn copy_all(data: &Path, draft: &Path, accounts: bool) -> Result<BackedUp, BootError> {
    let segments = copy_segments(data, draft, accounts)?;
    // Accounts are copied after the captures, which refer to documents, keys and users.
    if accounts {
        copy_accounts(data, draft)?;
    }
    let all = || {
        let mut bytes = 0;
        for entry in std::fs::read_dir(draft)?.chain(std::fs::read_dir(draft.join(FOLDER))?) {
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

/// Copies the index of captures, then its segments. A copied segment holds at least what the copied
/// index knows of it; a segment that was deleted meanwhile is dropped from the copied index. If the
/// index is in another database, copies all segment files, and the name by which that database
/// knows the directory. Returns the number of copied segments.
fn copy_segments(data: &Path, draft: &Path, indexed: bool) -> Result<usize, BootError> {
    let (from, to) = (data.join(FOLDER), draft.join(FOLDER));
    DirBuilder::new().mode(0o700).create(&to).map_err(|error| cannot(&to, &error))?;
    let mut segments = copy_capture_index(data, draft)?;
    if !indexed {
        segments = segment_files(&from).map_err(|error| cannot(&from, &error))?;
        let (name, to) = (data.join(INSTANCE), draft.join(INSTANCE));
        std::fs::copy(&name, to).map_err(|error| cannot(&name, &error))?;
    }
    let mut gone = Vec::new();
    for number in &segments {
        let (from, to) = (from.join(file_name(*number)), to.join(file_name(*number)));
        match std::fs::copy(&from, &to) {
            Err(error) if error.kind() == ErrorKind::NotFound => gone.push(*number),
            Err(error) => return Err(cannot(&from, &error)),
            Ok(_) => {}
        }
    }
    if !gone.is_empty() && indexed {
        drop_segments_of_copy(draft, &gone)?;
    }
    Ok(segments.len() - gone.len())
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

/// The path of the copy while it is incomplete.
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
