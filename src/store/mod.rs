//! Where everything durable is kept. Async on the outside; every mutation answers after it is on disk and
//! after the in-memory tables have followed it. What is not here by contract: any decision about who may do what.

mod accounts;
mod agents;
mod audit;
mod audit_retention;
mod backup;
mod books;
mod capture_list;
mod captures;
mod documents;
mod faults;
mod keys;
mod limits;
mod nodes;
mod of_nodes;
mod pairs;
mod probe;
mod root_key;
mod rows;
mod schema;
mod sqlite;
mod users;
mod worker;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::blocking::Lost;
use crate::error::{Error, Kind};
use crate::id::{AgentId, AuditId, KeyId, RequestId, SessionId, UserId};
use crate::secret::SecretBytes;
use probe::Probe;

pub use audit::{Action, AuditFilter, AuditRow, Event, Rank, Target};
pub use backup::{copy_accounts, copy_captures};
pub use books::{SpendRow, UsageColumn, UsageGroup, UsageKey, UsageQuery, UsageSums};
pub use captures::{CaptureIndex, INDEX_STEP};
pub use faults::{Faults, PanicPoint};
pub use limits::{Budget, Limits, NanoUsd, Per, covers, dollars, nano_usd};
pub use nodes::{NodeModel, NodeRow, PreviousNodeSecret, Registration, SpentNonce};
pub use pairs::Pairs;
pub use root_key::{Opening, WrappedRootKey, inspect};
pub use rows::{
    Actor, AgentRow, CaptureFilter, CapturePage, CaptureRow, Change, Committed, DocumentRow,
    KeyPatch, KeyRow, KeyStatus, NewSecret, OldCapture, Place, PreviousSecret, Role, Seen,
    SegmentRow, SessionRow, Shadows, Snapshot, UserRow,
};
pub use sqlite::DataDir;
pub use users::ChangeUser;

/// What hears of every mutation, in the order of revisions, before its caller does. It must not wait.
pub type Follower = Box<dyn Fn(&Committed) + Send + Sync>;

/// How long a health check waits for the writer.
const PROBE_TIME: Duration = Duration::from_secs(2);

/// Why the store refused or failed.
#[derive(Debug)]
pub enum StoreError {
    /// The value is taken (an e-mail, a name) or is no more what it was.
    Conflict,
    /// There are as many rows (an owner's live keys, agents) as there may be.
    LimitReached,
    /// The key, or the one that was to be its parent, has ended.
    KeyRevoked,
    /// The key is past its time.
    KeyExpired,
    /// The row is no more what was seen of it.
    Stale,
    /// Nobody could see to users any more.
    LastAdmin,
    /// There is no such row.
    NotFound,
    /// The files were written by a newer build.
    NewerSchema {
        /// Migrations that the file has seen.
        found: usize,
        /// Migrations that this build knows.
        known: usize,
    },
    /// Another process has the directory.
    Locked(PathBuf),
    /// A file is not what was written.
    Damaged(String),
    /// There is no room on the disk.
    Full(String),
    /// Everything that may pass by itself: a queue, an engine's error.
    Unavailable(String),
}

impl StoreError {
    /// A failure of this cause that may pass by itself.
    pub fn unavailable(cause: impl fmt::Display) -> Self {
        StoreError::Unavailable(cause.to_string())
    }
}

