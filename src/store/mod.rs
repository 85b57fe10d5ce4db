//! Where everything durable is kept. Async on the outside; every mutation answers after it is on
//! disk and after the in-memory tables have followed it. What is not here by contract: any decision
//! about who may do what.

mod accounts;
mod agents;
mod audit;
mod audit_retention;
mod backup;
mod books;
mod capture_file;
mod capture_index;
mod capture_list;
mod capture_rows;
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

use crate::blocking::BlockingError;
use crate::error::{Error, Kind};
use crate::id::{AgentId, AuditId, KeyId, SessionId, UserId};
use crate::secret::SecretBytes;
use probe::Probe;

pub(crate) use audit::{Action, AuditFilter, AuditRow, Event, Rank};
pub(crate) use backup::{copy_accounts, copy_capture_index, drop_segments_of_copy};
pub(crate) use books::{SpendRow, UsageColumn, UsageGroup, UsageKey, UsageQuery, UsageSums};
pub(crate) use capture_index::CaptureIndex;
pub use capture_rows::CaptureFilter;
pub(crate) use capture_rows::{ByteRange, CaptureLocation, CaptureRow, SegmentRow, Shadows};
pub use faults::{Faults, PanicPoint};
pub use limits::Limits;
pub(crate) use limits::{Budget, NanoUsd, Per, covers, dollars, nano_usd};
pub(crate) use nodes::{NodeModel, NodeRow, PreviousNodeSecret, Registration, SpentNonce};
pub(crate) use pairs::Pairs;
pub(crate) use root_key::inspect;
pub use root_key::{Opening, WrappedRootKey};
pub use rows::{Actor, KeyRow, KeyStatus};
pub(crate) use rows::{
    AgentRow, Change, Committed, DocumentRow, KeyPatch, NewSecret, Role, Seen, SessionRow,
    Snapshot, UserRow,
};
pub use sqlite::DataDir;
pub(crate) use users::ChangeUser;

/// What hears of every mutation, in the order of revisions, before its caller does. It must not
/// wait.
pub(crate) type Follower = Box<dyn Fn(&Committed) + Send + Sync>;

/// How long a health check waits for the writer.
const PROBE_TIME: Duration = Duration::from_secs(2);

/// Why the store refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A unique value (an e-mail, a name) exists already, or a value is no longer the expected one.
    #[error("the value is taken")]
    Conflict,
    /// The maximum number of rows exists already, such as an owner's live keys.
    #[error("there are as many as there may be")]
    LimitReached,
    /// The key, or its parent, is revoked.
    #[error("the key or its parent is revoked")]
    KeyRevoked,
    /// The key has expired.
    #[error("the key has expired")]
    KeyExpired,
    /// The row changed since it was read.
    #[error("the row was changed meanwhile")]
    Stale,
    /// The change would leave no admin.
    #[error("it is the last admin")]
    LastAdmin,
    /// There is no such row.
    #[error("no such row")]
    NotFound,
    /// A newer build wrote the files.
    #[error(
        "the store has schema {found}, this build knows {known}: start the newer rerouter that wrote it"
    )]
    NewerSchema {
        /// Migrations of the file.
        found: usize,
        /// Migrations of this build.
        known: usize,
    },
    /// Another process holds the lock on the data directory.
    #[error("another process uses the data directory {}", .0.display())]
    Locked(PathBuf),
    /// A file is not as it was written.
    #[error("a file of the store is damaged: {0}")]
    Damaged(String),
    /// There is no room on the disk.
    #[error("the disk is full: {0}")]
    Full(String),
    /// Any failure that may be temporary: a full queue, an error of the engine.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
}

impl StoreError {
    /// A failure of this cause that may pass by itself.
    pub fn unavailable(cause: impl fmt::Display) -> Self {
        StoreError::Unavailable(cause.to_string())
    }
}

