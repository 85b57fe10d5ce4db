//! Login sessions in memory: found by the digest of the cookie or of the token, never by one in place of the other,
//! and over when idle too long. Also the cookie itself: how it is read and how it is set.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use http::HeaderMap;
use jiff::Timestamp;

use super::UNKNOWN;
use crate::id::SessionId;
use crate::secret::Secret;
use crate::store::SessionRow;

/// The cookie under https; the prefix makes browsers hold its flags.
const SECURE_COOKIE: &str = "__Host-rerouter_session";
/// The cookie under plain http, where `Secure` would keep it from being sent.
const PLAIN_COOKIE: &str = "rerouter_session";

/// A session as requests share it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) row: SessionRow,
    last_seen_us: AtomicI64,
    unsaved: AtomicBool,
}

impl Session {
    /// Whether it is over, by its end or by silence.
    fn is_over(&self, idle: Duration, now: Timestamp) -> bool {
        let silent = now.as_microsecond().saturating_sub(self.last_seen_us.load(Ordering::Acquire));
        self.row.expires_at <= now || silent >= i64::try_from(idle.as_micros()).unwrap_or(i64::MAX)
    }
}

/// All live sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_id: DashMap<SessionId, Arc<Session>>,
    by_cookie: DashMap<[u8; 32], Arc<Session>>,
    by_token: DashMap<[u8; 32], Arc<Session>>,
}

/// Which of a session's two secrets was shown.
#[derive(Clone, Copy)]
pub(super) enum Shown {
    Cookie,
    Token,
}

impl Sessions {
    /// Takes a row as it is now.
    pub(super) fn apply(&self, row: SessionRow) {
        let (id, cookie, token) = (row.id.clone(), row.cookie_digest, row.token_digest);
        let old = self.by_id.get(&id).map(|old| Arc::clone(old.value()));
        let seen_us = old.as_ref().map_or(i64::MIN, |old| old.last_seen_us.load(Ordering::Acquire));
        let last_seen_us = AtomicI64::new(seen_us.max(row.last_seen.as_microsecond()));
        let unsaved =
            AtomicBool::new(old.as_ref().is_some_and(|old| old.unsaved.load(Ordering::Acquire)));
        let session = Arc::new(Session { row, last_seen_us, unsaved });
        self.by_cookie.insert(cookie, Arc::clone(&session));
        self.by_token.insert(token, Arc::clone(&session));
        self.by_id.insert(id, session);
        // After the new ones are there: a secret is found by one of the two at any moment.
        if let Some(old) = old {
            if old.row.cookie_digest != cookie {
                self.by_cookie.remove(&old.row.cookie_digest);
            }
            if old.row.token_digest != token {
                self.by_token.remove(&old.row.token_digest);
            }
        }
    }

    /// Forgets one.
    pub(super) fn end(&self, id: &SessionId) {
        if let Some((_, session)) = self.by_id.remove(id) {
            self.by_cookie.remove(&session.row.cookie_digest);
            self.by_token.remove(&session.row.token_digest);
        }
    }

    /// The live session with this secret, which is now seen; or why there is none.
    pub(super) fn find(
        &self,
        digest: &[u8; 32],
        shown: Shown,
        idle: Duration,
        now: Timestamp,
    ) -> Result<Arc<Session>, &'static str> {
        let table = match shown {
            Shown::Cookie => &self.by_cookie,
            Shown::Token => &self.by_token,
        };
        let session =
            table.get(digest).map(|session| Arc::clone(session.value())).ok_or(UNKNOWN)?;
        if session.is_over(idle, now) {
            return Err("expired");
        }
        session.last_seen_us.fetch_max(now.as_microsecond(), Ordering::AcqRel);
        session.unsaved.store(true, Ordering::Release);
        Ok(session)
    }

    /// Whether there is this session, and it is not over.
    pub(super) fn has(&self, id: &SessionId, idle: Duration, now: Timestamp) -> bool {
        self.by_id.get(id).is_some_and(|session| !session.is_over(idle, now))
    }

    /// What the store does not know yet: when sessions were last seen, and which are over.
    pub(super) fn unsaved(
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

    /// Marks them for the next time, when the store did not take them.
    pub(super) fn still_unsaved(&self, seen: &[(SessionId, Timestamp)]) {
        for (id, _) in seen {
            if let Some(session) = self.by_id.get(id) {
                session.unsaved.store(true, Ordering::Release);
            }
        }
    }
}

/// What the request's `Cookie` lines hold of ours.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cookie<'a> {
    Absent,
    One(&'a str),
    /// Twice, or not text: whoever wrote that is not a browser that we logged in.
    Bad,
}

