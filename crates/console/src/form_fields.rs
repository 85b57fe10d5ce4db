//! Forms as tables of fields. `form_state.rs` draws the inputs; this file reads the body of the
//! API's request from a submitted form.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::form::Form;
use super::times;
use rerouter_base::error::{Error, Result};

/// An input. Its name is the path of a member in the API's records, so that a refusal is shown at
/// its input.
#[derive(Clone, Copy)]
pub(super) struct FormField {
    pub(super) label: &'static str,
    pub(super) name: &'static str,
    pub(super) kind: FieldKind,
    pub(super) hint: &'static str,
    /// The value if the record lacks the member.
    before: &'static str,
    /// Whether an empty value is sent, so that the API says what is wrong.
    is_needed: bool,
}

/// The element of an input, and how its text is read. Text areas have a number of rows.
#[derive(Clone, Copy)]
pub(super) enum FieldKind {
    /// One line, with this `type` in HTML.
    Line(&'static str),
    /// One line, with suggestions.
    Suggested,
    /// A new password. Pages never show it again.
    NewPassword,
    /// A time in UTC.
    Time,
    /// A number. Other text is passed on, so that the API says what is wrong.
    Number,
    /// One of these words; each has a label.
    Choice(&'static [(&'static str, &'static str)]),
    /// As `Choice`, but left out if the other fields of its object are empty.
    Beside(&'static [(&'static str, &'static str)]),
    /// A text, not trimmed.
    Text(usize),
    /// A list of names, one a line.
    Names(usize),
    /// `name=value`, one a line.
    Pairs(usize),
    /// The members of an object that have no field in this table, as JSON.
    Others(usize, &'static [FormField]),
    /// A list, as JSON.
    List(usize),
}
use FieldKind::{Beside, List, Names, NewPassword, Number, Others, Pairs, Text, Time};

/// A group of fields, in a frame if it has a legend.
#[derive(Clone, Copy)]
pub(super) struct FormGroup {
    pub(super) legend: &'static str,
    pub(super) hint: &'static str,
    /// Fields side by side.
    pub(super) columns: &'static [FormField],
    pub(super) fields: &'static [FormField],
}

pub(super) const fn field(label: &'static str, name: &'static str, kind: FieldKind) -> FormField {
    FormField { label, name, kind, hint: "", before: "", is_needed: false }
}

/// A group without a frame.
pub(super) const fn plain(fields: &'static [FormField]) -> FormGroup {
    FormGroup { legend: "", hint: "", columns: &[], fields }
}

impl FormField {
    pub(super) const fn before(self, before: &'static str) -> Self {
        FormField { before, ..self }
    }

    pub(super) const fn hint(self, hint: &'static str) -> Self {
        FormField { hint, ..self }
    }

    pub(super) const fn needed(self) -> Self {
        FormField { is_needed: true, ..self }
    }

    /// The value of the input for a record.
    pub(super) fn shown(&self, record: &Value) -> String {
        let value = record.pointer(&format!("/{}", self.name.replace('.', "/")));
        match (self.kind, value) {
            (_, None | Some(Value::Null)) => self.before.to_owned(),
            (Time, Some(Value::String(at))) => times::minute(at).to_owned(),
            (_, Some(Value::String(text))) => text.clone(),
            (_, Some(Value::Number(number))) if number.is_f64() => {
                number.as_f64().unwrap_or_default().to_string()
            }
            (Names(_), Some(names)) => {
                Vec::<String>::deserialize(names).unwrap_or_default().join("\n")
            }
            (Pairs(_), Some(pairs)) => {
                pairs_text(&BTreeMap::deserialize(pairs).unwrap_or_default())
            }
            (Others(_, fields), Some(Value::Object(members))) => {
                let is_own = |name: &str| fields.iter().any(|field| field.name.ends_with(name));
                let mut others = members.clone();
                others.retain(|name, _| !is_own(&format!(".{name}")));
                pretty(&others.into())
            }
            (List(_), Some(list)) => pretty(list),
            (_, Some(value)) => value.to_string(),
        }
    }

    /// The member that a text means; `None` for an empty text of a field that is not needed.
    fn read(&self, text: &str) -> Result<Option<Value>> {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Ok(self.is_needed.then(|| json!("")));
        }
        Ok(Some(match self.kind {
            Text(_) | NewPassword => json!(text),
            Time => json!(times::utc(trimmed)),
            Number => number(trimmed),
            Names(_) => lines_of(trimmed).into(),
            Pairs(_) => pairs_of(trimmed).into(),
            Others(..) => self.json::<Map<String, Value>>(trimmed, "an object")?.into(),
            List(_) => self.json::<Vec<Value>>(trimmed, "a list")?.into(),
            _ => json!(trimmed),
        }))
    }

    fn json<T: DeserializeOwned>(&self, text: &str, what: &str) -> Result<T> {
        let name = self.name;
        serde_json::from_str(text).map_err(|wrong| {
            Error::invalid(name, format!("{name} must be {what} in JSON: {wrong}."))
        })
    }
}

/// Empty fields are left out.
pub(super) fn body(form: &[FormGroup], sent: &Form) -> Result<Map<String, Value>> {
    members(form, |field| sent.text(field.name).to_owned())
}

/// The merge patch (RFC 7396) from a record to a submitted form; `None` if nothing changes. Members
/// without an input in the form stay.
pub(super) fn changes(form: &[FormGroup], record: &Value, sent: &Form) -> Result<Option<Value>> {
    let before = members(form, |field| field.shown(record))?;
    let after = members(form, |field| {
        sent.get(field.name).map_or_else(|| field.shown(record), str::to_owned)
    })?;
    Ok(patch_to(&before, &after))
}

fn members(form: &[FormGroup], text: impl Fn(&FormField) -> String) -> Result<Map<String, Value>> {
    let mut all = Map::new();
    for field in form.iter().flat_map(|group| group.columns.iter().chain(group.fields)) {
        if let Some((outer, _)) = field.name.split_once('.') {
            all.entry(outer).or_insert_with(|| json!({}));
        }
        if let Some(value) = field.read(&text(field))? {
            put(&mut all, field.name, value, !matches!(field.kind, Beside(_)));
        }
    }
    Ok(all)
}

fn put(members: &mut Map<String, Value>, path: &str, value: Value, makes_objects: bool) {
    if let Some((outer, rest)) = path.split_once('.') {
        if makes_objects {
            members.entry(outer).or_insert_with(|| json!({}));
        }
        if let Some(Value::Object(inner)) = members.get_mut(outer) {
            put(inner, rest, value, makes_objects);
        }
        return;
    }
    match (members.get_mut(path), value) {
        // A member with its own field wins over the JSON of the others.
        (Some(Value::Object(own)), Value::Object(others)) => {
            others.into_iter().for_each(|(name, value)| _ = own.entry(name).or_insert(value));
        }
        (_, value) => _ = members.insert(path.to_owned(), value),
    }
}

/// A number, or the text, which the API then refuses by the field's name.
fn number(text: &str) -> Value {
    let fraction = || text.parse::<f64>().ok().filter(|number| number.is_finite());
    let whole = text.parse::<i64>().ok().map(Value::from);
    whole.or_else(|| fraction().map(Value::from)).unwrap_or_else(|| json!(text))
}

/// JSON on several lines; empty for an empty object or list.
fn pretty(value: &Value) -> String {
    match value {
        Value::Object(members) if members.is_empty() => String::new(),
        Value::Array(items) if items.is_empty() => String::new(),
        value => serde_json::to_string_pretty(value).unwrap_or_default(),
    }
}

/// The lines that are not empty, trimmed.
fn lines_of(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// `name=value` lines as an object of strings. A line without `=` is a name with an empty value.
fn pairs_of(text: &str) -> Map<String, Value> {
    let pair = |line: &str| {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        (name.trim().to_owned(), Value::from(value.trim()))
    };
    lines_of(text).into_iter().map(pair).collect()
}

/// An object of strings as `name=value` lines.
pub(super) fn pairs_text(pairs: &BTreeMap<String, String>) -> String {
    pairs.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

/// The merge patch (RFC 7396) that turns `before` into `after`; `None` if nothing changes.
fn patch_to(before: &Map<String, Value>, after: &Map<String, Value>) -> Option<Value> {
    let mut patch = Map::new();
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in after {
        let change = match (before.get(name), value) {
            (Some(old), same) if old == same => None,
            (Some(Value::Object(old)), Value::Object(new)) => patch_to(old, new),
            _ => Some(value.clone()),
        };
        patch.extend(change.map(|change| (name.clone(), change)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn pairs_are_written_as_they_are_read() {
        let pairs = pairs_of(" team = search \n\ncapture=off\na=b=c\nbare");
        assert_eq!(
            Value::Object(pairs.clone()),
            json!({"team": "search", "capture": "off", "a": "b=c", "bare": ""})
        );
        let typed = serde_json::from_value(Value::Object(pairs.clone())).unwrap();
        assert_eq!(pairs_of(&pairs_text(&typed)), pairs);
    }

    fn apply(target: &Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else { return patch.clone() };
        let mut out = target.as_object().cloned().unwrap_or_default();
        for (name, value) in patch {
            match value {
                Value::Null => drop(out.remove(name)),
                value => {
                    let old = out.get(name).cloned().unwrap_or(Value::Null);
                    out.insert(name.clone(), apply(&old, value));
                }
            }
        }
        Value::Object(out)
    }

    fn object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<u8>().prop_map(Value::from), "[a-c]".prop_map(Value::from)];
        leaf.prop_recursive(2, 8, 3, |inner| {
            prop::collection::btree_map("[a-d]", inner, 1..4)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        })
        .prop_filter("an object", Value::is_object)
    }

    proptest! {
        #[test]
        fn a_patch_leads_from_one_to_the_other(before in object(), after in object()) {
            let wanted = after.as_object().unwrap();
            let reached = match patch_to(before.as_object().unwrap(), wanted) {
                None => before.clone(),
                Some(patch) => apply(&before, &patch),
            };
            prop_assert_eq!(reached, after);
        }
    }
}
