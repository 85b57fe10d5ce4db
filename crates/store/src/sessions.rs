//! Login sessions.

use jiff::Timestamp;

use super::changes::{Change, Committed};
use super::columns::Columns;
use super::rows::{self, SessionRow};
use super::sql::{Transaction, params};
use super::{Result, Store, StoreError};
use rerouter_base::id::SessionId;

impl Store {
    /// Adds a session and ends the user's oldest beyond `keep`; [`StoreError::Conflict`] if the
    /// user is disabled, or no longer has the `password` hash that was verified.
    pub async fn create_session(
        &self,
        session: SessionRow,
        password: String,
        keep: usize,
    ) -> Result<Committed> {
        self.mutate(move |transaction| insert(transaction, session, &password, keep)).await
    }

    /// No change if it has ended.
    pub async fn end_session(&self, id: &SessionId) -> Result<Committed> {
        self.sweep_sessions(Vec::new(), vec![id.clone()], (Timestamp::MAX, Timestamp::MAX)).await
    }

    /// Stores when sessions were last used, which does not count as a change, and ends those in
    /// `over`, except those that expire after `now` and that another gateway has used since
    /// `idle_since`.
    pub async fn sweep_sessions(
        &self,
        seen: Vec<(SessionId, Timestamp)>,
        over: Vec<SessionId>,
        (idle_since, now): (Timestamp, Timestamp),
    ) -> Result<Committed> {
        self.mutate(move |transaction| sweep(transaction, &seen, &over, (idle_since, now))).await
    }
}

fn insert(
    transaction: &Transaction<'_>,
    session: SessionRow,
    password: &str,
    keep: usize,
) -> Result<Vec<Change>> {
    let one = "SELECT 1 FROM users WHERE id = ?1 AND password = ?2 AND disabled = 0";
    if !transaction.exists(one, &params![session.user, password])? {
        return Err(StoreError::Conflict);
    }
    rows::insert(transaction, &session)?;
    // The new session is kept even if the clock was set back.
    let mut changes = transaction.rows(
        "DELETE FROM sessions WHERE id IN
           (SELECT id FROM sessions WHERE \"user\" = ?1 AND id <> ?3
            ORDER BY created_at DESC, id DESC LIMIT 9223372036854775807 OFFSET ?2)
         RETURNING id",
        &params![session.user, keep.saturating_sub(1), session.id],
        |row| Ok(Change::SessionEnded(Columns::new(row).get()?)),
    )?;
    changes.push(Change::Session(session));
    Ok(changes)
}

fn sweep(
    transaction: &Transaction<'_>,
    seen: &[(SessionId, Timestamp)],
    over: &[SessionId],
    (idle_since, now): (Timestamp, Timestamp),
) -> Result<Vec<Change>> {
    let note = "UPDATE sessions SET last_seen = ?2 WHERE id = ?1 AND last_seen < ?2";
    for (id, at) in seen {
        transaction.execute(note, &params![id, at])?;
    }
    let mut changes = Vec::new();
    let end = "DELETE FROM sessions WHERE id = ?1 AND (last_seen <= ?2 OR expires_at <= ?3)";
    for id in over {
        if transaction.execute(end, &params![id, idle_since, now])? > 0 {
            changes.push(Change::SessionEnded(id.clone()));
        }
    }
    Ok(changes)
}
