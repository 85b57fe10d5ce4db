//! Login sessions.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::changes::{Change, Committed};
use super::columns::Columns;
use super::rows::SessionRow;
use super::{Store, StoreError};
use crate::id::{SessionId, UserId};

impl Store {
    /// Adds a session and ends the user's oldest beyond `keep`; [`StoreError::Conflict`] if the
    /// user is disabled, or no longer has the `password` hash that was verified.
    pub async fn create_session(
        &self,
        session: SessionRow,
        password: String,
        keep: usize,
    ) -> Result<Committed, StoreError> {
        self.mutate(move |transaction| insert(transaction, session, &password, keep)).await
    }

    /// Ends a session. No change if it has ended.
    pub async fn end_session(&self, id: &SessionId) -> Result<Committed, StoreError> {
        self.sweep_sessions(Vec::new(), vec![id.clone()]).await
    }

    /// Notes when sessions were last used, which is no change, and ends those that are over.
    pub async fn sweep_sessions(
        &self,
        seen: Vec<(SessionId, Timestamp)>,
        over: Vec<SessionId>,
    ) -> Result<Committed, StoreError> {
        self.mutate(move |transaction| sweep(transaction, &seen, &over)).await
    }
}

fn insert(
    transaction: &Transaction<'_>,
    session: SessionRow,
    password: &str,
    keep: usize,
) -> Result<Vec<Change>, StoreError> {
    let one = "SELECT 1 FROM users WHERE id = ?1 AND password = ?2 AND NOT disabled";
    transaction
        .query_row(one, params![session.user.as_str(), password], |_| Ok(()))
        .optional()?
        .ok_or(StoreError::Conflict)?;
    transaction.execute(
        "INSERT INTO sessions
           (id, user, cookie_digest, token_digest, created_at, expires_at, last_seen)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            session.id.as_str(),
            session.user.as_str(),
            session.cookie_digest.as_slice(),
            session.token_digest.as_slice(),
            session.created_at.as_microsecond(),
            session.expires_at.as_microsecond(),
            session.last_seen.as_microsecond()
        ],
    )?;
    // The new session stays, also if the clock was set back.
    let mut surplus = transaction.prepare_cached(
        "DELETE FROM sessions WHERE id IN
           (SELECT id FROM sessions WHERE user = ?1 AND id <> ?3
            ORDER BY created_at DESC, id DESC LIMIT -1 OFFSET ?2)
         RETURNING id",
    )?;
    let others = i64::try_from(keep.saturating_sub(1)).unwrap_or(i64::MAX);
    let ended = surplus
        .query_map(params![session.user.as_str(), others, session.id.as_str()], session_id)?;
    let mut changes =
        ended.map(|id| id.map(Change::SessionEnded)).collect::<rusqlite::Result<Vec<_>>>()?;
    changes.push(Change::Session(session));
    Ok(changes)
}

fn sweep(
    transaction: &Transaction<'_>,
    seen: &[(SessionId, Timestamp)],
    over: &[SessionId],
) -> Result<Vec<Change>, StoreError> {
    let mut note = transaction
        .prepare_cached("UPDATE sessions SET last_seen = ?2 WHERE id = ?1 AND last_seen < ?2")?;
    for (id, at) in seen {
        note.execute(params![id.as_str(), at.as_microsecond()])?;
    }
    let mut end = transaction.prepare_cached("DELETE FROM sessions WHERE id = ?1")?;
    let mut changes = Vec::new();
    for id in over {
        if end.execute([id.as_str()])? > 0 {
            changes.push(Change::SessionEnded(id.clone()));
        }
    }
    Ok(changes)
}

pub(super) fn session(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    let mut columns = Columns::of(row);
    Ok(SessionRow {
        id: SessionId::known(columns.text()?),
        user: UserId::known(columns.text()?),
        cookie_digest: columns.get()?,
        token_digest: columns.get()?,
        created_at: columns.time()?,
        expires_at: columns.time()?,
        last_seen: columns.time()?,
    })
}

pub(super) fn session_id(row: &Row<'_>) -> rusqlite::Result<SessionId> {
    Ok(SessionId::known(Columns::of(row).text()?))
}
