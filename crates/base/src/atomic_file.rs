//! Replaces a file in one step. Readers find either the old content or the new one, even after a
//! crash.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Turns the error for a file that does not exist into a success.
pub fn allow_absent(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// New content of a file, which is kept in a draft beside it until [`Replacement::commit`].
/// Dropping a replacement removes its draft.
#[derive(Debug)]
pub struct Replacement {
    file: File,
    draft: PathBuf,
    destination: PathBuf,
    is_draft: bool,
}

impl Replacement {
    /// Begins the replacement of `destination`, which need not exist. Only its owner may read the
    /// draft.
    pub fn begin(destination: &Path) -> io::Result<Replacement> {
        let name = destination.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let mut draft_name = OsString::from(name);
        draft_name.push(format!(".{}.part", std::process::id()));
        let draft = destination.with_file_name(draft_name);
        // A killed process with this id may have left a draft.
        allow_absent(std::fs::remove_file(&draft))?;
        let file = File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
        // The umask may have removed the owner's rights.
        file.set_permissions(PermissionsExt::from_mode(0o600))?;
        Ok(Replacement { file, draft, destination: destination.to_owned(), is_draft: true })
    }

    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Syncs the content and renames the draft to the target.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.draft, &self.destination)?;
        self.is_draft = false;
        File::open(directory(&self.destination))?.sync_all()
    }

    /// Leaves the draft where it is, and returns its path.
    pub fn keep_draft(mut self) -> PathBuf {
        self.is_draft = false;
        self.draft.clone()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if self.is_draft {
            // Nothing can be done if the draft cannot be removed.
            let _ = std::fs::remove_file(&self.draft);
        }
    }
}

/// Writes a file that only its owner may read.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut replacement = Replacement::begin(path)?;
    replacement.file().write_all(content)?;
    replacement.commit()
}

pub fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_old_content_until_the_new_one_is_committed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let read = || std::fs::read_to_string(&path).ok();
        let count = || std::fs::read_dir(dir.path()).unwrap().count();
        for before in [None, Some("before")] {
            let _none = std::fs::remove_file(&path);
            if let Some(before) = before {
                std::fs::write(&path, before).unwrap();
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
            }
            let files = count();
            let mut dropped = Replacement::begin(&path).unwrap();
            dropped.file().write_all(b"half").unwrap();
            assert_eq!((read().as_deref(), count()), (before, files + 1));
            drop(dropped);
            assert_eq!((read().as_deref(), count()), (before, files), "the draft is removed");
            write(&path, b"after").unwrap();
            assert_eq!((read().as_deref(), count()), (Some("after"), 1));
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let draft = Replacement::begin(&path).unwrap().keep_draft();
        assert!(draft.exists());
        write(&path, b"last").unwrap();
        assert!(!draft.exists(), "a draft that was left does not stop the next write");
        assert!(write(Path::new("/"), b"").is_err());
    }
}
