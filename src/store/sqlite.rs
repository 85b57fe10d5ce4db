//! The embedded store: `accounts.db`, where an acknowledged write survives anything, and `captures.db`, which may
//! be written in bursts. Each has its own writer thread, so a burst of captures never stalls a key.

use std::fs::{File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::rows::Committed;
use super::worker::{Durability, Worker, open, open_to_read};
use super::{Faults, Follower, StoreError, accounts, captures, schema};
use crate::id::RequestId;

/// The three threads. The lock is given back last, when they have ended (fields drop in order).
pub(super) struct Sqlite {
    pub(super) accounts: Worker,
    pub(super) captures: Worker,
    pub(super) reader: Worker,
    follower: Arc<OnceLock<Follower>>,
    /// Captures were deleted whose bytes are still in the write-ahead log.
    log_to_empty: Arc<AtomicBool>,
    _dir: DataDir,
}

impl Sqlite {
    /// Opens or makes the files; blocking.
    pub(super) fn open(dir: DataDir, master_fingerprint: &[u8]) -> Result<Self, StoreError> {
        let mut accounts = open(&dir.path.join("accounts.db"), Durability::Full)?;
        schema::migrate(&mut accounts, schema::ACCOUNTS)?;
        accounts::claim(&accounts, master_fingerprint)?;
        let path = dir.path.join("captures.db");
        let mut captures = open(&path, Durability::Process)?;
        schema::migrate(&mut captures, schema::CAPTURES)?;
        Ok(Sqlite {
            reader: Worker::start("store-reader", open_to_read(&path)?)?,
            accounts: Worker::start("store-accounts", accounts)?,
            captures: Worker::start("store-captures", captures)?,
            follower: Arc::new(OnceLock::new()),
            log_to_empty: Arc::default(),
            _dir: dir,
        })
    }

    /// Calls `follower` with every mutation from now on, in order; the first one stays.
    pub(super) fn follow(&self, follower: Follower) -> bool {
        self.follower.set(follower).is_ok()
    }

    /// One mutation of accounts: durable, then followed, then answered.
    pub(super) async fn mutate<F>(&self, faults: &Faults, write: F) -> Result<Committed, StoreError>
    where
        F: FnOnce(&rusqlite::Transaction<'_>) -> Result<Vec<super::Change>, StoreError> + Send + 'static,
    {
        let (faults, follower) = (faults.clone(), Arc::clone(&self.follower));
        let work = move |connection: &mut rusqlite::Connection| {
            let committed = accounts::mutate(connection, &faults, write)?;
            if let Some(follower) = follower.get()
                && !committed.changes.is_empty()
            {
                follower(&committed);
            }
            Ok(committed)
        };
        self.accounts.run(work).await
    }

    /// Appends on the capture writer's thread.
    pub(super) async fn append(&self, faults: &Faults, rows: Vec<super::CaptureRow>) -> Result<(), StoreError> {
        let faults = faults.clone();
        let work = move |connection: &mut rusqlite::Connection| {
            faults.before_append()?;
            captures::append(connection, &rows)
        };
        self.captures.run(work).await
    }

    /// Deletes some of the oldest captures beyond an age and a size.
    pub(super) async fn trim(&self, faults: &Faults, before_us: i64, bytes: u64, most: usize) -> Result<usize, StoreError> {
        let (faults, log_to_empty) = (faults.clone(), Arc::clone(&self.log_to_empty));
        let work = move |connection: &mut rusqlite::Connection| {
            faults.before_append()?;
            if log_to_empty.load(Ordering::Acquire) && captures::empty_log(connection)? {
                log_to_empty.store(false, Ordering::Release);
            }
            captures::trim(connection, before_us, bytes, most)
        };
        self.captures.run(work).await
    }

    /// Deletes one capture, with its replays if so asked, on the writer's thread: after what was appended before.
    pub(super) async fn delete(&self, faults: &Faults, id: RequestId, replays: bool) -> Result<Vec<RequestId>, StoreError> {
        let (faults, log_to_empty) = (faults.clone(), Arc::clone(&self.log_to_empty));
        let work = move |connection: &mut rusqlite::Connection| {
            faults.before_append()?;
            log_to_empty.store(true, Ordering::Release);
            captures::delete(connection, &id, replays)
        };
        self.captures.run(work).await
    }
}

/// The data directory: whoever has this value has it alone, in this process and among all.
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Makes the directory, for this user only, and takes it; [`StoreError::Locked`] when another has it.
    pub fn take(path: &Path) -> Result<DataDir, StoreError> {
        let named = |error: std::io::Error| StoreError::Unavailable(format!("data directory {}: {error}", path.display()));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(named)?;
        let file = File::options().create(true).truncate(false).write(true).open(path.join("lock")).map_err(named)?;
        match file.try_lock() {
            Ok(()) => Ok(DataDir { path: path.to_owned(), _lock: file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(named(error)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
