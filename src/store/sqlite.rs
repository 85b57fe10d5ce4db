//! The embedded store: `accounts.db`, where an acknowledged write survives anything, and
//! `captures.db`, the index of captures, which may be written in bursts. Each has its own writer
//! thread, so a burst of captures never stalls a key.

use std::fs::{File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::capture_file::open_index;
use super::root_key::{self, Opening};
use super::rows::Committed;
use super::worker::{Durability, Worker, checkpoint, open, open_to_read};
use super::{Faults, Follower, Store, StoreError, accounts, documents, schema};
use crate::secret::SecretBytes;

/// The four threads. The lock is given back last, when they have ended (fields drop in order).
pub(super) struct Sqlite {
    pub(super) accounts: Worker,
    pub(super) accounts_reader: Worker,
    pub(super) captures: Worker,
    pub(super) reader: Worker,
    follower: Arc<OnceLock<Follower>>,
    dir: DataDir,
}

impl Sqlite {
    /// Opens or makes the files, if `unlock` opens the root key; blocking.
    pub(super) fn open<T, E: From<StoreError>>(
        dir: DataDir,
        unlock: impl FnOnce(&Opening<'_>) -> Result<(SecretBytes, T), E>,
    ) -> Result<(Self, SecretBytes, T), E> {
        let mut accounts = open(&dir.path.join("accounts.db"), Durability::Full)?;
        schema::migrate(&mut accounts, schema::ACCOUNTS)?;
        let (key, unlocked) = root_key::unlock(&mut accounts, unlock)?;
        documents::seal_clear(&mut accounts, &key)?;
        Ok((Sqlite::start(dir, accounts)?, key, unlocked))
    }

    fn start(dir: DataDir, accounts: rusqlite::Connection) -> Result<Self, StoreError> {
        let accounts_path = dir.path.join("accounts.db");
        let path = dir.path.join("captures.db");
        let captures = open_index(&path)?;
        Ok(Sqlite {
            reader: Worker::start("store-reader", open_to_read(&path)?)?,
            accounts_reader: Worker::start("store-audit", open_to_read(&accounts_path)?)?,
            accounts: Worker::start("store-accounts", accounts)?,
            captures: Worker::start("store-captures", captures)?,
            follower: Arc::new(OnceLock::new()),
            dir,
        })
    }

    /// Calls `follower` with every mutation from now on, in order; the first one stays.
    pub(super) fn follow(&self, follower: Follower) -> bool {
        self.follower.set(follower).is_ok()
    }

    /// One mutation of accounts by a handle of the store, with the handle's audit row: durable,
    /// then followed by the tables in memory, then answered. A panic before the commit ends this
    /// mutation alone. A panic after it would leave tables that may still accept an ended key, so
    /// it ends the process: the next start reads the tables whole.
    pub(super) async fn mutate<F>(&self, by: &Store, write: F) -> Result<Committed, StoreError>
    where
        F: FnOnce(&rusqlite::Transaction<'_>) -> Result<Vec<super::Change>, StoreError>
            + Send
            + 'static,
    {
        let (faults, event, follower) =
            (by.faults.clone(), by.event.clone(), Arc::clone(&self.follower));
        let work = move |connection: &mut rusqlite::Connection| {
            let committed = accounts::mutate(connection, &faults, event.as_deref(), write)?;
            if let Some(follower) = follower.get()
                && !committed.changes.is_empty()
                && catch_unwind(AssertUnwindSafe(|| follower(&committed))).is_err()
            {
                log::error!(
                    "a table in memory could not follow a durable change: the process aborts"
                );
                std::process::abort();
            }
            Ok(committed)
        };
        self.accounts.run(work).await
    }

    /// Does `work` on the capture writer's thread, after what was sent there before.
    pub(super) async fn write_captures<T, F>(
        &self,
        faults: &Faults,
        work: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut rusqlite::Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let faults = faults.clone();
        let work = move |connection: &mut rusqlite::Connection| {
            faults.before_append()?;
            work(connection)
        };
        self.captures.run(work).await
    }

    /// Moves what is in the write-ahead logs into the databases.
    pub(super) async fn checkpoint(&self) -> Result<(), StoreError> {
        let (accounts, captures) =
            tokio::join!(self.accounts.run(checkpoint), self.captures.run(checkpoint));
        accounts.and(captures)
    }

    /// Where the files are.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// The data directory: whoever has this value has it alone, in this process and among all.
pub struct DataDir {
    path: PathBuf,
    _locks: (Option<File>, File),
}

/// The files of the directory that a start writes to.
const FILES: [&str; 7] = [
    "lock",
    "accounts.db",
    "accounts.db-wal",
    "accounts.db-shm",
    "captures.db",
    "captures.db-wal",
    "captures.db-shm",
];

impl DataDir {
    /// Makes the directory, for this user only, and takes it; [`StoreError::Locked`] when another
    /// has it.
    pub fn take(path: &Path) -> Result<DataDir, StoreError> {
        let named = |error: std::io::Error| {
            StoreError::Unavailable(format!("data directory {}: {error}", path.display()))
        };
        make(path).map_err(named)?;
        let lock = |file: File| match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(named(error)),
        };
        // The directory itself is locked, as nobody takes that away while its files are in use; and
        // the file, as earlier builds look at that alone, and some network file systems lock files
        // only.
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
        Ok(DataDir { path: path.to_owned(), _locks: (dir, lock(file)?) })
    }

    /// Whether the directory can be made, and it and its files be written to; else why not. Leaves
    /// nothing behind, also beside a process that has it.
    pub fn try_out(path: &Path) -> Result<(), String> {
        let why = |path: &Path, error: std::io::Error| {
            format!("cannot write to {}: {error}", path.display())
        };
        let missing: Vec<&Path> = path
            .ancestors()
            .take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists())
            .collect();
        let draft = path.join(format!("check-{}", std::process::id()));
        let tried =
            make(path).and_then(|()| File::options().write(true).create_new(true).open(&draft));
        // It may not have come to that.
        let _none = std::fs::remove_file(&draft);
        for made in missing {
            let _none = std::fs::remove_dir(made);
        }
        tried.map_err(|error| why(path, error))?;
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
    use std::process::Command;

    use super::super::PanicPoint;
    use super::super::tests::user;
    use super::*;
    use crate::id::Random;

    #[tokio::test]
    async fn a_panic_before_the_commit_ends_one_mutation() {
        let dir = tempfile::tempdir().unwrap();
        let (random, faults) = (Random::seeded(4), Faults::default());
        let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
        let [ann, bob] = ["a@b.c", "b@b.c"].map(|email| user(email, &random));
        faults.panic_at(PanicPoint::Commit, 1, "the canary");
        assert!(
            matches!(store.create_user(ann.clone()).await, Err(StoreError::Unavailable(why)) if !why.contains("canary"))
        );
        assert!(store.healthy().await);
        assert!(store.load().await.unwrap().users.is_empty(), "it is rolled back");
        store.create_user(bob.clone()).await.unwrap();
        assert_eq!(store.load().await.unwrap().users, [bob]);
    }

    /// The directory of the store, for the process that is to abort.
    const DIR: &str = "REROUTER_TEST_ABORTS_IN";

    /// In a process of its own, as it must not end this one: the test runs itself.
    #[tokio::test]
    async fn a_panic_in_a_table_that_follows_aborts_the_process_and_the_change_is_durable() {
        let ann = user("a@b.c", &Random::seeded(4));
        if let Some(dir) = std::env::var_os(DIR) {
            let store = Store::open(Path::new(&dir)).await.unwrap();
            store.follow(Box::new(|_| panic!("a mistake in a table")));
            let _unreached = store.create_user(ann).await;
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let name = concat!(
            "store::sqlite::tests::",
            "a_panic_in_a_table_that_follows_aborts_the_process_and_the_change_is_durable"
        );
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(DIR, dir.path())
            .output()
            .unwrap();
        let signal = std::os::unix::process::ExitStatusExt::signal(&child.status);
        assert_eq!(signal, Some(6), "SIGABRT: {}", String::from_utf8_lossy(&child.stdout));
        let store = Store::open(dir.path()).await.unwrap();
        assert_eq!(store.load().await.unwrap().users, [ann]);
    }
}
