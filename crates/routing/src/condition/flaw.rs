//! Why an expression is rejected.

use rerouter_document::did_you_mean;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    pub message: String,
    pub hint: Option<String>,
}

impl Flaw {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Flaw { message: message.into(), hint: None }
    }

    pub(super) fn with(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }

    pub(super) fn unknown(what: &str, name: &str, known: &[&str]) -> Self {
        let hint = did_you_mean(name, known.iter().copied())
            .or_else(|| Some(format!("known: {}", known.join(", "))));
        Flaw { message: format!("unknown {what} `{}`", shorten(name, 64)), hint }
    }
}

/// At most `limit` bytes of a text, cut between characters.
pub(super) fn shorten(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        text.to_owned()
    } else {
        format!("{}…", text.get(..text.floor_char_boundary(limit)).unwrap_or(""))
    }
}
