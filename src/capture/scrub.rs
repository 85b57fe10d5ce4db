//! What a capture must not hold: credentials in headers and inside bodies.

use std::ops::Range;

use bytes::Bytes;
use http::HeaderMap;

use crate::protocol::json::{self, Cursor, Edit, Fault, Name, Shape};
use crate::routing::provider::Provider;
use crate::secret::Secret;

/// What stands in a body where a credential stood.
const REDACTED: &[u8] = b"\"[redacted]\"";
/// Shorter secrets are not looked for in values: they would be found by chance.
const SECRET_BYTES: usize = 8;

/// Whether a header of this name carries a credential, by its name (lower-case): the known ones, and every other that
/// ends as such names do. `idempotency-key` only sounds like one.
pub fn is_credential(name: &str) -> bool {
    const KNOWN: &[&str] = &["authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key", "x-auth", "auth"];
    const ENDS: &[&str] = &["-key", "-token", "-secret", "-password", "-signature", "apikey", "authorization", "-auth"];
    name != "idempotency-key" && (KNOWN.contains(&name) || ENDS.iter().any(|end| name.ends_with(end)))
}

/// What a provider is sent to know us by, as it may turn up in what it says: its key, and of each header that is meant to
/// hold a credential the value without its scheme.
pub fn credentials(provider: &Provider) -> Vec<&str> {
    let headers = provider.headers.iter().filter(|(name, _)| is_credential(name.as_str()));
    let of_headers = headers.filter_map(|(_, value)| value.to_str().ok()?.rsplit(' ').next());
    provider.api_keys.iter().map(Secret::expose).chain(of_headers).collect()
}

/// The headers that a capture keeps, in order: all but those that carry a credential by their name, or any of `secrets` in
/// their value.
pub fn keep_headers(headers: &HeaderMap, secrets: &[&str]) -> Vec<(String, String)> {
    let holds_secret = |value: &[u8]| {
        let mut long = secrets.iter().filter(|secret| secret.len() >= SECRET_BYTES);
        long.any(|secret| memchr::memmem::find(value, secret.as_bytes()).is_some())
    };
    headers
        .iter()
        .filter(|(name, value)| !value.is_sensitive() && !is_credential(name.as_str()) && !holds_secret(value.as_bytes()))
        .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect()
}

/// A body fit to be stored, and whether something was taken out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrubbed {
    /// The body; only the credentials are other bytes than before.
    pub body: Bytes,
    /// Whether there were any: such a body cannot be sent again.
    pub redacted: bool,
}

/// Takes the credentials out of a request's body: of each of its tools and MCP servers the value of `authorization` or
/// `authorization_token`, and of those in `headers` that carry one. A body that cannot be read (it was refused, or cut) and might hold one is not stored at all.
pub fn scrub_body(body: &Bytes) -> Scrubbed {
    let mut found: Vec<Range<usize>> = Vec::new();
    let read = json::read_object(body, |cursor, name| {
        if matches!(&*name.text(), "tools" | "mcp_servers") && cursor.shape()? == Shape::Array {
            return cursor.elements(|tool| tool.members(|cursor, name| tool_member(cursor, name, &mut found)));
        }
        cursor.skip().map(|_| ())
    });
    if read.is_err() {
        let lower = body.to_ascii_lowercase();
        let suspect = ["authorization", "api-key", "\\u"].iter().any(|word| memchr::memmem::find(&lower, word.as_bytes()).is_some());
        return Scrubbed { body: if suspect { Bytes::new() } else { body.clone() }, redacted: suspect };
    }
    let redacted = !found.is_empty();
    Scrubbed { body: json::splice(body, found.into_iter().map(|span| Edit::new(span, REDACTED)).collect()), redacted }
}

fn tool_member(cursor: &mut Cursor<'_>, name: Name<'_>, found: &mut Vec<Range<usize>>) -> Result<(), Fault> {
    let name = name.text().to_ascii_lowercase();
    if name == "headers" && cursor.shape()? == Shape::Object {
        return cursor.members(|cursor, name| {
            let secret = is_credential(&name.text().to_ascii_lowercase());
            take_value(cursor, secret, found)
        });
    }
    take_value(cursor, matches!(name.as_str(), "authorization" | "authorization_token"), found)
}

fn take_value(cursor: &mut Cursor<'_>, secret: bool, found: &mut Vec<Range<usize>>) -> Result<(), Fault> {
    let is_null = cursor.shape()? == Shape::Null;
    let span = cursor.skip()?;
    if secret && !is_null {
        found.push(span);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_header_with_a_credential_is_kept() {
        let mut headers = HeaderMap::new();
        for name in [
            "authorization",
            "x-api-key",
            "api-key",
            "cookie",
            "set-cookie",
            "proxy-authorization",
            "x-goog-api-key",
            "x-amz-security-token",
            "x-client-secret",
        ] {
            headers.append(name, HeaderValue::from_static("canary"));
        }
        headers.append("x-forwarded-thing", HeaderValue::from_static("Bearer sk-provider-secret"));
        for name in ["content-type", "idempotency-key", "x-ratelimit-remaining-tokens", "user-agent"] {
            headers.append(name, HeaderValue::from_static("kept"));
        }
        headers.append("user-agent", HeaderValue::from_bytes(b"\xff").unwrap());
        let kept = keep_headers(&headers, &["", "sk-provider-secret"]);
        assert_eq!(kept.len(), 5, "{kept:?}");
        assert!(!format!("{kept:?}").contains("canary") && !format!("{kept:?}").contains("sk-"));
    }

    #[test]
    fn credentials_of_tools_leave_and_nothing_else() {
        let body = r#"{"model":"m","tools":[{"type":"mcp", "auth\u006frization" : "canary-1","headers":{"Authorization":"canary-2","X-Api-Key":["canary-3"],"X-Team":"core"}},
            {"type":"function","function":{"authorization":"a word"}},{"authorization":null}],"authorization":"not a tool's"}"#;
        let out = scrub_body(&Bytes::from(body));
        assert!(out.redacted);
        let mut expected = body.to_owned();
        for canary in ["\"canary-1\"", "\"canary-2\"", "[\"canary-3\"]"] {
            expected = expected.replace(canary, "\"[redacted]\"");
        }
        assert_eq!(std::str::from_utf8(&out.body).unwrap(), expected);
        let servers = r#"{"mcp_servers":[{"type":"url","authorization_token":"canary-4"},{"name":"x"}],"model":"m"}"#;
        assert_eq!(scrub_body(&Bytes::from(servers)).body, servers.replace("canary-4", "[redacted]"));
        let plain = Bytes::from(r#"{"tools":[{"type":"function"}]}"#);
        assert_eq!(scrub_body(&plain), Scrubbed { body: plain, redacted: false });
    }

    #[test]
    fn what_cannot_be_read_is_not_trusted() {
        assert_eq!(scrub_body(&Bytes::from(r#"{"tools":[{"Authorization":"canary""#)), Scrubbed { body: Bytes::new(), redacted: true });
        assert!(!scrub_body(&Bytes::from("{\"model\":")).redacted);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(body in "(\\{|\\}|\\[|\\]|\"tools\":|\"headers\":|\"authorization\":|\"x\"|,|1){0,20}") {
            scrub_body(&Bytes::from(body));
        }
    }
}