impl From<Lost> for StoreError {
    fn from(lost: Lost) -> Self {
        StoreError::unavailable(lost)
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{DatabaseCorrupt, DiskFull, NotADatabase};
        match error.sqlite_error_code() {
            Some(DatabaseCorrupt | NotADatabase) => StoreError::Damaged(error.to_string()),
            Some(DiskFull) => StoreError::Full(error.to_string()),
            _ => StoreError::unavailable(error),
        }
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                StoreError::Full(error.to_string())
            }
            // The process may not write larger files: for what it keeps that is a full disk.
            std::io::ErrorKind::FileTooLarge if error.raw_os_error().is_some() => {
                StoreError::Full(error.to_string())
            }
            _ => StoreError::unavailable(error),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Conflict => f.write_str("the value is taken"),
            StoreError::LimitReached => f.write_str("there are as many as there may be"),
            StoreError::KeyRevoked => f.write_str("the key or its parent is revoked"),
            StoreError::KeyExpired => f.write_str("the key has expired"),
            StoreError::Stale => f.write_str("the row was changed meanwhile"),
            StoreError::LastAdmin => f.write_str("it is the last admin"),
            StoreError::NotFound => f.write_str("no such row"),
            StoreError::NewerSchema { found, known } => {
                write!(
                    f,
                    "the store has schema {found}, this build knows {known}: start the newer rerouter that wrote it"
                )
            }
            StoreError::Locked(path) => {
                write!(f, "another process uses the data directory {}", path.display())
            }
            StoreError::Damaged(what) => write!(f, "a file of the store is damaged: {what}"),
            StoreError::Full(what) => write!(f, "the disk is full: {what}"),
            StoreError::Unavailable(cause) => write!(f, "the store is unavailable: {cause}"),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict => Error::new(Kind::Conflict, "It exists already."),
            StoreError::LimitReached => Error::new(
                Kind::KeyLimitReached,
                "The owner has as many live keys as one may have; revoke some.",
            ),
            StoreError::KeyRevoked => Error::new(Kind::KeyRevoked, "The key is revoked."),
            StoreError::KeyExpired => Error::new(Kind::Conflict, "The key has expired."),
            StoreError::Stale => Error::new(Kind::Conflict, "It was changed meanwhile."),
            StoreError::LastAdmin => Error::new(
                Kind::Conflict,
                "This is the last admin; make another one first, or do it by ADMIN_API_KEY.",
            ),
            StoreError::NotFound => Error::not_found("object"),
            other => Error::store_unavailable(other),
        }
    }
}

enum Backend {
    Sqlite(sqlite::Sqlite),
}

/// A cheap handle; the last one dropped closes the files.
#[derive(Clone)]
pub struct Store {
    backend: Arc<Backend>,
    faults: Faults,
    probe: Probe,
    event: Option<Arc<Event>>,
    /// What texts of documents are sealed under.
    documents: SecretBytes,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    /// For tests and benches: opens the embedded store under `data_dir`, making it when there is
    /// none. The key that texts of documents are sealed under is no secret here.
    #[doc(hidden)]
    pub async fn open(data_dir: &Path) -> Result<Store, StoreError> {
        let unlock = |_: &Opening<'_>| Ok::<_, StoreError>((SecretBytes::new([5; 32]), ()));
        Ok(Store::open_in(DataDir::take(data_dir)?, unlock).await?.0)
    }

    /// The same store, failing as `faults` says.
    #[must_use]
    pub fn with_faults(self, faults: Faults) -> Store {
        Store { faults, ..self }
    }

    /// How it fails, for what keeps files of its own beside it.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The same store for an action that is audited: each mutation by this handle that changes anything writes a row of `event`
    /// in its transaction, so that both are there or neither.
    #[must_use]
    pub fn noting(&self, event: Event) -> Store {
        Store { event: Some(Arc::new(event)), ..self.clone() }
    }

