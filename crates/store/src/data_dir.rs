//! The data directory and its lock.

use std::fs::{File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Result, StoreError};

/// The locked data directory. Among all processes, only one value for a directory exists at a time.
/// After an upgrade there are two, while the previous process finishes its requests.
pub struct DataDir {
    path: PathBuf,
    /// The lock file, and the directory itself if it can be locked. The locks belong to open files,
    /// so a process that receives these files holds the locks too.
    pub(super) locks: Vec<File>,
    predecessor: Predecessor,
}

/// The process that handed over a data directory, if there was one.
#[derive(Clone, Debug, Default)]
pub(super) struct Predecessor {
    /// The name of that process among the gateways that share the store, if they do.
    process: Option<String>,
    runs: Arc<AtomicBool>,
}

impl Predecessor {
    pub(super) fn new(process: Option<String>) -> Self {
        Predecessor { process, runs: Arc::new(AtomicBool::new(true)) }
    }

    /// Whether `process` is the predecessor. This stays true after its end, as its last renewal may
    /// be seen late.
    pub(super) fn is(&self, process: &str) -> bool {
        self.process.as_deref() == Some(process)
    }

    /// Whether the predecessor may still use the directory.
    pub(super) fn runs(&self) -> bool {
        self.runs.load(Ordering::Acquire)
    }

    pub(super) fn ended(&self) {
        self.runs.store(false, Ordering::Release);
    }
}

/// The file with the newest revision of `accounts.db` that was acknowledged.
const REVISION: &str = "accounts.revision";

/// The files that a start writes to.
const FILES: [&str; 8] = [
    "lock",
    REVISION,
    "accounts.db",
    "accounts.db-wal",
    "accounts.db-shm",
    "captures.db",
    "captures.db-wal",
    "captures.db-shm",
];

/// The revision that `accounts.db` in a directory must have; 0 if none was noted or can be read.
pub(super) fn noted_revision(dir: &Path) -> u64 {
    let noted = std::fs::read_to_string(dir.join(REVISION))
        .and_then(|text| text.trim().parse().map_err(std::io::Error::other));
    noted.unwrap_or_else(|error| {
        if error.kind() != std::io::ErrorKind::NotFound {
            log::error!("{REVISION} cannot be read, so lost changes are not noticed: {error}");
        }
        0
    })
}

/// Durably notes a revision that is about to be acknowledged.
pub(super) fn note_revision(dir: &Path, revision: u64) {
    let mut options = File::options();
    let opened = options.create(true).truncate(false).write(true).mode(0o600);
    let noted = opened.open(dir.join(REVISION)).and_then(|file| {
        file.write_all_at(format!("{revision:020}\n").as_bytes(), 0)?;
        file.sync_data()
    });
    if let Err(error) = noted {
        log::warn!("{REVISION} could not be written: {error}");
    }
}

/// Free bytes for this user on the file system of a directory; `None` if they cannot be read.
pub fn free_bytes(dir: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(dir).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

impl DataDir {
    /// Makes the directory, for this user only, and locks it; [`StoreError::Locked`] if it is
    /// locked.
    pub fn take(path: &Path) -> Result<DataDir> {
        let named = |error: std::io::Error| {
            StoreError::Unavailable(format!("data directory {}: {error}", path.display()))
        };
        make(path).map_err(named)?;
        let lock = |file: File| match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(named(error)),
        };
        // The directory is locked because a lock file can be deleted while it is in use. The file
        // is locked because some network file systems lock files only.
        let dir = match lock(File::open(path).map_err(named)?) {
            Err(StoreError::Locked(path)) => return Err(StoreError::Locked(path)),
            dir => dir.ok(),
        };
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("lock"))
            .map_err(named)?;
        let locks = [lock(file)?].into_iter().chain(dir).collect();
        Ok(DataDir { path: path.to_owned(), locks, predecessor: Predecessor::default() })
    }

    /// Whether a process has locked the directory; `None` if this user cannot tell. The check
    /// itself takes the lock for microseconds, so a start at that moment fails.
    pub fn is_locked(path: &Path) -> Option<bool> {
        let is_locked = |path: &Path| match File::open(path) {
            Ok(file) => Some(matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))),
            Err(error) => (error.kind() == std::io::ErrorKind::NotFound).then_some(false),
        };
        match is_locked(path) {
            Some(false) => is_locked(&path.join("lock")),
            known => known,
        }
    }

    /// The directory of a process that hands over its locks and still uses the directory. `process`
    /// is the name of that process among the gateways that share the store, if they do.
    pub fn handed_over(path: &Path, locks: Vec<File>, process: Option<String>) -> DataDir {
        DataDir { path: path.to_owned(), locks, predecessor: Predecessor::new(process) }
    }

    pub(super) fn predecessor(&self) -> &Predecessor {
        &self.predecessor
    }

    /// Checks that the directory can be made, and that it and its files can be written to; an error
    /// says why not. It leaves no file behind and can run beside a process that makes or uses the
    /// directory.
    pub fn try_out(path: &Path) -> Result<(), String> {
        let why = |path: &Path, error: std::io::Error| {
            format!("cannot write to {}: {error}", path.display())
        };
        // A missing directory is not made: another process may be making it. Whoever can write to
        // the nearest directory above can make it.
        let nearest = path.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."));
        let draft = nearest.join(format!("check-{}", std::process::id()));
        File::create_new(&draft).map_err(|error| why(path, error))?;
        // The file may be gone.
        let _none = std::fs::remove_file(&draft);
        for file in FILES.map(|name| path.join(name)) {
            match File::options().append(true).open(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(why(&file, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn make(path: &Path) -> std::io::Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => std::io::ErrorKind::NotADirectory.into(),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_that_cannot_be_read_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(noted_revision(dir.path()), 0);
        note_revision(dir.path(), 7);
        assert_eq!(noted_revision(dir.path()), 7);
        std::fs::write(dir.path().join(REVISION), "seven").unwrap();
        assert_eq!(noted_revision(dir.path()), 0);
    }

    #[test]
    fn it_is_known_whether_a_process_holds_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        assert_eq!(DataDir::is_locked(&path), Some(false));
        let held = DataDir::take(&path).unwrap();
        assert_eq!(DataDir::is_locked(&path), Some(true));
        drop(held);
        assert_eq!(DataDir::is_locked(&path), Some(false));
        assert_eq!(DataDir::is_locked(&path.join("lock/below")), None);
    }
}
