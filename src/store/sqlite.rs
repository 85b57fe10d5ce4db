//! The embedded store: `accounts.db`, where an acknowledged write survives a loss of power, and
//! `captures.db`, the index of captures. Each has a writer thread of its own, so that a burst of
//! captures delays no key.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rusqlite::{Connection, Transaction};

use super::audit::Event;
use super::capture_file::open_index;
use super::changes::{Change, Committed};
use super::data_dir::DataDir;
use super::root_key::{self, Opening};
use super::worker::{Durability, Worker, checkpoint, discard_log, open, open_to_read};
use super::{Faults, Follower, StoreError, schema, transaction};
use crate::secret::SecretBytes;

/// The four threads. Fields are dropped in order: the directory is unlocked when they have ended.
pub(super) struct Sqlite {
    pub(super) accounts: Worker,
    pub(super) accounts_reader: Worker,
    pub(super) captures: Worker,
    pub(super) reader: Worker,
    follower: Arc<OnceLock<Follower>>,
    /// A commit failed, and what it wrote to the log could not be discarded yet.
    commit_failed: Arc<AtomicBool>,
    dir: DataDir,
}

impl Sqlite {
    /// Opens or makes the files, if `unlock` opens the root key. Blocking.
    pub(super) fn open<T, E: From<StoreError>>(
        dir: DataDir,
        unlock: impl FnOnce(&Opening<'_>) -> Result<(SecretBytes, T), E>,
    ) -> Result<(Self, SecretBytes, T), E> {
        let mut accounts = open(&dir.path().join("accounts.db"), Durability::Full)?;
        schema::prepare(&mut accounts, &schema::ACCOUNTS)?;
        let (key, unlocked) = root_key::unlock(&mut accounts, unlock)?;
        Ok((Sqlite::start(dir, accounts)?, key, unlocked))
    }

    fn start(dir: DataDir, accounts: Connection) -> Result<Self, StoreError> {
        let accounts_path = dir.path().join("accounts.db");
        let path = dir.path().join("captures.db");
        let captures = open_index(&path)?;
        Ok(Sqlite {
            reader: Worker::start("store-reader", open_to_read(&path)?)?,
            accounts_reader: Worker::start("store-audit", open_to_read(&accounts_path)?)?,
            accounts: Worker::start("store-accounts", accounts)?,
            captures: Worker::start("store-captures", captures)?,
            follower: Arc::default(),
            commit_failed: Arc::default(),
            dir,
        })
    }

    /// Calls `follower` with every mutation from now on. `false` if there is one already.
    pub(super) fn follow(&self, follower: Follower) -> bool {
        self.follower.set(follower).is_ok()
    }

    /// Runs a transaction on accounts, and `after` when it is durable.
    async fn run<T, U>(
        &self,
        faults: &Faults,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
        after: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<U, StoreError>
    where
        U: Send + 'static,
    {
        let (faults, commit_failed) = (faults.clone(), Arc::clone(&self.commit_failed));
        let work = move |connection: &mut Connection| {
            // A commit whose sync fails is reported as failed, but it may be in the log as a whole:
            // a start would read it, and the tables in memory do not have it.
            let discard = |connection: &mut Connection| {
                discard_log(connection)?;
                commit_failed.store(false, Ordering::Release);
                Ok::<_, StoreError>(())
            };
            if commit_failed.load(Ordering::Acquire) {
                discard(connection)?;
            }
            let mut committing = false;
            let done = transaction::run(connection, &faults, work, &mut committing);
            // Without room on the disk the end of the commit was not written.
            let may_be_whole = committing && !matches!(done, Ok(_) | Err(StoreError::Full(_)));
            if may_be_whole {
                commit_failed.store(true, Ordering::Release);
                if let Err(error) = discard(connection) {
                    log::error!("a failed commit may still be in the log of accounts.db: {error}");
                }
            }
            done.map(after)
        };
        self.accounts.run(work).await
    }

    /// A transaction that no table in memory follows.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        faults: &Faults,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(faults, work, |done| done).await
    }

    /// A mutation: it is durable, then the tables in memory follow it, then it is acknowledged. A
    /// panic before the commit fails this mutation only. A panic after it aborts the process,
    /// because the tables might still accept a key that has ended: the next start reads them whole.
    pub(super) async fn mutate(
        &self,
        faults: &Faults,
        event: Option<Arc<Event>>,
        work: impl FnOnce(&Transaction<'_>) -> Result<Vec<Change>, StoreError> + Send + 'static,
    ) -> Result<Committed, StoreError> {
        let follower = Arc::clone(&self.follower);
        let mutate = move |transaction: &Transaction<'_>| {
            transaction::mutate(transaction, event.as_deref(), work)
        };
        let follow = move |committed: Committed| {
            if let Some(follower) = follower.get()
                && !committed.changes.is_empty()
                && catch_unwind(AssertUnwindSafe(|| follower(&committed))).is_err()
            {
                log::error!("a table in memory failed to follow a durable change: aborting");
                std::process::abort();
            }
            committed
        };
        self.run(faults, mutate, follow).await
    }

    /// Runs `work` on the thread that writes captures.
    pub(super) async fn write_captures<T, F>(
        &self,
        faults: &Faults,
        work: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let faults = faults.clone();
        let work = move |connection: &mut Connection| {
            faults.before_append()?;
            work(connection)
        };
        self.captures.run(work).await
    }

    /// Moves the write-ahead logs into the databases.
    pub(super) async fn checkpoint(&self) -> Result<(), StoreError> {
        let (accounts, captures) =
            tokio::join!(self.accounts.run(checkpoint), self.captures.run(checkpoint));
        accounts.and(captures)
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::id::Random;
    use crate::store::fixtures::user;
    use crate::store::{PanicPoint, Store};

    #[tokio::test]
    async fn a_panic_before_the_commit_ends_one_mutation() {
        let dir = tempfile::tempdir().unwrap();
        let (random, faults) = (Random::seeded(4), Faults::default());
        let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
        let [ann, bob] = ["a@b.c", "b@b.c"].map(|email| user(email, &random));
        faults.panic_at(PanicPoint::Commit, 1, "the canary");
        assert!(matches!(
            store.create_user(ann.clone()).await,
            Err(StoreError::Unavailable(why)) if !why.contains("canary")
        ));
        assert!(store.healthy().await);
        assert!(store.load().await.unwrap().users.is_empty(), "it is rolled back");
        store.create_user(bob.clone()).await.unwrap();
        assert_eq!(store.load().await.unwrap().users, [bob]);
    }

    /// The users that a start reads from the files of `dir` as they are now.
    async fn users_after_a_kill(dir: &Path) -> Vec<String> {
        let copy = tempfile::tempdir().unwrap();
        for name in ["accounts.db", "accounts.db-wal"] {
            std::fs::copy(dir.join(name), copy.path().join(name)).unwrap();
        }
        let store = Store::open(copy.path()).await.unwrap();
        store.load().await.unwrap().users.into_iter().map(|user| user.email).collect()
    }

    /// As after a failed sync: the log holds the whole commit, and its index does not know of it.
    #[tokio::test]
    async fn what_a_failed_commit_wrote_is_read_by_no_start() {
        let (dir, twin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let random = Random::seeded(4);
        let store = Store::open(dir.path()).await.unwrap();
        store.create_user(user("a@b.c", &random)).await.unwrap();
        for name in ["accounts.db", "accounts.db-wal"] {
            std::fs::copy(dir.path().join(name), twin.path().join(name)).unwrap();
        }
        let log = dir.path().join("accounts.db-wal");
        let length = std::fs::metadata(&log).unwrap().len() as usize;
        let other = Store::open(twin.path()).await.unwrap();
        other.create_user(user("d@e.f", &random)).await.unwrap();
        let commit = std::fs::read(twin.path().join("accounts.db-wal")).unwrap().split_off(length);
        let mut file = std::fs::File::options().append(true).open(&log).unwrap();
        std::io::Write::write_all(&mut file, &commit).unwrap();
        assert_eq!(users_after_a_kill(dir.path()).await, ["a@b.c", "d@e.f"], "the danger");

        let fails = |transaction: &Transaction<'_>| {
            let session = "INSERT INTO sessions VALUES ('sess_1', 'nobody', x'01', x'02', 0, 0, 0)";
            transaction.pragma_update(None, "defer_foreign_keys", true)?;
            Ok(transaction.execute(session, [])?)
        };
        store.write(fails).await.unwrap_err();
        assert_eq!(users_after_a_kill(dir.path()).await, ["a@b.c"]);
        store.create_user(user("g@h.i", &random)).await.unwrap();
        assert_eq!(users_after_a_kill(dir.path()).await, ["a@b.c", "g@h.i"]);
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
