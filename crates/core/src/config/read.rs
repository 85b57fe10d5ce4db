//! Readers of values in the tree. Each reads one type and adds what is wrong to the diagnostics, so
//! that one pass finds every problem. Messages never quote a value: it may be from the environment.

use std::time::Duration;

use super::diagnostics::Diagnostics;
use super::tree::{self, TreeEntry, TreeNode, TreeValue, join};
use rerouter_routing::{Finding, Located, Position, did_you_mean};

/// A value with its path.
#[derive(Clone)]
pub(super) struct Field<'a> {
    pub(super) node: &'a TreeNode,
    pub(super) path: String,
}

impl<'a> Field<'a> {
    pub(super) fn root(node: &'a TreeNode) -> Self {
        Field { node, path: String::new() }
    }

    pub(super) fn fault(&self, message: impl Into<String>) -> Finding {
        self.located(()).fault(message)
    }

    /// Adds a fault at this value.
    pub(super) fn reject(&self, faults: &mut Diagnostics, message: impl Into<String>, hint: &str) {
        faults.push(self.fault(message).hint(Some(hint)));
    }

    pub(super) fn located<T>(&self, value: T) -> Located<T> {
        Located { value, path: self.path.clone(), at: self.node.at }
    }

    fn wrong<T>(&self, faults: &mut Diagnostics, wanted: &str) -> Option<T> {
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

    /// The scalar; the value of a variable gets the type of its text.
    fn resolved(&self) -> TreeValue {
        match &self.node.value {
            TreeValue::Text { text, plain: true } => tree::plain(text),
            other => other.clone(),
        }
    }

    pub(super) fn section(&self, faults: &mut Diagnostics) -> Option<Section<'a>> {
        match &self.node.value {
            TreeValue::Map(entries) => Some(Section {
                entries,
                path: self.path.clone(),
                at: self.node.at,
                known: Vec::new(),
            }),
            // A key whose lines are all comments.
            TreeValue::Null => Some(Section {
                entries: &[],
                path: self.path.clone(),
                at: self.node.at,
                known: Vec::new(),
            }),
            _ => self.wrong(faults, "a mapping"),
        }
    }

