//! The form of log lines: JSON or text.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogForm {
    /// One JSON object per line, for programs.
    #[default]
    Json,
    /// Text for people.
    Text {
        /// Whether to use colour codes of terminals.
        color: bool,
    },
}

/// The log form that the server document asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    Text,
    Json,
}

impl LogFormat {
    /// The words of the formats in documents.
    pub const WORDS: [(&str, LogFormat); 3] =
        [("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)];

    /// The form for a log that is written to a terminal or elsewhere. `env` looks up `NO_COLOR`
    /// (<https://no-color.org>) and `TERM`.
    pub fn form(self, is_terminal: bool, env: impl Fn(&str) -> Option<String>) -> LogForm {
        let is_text = match self {
            LogFormat::Auto => is_terminal,
            LogFormat::Text => true,
            LogFormat::Json => false,
        };
        if !is_text {
            return LogForm::Json;
        }
        let no_color = env("NO_COLOR").is_some_and(|value| !value.is_empty())
            || env("TERM").is_some_and(|terminal| terminal == "dumb");
        LogForm::Text { color: is_terminal && !no_color }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_at_a_terminal_read_text_in_colour_unless_they_say_no() {
        let none = |_: &str| None;
        let set = |name: &'static str, value: &'static str| {
            move |asked: &str| (asked == name).then(|| value.to_owned())
        };
        let text = |color| LogForm::Text { color };
        assert_eq!(LogFormat::Auto.form(true, none), text(true));
        assert_eq!(LogFormat::Auto.form(false, none), LogForm::Json);
        assert_eq!(LogFormat::Text.form(false, none), text(false));
        assert_eq!(LogFormat::Json.form(true, none), LogForm::Json);
        assert_eq!(LogFormat::Auto.form(true, set("NO_COLOR", "1")), text(false));
        assert_eq!(LogFormat::Auto.form(true, set("NO_COLOR", "")), text(true));
        assert_eq!(LogFormat::Auto.form(true, set("TERM", "dumb")), text(false));
    }
}