impl From<BlockingError> for StoreError {
    fn from(lost: BlockingError) -> Self {
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

    /// The same store for an action that is audited: each mutation by this handle that changes
    /// anything writes a row of `event` in its transaction, so that both are there or neither.
    #[must_use]
    pub fn noting(&self, event: Event) -> Store {
        Store { event: Some(Arc::new(event)), ..self.clone() }
    }

    /// Writes a row of the audit by itself, of what this database does not hold; it is durable when
    /// this answers.
    pub async fn note(&self, event: Event) -> Result<(), StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let write = move |transaction: &rusqlite::Transaction<'_>| {
            audit::insert(transaction, &event).map(|()| Vec::new())
        };
        sqlite.mutate(&Store { event: None, ..self.clone() }, write).await.map(|_| ())
    }

    /// Rows of the audit in the order of commits, the last first, those before `after`, up to
    /// `limit`; none when `after` never was a row. Of one that has left since, what was done in its
    /// millisecond may come once more.
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

    /// Has `follower` called with every mutation from now on, in the order of revisions; `false`
    /// when one is set.
    pub fn follow(&self, follower: Follower) -> bool {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.follow(follower)
    }

    /// All tables, for the start.
    pub async fn load(&self) -> Result<Snapshot, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.accounts.run(accounts::snapshot).await
    }

    /// Gives every row of all tables to `take`, one after another, and then the revision at which
    /// that was: what is not kept of them takes no memory.
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

    /// Changes a user as `change` says, and ends the sessions of one who is disabled then;
    /// [`StoreError::LastAdmin`] when no admin would be left, unless `last_may_go`.
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

    /// Adds a key; [`StoreError::LimitReached`] when its owner has too many,
    /// [`StoreError::KeyRevoked`] when its parent has ended.
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

    /// Gives a key another secret; [`StoreError::KeyRevoked`] and [`StoreError::KeyExpired`] when
    /// it is over, [`StoreError::Conflict`] when it, or the key that acts, is no more what was
    /// `seen`.
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

    /// Exchanges a user's password hash for another and ends all sessions but `keep`;
    /// [`StoreError::Conflict`] when `old` is no longer the hash.
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

    /// Adds an agent; [`StoreError::Conflict`] when its name is taken, [`StoreError::LimitReached`]
    /// when there are too many.
    pub async fn create_agent(&self, agent: AgentRow) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.mutate(self, move |transaction| agents::insert(transaction, agent)).await
    }

    /// Writes an agent over the one that had the entity tag `seen`; [`StoreError::Stale`] when it
    /// has another now, [`StoreError::Conflict`] when its new name is taken.
    pub async fn update_agent(
        &self,
        agent: AgentRow,
        seen: String,
    ) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.mutate(self, move |transaction| agents::update(transaction, agent, &seen)).await
    }

    /// Deletes an agent, if it still has the entity tag `seen` where one is given
    /// ([`StoreError::Stale`]); again is no change.
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

    /// Begins a session and ends the user's oldest beyond `keep`; [`StoreError::Conflict`] when the
    /// user is disabled, or has another `password` hash than the one that was verified.
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

    /// Sums of what was used. It keeps no writer waiting.
    pub async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageGroup>, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite
            .accounts_reader
            .read(&self.faults, move |connection| books::usage(connection, &query))
            .await
    }

    /// Forgets the spend of periods, and the usage of days, before these.
    pub async fn trim_books(&self, period: i64, day: i64) -> Result<(), StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite
            .mutate(self, move |transaction| books::trim(transaction, period, day))
            .await
            .map(|_| ())
    }

    /// Waits until every gateway that shares the store has applied `rev`: alone, that is already
    /// so.
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

    /// Moves what the write-ahead logs hold into the databases themselves, and empties the logs,
    /// unless somebody reads at that moment. What was acknowledged is durable without it: it bounds
    /// what lies in the logs alone.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.checkpoint().await
    }

    /// Where the files of the store are; captures have a directory of their own below it.
    pub fn dir(&self) -> &Path {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.dir()
    }
}

#[cfg(test)]
mod tests;
