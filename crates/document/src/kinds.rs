//! Kinds of values: how they are read, their schemas, and how defaults are written.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::diagnostics::Diagnostics;
use crate::field::Field;
use crate::place::Located;
use crate::suggest::did_you_mean;
use crate::table::{KeyTable, ValueKind, object, whole as whole_section};
use crate::tree::TreeValue;
use crate::units::{DURATIONS, SIZES, Units, measure, pattern, shown, shown_duration};
use rerouter_base::secret::Secret;

struct ReaderKind<S, R> {
    schema: S,
    read: R,
}

impl<T, S, R> ValueKind for ReaderKind<S, R>
where
    S: Fn() -> Value,
    R: Fn(&Field<'_>, &mut Diagnostics<'_>) -> Option<T>,
{
    type Value = T;

    fn read(&self, field: &Field<'_>, faults: &mut Diagnostics<'_>) -> Option<T> {
        (self.read)(field, faults)
    }

    fn schema(&self) -> Value {
        (self.schema)()
    }
}

/// A kind with its own schema and reader. Its values cannot be written.
pub fn reader<T>(
    schema: impl Fn() -> Value,
    read: impl Fn(&Field<'_>, &mut Diagnostics<'_>) -> Option<T>,
) -> impl ValueKind<Value = T> {
    ReaderKind { schema, read }
}

/// A kind for texts that match a pattern (ECMA 262). An empty pattern matches any text.
pub fn text_as<T>(
    pattern: &'static str,
    read: impl Fn(&Field<'_>, &mut Diagnostics<'_>) -> Option<T>,
) -> impl ValueKind<Value = T> {
    let schema = move || match pattern {
        "" => json!({ "type": "string" }),
        pattern => json!({ "type": "string", "pattern": pattern }),
    };
    reader(schema, read)
}

struct ShownKind<K, W> {
    kind: K,
    show: W,
}

impl<K: ValueKind, W: Fn(&K::Value) -> Option<String>> ValueKind for ShownKind<K, W> {
    type Value = K::Value;

    fn read(&self, field: &Field<'_>, faults: &mut Diagnostics<'_>) -> Option<K::Value> {
        self.kind.read(field, faults)
    }

    fn schema(&self) -> Value {
        self.kind.schema()
    }

    fn show(&self, value: &K::Value) -> Option<String> {
        (self.show)(value)
    }
}

/// Adds to a kind how its values are written.
pub fn written<T>(
    kind: impl ValueKind<Value = T>,
    show: impl Fn(&T) -> String,
) -> impl ValueKind<Value = T> {
    ShownKind { kind, show: move |value: &T| Some(show(value)) }
}

pub fn flag() -> impl ValueKind<Value = bool> {
    let kind = reader(|| json!({ "type": "boolean" }), |f, p| f.bool(p));
    written(kind, ToString::to_string)
}

pub fn whole<T: TryFrom<u64> + Display>(least: u64, most: u64) -> impl ValueKind<Value = T> {
    let schema = move || json!({ "type": "integer", "minimum": least, "maximum": most });
    let read = move |field: &Field<'_>, faults: &mut Diagnostics<'_>| {
        T::try_from(field.whole(faults, least, most)?).ok()
    };
    written(reader(schema, read), ToString::to_string)
}

pub fn number() -> impl ValueKind<Value = f64> {
    let kind = reader(|| json!({ "type": "number" }), |f, p| f.number(p));
    written(kind, ToString::to_string)
}

pub fn number_in(least: u32, most: u32, hint: &'static str) -> impl ValueKind<Value = f64> {
    let schema = move || json!({ "type": "number", "minimum": least, "maximum": most });
    let read = move |field: &Field<'_>, faults: &mut Diagnostics<'_>| {
        let number = field.number(faults)?;
        if !(f64::from(least)..=f64::from(most)).contains(&number) {
            field.reject(faults, format!("must be from {least} to {most}"), hint);
        }
        Some(number)
    };
    written(reader(schema, read), ToString::to_string)
}

/// A whole percentage, such as `20%`.
pub fn percent(least: u16, most: u16) -> impl ValueKind<Value = u16> {
    let digits = if least > 0 { "0*[1-9][0-9]*" } else { "[0-9]+" };
    let schema = move || json!({ "type": "string", "pattern": format!("^{digits}%$") });
    let read = move |field: &Field<'_>, faults: &mut Diagnostics<'_>| {
        let digits = match field.value() {
            TreeValue::Text { text, .. } => text.strip_suffix('%'),
            _ => None,
        };
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let found = digits.and_then(|digits| digits.parse().ok());
        let found = found.filter(|percent| (least..=most).contains(percent));
        if found.is_none() {
            let message = format!("must be a share from {least}% to {most}%");
            field.reject(faults, message, "for example `20%`");
        }
        found
    };
    written(reader(schema, read), |percent| format!("{percent}%"))
}

pub fn text() -> impl ValueKind<Value = String> {
    let kind = text_as("", |field, faults| field.text(faults).map(str::to_owned));
    written(kind, |text| Value::from(text.as_str()).to_string())
}

