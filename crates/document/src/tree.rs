//! A document as a tree of values with places: YAML 1.2 core schema, which includes JSON. Aliases,
//! anchors, tags, duplicate keys and deep nesting are refused, so that a small text makes a small
//! tree.

use std::borrow::Cow;
use std::collections::HashSet;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use crate::diagnostics::DOCUMENT_PROBLEMS;
use crate::place::{Finding, Position};
use rerouter_base::bounds;

/// Limit on the nesting of a document. Real ones need six levels.
const DOCUMENT_DEPTH: usize = 32;

/// A value and the position where it begins.
#[derive(Clone)]
pub struct TreeNode {
    pub at: Position,
    pub value: TreeValue,
}

#[derive(Clone)]
pub enum TreeValue {
    /// The value of a variable that was not looked up.
    Unknown,
    /// `null`, `~` or nothing.
    Null,
    Bool(bool),
    Int(i64),
    /// A finite number that is not whole.
    Float(f64),
    /// `plain` if it was written without quotes.
    Text {
        text: String,
        plain: bool,
    },
    List(Vec<TreeNode>),
    /// In document order, without duplicate keys.
    Map(Vec<TreeEntry>),
}

#[derive(Clone)]
pub struct TreeEntry {
    pub key: String,
    /// The place of the key.
    pub at: Position,
    pub node: TreeNode,
}

impl TreeValue {
    /// The kind of the value, for messages that must not quote it.
    pub fn kind(&self) -> &'static str {
        match self {
            TreeValue::Unknown | TreeValue::Null => "nothing",
            TreeValue::Bool(_) => "a boolean",
            TreeValue::Int(_) => "a whole number",
            TreeValue::Float(_) => "a number",
            TreeValue::Text { .. } => "text",
            TreeValue::List(_) => "a list",
            TreeValue::Map(_) => "a mapping",
        }
    }
}

const SYNTAX: &str = "check quotes, brackets and indentation here and above";
const ALIASES: &str = "aliases (`*name`) are not supported";

/// A document without syntax errors, but maybe with duplicate keys.
pub struct Parsed {
    /// The document, with the first of duplicate keys.
    pub root: TreeNode,
    pub duplicates: Vec<Finding>,
}

/// Stops at the first syntax error.
pub fn parse(text: &str) -> Result<Parsed, Vec<Finding>> {
    if text.len() > bounds::DOCUMENT_BYTES {
        return Err(vec![fault(
            Position { line: 1, column: 1 },
            "",
            format!("the document is longer than {} bytes", bounds::DOCUMENT_BYTES),
            "shorten it",
        )]);
    }
    let text = join_surrogates(text.trim_start_matches('\u{feff}'));
    let mut builder = Builder { parser: Parser::new_from_str(&text), faults: Vec::new() };
    match builder.document() {
        Ok(root) => Ok(Parsed { root, duplicates: builder.faults }),
        Err(fault) => {
            builder.faults.push(fault);
            Err(builder.faults)
        }
    }
}

/// Joins the surrogate pairs in a JSON document (RFC 8259 section 7), which YAML does not know.
fn join_surrogates(text: &str) -> Cow<'_, str> {
    let pairs = text.contains("\\ud") || text.contains("\\uD");
    if !pairs || serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        return Cow::Borrowed(text);
    }
    let unit = |escape: &str| {
        escape
            .strip_prefix("\\u")
            .and_then(|digits| digits.get(..4))
            .and_then(|hex| u16::from_str_radix(hex, 16).ok())
    };
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let units = [Some(escape), escape.get(6..)].map(|escape| escape.and_then(unit));
        let pair = units.iter().flatten().copied();
        let joined = char::decode_utf16(pair)
            .next()
            .and_then(Result::ok)
            .filter(|joined| joined.len_utf16() == 2);
        let length = match joined {
            Some(joined) => {
                out.push(joined);
                12
            }
            // Skips both characters of an escape. The second one may be a backslash.
            None => {
                let length = 1 + escape.chars().nth(1).map_or(0, char::len_utf8);
                out.push_str(escape.get(..length).unwrap_or(""));
                length
            }
        };
        rest = escape.get(length..).unwrap_or("");
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn fault(at: Position, path: &str, message: impl Into<String>, hint: &str) -> Finding {
    Finding { path: path.to_owned(), at, message: message.into(), hint: Some(hint.to_owned()) }
}

/// `path.key`, or `path["odd key"]`.
pub fn join(path: &str, key: &str) -> String {
    let simple = !key.is_empty()
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    match (path, simple) {
        ("", true) => key.to_owned(),
        (_, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{key:?}]"),
    }
}

struct Builder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    faults: Vec<Finding>,
}

