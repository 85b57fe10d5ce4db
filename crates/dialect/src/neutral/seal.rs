//! A provider's proof of its thinking, and its text form for clients of another dialect. Such a
//! client gets the text as a signature of its own dialect, and sends it back.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

pub(crate) const MESSAGES: &str = "messages";
pub(crate) const RESPONSES: &str = "responses";
pub(crate) const GEMINI: &str = "gemini";

/// The prefix of the text form. Signatures of providers contain no dot.
const MARK: &str = "rerouter.";
/// The text form for thinking that came without a proof.
pub(crate) const NONE: &str = "rerouter.none";

/// Whether a signature is the text form of a seal, which its own dialect's providers refuse.
pub(crate) fn is_foreign(signature: &str) -> bool {
    signature.starts_with(MARK)
}

/// A provider's proof of its thinking, with all members that its dialect needs to repeat it:
///
/// | dialect | value |
/// |---|---|
/// | messages | `{"signature": TEXT}`, or `{"redacted": TEXT}` for thinking that is hidden |
/// | responses | `{"id": TEXT, "encrypted_content": TEXT}` |
/// | gemini | `{"signature": TEXT}` |
#[derive(Clone, Debug, PartialEq)]
pub struct Seal {
    pub dialect: &'static str,
    pub value: Value,
}

impl Seal {
    pub(crate) fn to_text(&self) -> String {
        let value = URL_SAFE_NO_PAD.encode(self.value.to_string());
        format!("{MARK}{}.{value}", self.dialect)
    }

    /// The seal in a signature that the client sent back: that of another dialect, or `own` if the
    /// signature is no text form. `None` for [`NONE`].
    pub(crate) fn from_signature(text: &str, own: impl FnOnce() -> Seal) -> Option<Seal> {
        if is_foreign(text) { Seal::from_text(text) } else { Some(own()) }
    }

    /// The seal of another dialect; `None` if the text is no text form of one.
    pub(crate) fn from_text(text: &str) -> Option<Seal> {
        let (dialect, value) = text.strip_prefix(MARK)?.split_once('.')?;
        let dialect = [MESSAGES, RESPONSES, GEMINI].into_iter().find(|known| *known == dialect)?;
        let value: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(value).ok()?).ok()?;
        Some(Seal { dialect, value })
    }

    pub fn text(&self, member: &str) -> Option<&str> {
        self.value.get(member)?.as_str()
    }
}
