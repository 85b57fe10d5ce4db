//! What logs and captures show of texts that somebody else chose: a name, a path, an id.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::token;
use crate::secret::{Mask, Secret};

/// Hides what has the form of our secrets, and the keys of the environment, which have none. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Veil(Arc<Mask>);

impl Veil {
    /// For these keys of the environment.
    pub fn new<'a>(keys: impl IntoIterator<Item = &'a Secret>) -> Veil {
        Veil(Arc::new(Mask::new(keys.into_iter().map(Secret::expose))))
    }

    /// The text without them.
    pub fn over<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let clean = token::redact_within(text);
        if !self.0.is_said(clean.as_bytes()) {
            return clean;
        }
        let covered = self.0.cover(Bytes::copy_from_slice(clean.as_bytes()));
        Cow::Owned(String::from_utf8_lossy(&covered).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hidden_and_nothing_else() {
        let admin = Secret::new("admin+key/0123456789abcdef==");
        let veil = Veil::new([&admin]);
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
            assert_eq!(veil.over(text), shown);
        }
        assert!(matches!(veil.over("/v1/models"), Cow::Borrowed(_)));
    }
}
