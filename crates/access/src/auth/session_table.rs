//! Login sessions in memory. A session has two secrets, a cookie and a Bearer token, and each is
//! found by its own digest only. A session ends at a fixed time, and when it was idle for too long.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use jiff::Timestamp;

use rerouter_base::id::SessionId;
use rerouter_store::SessionRow;

#[derive(Debug)]
pub(super) struct LiveSession {
    pub(super) row: SessionRow,
    last_seen_us: AtomicI64,
    /// Whether the last use is not in the store yet.
    unsaved: AtomicBool,
}

impl LiveSession {
    /// Notes a use at `now`; `false` if the session is over.
    pub(super) fn touch(&self, idle: Duration, now: Timestamp) -> bool {
        if self.is_over(idle, now) {
            return false;
        }
        self.last_seen_us.fetch_max(now.as_microsecond(), Ordering::AcqRel);
        self.unsaved.store(true, Ordering::Release);
        true
    }

    fn is_over(&self, idle: Duration, now: Timestamp) -> bool {
        let silent = now.as_microsecond().saturating_sub(self.last_seen_us.load(Ordering::Acquire));
        self.row.expires_at <= now || silent >= i64::try_from(idle.as_micros()).unwrap_or(i64::MAX)
    }
}

/// Which of a session's two secrets was presented.
#[derive(Clone, Copy)]
pub(super) enum SessionSecret {
    Cookie,
    Token,
}

#[derive(Debug, Default)]
pub(super) struct SessionTable {
    by_id: DashMap<SessionId, Arc<LiveSession>>,
    by_cookie: DashMap<[u8; 32], Arc<LiveSession>>,
    by_token: DashMap<[u8; 32], Arc<LiveSession>>,
    /// Digests of the AGENT keys that the console uses for sessions. They are never stored.
    agent_keys: DashMap<SessionId, [u8; 32]>,
}

impl SessionTable {
    pub(super) fn apply(&self, row: SessionRow) {
        let (id, cookie, token) = (row.id.clone(), row.cookie_digest, row.token_digest);
        let old = self.by_id.get(&id).map(|old| Arc::clone(old.value()));
        let seen_us = old.as_ref().map_or(i64::MIN, |old| old.last_seen_us.load(Ordering::Acquire));
        let last_seen_us = AtomicI64::new(seen_us.max(row.last_seen.as_microsecond()));
        let unsaved = AtomicBool::new(old.is_some_and(|old| old.unsaved.load(Ordering::Acquire)));
        // The secrets of a session never change.
        let session = Arc::new(LiveSession { row, last_seen_us, unsaved });
        self.by_cookie.insert(cookie, Arc::clone(&session));
        self.by_token.insert(token, Arc::clone(&session));
        self.by_id.insert(id, session);
    }

    pub(super) fn remove(&self, id: &SessionId) {
        if let Some((_, session)) = self.by_id.remove(id) {
            self.by_cookie.remove(&session.row.cookie_digest);
            self.by_token.remove(&session.row.token_digest);
            self.agent_keys.remove(id);
        }
    }

    pub(super) fn ids(&self) -> HashSet<SessionId> {
        self.by_id.iter().map(|session| session.key().clone()).collect()
    }

    /// The session with this secret, live or over.
    pub(super) fn by_digest(
        &self,
        digest: &[u8; 32],
        secret: SessionSecret,
    ) -> Option<Arc<LiveSession>> {
        let table = match secret {
            SessionSecret::Cookie => &self.by_cookie,
            SessionSecret::Token => &self.by_token,
        };
        table.get(digest).map(|session| Arc::clone(session.value()))
    }

    /// Keeps the digest of an AGENT key until the session is removed.
    pub(super) fn keep_agent_key(&self, id: &SessionId, digest: [u8; 32]) {
        // While the guard is held, the session is not removed.
        let session = self.by_id.get(id);
        session.map(|_| self.agent_keys.insert(id.clone(), digest));
    }

    pub(super) fn agent_key(&self, id: &SessionId) -> Option<[u8; 32]> {
        self.agent_keys.get(id).map(|digest| *digest)
    }

    /// Applies a use of a session at another gateway.
    pub(super) fn learn_use(&self, id: &SessionId, at: Timestamp) {
        if let Some(session) = self.by_id.get(id) {
            session.last_seen_us.fetch_max(at.as_microsecond(), Ordering::AcqRel);
        }
    }

    pub(super) fn is_live(&self, id: &SessionId, idle: Duration, now: Timestamp) -> bool {
        self.by_id.get(id).is_some_and(|session| !session.is_over(idle, now))
    }

    /// The part that is not in the store yet: when sessions were last used, and which are over.
    pub(super) fn take_unsaved(
        &self,
        idle: Duration,
        now: Timestamp,
    ) -> (Vec<(SessionId, Timestamp)>, Vec<SessionId>) {
        let (mut seen, mut over) = (vec![], vec![]);
        for session in &self.by_id {
            if session.is_over(idle, now) {
                over.push(session.row.id.clone());
            } else if session.unsaved.swap(false, Ordering::AcqRel)
                && let Ok(at) =
                    Timestamp::from_microsecond(session.last_seen_us.load(Ordering::Acquire))
            {
                seen.push((session.row.id.clone(), at));
            }
        }
        (seen, over)
    }

    pub(super) fn put_back_unsaved(&self, seen: &[(SessionId, Timestamp)]) {
        for (id, _) in seen {
            if let Some(session) = self.by_id.get(id) {
                session.unsaved.store(true, Ordering::Release);
            }
        }
    }
}
