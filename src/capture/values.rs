//! Values of headers that are credentials, whatever the header is called.

use std::borrow::Cow;

use super::echo::SECRET_BYTES;
use crate::auth::token;

/// Whether the value of a tool's header is one; of one that is cut off, whether it may be.
pub(super) fn is_tool_credential(value: &str, cut: bool) -> bool {
    scheme(value).is_some() || holds_token(value, cut)
}

/// Whether the value of a client's header is one. People have a `Basic plan`, too.
pub(super) fn is_credential(value: &str) -> bool {
    let by_scheme = scheme(value).is_some_and(|(scheme, said)| match scheme {
        "bearer" | "apikey" => !said.is_empty(),
        _ => said.len() >= SECRET_BYTES && !said.contains(' '),
    });
    by_scheme || holds_token(value, false)
}

/// The scheme of a value that has one, and what follows it.
fn scheme(value: &str) -> Option<(&'static str, &str)> {
    const SCHEMES: [&str; 4] = ["bearer", "basic", "token", "apikey"];
    let (first, said) = value.trim_start_matches(['"', ' ']).split_once(' ')?;
    let scheme = SCHEMES.into_iter().find(|scheme| scheme.eq_ignore_ascii_case(first))?;
    Some((scheme, said.trim()))
}

/// Whether a signed token stands in a value (RFC 7519), or a key of ours.
fn holds_token(value: &str, cut: bool) -> bool {
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'=');
    let signed = value.match_indices("eyJ").any(|(at, _)| {
        let (before, from) = value.as_bytes().split_at_checked(at).unwrap_or_default();
        let begins = before.last().is_none_or(|byte| !byte.is_ascii_alphanumeric());
        let word = from.iter().take_while(|byte| is_of_word(**byte));
        // Which begins with the braces of JSON.
        begins && (cut || word.filter(|byte| **byte == b'.').take(2).count() == 2)
    });
    signed || matches!(token::redact_within(value), Cow::Owned(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_credentials_are_told_from_words() {
        let key = "rtr_AbCdEfGhIjKlMnOpQrStUvWxYz01232piBxe";
        let padded = "eyJhbGciOiJFUzI1NiJ9==.eyJzdWIiOiJ4In0=.c2ln==";
        let tokens = [key, &format!("key={key}"), padded, &format!("a={padded}; b")].map(str::to_owned);
        let schemed = ["Bearer sk-1", "bearer  sk-1", "\"Bearer sk-1\"", "ApiKey x", "Basic dXNlcjpwYXNz", "token 0123456789abcdef"];
        for value in tokens.iter().map(String::as_str).chain(schemed) {
            assert!(is_credential(value) && is_tool_credential(value, false), "{value}");
        }
        for value in [
            "",
            "Basic plan",
            "token of my esteem",
            "bearer",
            "Bearer ",
            "eyJ",
            "eyJ is no token. None. At all.",
            "keyJ.a.b",
            "core",
            "a.b.c",
        ] {
            assert!(!is_credential(value), "{value}");
        }
        assert!(is_tool_credential("Basic plan", false) && is_tool_credential("eyJhbGci", true) && !is_tool_credential("core", true));
    }
}
