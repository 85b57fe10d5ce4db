//! Seals as text, for dialects that have one opaque text where another provider's seal must travel
//! to the client and back.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::part::Seal;

pub(crate) const MESSAGES: &str = "messages";
pub(crate) const RESPONSES: &str = "responses";
pub(crate) const GEMINI: &str = "gemini";

const MARK: &str = "rerouter.";

impl Seal {
    /// The text that a client keeps. [`Seal::from_text`] reads it again.
    pub fn to_text(&self) -> String {
        let value = URL_SAFE_NO_PAD.encode(self.value.to_string());
        format!("{MARK}{}.{value}", self.dialect)
    }

    /// The seal of another dialect in a text that the client sent back; `None` if the text is the
    /// dialect's own.
    pub fn from_text(text: &str) -> Option<Seal> {
        let (dialect, value) = text.strip_prefix(MARK)?.split_once('.')?;
        let dialect = [MESSAGES, RESPONSES, GEMINI].into_iter().find(|known| *known == dialect)?;
        let value: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(value).ok()?).ok()?;
        Some(Seal { dialect, value })
    }
}
