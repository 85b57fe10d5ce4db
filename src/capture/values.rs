//! Values of headers that are credentials, whatever the header is called.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use super::echo::SECRET_BYTES;
use crate::auth::token;

/// Whether the value of a tool's header is one.
pub(super) fn is_tool_credential(value: &str) -> bool {
    scheme(value).is_some() || holds_token(value)
}

/// Whether the value of a client's header is one. People have a `Basic enterprise`, too.
pub(super) fn is_credential(value: &str) -> bool {
    scheme(value).is_some_and(|(scheme, said)| may_follow(scheme, said)) || holds_token(value)
}

/// The scheme of a value that has one, and what follows it.
fn scheme(value: &str) -> Option<(&'static str, &str)> {
    const SCHEMES: [&str; 4] = ["bearer", "basic", "token", "apikey"];
    let (first, said) = value.trim_start_matches(['"', ' ']).split_once([' ', '\t'])?;
    let scheme = SCHEMES.into_iter().find(|scheme| scheme.eq_ignore_ascii_case(first))?;
    Some((scheme, said.trim()))
}

/// Whether what follows a scheme is what it asks for, not a word.
fn may_follow(scheme: &str, said: &str) -> bool {
    const BEGINS: [&str; 12] = [
        "sk-", "sk_", "pk-", "rtr_", "agt_", "pin_", "ses_", "nod_", "ghp_", "gsk_", "hf_", "AIza",
    ];
    let word =
        said.split([' ', '\t', '"', ',', ';']).find(|word| !word.is_empty()).unwrap_or_default();
    let has = |is_one: fn(&u8) -> bool| word.as_bytes().iter().any(is_one);
    let by_form = match scheme {
        "basic" => holds_pair(word),
        // Of things of its own, too.
        "token" => {
            word.len() >= 2 * SECRET_BYTES
                && has(u8::is_ascii_digit)
                && has(u8::is_ascii_alphabetic)
        }
        _ => {
            word.len() >= 2 * SECRET_BYTES
                || (word.len() >= SECRET_BYTES && has(u8::is_ascii_digit))
        }
    };
    by_form || BEGINS.iter().any(|begin| word.starts_with(begin))
}

/// Whether a word is a name and a password in base64 (RFC 7617).
fn holds_pair(word: &str) -> bool {
    let word = word.trim_end_matches('=');
    let decoded = STANDARD_NO_PAD.decode(word).or_else(|_| URL_SAFE_NO_PAD.decode(word));
    decoded.is_ok_and(|pair| pair.contains(&b':'))
}

/// Whether a signed token stands in a value (RFC 7519), or a key of ours.
fn holds_token(value: &str) -> bool {
    holds_signed(value.bytes()) || matches!(token::redact_within(value), Cow::Owned(_))
}

/// Whether a signed token stands in a text: a word that begins as the braces of JSON do in base64, and has two dots. Each byte is
/// looked at once, as the text is anybody's.
fn holds_signed(text: impl Iterator<Item = u8>) -> bool {
    const BEGINS: &[u8] = b"eyJ";
    // How much of a beginning was read, where one may be; and of a word that has begun the dots.
    let (mut begun, mut dots) = (Some(0), None);
    for byte in text {
        let of_word = byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'=');
        match (dots, begun.and_then(|read| BEGINS.get(read))) {
            _ if !of_word => (begun, dots) = (Some(0), None),
            (Some(1), _) if byte == b'.' => return true,
            (Some(before), _) => dots = Some(before + usize::from(byte == b'.')),
            (None, Some(next)) if *next == byte => {
                begun = begun.map(|read| read + 1);
                dots = (begun == Some(BEGINS.len())).then_some(0);
            }
            // The next one may begin behind what is no letter.
            (None, _) => begun = (!byte.is_ascii_alphanumeric()).then_some(0),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_credentials_are_told_from_words() {
        let key = "rtr_AbCdEfGhIjKlMnOpQrStUvWxYz01232piBxe";
        let padded = "eyJhbGciOiJFUzI1NiJ9==.eyJzdWIiOiJ4In0=.c2ln==";
        let tokens =
            [key, &format!("key={key}"), padded, &format!("a={padded}; b")].map(str::to_owned);
        let schemed = [
            "Bearer sk-1",
            "bearer  sk-1",
            "\"Bearer sk-1\"",
            "Bearer\tcorrect-horse-battery",
            "ApiKey hunter22",
            "Basic dXNlcjpwYXNz",
            "Basic dXNlcjpwYQ==",
            "\"Basic dTr_\"",
            "token 0123456789abcdef",
        ];
        for value in tokens.iter().map(String::as_str).chain(schemed) {
            assert!(is_credential(value) && is_tool_credential(value), "{value}");
        }
        for value in [
            "",
            "Basic plan",
            "Basic enterprise",
            "Bearer enterprise",
            "Bearer realm=\"core-0123456789\"",
            "token enterprise-customers",
            "token of my esteem",
            "bearer",
            "Bearer ",
            "eyJ",
            "eyJ is no token. None. At all.",
            "keyJ.a.b",
            "core",
            "a.b.c",
            "eyJ.a b.c",
            "éeyJ.a/eyJ.b",
        ] {
            assert!(!is_credential(value), "{value}");
        }
        assert!(is_tool_credential("Basic plan") && !is_tool_credential("core"));
    }

    #[test]
    fn no_byte_is_looked_at_twice() {
        for (text, holds) in [
            ("-eyJ".repeat(1000), false),
            ("-eyJ".repeat(1000) + ".a.b", true),
            ("eyJ.".repeat(1000), true),
        ] {
            let mut steps = 0;
            assert_eq!(holds_signed(text.bytes().inspect(|_| steps += 1)), holds);
            assert!(steps <= text.len(), "{steps}");
        }
        for text in
            ["eyJ.a.b", "x eyJ.a.b", "=eyJ.a.b", "eyJ eyJ.a.b", "ey-eyJ.a.b", "a.eyJ..", "éeyJ.a.b"]
        {
            assert!(holds_signed(text.bytes()), "{text}");
        }
        for text in ["eyeyJ.a.b", "aeyJ.a.b", "eyJ.a", "eyJ.a\u{e9}.b", "eyj.a.b"] {
            assert!(!holds_signed(text.bytes()), "{text}");
        }
    }
}
