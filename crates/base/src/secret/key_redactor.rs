//! Redacts this gateway's own keys in texts of clients, such as names, paths and ids, for logs and
//! captures.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::token;
use crate::secret::{Mask, Secret};

/// Redacts issued secrets by their form, and the keys of the environment by their value. Cloning is
/// cheap.
#[derive(Clone, Debug, Default)]
pub struct KeyRedactor(Arc<Mask>);

impl KeyRedactor {
    /// A redactor for issued secrets and these keys.
    pub fn new<'a>(keys: impl IntoIterator<Item = &'a Secret>) -> KeyRedactor {
        KeyRedactor(Arc::new(Mask::new(keys.into_iter().map(Secret::expose))))
    }

    /// Whether a text holds a key.
    pub fn is_in(&self, text: &[u8]) -> bool {
        token::is_in(text) || self.0.matches(text)
    }

    /// The text without keys.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let clean = token::redact_within(text);
        if !self.0.matches(clean.as_bytes()) {
            return clean;
        }
        let masked = self.0.mask(Bytes::copy_from_slice(clean.as_bytes()));
        Cow::Owned(String::from_utf8_lossy(&masked).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hidden_and_nothing_else() {
        let admin = Secret::new("admin+key/0123456789abcdef==");
        let redactor = KeyRedactor::new([&admin]);
        for (text, shown) in [
            ("auto", "auto"),
            (
                "/v1/router/keys/rtr_AbCdEfGhIjKlMnOpQrStUvWxYz01232piBxe",
                "/v1/router/keys/rtr_AbCd…iBxe",
            ),
            ("a/admin+key/0123456789abcdef==/b", "a/****************************/b"),
            ("/admin%2Bkey%2F0123456789abcdef%3D%3D", "/************************************"),
            (
                r#"{"model":"admin+key\/0123456789abcdef=="}"#,
                r#"{"model":"*****************************"}"#,
            ),
        ] {
            assert_eq!(redactor.redact(text), shown);
            assert_eq!(redactor.is_in(text.as_bytes()), text != shown);
        }
        assert!(matches!(redactor.redact("/v1/models"), Cow::Borrowed(_)));
    }
}
