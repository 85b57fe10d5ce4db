//! The fields of a form (`application/x-www-form-urlencoded`).

use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::url::decode;

/// The fields of a form, in order. A name may occur more than once.
#[derive(Debug, Default)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads a form; 400 if it is malformed. Line ends become `\n`, because browsers send `\r\n`.
    pub(super) fn read(text: &[u8]) -> Result<Form> {
        let malformed = || Error::new(Kind::InvalidRequest, "The form is malformed.");
        let text = std::str::from_utf8(text).map_err(|_| malformed())?;
        let field = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value).ok_or_else(malformed)?.replace("\r\n", "\n");
            Ok((decode(name).ok_or_else(malformed)?, value))
        };
        text.split('&').filter(|pair| !pair.is_empty()).map(field).collect::<Result<_>>().map(Form)
    }

    /// The first value of a field, if the form has it.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The first value of a field, or the empty text.
    pub(super) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(own, _)| own == name).map(|(_, value)| value.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use rerouter_base::url::encode;

    #[test]
    fn fields_are_read_as_browsers_send_them() {
        let form = Form::read(b"a=1+2%26&b=&a=%0D%0Ax&c").unwrap();
        assert_eq!(form.get("a"), Some("1 2&"));
        assert_eq!(form.all("a"), ["1 2&", "\nx"]);
        assert_eq!((form.get("b"), form.get("c"), form.get("d")), (Some(""), Some(""), None));
        for bad in [&b"a=%zz"[..], b"%", b"a=%ff", b"\xff"] {
            assert!(Form::read(bad).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(
            bytes in proptest::collection::vec(any::<u8>(), 0..200)
        ) {
            let _read = Form::read(&bytes);
        }

        #[test]
        fn what_was_encoded_is_read_back(name in ".{1,10}", value in "[^\r]{0,40}") {
            let form = format!("{}={}", encode(&name), encode(&value));
            let form = Form::read(form.as_bytes()).unwrap();
            prop_assert_eq!(form.get(&name), Some(value.as_str()));
        }
    }
}
