//! A thread that owns one SQLite connection and runs the jobs that it is sent, in order. Async code
//! never touches a connection: it sends a closure and waits for the result.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, Row};
use tokio::sync::{mpsc, oneshot};

use super::{Faults, StoreError};

/// Jobs that wait for a connection. Beyond it the store is unavailable: requests do not pile up.
const QUEUE: usize = 1024;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// The handle of such a thread. Dropping it runs the jobs that wait, and ends the thread.
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
                // A panic fails its job only, whose transaction is rolled back. After a commit the
                // job must catch panics itself.
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

    /// Runs `work` on the thread. It runs to its end even if the caller is dropped.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            // A caller that was dropped needs no reply.
            let _gone = reply.send(work(connection));
        });
        let jobs = self.jobs.as_ref().ok_or_else(|| StoreError::unavailable("closed"))?;
        jobs.try_send(job).map_err(StoreError::unavailable)?;
        answer.await.map_err(StoreError::unavailable)?
    }

    /// Runs `work`, which only reads; it may fail as `faults` says.
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
            // A thread that panicked has ended too.
            let _ended = thread.join();
        }
    }
}

/// What an acknowledged write survives.
#[derive(Clone, Copy)]
pub(super) enum Durability {
    /// A loss of power: each commit is synced.
    Full,
    /// The end of the process. A loss of power may lose the last commits.
    Process,
}

/// How long a connection waits for the transaction of another.
pub(super) const BUSY: Duration = Duration::from_secs(5);

/// Moves the write-ahead log into the database, durably, and empties it. If a reader is in the way,
/// it moves as much as it can and leaves the log: it does not let writers wait for a reader.
pub(super) fn checkpoint(connection: &mut Connection) -> Result<(), StoreError> {
    connection.busy_timeout(Duration::ZERO)?;
    let moved = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    connection.busy_timeout(BUSY)?;
    Ok(moved?)
}

/// Moves all commits of this connection into the database, and cuts off what else is in the
/// write-ahead log. It waits for readers.
pub(super) fn discard_log(connection: &Connection) -> Result<(), StoreError> {
    let busy = |row: &Row<'_>| row.get::<_, bool>(0);
    match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], busy)? {
        true => Err(StoreError::unavailable("a reader is in the way")),
        false => Ok(()),
    }
}

/// Opens or makes a database for writing.
pub(super) fn open(path: &Path, durability: Durability) -> Result<Connection, StoreError> {
    // SQLite gives its journals the mode of the database.
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
    // Deleted values are overwritten: salts of captures, wrappings of the root key.
    connection.pragma_update(None, "secure_delete", true)?;
    Ok(connection)
}

/// Opens a connection that only reads.
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

/// Opens an existing database to read it, and makes no journal beside it, which might belong to
/// another user than the gateway's. `None` if the database cannot be read without.
pub(super) fn open_to_look(path: &Path) -> Result<Option<Connection>, StoreError> {
    use rusqlite::OpenFlags;
    let beside = |extension: &str| path.with_extension(extension).exists();
    match (path.exists(), beside("db-wal"), beside("db-shm")) {
        // A process uses it, or one was killed.
        (true, true, true) => open_to_read(path).map(Some),
        // No process uses it. One that begins to write meanwhile writes to a journal first.
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
