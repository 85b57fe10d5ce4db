//! The framing gate: checks a request head before all other code uses it. The gate refuses what
//! Pingora's parser accepts and a strict reader of RFC 9112 does not, so that no server behind the
//! gateway reads a request differently.

use http::uri::Authority;
use http::{HeaderValue, Method, Version, header};
use pingora::http::RequestHeader;

use rerouter_base::error::{Error, Kind, Result};

/// Largest total size of a request's header lines, in bytes. Large providers accept as much.
pub(super) const HEAD_BYTES: usize = 64 << 10;
/// Most header lines of a request.
const HEADER_LINES: usize = 128;
/// Longest request target, in bytes.
const REQUEST_TARGET_BYTES: usize = 8 << 10;

/// `raw` holds the header lines as they came over HTTP/1, bounded and each ending in CRLF
/// ([`super::http1_head`]).
pub(super) fn check(head: &RequestHeader, raw: Option<&[u8]>) -> Result<()> {
    if let Some(raw) = raw {
        check_raw(raw)?;
    }
    if head.version == Version::HTTP_2 {
        check_h2(head)?;
    }
    if head.headers.len() > HEADER_LINES {
        return Err(Error::new(
            Kind::HeadersTooLarge,
            format!("More than {} header lines.", HEADER_LINES),
        ));
    }
    check_request_target(head)?;
    check_framing(head)?;
    check_host(head)
}

fn refuse(detail: &str) -> Error {
    Error::new(Kind::InvalidRequest, detail)
}

/// Checks an HTTP/2 head: its size, a path as its target, at most one length, and a `Host` that
/// equals the authority.
fn check_h2(head: &RequestHeader) -> Result<()> {
    let length: usize =
        head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if length > HEAD_BYTES {
        return Err(too_large());
    }
    if head.method != Method::CONNECT && !head.raw_path().starts_with(b"/") {
        return Err(refuse("The request target is not a path."));
    }
    if head.headers.get_all(header::CONTENT_LENGTH).iter().nth(1).is_some() {
        return Err(refuse("More than one header says how long the body is."));
    }
    match (head.uri.authority(), head.headers.get(header::HOST)) {
        (Some(authority), Some(host)) if authority.as_str().as_bytes() != host.as_bytes() => {
            Err(refuse("Host is not the authority."))
        }
        _ => Ok(()),
    }
}

pub(super) fn too_large() -> Error {
    Error::new(Kind::HeadersTooLarge, format!("A request head of more than {} bytes.", HEAD_BYTES))
}

fn check_raw(raw: &[u8]) -> Result<()> {
    let (mut lengths, mut codings) = (0, 0);
    for end in memchr::memchr_iter(b'\n', raw) {
        let line = raw.get(end + 1..).unwrap_or_default();
        if matches!(line.first(), Some(b' ' | b'\t')) {
            return Err(refuse("A folded header line."));
        }
        let (count, is_spelled) = if is_named(line, b"content-length") {
            (&mut lengths, line.get(7) == Some(&b'-'))
        } else if is_named(line, b"transfer-encoding") {
            (&mut codings, line.get(8) == Some(&b'-'))
        } else {
            continue;
        };
        if !is_spelled {
            // Some servers read the underscore as a hyphen.
            return Err(refuse("A framing header spelled with an underscore."));
        }
        *count += 1;
    }
    if lengths > 1 || codings > 1 || (lengths > 0 && codings > 0) {
        return Err(refuse("More than one header says how long the body is."));
    }
    Ok(())
}

/// Whether a header line has this name, also with underscores for hyphens.
fn is_named(line: &[u8], name: &[u8]) -> bool {
    let same = |(byte, named): (&u8, &u8)| {
        byte.eq_ignore_ascii_case(named) || (*named == b'-' && *byte == b'_')
    };
    matches!(line.get(name.len()), None | Some(b':' | b'\n'))
        && line.len() >= name.len()
        && line.iter().zip(name).all(same)
}

fn check_request_target(head: &RequestHeader) -> Result<()> {
    if head.method == Method::CONNECT {
        return Err(Error::new(Kind::MethodNotAllowed, "CONNECT is not served here.")
            .allowing("GET, POST, PUT, PATCH, DELETE"));
    }
    if head.raw_path().len() > REQUEST_TARGET_BYTES {
        return Err(refuse("The request target is too long."));
    }
    if !head.raw_path().iter().all(u8::is_ascii_graphic) {
        return Err(refuse("The request target holds bytes that belong percent-encoded."));
    }
    let raw = head.raw_path();
    if !raw.starts_with(b"/") && !raw.starts_with(b"http://") && !raw.starts_with(b"https://") {
        return Err(refuse("The request target is not a path."));
    }
    let path = head.uri.path();
    if !path.starts_with('/') {
        return Err(refuse("The request target is not a path."));
    }
    let odd = path.bytes().any(|byte| matches!(byte, b'%' | b'\\'))
        || path.contains("/.")
        || path.contains("//");
    if odd && !is_normal(path) {
        Err(refuse("The path is not in its normal form."))
    } else {
        Ok(())
    }
}

