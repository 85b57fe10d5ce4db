//! Readers over the tree: each takes one value of one type and notes what is wrong, so that one run over a document
//! finds every problem in it. Messages never quote a value: it may have come from the environment.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::tree::{self, Entry, Node, Value, join};
use crate::bounds;
use crate::routing::{Finding, Located, Position, did_you_mean};

/// One thing wrong with a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether it runs all the same.
    pub warning: bool,
    /// The document's file name; empty where it has no file.
    pub file: String,
    /// Path of the value at fault; empty for the document itself.
    pub path: String,
    /// Line, from one.
    pub line: usize,
    /// Column in characters, from one.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file.as_str() {
            "" => write!(f, "line {}, column {}: ", self.line, self.column)?,
            file => write!(f, "{file}:{}:{}: ", self.line, self.column)?,
        }
        if self.warning {
            f.write_str("warning: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// The problems of a document, in its order, without repetitions and bounded.
pub(super) fn problems(file: &str, faults: impl Into<Vec<Finding>>) -> Vec<Problem> {
    told(file, faults.into(), false)
}

/// The same of what runs, but is most likely not meant.
pub(super) fn warnings(file: &str, faults: Vec<Finding>) -> Vec<Problem> {
    told(file, faults, true)
}

fn told(file: &str, mut faults: Vec<Finding>, warning: bool) -> Vec<Problem> {
    faults.sort_by_key(|fault| fault.at);
    faults.dedup();
    faults.truncate(bounds::DOCUMENT_PROBLEMS);
    let problem = |fault: Finding| Problem {
        warning,
        file: file.to_owned(),
        path: fault.path,
        line: fault.at.line,
        column: fault.at.column,
        message: fault.message,
        hint: fault.hint,
    };
    faults.into_iter().map(problem).collect()
}

/// A value with its path.
#[derive(Clone)]
pub(super) struct Field<'a> {
    pub(super) node: &'a Node,
    pub(super) path: String,
}

/// What a reading gathers: the faults, as which it is used, and the path of every key that it asked for.
#[derive(Default)]
pub(super) struct Faults {
    found: Vec<Finding>,
    /// What runs, but is most likely not meant.
    pub(super) warnings: Vec<Finding>,
    known: BTreeSet<String>,
    /// The environment is not looked at, and the documents may be for another machine.
    pub(super) no_env: bool,
    /// The paths of values that are therefore not known.
    pub(super) unknown: BTreeSet<String>,
}

impl Faults {
    pub(super) fn new(no_env: bool) -> Self {
        Faults { no_env, ..Faults::default() }
    }

    /// Notes that this machine lacks what the document names: only a warning where it may be for
    /// another one.
    pub(super) fn lacking(&mut self, fault: Finding) {
        let kept = if self.no_env { &mut self.warnings } else { &mut self.found };
        kept.push(fault);
    }

    /// The keys that hold a value: those below which no other was asked for. `[]` stands for any item of a list.
    pub(super) fn keys(&self) -> Vec<String> {
        let above = |key: &str, other: &str| {
            other.strip_prefix(key).is_some_and(|rest| rest.starts_with(['.', '[']))
        };
        self.known
            .iter()
            .filter(|key| !self.known.iter().any(|other| above(key, other)))
            .cloned()
            .collect()
    }
}

impl Deref for Faults {
    type Target = Vec<Finding>;

    fn deref(&self) -> &Vec<Finding> {
        &self.found
    }
}

impl DerefMut for Faults {
    fn deref_mut(&mut self) -> &mut Vec<Finding> {
        &mut self.found
    }
}

impl From<Faults> for Vec<Finding> {
    fn from(faults: Faults) -> Self {
        faults.found
    }
}

impl<'a> Field<'a> {
    pub(super) fn root(node: &'a Node) -> Self {
        Field { node, path: String::new() }
    }

    pub(super) fn fault(&self, message: impl Into<String>) -> Finding {
        self.located(()).fault(message)
    }

    pub(super) fn located<T>(&self, value: T) -> Located<T> {
        Located { value, path: self.path.clone(), at: self.node.at }
    }

    fn wrong<T>(&self, faults: &mut Faults, wanted: &str) -> Option<T> {
        let hint = match wanted {
            "a mapping" => "for example `{ key: value }`",
            "a list" => "for example `[one, two]`",
            "text" => "for example `\"text\"`",
            "true or false" => "without quotes, and no other word",
            _ => "digits without quotes and without a unit",
        };
        faults.push(
            self.fault(format!("must be {wanted}, not {}", self.node.value.kind()))
                .hint(Some(hint)),
        );
        None
    }

    /// The scalar, where it came from a variable by the type that its text now has.
    fn resolved(&self) -> Value {
        match &self.node.value {
            Value::Text { text, plain: true } => tree::plain(text),
            other => other.clone(),
        }
    }

    /// Whether nothing is written there, or `null`.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.node.value, Value::Null)
    }

    /// Says that this version does not act on the value.
    pub(super) fn unsupported(&self, faults: &mut Faults) {
        faults.push(
            self.fault("not supported by this version")
                .hint(Some("see \"What is not here yet\" in the README")),
        );
    }

    pub(super) fn section(&self, faults: &mut Faults) -> Option<Section<'a>> {
        match &self.node.value {
            Value::Map(entries) => Some(Section {
                entries,
                path: self.path.clone(),
                at: self.node.at,
                known: Vec::new(),
            }),
            // A key whose lines are all comments.
            Value::Null => Some(Section {
                entries: &[],
                path: self.path.clone(),
                at: self.node.at,
                known: Vec::new(),
            }),
            _ => self.wrong(faults, "a mapping"),
        }
    }

    pub(super) fn list(&self, faults: &mut Faults) -> Option<Vec<Field<'a>>> {
        match &self.node.value {
            Value::List(items) => {
                let field = |(at, node)| Field { node, path: format!("{}[{at}]", self.path) };
                Some(items.iter().enumerate().map(field).collect())
            }
            _ => self.wrong(faults, "a list"),
        }
    }

    /// Whether a list is there with nothing in it.
    pub(super) fn is_empty_list(&self) -> bool {
        matches!(&self.node.value, Value::List(items) if items.is_empty())
    }

    pub(super) fn text(&self, faults: &mut Faults) -> Option<&'a str> {
        match &self.node.value {
            Value::Text { text, .. } => Some(text),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                faults.push(
                    self.fault(format!("must be text, not {}", self.node.value.kind()))
                        .hint(Some("put it in quotes")),
                );
                None
            }
            _ => self.wrong(faults, "text"),
        }
    }

    /// Text that the messages may quote, with its place.
    pub(super) fn name(&self, faults: &mut Faults) -> Option<Located<String>> {
        self.text(faults).map(|text| self.located(text.to_owned()))
    }

    pub(super) fn bool(&self, faults: &mut Faults) -> Option<bool> {
        match self.resolved() {
            Value::Bool(value) => Some(value),
            _ => self.wrong(faults, "true or false"),
        }
    }

    pub(super) fn whole(&self, faults: &mut Faults, least: u64, most: u64) -> Option<u64> {
        match self.resolved() {
            Value::Int(value) => match u64::try_from(value) {
                Ok(value) if (least..=most).contains(&value) => Some(value),
                _ => {
                    faults.push(
                        self.fault(format!("must be from {least} to {most}"))
                            .hint(Some("left out, it has its default")),
                    );
                    None
                }
            },
            _ => self.wrong(faults, "a whole number"),
        }
    }

    pub(super) fn number(&self, faults: &mut Faults) -> Option<f64> {
        match self.resolved() {
            Value::Int(value) => Some(value as f64),
            Value::Float(value) => Some(value),
            _ => self.wrong(faults, "a number"),
        }
    }

    /// Whole percents, `20%`.
    pub(super) fn percent(&self, faults: &mut Faults, least: u16, most: u16) -> Option<u16> {
        let number = match &self.node.value {
            Value::Text { text, .. } => text
                .strip_suffix('%')
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())),
            _ => None,
        };
        let found = number
            .and_then(|digits| digits.parse().ok())
            .filter(|percent| (least..=most).contains(percent));
        if found.is_none() {
            faults.push(
                self.fault(format!("must be a share from {least}% to {most}%"))
                    .hint(Some("for example `20%`")),
            );
        }
        found
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(&self, faults: &mut Faults, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(faults)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let all = words.iter().map(|(word, _)| *word);
            let list = all.clone().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
            let first = || words.first().map(|(word, _)| format!("for example `{word}`"));
            faults.push(
                self.fault(format!("must be one of {list}"))
                    .hint(did_you_mean(text, all).or_else(first)),
            );
        }
        found
    }

    pub(super) fn duration(&self, faults: &mut Faults) -> Option<Duration> {
        const UNITS: [(&str, u64); 5] =
            [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        let found = match &self.node.value {
            Value::Int(0) => Some(0),
            Value::Text { text, .. } => measure(text, &UNITS),
            _ => None,
        };
        if found.is_none() {
            faults.push(
                self.fault("must be a duration")
                    .hint(Some("for example `20ms`, `30s`, `5m`, `12h` or `7d`")),
            );
        }
        found.map(Duration::from_millis)
    }

    /// A duration that is not zero.
    pub(super) fn positive_duration(&self, faults: &mut Faults) -> Option<Duration> {
        let found = self.duration(faults)?;
        if found.is_zero() {
            faults.push(self.fault("must be more than nothing").hint(Some("for example `30s`")));
            return None;
        }
        Some(found)
    }

    pub(super) fn size(&self, faults: &mut Faults) -> Option<u64> {
        let found = match &self.node.value {
            Value::Int(bytes) => u64::try_from(*bytes).ok(),
            Value::Text { text, .. } => measure(text, &SIZES),
            _ => None,
        };
        if found.is_none() {
            faults.push(
                self.fault("must be a size")
                    .hint(Some("for example `8KiB`, `64MiB`, `1GiB` or a number of bytes")),
            );
        }
        found
    }

    /// Bytes a second.
    pub(super) fn rate(&self, faults: &mut Faults) -> Option<u64> {
        let found = match &self.node.value {
            Value::Int(0) => Some(0),
            Value::Text { text, .. } => {
                text.strip_suffix("/s").and_then(|size| measure(size, &SIZES))
            }
            _ => None,
        };
        if found.is_none() {
            faults.push(self.fault("must be a rate").hint(Some("for example `1KiB/s`")));
        }
        found
    }

    /// Each item of a list read by `read`, at most `most`.
    pub(super) fn each<T>(
        &self,
        faults: &mut Faults,
        most: usize,
        mut read: impl FnMut(&Field<'a>, &mut Faults) -> Option<T>,
    ) -> Vec<T> {
        let Some(items) = self.list(faults) else { return Vec::new() };
        if items.len() > most {
            faults.push(self.fault(format!("more than {most} entries")).hint(Some("remove some")));
        }
        let known =
            items.iter().take(most).filter(|item| !matches!(item.node.value, Value::Unknown));
        known.filter_map(|item| read(item, faults)).collect()
    }
}

const SIZES: [(&str, u64); 5] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// A whole number with one of the units.
fn measure(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let factor =
        units.iter().find(|(name, _)| *name == unit.trim_start()).map(|(_, factor)| *factor)?;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// A mapping whose keys are known in advance; what is not asked for is an unknown key.
pub(super) struct Section<'a> {
    entries: &'a [Entry],
    path: String,
    at: Position,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    /// The value of a key, unless missing or null.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Field<'a>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        let unset = match &entry.node.value {
            Value::Null | Value::Unknown => true,
            // `${NAME:-}` with nothing in it.
            Value::Text { text, plain: true } => text.is_empty(),
            _ => false,
        };
        (!unset).then(|| Field { node: &entry.node, path: join(&self.path, key) })
    }

    /// The value of a key read by `read`.
    pub(super) fn read<T>(
        &mut self,
        key: &'static str,
        faults: &mut Faults,
        read: impl FnOnce(&Field<'a>, &mut Faults) -> Option<T>,
    ) -> Option<T> {
        self.take(key).and_then(|field| read(&field, faults))
    }

    /// A mapping below; an empty one when it is missing.
    pub(super) fn below(&mut self, key: &'static str, faults: &mut Faults) -> Section<'a> {
        let empty =
            Section { entries: &[], path: join(&self.path, key), at: self.at, known: Vec::new() };
        self.read(key, faults, |field, faults| field.section(faults)).unwrap_or(empty)
    }

    /// Says that a key is missing.
    pub(super) fn missing(&self, key: &str, faults: &mut Faults) {
        if self
            .entries
            .iter()
            .any(|entry| entry.key == key && matches!(entry.node.value, Value::Unknown))
        {
            return;
        }
        let hint = Some(format!("add `{key}: …` here"));
        faults.push(Finding {
            path: self.path.clone(),
            at: self.at,
            message: format!("`{key}` is missing"),
            hint,
        });
    }

    /// A mapping that has to be written out, empty if that is meant: where a document is cut, it is
    /// missing or has nothing in it.
    pub(super) fn written_out(&mut self, key: &'static str, faults: &mut Faults) {
        if self.take(key).is_none() {
            let entry = self.entries.iter().find(|entry| entry.key == key);
            faults.push(Finding {
                path: self.path.clone(),
                at: entry.map_or(self.at, |entry| entry.at),
                message: format!("`{key}` is missing or has nothing in it"),
                hint: Some(format!("write `{key}: {{}}` if there are to be none")),
            });
        }
    }

    /// Every key that was not asked for is a fault.
    pub(super) fn finish(self, faults: &mut Faults) {
        faults.known.extend(self.known.iter().map(|key| join(&any_item(&self.path), key)));
        for entry in self.entries {
            if !self.known.contains(&entry.key.as_str()) {
                let hint = did_you_mean(&entry.key, self.known.iter().copied())
                    .or_else(|| Some(format!("known: {}", self.known.join(", "))));
                let path = join(&self.path, &entry.key);
                faults.push(Finding {
                    path,
                    at: entry.at,
                    message: "unknown key".to_owned(),
                    hint,
                });
            }
        }
    }

    /// Every pair of a mapping whose keys are names of the document's own, with the place of the key.
    pub(super) fn named(&self) -> Vec<(Located<String>, Field<'a>)> {
        let pair = |entry: &'a Entry| {
            let path = join(&self.path, &entry.key);
            (
                Located { value: entry.key.clone(), path: path.clone(), at: entry.at },
                Field { node: &entry.node, path },
            )
        };
        self.entries.iter().map(pair).collect()
    }
}

/// A path with every position in a list left open.
fn any_item(path: &str) -> String {
    let mut pieces = path.split('[');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |open, piece| {
        format!("{open}[{}", piece.trim_start_matches(|c: char| c.is_ascii_digit()))
    })
}

pub(super) fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_left_open() {
        for (path, open) in
            [("", ""), ("a.b", "a.b"), ("a[0]", "a[]"), ("a[12].b[3].c", "a[].b[].c")]
        {
            assert_eq!(any_item(path), open);
        }
    }

    #[test]
    fn measures_need_their_unit() {
        assert_eq!(measure("64MiB", &SIZES), Some(64 << 20));
        assert_eq!(measure("8 KiB", &SIZES), Some(8 << 10));
        for bad in [
            "",
            "MiB",
            "64",
            "64MB",
            "-1MiB",
            "1.5MiB",
            "99999999999999999999B",
            "18446744073709551615KiB",
        ] {
            assert_eq!(measure(bad, &SIZES), None, "{bad}");
        }
    }
}