impl<'a> Builder<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Position), Finding> {
        match self.parser.next_event() {
            Some(Ok((event, Span { start, .. }))) => {
                Ok((event, Position { line: start.line(), column: start.col() + 1 }))
            }
            Some(Err(error)) => {
                let at = Position { line: error.marker().line(), column: error.marker().col() + 1 };
                Err(fault(at, "", format!("not YAML: {}", error.info()), SYNTAX))
            }
            None => Err(fault(
                Position { line: 1, column: 1 },
                "",
                "the document is incomplete",
                SYNTAX,
            )),
        }
    }

    fn document(&mut self) -> Result<TreeNode, Finding> {
        let mut root = None;
        loop {
            let (event, at) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
                Event::DocumentStart(_) if root.is_some() => {
                    return Err(fault(
                        at,
                        "",
                        "only one document per file",
                        "remove what follows `---`",
                    ));
                }
                Event::DocumentStart(_) => {}
                Event::StreamEnd => break,
                other => root = Some(self.node(other, at, "", 0)?),
            }
        }
        Ok(root.unwrap_or(TreeNode {
            at: Position { line: 1, column: 1 },
            value: TreeValue::Map(Vec::new()),
        }))
    }

    fn node(
        &mut self,
        event: Event<'a>,
        at: Position,
        path: &str,
        depth: usize,
    ) -> Result<TreeNode, Finding> {
        if depth > DOCUMENT_DEPTH {
            return Err(fault(
                at,
                path,
                format!("nested more than {} deep", DOCUMENT_DEPTH),
                "no key needs that",
            ));
        }
        let value = match event {
            Event::Alias(_) => {
                return Err(fault(at, path, ALIASES, "quote a text that begins with `*`"));
            }
            Event::Scalar(_, _, anchor, ref tag) if anchor > 0 || tag.is_some() => {
                return Err(marked(at, path));
            }
            Event::SequenceStart(anchor, ref tag) | Event::MappingStart(anchor, ref tag)
                if anchor > 0 || tag.is_some() =>
            {
                return Err(marked(at, path));
            }
            Event::Scalar(text, ScalarStyle::Plain, ..) => plain(&text),
            Event::Scalar(text, ..) => TreeValue::Text { text: text.into_owned(), plain: false },
            Event::SequenceStart(..) => TreeValue::List(self.list(path, depth)?),
            Event::MappingStart(..) => TreeValue::Map(self.map(path, depth)?),
            _ => return Err(fault(at, path, "a value is missing", SYNTAX)),
        };
        Ok(TreeNode { at, value })
    }

    fn list(&mut self, path: &str, depth: usize) -> Result<Vec<TreeNode>, Finding> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, at) => items.push(self.node(
                    event,
                    at,
                    &format!("{path}[{}]", items.len()),
                    depth + 1,
                )?),
            }
        }
    }

    fn map(&mut self, path: &str, depth: usize) -> Result<Vec<TreeEntry>, Finding> {
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        loop {
            let (key, at) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(entries),
                (Event::Scalar(_, _, anchor, ref tag), at) if anchor > 0 || tag.is_some() => {
                    return Err(marked(at, path));
                }
                (Event::Scalar(key, ..), at) => (key.into_owned(), at),
                (Event::Alias(_), at) => {
                    return Err(fault(at, path, ALIASES, "quote a text that begins with `*`"));
                }
                (_, at) => {
                    return Err(fault(
                        at,
                        path,
                        "a key must be text",
                        "quote a value that begins with `{` or `[`",
                    ));
                }
            };
            let below = join(path, &key);
            let (event, value_at) = self.next()?;
            let node = self.node(event, value_at, &below, depth + 1)?;
            if seen.insert(key.clone()) {
                entries.push(TreeEntry { key, at, node });
            } else if self.faults.len() < DOCUMENT_PROBLEMS {
                self.faults.push(fault(
                    at,
                    &below,
                    format!("duplicate key `{key}`"),
                    "keep one of them",
                ));
            }
        }
    }
}

fn marked(at: Position, path: &str) -> Finding {
    fault(
        at,
        path,
        "anchors (`&name`) and tags (`!name`) are not supported",
        "quote a text that begins with `&` or `!`",
    )
}