    /// Writes a row of the audit by itself, of what this database does not hold; it is durable when this answers.
    pub async fn note(&self, event: Event) -> Result<(), StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let write = move |transaction: &rusqlite::Transaction<'_>| {
            audit::insert(transaction, &event).map(|()| Vec::new())
        };
        sqlite.mutate(&Store { event: None, ..self.clone() }, write).await.map(|_| ())
    }

    /// Rows of the audit in the order of commits, the last first, those before `after`, up to `limit`; none when `after` never was
    /// a row. Of one that has left since, what was done in its millisecond may come once more.
    pub async fn audit(
        &self,
        filter: AuditFilter,
        limit: usize,
        after: Option<AuditId>,
    ) -> Result<Option<Vec<AuditRow>>, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite
            .accounts_reader
            .read(&self.faults, move |connection| {
                audit::list(connection, &filter, limit, after.as_ref())
            })
            .await
    }

    /// Has `follower` called with every mutation from now on, in the order of revisions; `false` when one is set.
    pub fn follow(&self, follower: Follower) -> bool {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.follow(follower)
    }

    /// All tables, for the start.
    pub async fn load(&self) -> Result<Snapshot, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.accounts.run(accounts::snapshot).await
    }

    /// Gives every row of all tables to `take`, one after another, and then the revision at which that was: what is not kept of
    /// them takes no memory.
    pub async fn each<F: FnMut(Change) + Send + 'static>(
        &self,
        take: F,
    ) -> Result<u64, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.accounts.run(move |connection| accounts::each(connection, take)).await
    }

    /// Adds a user; [`StoreError::Conflict`] when the e-mail is taken.
    pub async fn create_user(&self, user: UserRow) -> Result<Committed, StoreError> {
        self.create_user_by(user, None).await
    }

    /// The same, made by an admin; [`StoreError::Stale`] when `by` is none any more.
    pub async fn create_user_by(
        &self,
        user: UserRow,
        by: Option<UserId>,
    ) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let insert = move |transaction: &rusqlite::Transaction<'_>| {
            by.map_or(Ok(()), |by| users::check_admin(transaction, &by))?;
            accounts::insert_user(transaction, user)
        };
        sqlite.mutate(self, insert).await
    }

    /// Changes a user as `change` says, and ends the sessions of one who is disabled then; [`StoreError::LastAdmin`] when no admin
    /// would be left, unless `last_may_go`.
    pub async fn update_user(
        &self,
        id: &UserId,
        last_may_go: bool,
        change: ChangeUser,
    ) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let id = id.clone();
        sqlite
            .mutate(self, move |transaction| users::update(transaction, &id, last_may_go, &*change))
            .await
    }

    /// Adds a key; [`StoreError::LimitReached`] when its owner has too many, [`StoreError::KeyRevoked`] when its parent has ended.
    pub async fn create_key(&self, key: KeyRow) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.mutate(self, move |transaction| accounts::insert_key(transaction, key, None)).await
    }

    /// Ends a key; again is no change.
    pub async fn revoke_key(&self, id: &KeyId, at: Timestamp) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let id = id.clone();
        sqlite.mutate(self, move |transaction| accounts::end_key(transaction, &id, at)).await
    }

    /// Gives a key another secret; [`StoreError::KeyRevoked`] and [`StoreError::KeyExpired`] when it is over,
    /// [`StoreError::Conflict`] when it, or the key that acts, is no more what was `seen`.
    pub async fn rotate_key(
        &self,
        id: &KeyId,
        secret: NewSecret,
        seen: Seen,
        at: Timestamp,
    ) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let id = id.clone();
        sqlite
            .mutate(self, move |transaction| {
                accounts::rotate_key(transaction, &id, &secret, &seen, at)
            })
            .await
    }

    /// Ends a session; again is no change.
    pub async fn end_session(&self, id: &SessionId) -> Result<Committed, StoreError> {
        self.sweep_sessions(Vec::new(), vec![id.clone()]).await
    }

    /// Exchanges a user's password hash for another and ends all sessions but `keep`; [`StoreError::Conflict`] when
    /// `old` is no longer the hash.
    pub async fn change_password(
        &self,
        user: &UserId,
        old: String,
        new: String,
        keep: &SessionId,
    ) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let (user, keep) = (user.clone(), keep.clone());
        sqlite
            .mutate(self, move |transaction| {
                accounts::change_password(transaction, &user, &old, &new, &keep)
            })
            .await
    }

    /// Adds an agent; [`StoreError::Conflict`] when its name is taken, [`StoreError::LimitReached`] when there are too many.
    pub async fn create_agent(&self, agent: AgentRow) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.mutate(self, move |transaction| agents::insert(transaction, agent)).await
    }

    /// Writes an agent over the one that had the entity tag `seen`; [`StoreError::Stale`] when it has another now,
    /// [`StoreError::Conflict`] when its new name is taken.
    pub async fn update_agent(
        &self,
        agent: AgentRow,
        seen: String,
    ) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.mutate(self, move |transaction| agents::update(transaction, agent, &seen)).await
    }

    /// Deletes an agent, if it still has the entity tag `seen` where one is given ([`StoreError::Stale`]); again is no change.
    pub async fn delete_agent(
        &self,
        id: &AgentId,
        seen: Option<String>,
    ) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let id = id.clone();
        sqlite
            .mutate(self, move |transaction| agents::delete(transaction, &id, seen.as_deref()))
            .await
    }

    /// Begins a session and ends the user's oldest beyond `keep`; [`StoreError::Conflict`] when the user is disabled, or has
    /// another `password` hash than the one that was verified.
    pub async fn create_session(
        &self,
        session: SessionRow,
        password: String,
        keep: usize,
    ) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite
            .mutate(self, move |transaction| {
                accounts::insert_session(transaction, session, &password, keep)
            })
            .await
    }

    /// Notes when sessions were last used and ends those that are over.
    pub async fn sweep_sessions(
        &self,
        seen: Vec<(SessionId, Timestamp)>,
        over: Vec<SessionId>,
    ) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite
            .mutate(self, move |transaction| accounts::sweep_sessions(transaction, &seen, &over))
            .await
    }

    /// Writes what counts as spent and adds to what was used: all or none.
    pub async fn keep_books(
        &self,
        spend: Vec<SpendRow>,
        usage: Vec<(UsageKey, UsageSums)>,
    ) -> Result<(), StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite
            .mutate(self, move |transaction| books::write(transaction, &spend, &usage))
            .await
            .map(|_| ())
    }

    /// What counts as spent in the periods from `since` on.
    pub async fn spend(&self, since: i64) -> Result<Vec<SpendRow>, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.accounts.read(&self.faults, move |connection| books::spend(connection, since)).await
    }

    /// Sums of what was used.
    pub async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageGroup>, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.accounts.read(&self.faults, move |connection| books::usage(connection, &query)).await
    }

    /// Forgets the spend of periods, and the usage of days, before these.
    pub async fn trim_books(&self, period: i64, day: i64) -> Result<(), StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite
            .mutate(self, move |transaction| books::trim(transaction, period, day))
            .await
            .map(|_| ())
    }

    /// Waits until every gateway that shares the store has applied `rev`: alone, that is already so.
    pub async fn acknowledge(&self, _rev: u64) -> Result<(), StoreError> {
        let Backend::Sqlite(_) = &*self.backend;
        Ok(())
    }

    /// Whether a write would find the store working.
    pub async fn healthy(&self) -> bool {
        let backend = Arc::clone(&self.backend);
        let question = || async move {
            let Backend::Sqlite(sqlite) = &*backend;
            let probe = sqlite.accounts.run(accounts::probe);
            matches!(tokio::time::timeout(PROBE_TIME, probe).await, Ok(Ok(())))
        };
        !self.faults.broken() && self.probe.ask(question).await
    }

    /// Moves what the write-ahead logs hold into the databases themselves, and empties the logs, unless
    /// somebody reads at that moment. What was acknowledged is durable without it: it bounds what lies in the logs alone.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.checkpoint().await
    }

    /// Where the files of the store are; captures have a directory of their own below it.
    pub fn dir(&self) -> &Path {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.dir()
    }

    /// Does `work` with the index of captures, on the one thread that writes captures: after what was sent there before, and
    /// alone. It may wait for the disk, and runs to its end whatever becomes of the caller.
    pub async fn write_captures<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut CaptureIndex<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.marked(sqlite.write_captures(&self.faults, work).await)
    }

    /// The index of captures knows all of them: one that was damaged before and put aside is of no more use.
    pub fn captures_complete(&self) {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.forget_damaged();
    }

    /// Whose a capture is, if it is there.
    pub async fn capture_owner(&self, id: &RequestId) -> Result<Option<UserId>, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let id = id.clone();
        sqlite.marked(
            sqlite
                .reader
                .read(&self.faults, move |connection| captures::owner(connection, &id))
                .await,
        )
    }

    /// Captures, newest first, older than `after`, up to `limit`; no more than [`crate::bounds::LIST_ROWS`] are looked at,
    /// or [`crate::bounds::LIST_LOOKUPS`].
    pub async fn list_captures(
        &self,
        filter: CaptureFilter,
        limit: usize,
        after: Option<RequestId>,
    ) -> Result<CapturePage, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let list = move |connection: &mut rusqlite::Connection| {
            capture_list::list(
                connection,
                &filter,
                limit,
                after.as_ref(),
                capture_list::budget(&filter),
            )
        };
        sqlite.marked(sqlite.reader.read(&self.faults, list).await)
    }

    /// Where a capture is, if it is there.
    pub async fn locate_capture(&self, id: &RequestId) -> Result<Option<Place>, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let id = id.clone();
        sqlite.marked(
            sqlite
                .reader
                .read(&self.faults, move |connection| captures::locate(connection, &id))
                .await,
        )
    }
}

#[cfg(test)]
mod captures_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use captures_tests::make_captures_of_the_second_schema;
