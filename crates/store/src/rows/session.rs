//! The row of a login session.

use std::fmt;

use jiff::Timestamp;

use crate::StoreError;
use crate::columns::Columns;
use crate::sql::Row;
use rerouter_base::id::{SessionId, UserId};

#[derive(Clone, PartialEq, Eq)]
pub struct SessionRow {
    pub id: SessionId,
    pub user: UserId,
    /// Digest of the cookie's value.
    pub cookie_digest: [u8; 32],
    /// Digest of the Bearer token, another secret.
    pub token_digest: [u8; 32],
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// When it was last used. The stored value lags behind.
    pub last_seen: Timestamp,
}

impl fmt::Debug for SessionRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRow")
            .field("id", &self.id)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

pub(crate) fn session(row: &Row<'_>) -> Result<SessionRow, StoreError> {
    let mut columns = Columns::of(row);
    Ok(SessionRow {
        id: SessionId::known(columns.text()?),
        user: UserId::known(columns.text()?),
        cookie_digest: columns.get()?,
        token_digest: columns.get()?,
        created_at: columns.get()?,
        expires_at: columns.get()?,
        last_seen: columns.get()?,
    })
}

pub(crate) fn session_id(row: &Row<'_>) -> Result<SessionId, StoreError> {
    Ok(SessionId::known(Columns::of(row).text()?))
}