/// A text with its place, which messages may quote.
pub fn quotable() -> impl ValueKind<Value = Located<String>> {
    text_as("", |f, p| f.name(p))
}

pub fn path() -> impl ValueKind<Value = PathBuf> {
    let schema = || json!({ "type": "string", "minLength": 1 });
    let read = |field: &Field<'_>, faults: &mut Diagnostics<'_>| {
        let text = field.text(faults)?;
        if text.is_empty() || text.contains('\0') {
            let message = "must be the path of a file or directory";
            field.reject(faults, message, "for example `./data`");
            return None;
        }
        Some(PathBuf::from(text))
    };
    written(reader(schema, read), |path| path.display().to_string())
}

pub fn words<T: Copy + PartialEq, const N: usize>(
    words: [(&'static str, T); N],
) -> impl ValueKind<Value = T> {
    let schema = move || json!({ "enum": words.map(|(word, _)| word).to_vec() });
    let read = move |field: &Field<'_>, faults: &mut Diagnostics<'_>| {
        let text = field.text(faults)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let all = words.iter().map(|(word, _)| *word);
            let list = all.clone().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
            let first = || words.first().map(|(word, _)| format!("for example `{word}`"));
            let fault = field.fault(format!("must be one of {list}"));
            faults.push(fault.hint(did_you_mean(text, all).or_else(first)));
        }
        found
    };
    let show = move |value: &T| {
        words.iter().find(|(_, other)| other == value).map(|(word, _)| (*word).to_owned())
    };
    ShownKind { kind: reader(schema, read), show }
}

/// Longest duration of a document: 100 years. Times that lie a duration ahead stay within the
/// calendar of `jiff`, which ends with the year 9999.
const DURATION_MAX: Duration = Duration::from_secs(36_500 * 86_400);

pub fn duration() -> impl ValueKind<Value = Duration> {
    duration_in(Duration::ZERO, DURATION_MAX)
}

pub fn positive_duration() -> impl ValueKind<Value = Duration> {
    duration_in(Duration::from_millis(1), DURATION_MAX)
}

pub fn duration_in(least: Duration, most: Duration) -> impl ValueKind<Value = Duration> {
    let schema = move || measured(&DURATIONS, !least.is_zero(), "", 0);
    let read = move |field: &Field<'_>, faults: &mut Diagnostics<'_>| {
        let found = match field.value() {
            TreeValue::Int(0) => Some(0),
            TreeValue::Text { text, .. } => measure(text, &DURATIONS),
            _ => None,
        };
        let Some(found) = found.map(Duration::from_millis) else {
            let hint = "for example `20ms`, `30s`, `5m`, `12h` or `7d`";
            field.reject(faults, "must be a duration", hint);
            return None;
        };
        if (least..=most).contains(&found) {
            return Some(found);
        }
        let (low, high) = (shown_duration(least), shown_duration(most));
        let wrong = match least.as_millis() {
            0 | 1 if found.is_zero() => "must be positive".to_owned(),
            0 | 1 => format!("must be at most {high}"),
            _ => format!("must be from {low} to {high}"),
        };
        field.reject(faults, wrong, "for example `30s`");
        None
    };
    written(reader(schema, read), |duration| shown_duration(*duration))
}

/// A number of bytes from `least` to `most`, such as `64MiB` or digits alone.
pub fn size<T: TryFrom<u64> + TryInto<u64> + Copy>(
    least: u64,
    most: u64,
) -> impl ValueKind<Value = T> {
    let schema = move || measured(&SIZES, least > 0, "", most);
    let read = move |field: &Field<'_>, faults: &mut Diagnostics<'_>| {
        let found = match field.value() {
            TreeValue::Int(bytes) => u64::try_from(*bytes).ok(),
            TreeValue::Text { text, .. } => measure(text, &SIZES),
            _ => None,
        };
        let Some(found) = found else {
            let hint = "for example `8KiB`, `64MiB`, `1GiB` or a number of bytes";
            field.reject(faults, "must be a size", hint);
            return None;
        };
        if !(least..=most).contains(&found) {
            let (least, most) = (shown(least, &SIZES), shown(most, &SIZES));
            field.reject(faults, format!("must be from {least} to {most}"), "for example `32MiB`");
            return None;
        }
        T::try_from(found).ok()
    };
    written(reader(schema, read), |size: &T| shown((*size).try_into().unwrap_or(u64::MAX), &SIZES))
}

/// Bytes per second, such as `1KiB/s` or 0.
pub fn rate() -> impl ValueKind<Value = u64> {
    let read = |field: &Field<'_>, faults: &mut Diagnostics<'_>| {
        let found = match field.value() {
            TreeValue::Int(0) => Some(0),
            TreeValue::Text { text, .. } => {
                text.strip_suffix("/s").and_then(|size| measure(size, &SIZES))
            }
            _ => None,
        };
        if found.is_none() {
            field.reject(faults, "must be a rate", "for example `1KiB/s`");
        }
        found
    };
    let kind = reader(|| measured(&SIZES, false, "/s", 0), read);
    written(kind, |rate| format!("{}/s", shown(*rate, &SIZES)))
}

/// The schema of a whole number with a unit, or without a unit up to `most`.
fn measured(units: &Units, positive: bool, end: &str, most: u64) -> Value {
    let pattern = pattern(units, positive, end);
    if positive && most == 0 {
        return json!({ "type": "string", "pattern": pattern });
    }
    let least = u64::from(positive);
    let mut schema = json!({ "type": ["string", "integer"], "pattern": pattern, "minimum": least });
    if let (Some(schema), true) = (schema.as_object_mut(), most < u64::MAX) {
        schema.insert("maximum".to_owned(), most.into());
    }
    schema
}

struct ListKind<K> {
    item: K,
    most: usize,
    /// Message and hint for an empty list, if that is refused.
    empty: Option<(&'static str, &'static str)>,
}

impl<K: ValueKind> ValueKind for ListKind<K> {
    type Value = Vec<K::Value>;

    fn read(&self, field: &Field<'_>, faults: &mut Diagnostics<'_>) -> Option<Self::Value> {
        let found = field.each(faults, self.most, |item, faults| self.item.read(item, faults));
        if let Some((message, hint)) = self.empty.filter(|_| field.is_empty_list()) {
            field.reject(faults, message, hint);
        }
        Some(found)
    }

    fn schema(&self) -> Value {
        let mut schema = json!({ "type": "array", "items": self.item.schema() });
        if let (Some(schema), true) = (schema.as_object_mut(), self.empty.is_some()) {
            schema.insert("minItems".to_owned(), 1.into());
        }
        schema
    }

    fn show(&self, value: &Self::Value) -> Option<String> {
        let items: Option<Vec<String>> = value.iter().map(|item| self.item.show(item)).collect();
        items.map(|items| format!("[{}]", items.join(", ")))
    }
}

/// A list of at most `most` values.
pub fn each<K: ValueKind>(item: K, most: usize) -> impl ValueKind<Value = Vec<K::Value>> {
    ListKind { item, most, empty: None }
}

/// A list of one to `most` values. An empty list is refused with this message and hint.
pub fn some<K: ValueKind>(
    item: K,
    most: usize,
    message: &'static str,
    hint: &'static str,
) -> impl ValueKind<Value = Vec<K::Value>> {
    ListKind { item, most, empty: Some((message, hint)) }
}

/// A section with known keys.
pub fn inside<T: KeyTable>() -> impl ValueKind<Value = T> {
    reader(object::<T>, |field, faults| whole_section(field.section(faults)?, faults))
}

struct MappedKind<K, M> {
    kind: K,
    read: M,
    is_map: bool,
}

impl<K: ValueKind, T, M> ValueKind for MappedKind<K, M>
where
    M: Fn(&K, &Field<'_>, &mut Diagnostics<'_>) -> Option<T>,
{
    type Value = T;

    fn read(&self, field: &Field<'_>, faults: &mut Diagnostics<'_>) -> Option<T> {
        (self.read)(&self.kind, field, faults)
    }

    fn schema(&self) -> Value {
        match self.is_map {
            true => json!({ "type": "object", "additionalProperties": self.kind.schema() }),
            false => self.kind.schema(),
        }
    }
}

/// The values of a mapping whose keys are names chosen in the document.
pub fn entries<K: ValueKind>(kind: K) -> impl ValueKind<Value = Vec<K::Value>> {
    let read = |kind: &K, field: &Field<'_>, faults: &mut Diagnostics<'_>| {
        let section = field.section(faults)?;
        Some(section.values().filter_map(|field| kind.read(&field, faults)).collect())
    };
    MappedKind { kind, read, is_map: true }
}

pub fn keyed<K: ValueKind>(kind: K) -> impl ValueKind<Value = (Located<String>, K::Value)> {
    let read = |kind: &K, field: &Field<'_>, faults: &mut Diagnostics<'_>| {
        Some((field.key(), kind.read(field, faults)?))
    };
    MappedKind { kind, read, is_map: false }
}

pub fn at<K: ValueKind>(kind: K) -> impl ValueKind<Value = Located<K::Value>> {
    let read = |kind: &K, field: &Field<'_>, faults: &mut Diagnostics<'_>| {
        kind.read(field, faults).map(|value| field.located(value))
    };
    MappedKind { kind, read, is_map: false }
}

/// A text that may contain variables. It is secret once these are expanded.
pub fn secret() -> impl ValueKind<Value = Located<Secret>> {
    text_as("", |field, faults| faults.variables?.secret(field, faults))
}

/// A credential. It is redacted when the document is shown.
pub fn credential() -> impl ValueKind<Value = Located<Secret>> {
    text_as("", |field, faults| faults.variables?.credential(field, faults))
}

pub fn mapped<K: ValueKind, T>(kind: K, make: impl Fn(K::Value) -> T) -> impl ValueKind<Value = T> {
    let read = move |kind: &K, field: &Field<'_>, faults: &mut Diagnostics<'_>| {
        kind.read(field, faults).map(&make)
    };
    MappedKind { kind, read, is_map: false }
}