/// Resolves an unquoted scalar by the core schema (YAML 1.2.2 section 10.3.2), but without octal
/// and infinite numbers.
pub(crate) fn plain(text: &str) -> TreeValue {
    let number = text.strip_prefix(['-', '+']).unwrap_or(text);
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return TreeValue::Null,
        "true" | "True" | "TRUE" => return TreeValue::Bool(true),
        "false" | "False" | "FALSE" => return TreeValue::Bool(false),
        _ => {}
    }
    if !number.is_empty()
        && number.bytes().all(|b| b.is_ascii_digit())
        && let Ok(int) = text.parse()
    {
        return TreeValue::Int(int);
    }
    let numeric =
        number.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if number.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && numeric
        && let Ok(float) = text.parse::<f64>()
        && float.is_finite()
    {
        return TreeValue::Float(float);
    }
    TreeValue::Text { text: text.to_owned(), plain: true }
}

/// The tree as canonical JSON, with sorted keys, without blanks and comments. Documents with the
/// same content have the same canonical form.
pub fn canonical(node: &TreeNode) -> String {
    let mut out = String::new();
    write_canonical(node, &mut out);
    out
}

fn write_canonical(node: &TreeNode, out: &mut String) {
    match &node.value {
        TreeValue::Unknown | TreeValue::Null => out.push_str("null"),
        TreeValue::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        TreeValue::Int(value) => out.push_str(&value.to_string()),
        TreeValue::Float(value) => out.push_str(&serde_json::Value::from(*value).to_string()),
        TreeValue::Text { text, .. } => out.push_str(&quoted(text)),
        TreeValue::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        TreeValue::Map(entries) => {
            let mut sorted: Vec<&TreeEntry> = entries.iter().collect();
            sorted.sort_by(|a, b| a.key.cmp(&b.key));
            out.push('{');
            for (at, entry) in sorted.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                out.push_str(&quoted(&entry.key));
                out.push(':');
                write_canonical(&entry.node, out);
            }
            out.push('}');
        }
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn form(text: &str) -> String {
        let parsed = parse(text).unwrap_or_else(|faults| panic!("{text}: {faults:?}"));
        assert_eq!(parsed.duplicates, [], "{text}");
        canonical(&parsed.root)
    }

    fn refusal(text: &str) -> Finding {
        let mut faults = parse(text).map_or_else(|faults| faults, |parsed| parsed.duplicates);
        assert!(!faults.is_empty(), "{text}");
        faults.remove(0)
    }

    #[test]
    fn scalars_have_their_type() {
        let yaml = "a: [1, -2, 1.0, 1e3, .5, '1', x, true, no, ~, 0x1f, 1.2.3, \
            99999999999999999999, .inf, -, 2026-01-01]";
        let wanted = concat!(
            r#"{"a":[1,-2,1.0,1000.0,0.5,"1","x",true,"no",null,"0x1f","1.2.3","#,
            r#"1e+20,".inf","-","2026-01-01"]}"#,
        );
        assert_eq!(form(&yaml.replace(", -,", ", \"-\",")), wanted);
        assert_eq!(form(""), "{}");
    }

    #[test]
    fn yaml_and_json_are_one() {
        let yaml = "# comment\nb: {x: 1, a: 'text'}\na:\n  - on: [connect, 429]\n    f: 0.25\n";
        let json = "{\"a\":[{\"f\":0.25,\"on\":[\"connect\",429]}],\n\
            \t\"b\":{\"a\":\"te\\u0078t\",\"x\":1}}";
        assert_eq!(form(yaml), form(json));
        assert_eq!(
            form(r#"{"a": ["\ud83d\uDE00\u00e4", "\\ud83d", "\/"]}"#),
            form(r#"a: ["😀ä", '\ud83d', '/']"#)
        );
        assert_ne!(form("a: 1"), form("a: '1'"));
        assert_ne!(form("a: 1"), form("a: 1.0"));
    }

    #[test]
    fn what_is_refused() {
        for (text, message, line, column) in [
            ("a: &x 1\nb: *x\n", "anchors", 1, 4),
            ("a: 1\nb: *x\n", "not YAML", 2, 4),
            ("a: !!str 1\n", "anchors", 1, 4),
            ("a: 1\nb: 2\na: 3\n", "duplicate key `a`", 3, 1),
            ("a: 1\n---\nb: 2\n", "only one document", 2, 1),
            ("a: [1\nb: 2", "not YAML", 2, 2),
            ("? [a]\n: 1\n", "a key must be text", 1, 3),
        ] {
            let found = refusal(text);
            assert!(found.message.contains(message), "{text}: {found:?}");
            assert_eq!((found.at.line, found.at.column), (line, column), "{text}: {found:?}");
        }
        assert!(refusal(&"[".repeat(40)).message.contains("nested"));
        assert!(
            refusal(&format!("a: {}", "x".repeat(bounds::DOCUMENT_BYTES)))
                .message
                .contains("longer")
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,80}|[ -\\[\\]{}:,'\"#&*!|>%@`\na-c0-9\t]{0,80}") {
            let _ = parse(&text);
        }
    }
}