/// Reads our cookie: under https only the one that https set, under http only the other.
pub(super) fn read_cookie(headers: &HeaderMap, secure: bool) -> Cookie<'_> {
    let ours = if secure { SECURE_COOKIE } else { PLAIN_COOKIE };
    let mut found = Cookie::Absent;
    for line in headers.get_all(http::header::COOKIE) {
        for pair in line.as_bytes().split(|byte| *byte == b';') {
            let mut halves = pair.trim_ascii().splitn(2, |byte| *byte == b'=');
            if halves.next() != Some(ours.as_bytes()) {
                continue;
            }
            let value = halves
                .next()
                .and_then(|value| std::str::from_utf8(value).ok())
                .filter(|value| !value.is_empty());
            found = match (found, value) {
                (Cookie::Absent, Some(value)) => Cookie::One(value),
                _ => Cookie::Bad,
            };
        }
    }
    found
}

/// The `Set-Cookie` value that logs a browser in for `lasting`.
pub fn set_cookie(value: &Secret, secure: bool, lasting: Duration) -> String {
    let (name, flag) = if secure { (SECURE_COOKIE, "; Secure") } else { (PLAIN_COOKIE, "") };
    format!(
        "{name}={}; Path=/; Max-Age={}; HttpOnly; SameSite=Lax{flag}",
        value.expose(),
        lasting.as_secs()
    )
}

/// The `Set-Cookie` value that makes a browser forget the login.
pub fn clear_cookie(secure: bool) -> String {
    set_cookie(&Secret::new(""), secure, Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn lines(lines: &[&str]) -> HeaderMap {
        lines
            .iter()
            .map(|line| (http::header::COOKIE, HeaderValue::from_str(line).unwrap()))
            .collect()
    }

    #[test]
    fn only_the_cookie_that_fits_is_read() {
        for (given, secure, expected) in [
            (&["a=b; rerouter_session=x; c=d"][..], false, Cookie::One("x")),
            (&["a=b", "rerouter_session=x"], false, Cookie::One("x")),
            (&["rerouter_session=x"], true, Cookie::Absent),
            (&["__Host-rerouter_session=x"], true, Cookie::One("x")),
            (&["__Host-rerouter_session=x"], false, Cookie::Absent),
            (&["Rerouter_Session=x; xrerouter_session=y"], false, Cookie::Absent),
            (&["rerouter_session=x; rerouter_session=x"], false, Cookie::Bad),
            (&["rerouter_session=x", "rerouter_session=y"], false, Cookie::Bad),
            (&["rerouter_session="], false, Cookie::Bad),
            (&["rerouter_session"], false, Cookie::Bad),
            (&["rerouter_session=a=b"], false, Cookie::One("a=b")),
            (&[], false, Cookie::Absent),
        ] {
            assert_eq!(read_cookie(&lines(given), secure), expected, "{given:?}");
        }
    }

    #[test]
    fn what_is_set_is_read_back() {
        for secure in [true, false] {
            let set = set_cookie(&Secret::new("ses_x"), secure, Duration::from_secs(43_200));
            let pair = set.split(';').next().unwrap();
            assert_eq!(read_cookie(&lines(&[pair]), secure), Cookie::One("ses_x"));
            assert_eq!(set.contains("; Secure"), secure);
            assert!(set.ends_with(if secure {
                "Max-Age=43200; HttpOnly; SameSite=Lax; Secure"
            } else {
                "Max-Age=43200; HttpOnly; SameSite=Lax"
            }));
        }
    }

    proptest! {
        #[test]
        fn any_cookie_line_is_read_without_harm(line in proptest::collection::vec(32_u8..=255, 0..200), secure: bool) {
            prop_assume!(!line.contains(&127));
            let headers = HeaderMap::from_iter([(http::header::COOKIE, HeaderValue::from_bytes(&line).unwrap())]);
            let name = if secure { SECURE_COOKIE } else { PLAIN_COOKIE };
            if let Cookie::One(value) = read_cookie(&headers, secure) {
                let text = String::from_utf8_lossy(&line).into_owned();
                let expected = format!("{name}={}", value);
                prop_assert!(text.contains(expected.as_str()));
                prop_assert!(!value.contains(';'));
            }
        }

        #[test]
        fn ours_is_found_among_others(before in "[a-z]{1,8}=[ -:<-~]{0,20}", value in "[0-9A-Za-z_]{1,40}", after in "[a-z]{1,8}=[ -:<-~]{0,20}") {
            let line = format!("{before}; rerouter_session={value}; {after}");
            let headers = lines(&[&line]);
            prop_assert_eq!(read_cookie(&headers, false), Cookie::One(value.as_str()));
        }
    }
}
