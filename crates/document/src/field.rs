//! Reads values of the tree. Each reader adds problems to the diagnostics, so that one pass finds
//! all of them. Messages never quote a value, as it may come from the environment.

use crate::diagnostics::Diagnostics;
use crate::place::{Finding, Located, Position};
use crate::suggest::did_you_mean;
use crate::tree::{self, TreeEntry, TreeNode, TreeValue, join};

#[derive(Clone)]
pub struct Field<'a> {
    node: &'a TreeNode,
    path: String,
    /// The mapping entry that has this value, if any.
    entry: Option<&'a TreeEntry>,
}

impl<'a> Field<'a> {
    pub fn root(node: &'a TreeNode) -> Self {
        Field { node, path: String::new(), entry: None }
    }

    fn of(entry: &'a TreeEntry, below: &str) -> Self {
        Field { node: &entry.node, path: join(below, &entry.key), entry: Some(entry) }
    }

    /// The value as parsed.
    pub fn value(&self) -> &'a TreeValue {
        &self.node.value
    }

    /// The key with its place. For an item of a list it is empty, with the place of the item.
    pub fn key(&self) -> Located<String> {
        let (key, at) =
            self.entry.map_or((String::new(), self.node.at), |entry| (entry.key.clone(), entry.at));
        Located { value: key, path: self.path.clone(), at }
    }

    pub fn fault(&self, message: impl Into<String>) -> Finding {
        self.located(()).fault(message)
    }

    pub fn reject(&self, faults: &mut Diagnostics<'_>, message: impl Into<String>, hint: &str) {
        faults.push(self.fault(message).hint(Some(hint)));
    }

    pub fn located<T>(&self, value: T) -> Located<T> {
        Located { value, path: self.path.clone(), at: self.node.at }
    }

    /// Reports that the value has another type than `wanted`.
    fn wrong<T>(&self, faults: &mut Diagnostics<'_>, wanted: &str) -> Option<T> {
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

    /// The scalar. A variable's value gets the type that its text has in YAML.
    fn resolved(&self) -> TreeValue {
        match &self.node.value {
            TreeValue::Text { text, plain: true } => tree::plain(text),
            other => other.clone(),
        }
    }

    pub fn section(&self, faults: &mut Diagnostics<'_>) -> Option<Section<'a>> {
        match &self.node.value {
            TreeValue::Map(entries) => Some(Section::new(self.key(), self.node.at, entries)),
            // A key that is followed by comments only.
            TreeValue::Null => Some(Section::new(self.key(), self.node.at, &[])),
            _ => self.wrong(faults, "a mapping"),
        }
    }

    pub fn list(&self, faults: &mut Diagnostics<'_>) -> Option<Vec<Field<'a>>> {
        match &self.node.value {
            TreeValue::List(items) => {
                let field =
                    |(at, node)| Field { node, path: format!("{}[{at}]", self.path), entry: None };
                Some(items.iter().enumerate().map(field).collect())
            }
            _ => self.wrong(faults, "a list"),
        }
    }

    pub(crate) fn is_empty_list(&self) -> bool {
        matches!(&self.node.value, TreeValue::List(items) if items.is_empty())
    }

    pub fn text(&self, faults: &mut Diagnostics<'_>) -> Option<&'a str> {
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

    /// The text with its place. Messages may quote it.
    pub fn name(&self, faults: &mut Diagnostics<'_>) -> Option<Located<String>> {
        self.text(faults).map(|text| self.located(text.to_owned()))
    }

    pub fn bool(&self, faults: &mut Diagnostics<'_>) -> Option<bool> {
        match self.resolved() {
            TreeValue::Bool(value) => Some(value),
            _ => self.wrong(faults, "true or false"),
        }
    }

    pub fn whole(&self, faults: &mut Diagnostics<'_>, least: u64, most: u64) -> Option<u64> {
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

    pub fn number(&self, faults: &mut Diagnostics<'_>) -> Option<f64> {
        match self.resolved() {
            TreeValue::Int(value) => Some(value as f64),
            TreeValue::Float(value) => Some(value),
            _ => self.wrong(faults, "a number"),
        }
    }

    pub fn each<T>(
        &self,
        faults: &mut Diagnostics<'_>,
        most: usize,
        mut read: impl FnMut(&Field<'a>, &mut Diagnostics<'_>) -> Option<T>,
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

/// A mapping whose keys are known. [`Section::finish`] reports all others.
pub struct Section<'a> {
    key: Located<String>,
    at: Position,
    entries: &'a [TreeEntry],
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    fn new(key: Located<String>, at: Position, entries: &'a [TreeEntry]) -> Self {
        Section { key, at, entries, known: Vec::new() }
    }

    pub fn key(&self) -> Located<String> {
        self.key.clone()
    }

    pub fn located<T>(&self, value: T) -> Located<T> {
        Located { value, path: self.key.path.clone(), at: self.at }
    }

    /// The value of a key, unless it is missing, null or unknown.
    pub fn take(&mut self, key: &'static str) -> Option<Field<'a>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        let unset = match &entry.node.value {
            TreeValue::Null | TreeValue::Unknown => true,
            // A variable that expanded to nothing, such as `${NAME:-}`.
            TreeValue::Text { text, plain: true } => text.is_empty(),
            _ => false,
        };
        (!unset).then(|| Field::of(entry, &self.key.path))
    }

    pub fn read<T>(
        &mut self,
        key: &'static str,
        faults: &mut Diagnostics<'_>,
        read: impl FnOnce(&Field<'a>, &mut Diagnostics<'_>) -> Option<T>,
    ) -> Option<T> {
        self.take(key).and_then(|field| read(&field, faults))
    }

    /// The section under a key; an empty section if the key is missing.
    pub fn below(&mut self, key: &'static str, faults: &mut Diagnostics<'_>) -> Section<'a> {
        let path = join(&self.key.path, key);
        let empty =
            Section::new(Located { value: key.to_owned(), path, at: self.at }, self.at, &[]);
        self.read(key, faults, |field, faults| field.section(faults)).unwrap_or(empty)
    }

    /// Whether a key is neither missing nor null. An unknown value counts as present.
    pub fn is_set(&mut self, key: &'static str) -> bool {
        let is_unknown = |entry: &TreeEntry| matches!(entry.node.value, TreeValue::Unknown);
        self.take(key).is_some()
            || self.entries.iter().any(|entry| entry.key == key && is_unknown(entry))
    }

    pub fn require(&mut self, key: &'static str, faults: &mut Diagnostics<'_>) {
        if self.is_set(key) {
            return;
        }
        let fault = self.located(()).fault(format!("`{key}` is missing"));
        faults.push(fault.hint(Some(format!("add `{key}: …` here"))));
    }

    /// Reports the key if it is missing or empty, as the document may be incomplete. Only an
    /// explicit `{}` may be empty.
    pub fn require_explicit(&mut self, key: &'static str, faults: &mut Diagnostics<'_>) {
        if self.take(key).is_none() {
            let entry = self.entries.iter().find(|entry| entry.key == key);
            let at = entry.map_or(self.at, |entry| entry.at);
            let fault = Located { at, ..self.located(()) };
            let fault = fault.fault(format!("`{key}` is missing or empty"));
            faults.push(fault.hint(Some(format!("write `{key}: {{}}` if there are none"))));
        }
    }

    /// Reports every key that was not read.
    pub fn finish(self, faults: &mut Diagnostics<'_>) {
        for entry in self.entries {
            if !self.known.contains(&entry.key.as_str()) {
                let hint = did_you_mean(&entry.key, self.known.iter().copied())
                    .or_else(|| Some(format!("known: {}", self.known.join(", "))));
                let path = join(&self.key.path, &entry.key);
                let key = Located { value: (), path, at: entry.at };
                faults.push(key.fault("unknown key").hint(hint));
            }
        }
    }

    /// The values of a mapping whose keys are names chosen in the document.
    pub fn values(&self) -> impl Iterator<Item = Field<'a>> {
        self.entries.iter().map(|entry| Field::of(entry, &self.key.path))
    }
}