    pub(super) fn list(&self, faults: &mut Diagnostics) -> Option<Vec<Field<'a>>> {
        match &self.node.value {
            TreeValue::List(items) => {
                let field = |(at, node)| Field { node, path: format!("{}[{at}]", self.path) };
                Some(items.iter().enumerate().map(field).collect())
            }
            _ => self.wrong(faults, "a list"),
        }
    }

    pub(super) fn is_empty_list(&self) -> bool {
        matches!(&self.node.value, TreeValue::List(items) if items.is_empty())
    }

    pub(super) fn text(&self, faults: &mut Diagnostics) -> Option<&'a str> {
        match &self.node.value {
            TreeValue::Text { text, .. } => Some(text),
            TreeValue::Bool(_) | TreeValue::Int(_) | TreeValue::Float(_) => {
                self.reject(
                    faults,
                    format!("must be text, not {}", self.node.value.kind()),
                    "put it in quotes",
                );
                None
            }
            _ => self.wrong(faults, "text"),
        }
    }

    /// Text that messages may quote, with its place.
    pub(super) fn name(&self, faults: &mut Diagnostics) -> Option<Located<String>> {
        self.text(faults).map(|text| self.located(text.to_owned()))
    }

    pub(super) fn bool(&self, faults: &mut Diagnostics) -> Option<bool> {
        match self.resolved() {
            TreeValue::Bool(value) => Some(value),
            _ => self.wrong(faults, "true or false"),
        }
    }

    pub(super) fn whole(&self, faults: &mut Diagnostics, least: u64, most: u64) -> Option<u64> {
        match self.resolved() {
            TreeValue::Int(value) => match u64::try_from(value) {
                Ok(value) if (least..=most).contains(&value) => Some(value),
                _ => {
                    self.reject(
                        faults,
                        format!("must be from {least} to {most}"),
                        "leave it out for the default",
                    );
                    None
                }
            },
            _ => self.wrong(faults, "a whole number"),
        }
    }

    pub(super) fn number(&self, faults: &mut Diagnostics) -> Option<f64> {
        match self.resolved() {
            TreeValue::Int(value) => Some(value as f64),
            TreeValue::Float(value) => Some(value),
            _ => self.wrong(faults, "a number"),
        }
    }

    /// Whole percent, such as `20%`.
    pub(super) fn percent(&self, faults: &mut Diagnostics, least: u16, most: u16) -> Option<u16> {
        let number = match &self.node.value {
            TreeValue::Text { text, .. } => text
                .strip_suffix('%')
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())),
            _ => None,
        };
        let found = number
            .and_then(|digits| digits.parse().ok())
            .filter(|percent| (least..=most).contains(percent));
        if found.is_none() {
            self.reject(
                faults,
                format!("must be a share from {least}% to {most}%"),
                "for example `20%`",
            );
        }
        found
    }

    /// The value of one of the words.
    pub(super) fn word<T: Copy>(&self, faults: &mut Diagnostics, words: &[(&str, T)]) -> Option<T> {
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

    pub(super) fn duration(&self, faults: &mut Diagnostics) -> Option<Duration> {
        const UNITS: [(&str, u64); 5] =
            [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        let found = match &self.node.value {
            TreeValue::Int(0) => Some(0),
            TreeValue::Text { text, .. } => measure(text, &UNITS),
            _ => None,
        };
        if found.is_none() {
            self.reject(
                faults,
                "must be a duration",
                "for example `20ms`, `30s`, `5m`, `12h` or `7d`",
            );
        }
        found.map(Duration::from_millis)
    }

    /// A duration within bounds.
    pub(super) fn duration_in(
        &self,
        faults: &mut Diagnostics,
        (least, most): (Duration, Duration),
    ) -> Option<Duration> {
        let found = self.duration(faults)?;
        if (least..=most).contains(&found) {
            return Some(found);
        }
        let (least, most) = (least.as_millis(), most.as_secs());
        self.reject(faults, format!("must be from {least}ms to {most}s"), "for example `10s`");
        None
    }

    /// A duration that is not zero.
    pub(super) fn positive_duration(&self, faults: &mut Diagnostics) -> Option<Duration> {
        let found = self.duration(faults)?;
        if found.is_zero() {
            self.reject(faults, "must be positive", "for example `30s`");
            return None;
        }
        Some(found)
    }

    pub(super) fn size(&self, faults: &mut Diagnostics) -> Option<u64> {
        let found = match &self.node.value {
            TreeValue::Int(bytes) => u64::try_from(*bytes).ok(),
            TreeValue::Text { text, .. } => measure(text, &SIZES),
            _ => None,
        };
        if found.is_none() {
            self.reject(
                faults,
                "must be a size",
                "for example `8KiB`, `64MiB`, `1GiB` or a number of bytes",
            );
        }
        found
    }

    pub(super) fn rate(&self, faults: &mut Diagnostics) -> Option<u64> {
        let found = match &self.node.value {
            TreeValue::Int(0) => Some(0),
            TreeValue::Text { text, .. } => {
                text.strip_suffix("/s").and_then(|size| measure(size, &SIZES))
            }
            _ => None,
        };
        if found.is_none() {
            self.reject(faults, "must be a rate", "for example `1KiB/s`");
        }
        found
    }

    /// Reads each item of a list, at most `most`.
    pub(super) fn each<T>(
        &self,
        faults: &mut Diagnostics,
        most: usize,
        mut read: impl FnMut(&Field<'a>, &mut Diagnostics) -> Option<T>,
    ) -> Vec<T> {
        let Some(items) = self.list(faults) else { return Vec::new() };
        if items.len() > most {
            self.reject(faults, format!("more than {most} entries"), "remove some");
        }
        let known =
            items.iter().take(most).filter(|item| !matches!(item.node.value, TreeValue::Unknown));
        known.filter_map(|item| read(item, faults)).collect()
    }
}

const SIZES: [(&str, u64); 5] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// A whole number with a unit.
fn measure(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let factor =
        units.iter().find(|(name, _)| *name == unit.trim_start()).map(|(_, factor)| *factor)?;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// A mapping with known keys. [`Section::finish`] reports the others.
pub(super) struct Section<'a> {
    entries: &'a [TreeEntry],
    path: String,
    at: Position,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    /// The value of a key, unless it is missing, null or unknown.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Field<'a>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        let unset = match &entry.node.value {
            TreeValue::Null | TreeValue::Unknown => true,
            // `${NAME:-}` with nothing in it.
            TreeValue::Text { text, plain: true } => text.is_empty(),
            _ => false,
        };
        (!unset).then(|| Field { node: &entry.node, path: join(&self.path, key) })
    }

    /// Reads the value of a key.
    pub(super) fn read<T>(
        &mut self,
        key: &'static str,
        faults: &mut Diagnostics,
        read: impl FnOnce(&Field<'a>, &mut Diagnostics) -> Option<T>,
    ) -> Option<T> {
        self.take(key).and_then(|field| read(&field, faults))
    }

    /// The section below a key; empty if it is missing.
    pub(super) fn below(&mut self, key: &'static str, faults: &mut Diagnostics) -> Section<'a> {
        let empty =
            Section { entries: &[], path: join(&self.path, key), at: self.at, known: Vec::new() };
        self.read(key, faults, |field, faults| field.section(faults)).unwrap_or(empty)
    }

    /// Whether a key is neither missing nor null. An unknown value counts as present.
    pub(super) fn is_set(&mut self, key: &'static str) -> bool {
        let is_unknown = |entry: &TreeEntry| matches!(entry.node.value, TreeValue::Unknown);
        self.take(key).is_some()
            || self.entries.iter().any(|entry| entry.key == key && is_unknown(entry))
    }

    /// Reports a key that is not set.
    pub(super) fn require(&mut self, key: &'static str, faults: &mut Diagnostics) {
        if self.is_set(key) {
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

    /// Reports a key that is missing or empty: the document may be incomplete. Only an explicit
    /// `{}` may be empty.
    pub(super) fn require_explicit(&mut self, key: &'static str, faults: &mut Diagnostics) {
        if self.take(key).is_none() {
            let entry = self.entries.iter().find(|entry| entry.key == key);
            faults.push(Finding {
                path: self.path.clone(),
                at: entry.map_or(self.at, |entry| entry.at),
                message: format!("`{key}` is missing or empty"),
                hint: Some(format!("write `{key}: {{}}` if there are none")),
            });
        }
    }

    /// Reports every key that was not read.
    pub(super) fn finish(self, faults: &mut Diagnostics) {
        faults.add_known_keys(self.known.iter().map(|key| join(&any_item(&self.path), key)));
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

    /// Every pair of a mapping whose keys are names chosen in the document, with the place of the
    /// key.
    pub(super) fn named(&self) -> Vec<(Located<String>, Field<'a>)> {
        let pair = |entry: &'a TreeEntry| {
            let path = join(&self.path, &entry.key);
            (
                Located { value: entry.key.clone(), path: path.clone(), at: entry.at },
                Field { node: &entry.node, path },
            )
        };
        self.entries.iter().map(pair).collect()
    }
}

/// A path with `[]` for each position in a list.
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
    fn positions_are_left_out() {
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
