//! A thread that owns one SQLite connection and does what it is sent, in order. Async code never
//! touches a connection: it sends a closure and waits for the reply, which comes after `COMMIT`.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::{Faults, StoreError};

/// Jobs waiting for one connection; beyond it the store counts as unavailable rather than let
/// requests pile up.
const QUEUE: usize = 1024;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// The handle to such a thread. Dropping it finishes the queue and ends the thread.
pub(super) struct Worker {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread on `connection`.
    pub(super) fn start(name: &str, mut connection: Connection) -> Result<Self, StoreError> {
        let (jobs, mut queue) = mpsc::channel::<Job>(QUEUE);
        let run = move || {
            while let Some(job) = queue.blocking_recv() {
                // A mistake of ours in one job is the end of that job, which is rolled back and
                // answered as a failure, and not of all that is still to be written. What a job
                // does after its commit is that job's to watch over.
                if catch_unwind(AssertUnwindSafe(|| job(&mut connection))).is_err() {
                    log::error!("a job of the store panicked");
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .map_err(StoreError::unavailable)?;
        Ok(Worker { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Runs `work` on the thread. Once sent it runs to its end, also when the caller goes away
    /// meanwhile.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            // A caller that went away needs no reply; what was done stays done.
            let _gone = reply.send(work(connection));
        });
        let jobs = self.jobs.as_ref().ok_or_else(|| StoreError::unavailable("closed"))?;
        jobs.try_send(job).map_err(StoreError::unavailable)?;
        answer.await.map_err(StoreError::unavailable)?
    }

    /// The same for what changes nothing, where reads may fail as `faults` says.
    pub(super) async fn read<T, F>(&self, faults: &Faults, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let faults = faults.clone();
        let work = move |connection: &mut Connection| {
            faults.before_read()?;
            work(connection)
        };
        self.run(work).await
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A thread that panicked has nothing more to finish.
            let _ended = thread.join();
        }
    }
}

/// How much an acknowledged write survives.
#[derive(Clone, Copy)]
pub(super) enum Durability {
    /// Also the loss of power: an fsync each commit.
    Full,
    /// The end of the process; power loss may take the last commits.
    Process,
}

/// How long a connection waits for another one's transaction.
pub(super) const BUSY: Duration = Duration::from_secs(5);

/// Moves what the write-ahead log holds into the database itself, durably, and empties the log.
/// Where a reader is in the way it moves as much as it can, and the log stays: whoever waits to
/// write would wait for that reader too.
pub(super) fn checkpoint(connection: &mut Connection) -> Result<(), StoreError> {
    connection.busy_timeout(Duration::ZERO)?;
    let moved = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    connection.busy_timeout(BUSY)?;
    Ok(moved?)
}

/// Opens a database for writing, with the settings that hold for all of ours.
pub(super) fn open(path: &Path, durability: Durability) -> Result<Connection, StoreError> {
    // Made for this user only, before anything is in it; SQLite gives its journals the same mode.
    File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(StoreError::unavailable)?;
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(
        None,
        "synchronous",
        if matches!(durability, Durability::Full) { "FULL" } else { "NORMAL" },
    )?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    // What is deleted or replaced is overwritten: salts of captures, wrappings of the root key.
    connection.pragma_update(None, "secure_delete", true)?;
    Ok(connection)
}

/// Opens a second connection that only reads.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, StoreError> {
    use rusqlite::OpenFlags;
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

/// Opens a database that is there for one look, and leaves no file beside it: SQLite would make
/// journals for a reader, too, of whoever runs this. None where it cannot do without.
pub(super) fn open_to_look(path: &Path) -> Result<Option<Connection>, StoreError> {
    use rusqlite::OpenFlags;
    let beside = |extension: &str| path.with_extension(extension).exists();
    match (path.exists(), beside("db-wal"), beside("db-shm")) {
        // A process has it, or one was killed.
        (true, true, true) => open_to_read(path).map(Some),
        // Nobody has it. Whoever begins to write meanwhile does that in a journal first.
        (true, false, _) => {
            let mut uri = "file:".to_owned();
            for byte in path.as_os_str().as_encoded_bytes() {
                match byte {
                    b'/' | b'-' | b'_' | b'.' => uri.push(char::from(*byte)),
                    _ if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
                    _ => uri.push_str(&format!("%{byte:02X}")),
                }
            }
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
                | OpenFlags::SQLITE_OPEN_URI
                | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            Ok(Some(Connection::open_with_flags(uri + "?immutable=1", flags)?))
        }
        _ => Ok(None),
    }
}
