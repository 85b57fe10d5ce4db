//! The errors of the store.

use std::fmt;
use std::path::PathBuf;

use rerouter_base::blocking::BlockingError;
use rerouter_base::error::{Error, Kind};

pub(crate) type Result<T, E = StoreError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A unique value (an e-mail, a name) exists already, or a value is no longer the expected one.
    #[error("the value is taken, or has changed")]
    Conflict,
    /// The maximum number of rows exists already, such as an owner's live keys.
    #[error("there are too many")]
    LimitReached,
    #[error("the key or its parent is revoked")]
    KeyRevoked,
    #[error("the key has expired")]
    KeyExpired,
    #[error("the row has changed")]
    Stale,
    #[error("the last admin must stay")]
    LastAdmin,
    #[error("no such row")]
    NotFound,
    /// Another build wrote the files.
    #[error(
        "the store has schema {found}, and this build reads schema {known}: \
         start the rerouter that wrote it"
    )]
    OtherSchema {
        /// The schema of the file.
        found: u32,
        /// The schema of this build.
        known: u32,
    },
    #[error(
        "this version changes the tables of the store, and the one that runs could not go on with \
         them: stop that one, then start this one"
    )]
    StopFirst,
    #[error("another process uses the data directory {}", .0.display())]
    Locked(PathBuf),
    #[error("a file of the store is damaged: {0}")]
    Damaged(String),
    #[error(
        "accounts.db lacks the last {0} changes that were acknowledged: its write-ahead log was \
         damaged or deleted, or this is an older copy. Keys that they revoked would be valid. Put \
         the right files back; or delete accounts.revision, start, and make these changes again"
    )]
    LostChanges(u64),
    #[error("the disk is full: {0}")]
    Full(String),
    /// Any failure that may be temporary: a full queue, an error of the engine.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
}

impl StoreError {
    pub fn unavailable(cause: impl fmt::Display) -> Self {
        StoreError::Unavailable(cause.to_string())
    }
}

impl From<BlockingError> for StoreError {
    fn from(lost: BlockingError) -> Self {
        StoreError::unavailable(lost)
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                StoreError::Full(error.to_string())
            }
            // The process is not allowed to write larger files, which has the effect of a full
            // disk.
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
            StoreError::Conflict => Error::conflict("It exists already."),
            StoreError::LimitReached => Error::new(
                Kind::KeyLimitReached,
                "The owner has as many live keys as one may have; revoke some.",
            ),
            StoreError::KeyRevoked => Error::new(Kind::KeyRevoked, "The key is revoked."),
            StoreError::KeyExpired => Error::conflict("The key has expired."),
            StoreError::Stale => Error::conflict("It was changed meanwhile."),
            StoreError::LastAdmin => Error::conflict(
                "This is the last admin; make another one first, or do it by ADMIN_API_KEY.",
            ),
            StoreError::NotFound => Error::not_found("object"),
            other => Error::store_unavailable(other),
        }
    }
}
