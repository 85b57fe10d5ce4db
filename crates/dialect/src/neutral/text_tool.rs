//! Tools that take free text. Only OpenAI's dialects have them. Elsewhere the model gets a function
//! with one argument, and the client gets that argument as the text.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::json_text::{Quoted, put};
use super::request::Tool;

/// JSON Schema of the function's arguments.
const PARAMETERS: &str = r#"{"type":"object","properties":{"input":{"type":"string",
    "description":"The whole input of the tool, as plain text."}},
    "required":["input"],"additionalProperties":false}"#;

/// Tokens before the text in the arguments. Blanks may stand between them.
const BEGINNING: [&str; 4] = ["{", "\"input\"", ":", "\""];

/// The function that replaces a tool. `grammar` describes the allowed text, if it is restricted.
pub(crate) fn function(name: String, description: Option<String>, grammar: Option<String>) -> Tool {
    let rule = grammar.map(|grammar| {
        format!("The input has to match this grammar, without any text around it:\n{grammar}")
    });
    let says: Vec<String> = description.into_iter().chain(rule).collect();
    Tool {
        name,
        description: (!says.is_empty()).then(|| says.join("\n\n")),
        parameters: RawValue::from_string(PARAMETERS.to_owned()).ok(),
        free_text: true,
        ..Tool::default()
    }
}

pub(crate) fn arguments(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 16);
    put!(&mut out, "{\"input\":", Quoted(text), "}");
    String::from_utf8(out).unwrap_or_default()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Before,
    Inside,
    Behind,
    /// The model wrote something else, all of which becomes the text.
    Plain,
}

/// Extracts the text from arguments that arrive in pieces.
#[derive(Debug, Default)]
pub(crate) struct TextArgument {
    place: Place,
    /// An incomplete beginning or escape.
    held: String,
}

impl TextArgument {
    /// Adds a piece of the arguments, and returns the new text in it.
    pub(crate) fn take(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        if self.place == Place::Before {
            match beginning(&self.held) {
                Some(Some(at)) => {
                    self.held.drain(..at);
                    self.place = Place::Inside;
                }
                Some(None) => return String::new(),
                None => self.place = Place::Plain,
            }
        }
        match self.place {
            Place::Inside => self.unescape(),
            Place::Plain => std::mem::take(&mut self.held),
            Place::Before | Place::Behind => {
                self.held.clear();
                String::new()
            }
        }
    }

    /// The text that is left when the arguments have ended.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Unescapes the string so far, except for an incomplete escape.
    fn unescape(&mut self) -> String {
        let mut text = String::with_capacity(self.held.len());
        let mut rest = self.held.as_str();
        while let Some(at) = rest.find(['"', '\\']) {
            let (plain, special) = rest.split_at(at);
            text.push_str(plain);
            rest = special;
            if special.starts_with('"') {
                self.place = Place::Behind;
                rest = "";
                break;
            }
            let Some((said, length)) = escape(special) else { break };
            text.push_str(&said);
            rest = special.get(length..).unwrap_or_default();
        }
        if !rest.starts_with('\\') {
            text.push_str(rest);
            rest = "";
        }
        self.held = rest.to_owned();
        text
    }
}

/// The index at which the text begins; `Some(None)` if more input is needed, `None` if there is no
/// text.
fn beginning(arguments: &str) -> Option<Option<usize>> {
    let mut rest = arguments;
    for token in BEGINNING {
        rest = rest.trim_ascii_start();
        if rest.len() < token.len() {
            return token.starts_with(rest).then_some(None);
        }
        rest = rest.strip_prefix(token)?;
    }
    Some(Some(arguments.len() - rest.len()))
}

/// The text of an escape, and the escape's length in bytes; `None` if it is incomplete. An unknown
/// escape stays as it is.
fn escape(text: &str) -> Option<(Cow<'_, str>, usize)> {
    let letter = text.chars().nth(1)?;
    let said = match letter {
        'n' => "\n",
        't' => "\t",
        'r' => "\r",
        'b' => "\u{8}",
        'f' => "\u{c}",
        '"' => "\"",
        '\\' => "\\",
        '/' => "/",
        'u' => return unicode(text),
        other => return Some((text.get(..1 + other.len_utf8())?.into(), 1 + other.len_utf8())),
    };
    Some((said.into(), 2))
}

/// Reads a `\u` escape, or two that form a surrogate pair.
fn unicode(text: &str) -> Option<(Cow<'_, str>, usize)> {
    let unit = |at: usize| -> Option<Option<u16>> {
        let digits = text.as_bytes().get(at + 2..at + 6)?;
        let digits = std::str::from_utf8(digits).ok();
        Some(digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()))
    };
    let Some(first) = unit(0)? else { return Some((text.get(..2)?.into(), 2)) };
    let mut units = vec![first];
    if (0xD800..0xDC00).contains(&first) {
        match text.as_bytes().get(6..).unwrap_or_default() {
            [] | [b'\\'] => return None,
            [b'\\', b'u', ..] => units.extend(unit(6)?),
            _ => {}
        }
    }
    let length = 6 * units.len();
    Some((String::from_utf16_lossy(&units).into(), length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(arguments: &str, sizes: &[usize]) -> String {
        let (mut reader, mut out, mut rest) = (TextArgument::default(), String::new(), arguments);
        for size in sizes.iter().cycle() {
            let at = rest.char_indices().nth(*size).map_or(rest.len(), |(at, _)| at);
            let (piece, more) = rest.split_at(at);
            out.push_str(&reader.take(piece));
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        out.push_str(&reader.finish());
        out
    }

    proptest! {
        #[test]
        fn the_text_comes_back_however_it_is_cut(
            text in any::<String>(),
            sizes in prop::collection::vec(1usize..9, 1..6),
        ) {
            prop_assert_eq!(&read(&arguments(&text), &sizes), &text);
            let units = text.encode_utf16().map(|unit| format!("\\u{unit:04X}"));
            let escaped = format!(" {{ \"input\" :\n\"{}\"}}", units.collect::<String>());
            prop_assert_eq!(&read(&escaped, &sizes), &text);
        }

        #[test]
        fn what_is_no_such_object_stays_as_it_is(
            written in "[ {}\"a-z:\\\\]{0,12}",
            sizes in prop::collection::vec(1usize..9, 1..6),
        ) {
            let whole = read(&written, &[usize::MAX]);
            prop_assert_eq!(&read(&written, &sizes), &whole);
            prop_assert!(beginning(&written).is_some() || whole == written);
        }
    }

    #[test]
    fn broken_strings_lose_nothing() {
        for (written, text) in [
            ("", ""),
            ("{}", "{}"),
            (r#"{"input":"a"#, "a"),
            (r#"{"input":"a\"#, "a\\"),
            (r#"{"input":"\q\u12x\ud83d!"}"#, "\\q\\u12x\u{fffd}!"),
            (r#"{"input":"\ud83d\ud83d\ude00"}"#, "\u{fffd}\u{fffd}\u{fffd}"),
            (r#"{"other":"a"}"#, r#"{"other":"a"}"#),
        ] {
            for size in [1, 2, 99] {
                assert_eq!(read(written, &[size]), text, "{written} by {size}");
            }
        }
        let grammar = function("f".into(), None, Some("start: /a/".into()));
        assert!(grammar.description.unwrap().ends_with(":\nstart: /a/"));
        assert_eq!(arguments("a\"\n"), json!({"input": "a\"\n"}).to_string());
    }
}