fn is_normal(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let dotted = |segment: &str| matches!(segment.replace("%2e", ".").as_str(), "." | "..");
    !(path.contains('\\')
        || path.contains("//")
        || lower.contains("%00")
        || lower.contains("%5c")
        || lower.split('/').any(dotted))
}

fn check_framing(head: &RequestHeader) -> Result<()> {
    if head.headers.contains_key(header::UPGRADE) {
        return Err(refuse("Upgrade is not served here."));
    }
    if let Some(coding) = head.headers.get(header::TRANSFER_ENCODING)
        && (head.version != Version::HTTP_11 || !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
    {
        return Err(refuse("Transfer-Encoding is not exactly chunked."));
    }
    if let Some(length) = head.headers.get(header::CONTENT_LENGTH)
        && (length.is_empty() || !length.as_bytes().iter().all(u8::is_ascii_digit))
    {
        // RFC 9110 section 8.6 allows a list of equal lengths to count as one, but not every server
        // reads it so.
        return Err(refuse("Content-Length is not a number."));
    }
    let known =
        |expectation: &HeaderValue| expectation.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if !head.headers.get_all(header::EXPECT).iter().all(known) {
        return Err(refuse("An expectation other than 100-continue."));
    }
    Ok(())
}

fn check_host(head: &RequestHeader) -> Result<()> {
    match authority(head) {
        Some(host) if is_authority(host) => Ok(()),
        Some(_) => Err(refuse("Host is not a host with an optional port.")),
        None => Err(refuse("Exactly one Host is needed.")),
    }
}

/// The authority of the request as it was spelled: `Host`, or HTTP/2's `:authority`. `None` unless
/// there is exactly one.
pub(super) fn authority(head: &RequestHeader) -> Option<&str> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok(),
        (None, None) if head.version == Version::HTTP_2 => {
            head.uri.authority().map(Authority::as_str)
        }
        _ => None,
    }
}

/// Whether the text has the form `uri-host [":" port]` (RFC 9110 section 7.2). Names consist of
/// letters, digits, `-`, `.` and `_`.
fn is_authority(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((inner, after)) => {
                if inner.parse::<std::net::Ipv6Addr>().is_err() {
                    return false;
                }
                return after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
            }
            None => return false,
        },
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    !host.is_empty()
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
        && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 5
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(request_target: &str, headers: &[(&'static str, &'static str)]) -> RequestHeader {
        let mut head = RequestHeader::build("POST", request_target.as_bytes(), None).unwrap();
        for (name, value) in headers {
            head.append_header(*name, *value).unwrap();
        }
        head
    }

    /// A plainer version of the check, for comparison.
    fn is_refused(raw: &[u8]) -> bool {
        let (mut lengths, mut codings) = (0, 0);
        for line in raw.split(|byte| *byte == b'\n').skip(1) {
            let name = line.split(|byte| *byte == b':').next().unwrap().to_ascii_lowercase();
            let underscored = [&b"content_length"[..], b"transfer_encoding"].contains(&&*name);
            if underscored || matches!(line.first(), Some(b' ' | b'\t')) {
                return true;
            }
            lengths += usize::from(name == b"content-length");
            codings += usize::from(name == b"transfer-encoding");
        }
        lengths + codings > 1
    }

    proptest::proptest! {
        #[test]
        fn lines_are_checked_as_in_plain_words(parts in proptest::collection::vec(
            proptest::sample::select(vec![
                "content-length", "Content-LENGTH", "content_length", "content-lengt", "length",
                "transfer-encoding", "Transfer_Encoding", "transfer-encodings", "transfer",
                ":", ": 5", " ", "\t", "-", "_", "\r\n", "\r\n", "\n", "x", "host: a\r\n",
            ]),
            0..16,
        )) {
            let raw = ["POST / HTTP/1.1\r\n".to_owned(), parts.concat()].concat();
            let raw = raw.as_bytes();
            proptest::prop_assert_eq!(check_raw(raw).is_err(), is_refused(raw));
        }
    }

    #[test]
    fn hosts_are_hosts() {
        for good in ["a", "a.b-c", "127.0.0.1:80", "[::1]", "[::1]:8080", "a_b:1"] {
            assert!(is_authority(good), "{good}");
        }
        for bad in
            ["", "a/path", "a, b", "a:", "a:b", "a:99999", "x/#@evil", "[::1", "[zz]", ":80", "a b"]
        {
            assert!(!is_authority(bad), "{bad}");
        }
        assert!(check(&head("/", &[]), None).is_err());
        assert!(check(&head("/", &[("host", "a"), ("host", "a")]), None).is_err());
    }

    #[test]
    fn paths_are_in_normal_form() {
        for bad in ["/a//b", "/a/../b", "/a/%2E%2e/b", "/a/./b", "/a\\b", "/a%00"] {
            assert!(check(&head(bad, &[("host", "a")]), None).is_err(), "{bad}");
        }
        assert!(check(&head("/v1/models/openai%2Fgpt", &[("host", "a")]), None).is_ok());
    }
}
