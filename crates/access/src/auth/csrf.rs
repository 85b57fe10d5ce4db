//! Protection from cross-site request forgery. Another site can make a browser send a request, with
//! the session cookie, so every unsafe request without another credential must prove its origin.

use http::header::{ORIGIN, REFERER};
use http::{HeaderMap, HeaderValue, Method};

use super::signature::one;
use rerouter_base::error::{Error, Kind, Result};

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Refuses an unsafe request from another site. `Sec-Fetch-Site` decides if present, else `Origin`,
/// else `Referer`; programs that are not browsers send none. `expected_origin` is the origin of the
/// gateway, for example `https://gw.example.com`.
pub fn check_origin(method: &Method, headers: &HeaderMap, expected_origin: &str) -> Result<()> {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let is_ours = |origin: &str| canonical(origin) == canonical(expected_origin);
    let allowed = match (one(headers, SEC_FETCH_SITE), one(headers, ORIGIN)) {
        (Ok(Some(site)), _) => site == "same-origin" || site == "none",
        (Ok(None), Ok(Some(origin))) => is_ours(origin),
        (Ok(None), Ok(None)) => match one(headers, REFERER) {
            Ok(None) => true,
            Ok(Some(page)) => is_ours(&page.split('/').take(3).collect::<Vec<_>>().join("/")),
            Err(_) => false,
        },
        (Err(_), _) | (Ok(None), Err(_)) => false,
    };
    if allowed {
        Ok(())
    } else {
        Err(Error::new(Kind::CsrfRejected, "A browser sent this from another site."))
    }
}

/// Schemes whose credentials browsers add by themselves, from the URL or after an earlier login
/// (RFC 7617 section 2.2, RFC 7616, RFC 4559).
const AUTOMATIC: [&str; 4] = ["basic", "digest", "negotiate", "ntlm"];

/// Whether `Authorization` holds a credential that no browser adds by itself, valid or not.
pub(super) fn has_explicit_authorization(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(http::header::AUTHORIZATION).iter().peekable();
    let scheme = |line: &HeaderValue| {
        let scheme = line.as_bytes().split(|byte| *byte == b' ').next().unwrap_or_default();
        AUTOMATIC.iter().any(|known| scheme.eq_ignore_ascii_case(known.as_bytes()))
    };
    lines.peek().is_some() && !lines.any(scheme)
}

/// An origin in lower case and without the scheme's default port, which browsers omit (RFC 6454
/// section 6.2).
fn canonical(origin: &str) -> String {
    let origin = origin.to_ascii_lowercase();
    let default_port = if origin.starts_with("https://") { ":443" } else { ":80" };
    origin.strip_suffix(default_port).map_or(origin.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

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
            (&[("referer", "http://gw.test:8080/console/keys?a=b")], true),
            (&[("referer", "http://gw.test:8080")], true),
            (&[("referer", "http://evil.test/http://gw.test:8080/")], false),
            (&[("referer", "http://gw.test:8080.evil.test/")], false),
            (&[("referer", "http://gw.test/")], false),
            (&[("referer", "")], false),
            (&[("referer", "http://gw.test:8080/"), ("referer", "http://evil.test/")], false),
            (&[("origin", "http://evil.test"), ("referer", "http://gw.test:8080/")], false),
            (&[("origin", "http://gw.test:8080"), ("referer", "http://evil.test/")], true),
            (&[("origin", "http://gw.test:8080"), ("origin", "http://evil.test")], false),
        ] {
            let headers: HeaderMap = given
                .iter()
                .map(|(name, value)| {
                    (HeaderName::from_static(name), HeaderValue::from_static(value))
                })
                .collect();
            for method in [Method::POST, Method::DELETE, Method::PUT, Method::PATCH] {
                let answer = check_origin(&method, &headers, "http://gw.test:8080");
                assert_eq!(answer.is_ok(), allowed, "{method} {given:?}");
                assert!(answer.err().is_none_or(|error| error.kind() == Kind::CsrfRejected));
            }
            assert!(check_origin(&Method::GET, &headers, "http://gw.test:8080").is_ok());
        }
    }

    #[test]
    fn what_a_browser_adds_by_itself_is_no_explicit_credential() {
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
            assert_eq!(has_explicit_authorization(&headers), shown, "{given:?}");
        }
    }

    #[test]
    fn a_default_port_may_be_left_out() {
        let headers = HeaderMap::from_iter([(
            http::header::ORIGIN,
            HeaderValue::from_static("https://gw.test"),
        )]);
        assert!(check_origin(&Method::POST, &headers, "https://gw.test:443").is_ok());
        assert!(check_origin(&Method::POST, &headers, "https://gw.test:80").is_err());
    }
}
