//! Which requests a browser may have been made to send by another site. A cookie goes along with those, so every
//! unsafe request that shows no other credential has to prove where it comes from.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::error::{Error, Kind, Result};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses an unsafe request from another site: `Sec-Fetch-Site` decides where there is one, else `Origin`; programs
/// that are not browsers send neither. `expected_origin` is ours: `https://gw.example.com`.
pub fn browser_allows(method: &Method, headers: &HeaderMap, expected_origin: &str) -> Result<()> {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let allowed = match (one(headers, &SEC_FETCH_SITE), one(headers, &http::header::ORIGIN)) {
        (Line::One(site), _) => site == "same-origin" || site == "none",
        (Line::Absent, Line::One(origin)) => canonical(origin) == canonical(expected_origin),
        (Line::Absent, Line::Absent) => true,
        (Line::Bad, _) | (Line::Absent, Line::Bad) => false,
    };
    if allowed {
        Ok(())
    } else {
        Err(Error::new(Kind::CsrfRejected, "A browser sent this from another site."))
    }
}

/// Schemes whose credentials browsers add by themselves: from an address, or because somebody logged in before (RFC 7617
/// section 2.2, RFC 7616, RFC 4559).
const BY_ITSELF: [&str; 4] = ["basic", "digest", "negotiate", "ntlm"];

/// Whether `Authorization` holds what no browser adds by itself, good or not.
pub fn shows_authorization(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(http::header::AUTHORIZATION).iter().peekable();
    let scheme = |line: &HeaderValue| {
        let scheme = line.as_bytes().split(|byte| *byte == b' ').next().unwrap_or_default();
        BY_ITSELF.iter().any(|known| scheme.eq_ignore_ascii_case(known.as_bytes()))
    };
    lines.peek().is_some() && !lines.any(scheme)
}

enum Line<'a> {
    Absent,
    One(&'a str),
    Bad,
}

fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Line<'a> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Line::Absent,
        (Some(line), None) => line.to_str().map_or(Line::Bad, Line::One),
        (Some(_), Some(_)) => Line::Bad,
    }
}

/// Lower-case and without the scheme's own port, which browsers leave out (RFC 6454 section 6.2).
fn canonical(origin: &str) -> String {
    let origin = origin.to_ascii_lowercase();
    let own_port = if origin.starts_with("https://") { ":443" } else { ":80" };
    origin.strip_suffix(own_port).map_or(origin.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_for_browsers() {
        const SITE: &str = "sec-fetch-site";
        for (given, allowed) in [
            (&[][..], true),
            (&[(SITE, "same-origin")], true),
            (&[(SITE, "none")], true),
            (&[(SITE, "same-site")], false),
            (&[(SITE, "cross-site")], false),
            (&[(SITE, "cross-site"), ("origin", "http://gw.test:8080")], false),
            (&[(SITE, "same-origin"), (SITE, "same-origin")], false),
            (&[("origin", "http://gw.test:8080")], true),
            (&[("origin", "http://GW.test:8080")], true),
            (&[("origin", "https://gw.test:8080")], false),
            (&[("origin", "http://gw.test")], false),
            (&[("origin", "http://gw.test:8080.evil.test")], false),
            (&[("origin", "null")], false),
            (&[("origin", "http://gw.test:8080"), ("origin", "http://evil.test")], false),
        ] {
            let headers: HeaderMap = given
                .iter()
                .map(|(name, value)| {
                    (HeaderName::from_static(name), HeaderValue::from_static(value))
                })
                .collect();
            for method in [Method::POST, Method::DELETE, Method::PUT, Method::PATCH] {
                let answer = browser_allows(&method, &headers, "http://gw.test:8080");
                assert_eq!(answer.is_ok(), allowed, "{method} {given:?}");
                assert!(answer.err().is_none_or(|error| error.kind() == Kind::CsrfRejected));
            }
            assert!(browser_allows(&Method::GET, &headers, "http://gw.test:8080").is_ok());
        }
    }

    #[test]
    fn what_a_browser_adds_by_itself_shows_nothing() {
        for (given, shown) in [
            (&[][..], false),
            (&["Bearer x"], true),
            (&["ApiKey x"], true),
            (&["nonsense"], true),
            (&["Basic dTpw"], false),
            (&["basic"], false),
            (&["DIGEST x"], false),
            (&["Negotiate x"], false),
            (&["NTLM x"], false),
            (&["Bearer x", "Basic dTpw"], false),
        ] {
            let headers: HeaderMap = given
                .iter()
                .map(|value| (http::header::AUTHORIZATION, HeaderValue::from_static(value)))
                .collect();
            assert_eq!(shows_authorization(&headers), shown, "{given:?}");
        }
    }

    #[test]
    fn a_default_port_may_be_left_out() {
        let headers = HeaderMap::from_iter([(
            http::header::ORIGIN,
            HeaderValue::from_static("https://gw.test"),
        )]);
        assert!(browser_allows(&Method::POST, &headers, "https://gw.test:443").is_ok());
        assert!(browser_allows(&Method::POST, &headers, "https://gw.test:80").is_err());
    }
}
