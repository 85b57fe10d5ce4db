//! The session cookie: how it is read and how it is set.

use std::time::Duration;

use http::HeaderMap;

use rerouter_base::secret::Secret;

/// The cookie under https. Browsers enforce the attributes that the prefix `__Host-` requires.
const SECURE_COOKIE: &str = "__Host-rerouter_session";
/// The cookie under plain http, where a browser would not send a cookie with `Secure`.
const PLAIN_COOKIE: &str = "rerouter_session";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum SessionCookie<'a> {
    Absent,
    One(&'a str),
    /// Sent twice, empty or not text: no browser that logged in sends that.
    Invalid,
}

/// Reads the session cookie: under https only [`SECURE_COOKIE`], under http only [`PLAIN_COOKIE`].
pub(super) fn read_cookie(headers: &HeaderMap, secure: bool) -> SessionCookie<'_> {
    let ours = if secure { SECURE_COOKIE } else { PLAIN_COOKIE };
    let mut found = SessionCookie::Absent;
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
                (SessionCookie::Absent, Some(value)) => SessionCookie::One(value),
                _ => SessionCookie::Invalid,
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
    fn only_the_cookie_of_the_scheme_is_read() {
        for (given, secure, expected) in [
            (&["a=b; rerouter_session=x; c=d"][..], false, SessionCookie::One("x")),
            (&["a=b", "rerouter_session=x"], false, SessionCookie::One("x")),
            (&["rerouter_session=x"], true, SessionCookie::Absent),
            (&["__Host-rerouter_session=x"], true, SessionCookie::One("x")),
            (&["__Host-rerouter_session=x"], false, SessionCookie::Absent),
            (&["Rerouter_Session=x; xrerouter_session=y"], false, SessionCookie::Absent),
            (&["rerouter_session=x; rerouter_session=x"], false, SessionCookie::Invalid),
            (&["rerouter_session=x", "rerouter_session=y"], false, SessionCookie::Invalid),
            (&["rerouter_session="], false, SessionCookie::Invalid),
            (&["rerouter_session"], false, SessionCookie::Invalid),
            (&["rerouter_session=a=b"], false, SessionCookie::One("a=b")),
            (&[], false, SessionCookie::Absent),
        ] {
            assert_eq!(read_cookie(&lines(given), secure), expected, "{given:?}");
        }
    }

    #[test]
    fn what_is_set_is_read_back() {
        for secure in [true, false] {
            let set = set_cookie(&Secret::new("ses_x"), secure, Duration::from_secs(43_200));
            let pair = set.split(';').next().unwrap();
            assert_eq!(read_cookie(&lines(&[pair]), secure), SessionCookie::One("ses_x"));
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
        fn any_cookie_line_is_read_without_harm(line in proptest::collection::vec(32_u8..=255,
                0..200), secure: bool) {
            prop_assume!(!line.contains(&127));
            let headers = HeaderMap::from_iter([(
                http::header::COOKIE, HeaderValue::from_bytes(&line).unwrap()
            )]);
            let name = if secure { SECURE_COOKIE } else { PLAIN_COOKIE };
            if let SessionCookie::One(value) = read_cookie(&headers, secure) {
                let text = String::from_utf8_lossy(&line).into_owned();
                let expected = format!("{name}={}", value);
                prop_assert!(text.contains(expected.as_str()));
                prop_assert!(!value.contains(';'));
            }
        }

        #[test]
        fn the_session_cookie_is_found_among_others(before in "[a-z]{1,8}=[ -:<-~]{0,20}",
            value in "[0-9A-Za-z_]{1,40}", after in "[a-z]{1,8}=[ -:<-~]{0,20}") {
            let line = format!("{before}; rerouter_session={value}; {after}");
            let headers = lines(&[&line]);
            prop_assert_eq!(read_cookie(&headers, false), SessionCookie::One(value.as_str()));
        }
    }
}
