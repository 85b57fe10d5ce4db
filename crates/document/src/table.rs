//! Tables of keys. Each row declares a key. A record, its reader, its defaults, the JSON Schema and
//! the reference come from the rows.

use std::marker::PhantomData;

use serde_json::{Map, Value, json};

use crate::diagnostics::Diagnostics;
use crate::field::{Field, Section};
use crate::tree;

/// A record that is read from a section of a document. [`section!`](crate::section) implements it.
pub trait KeyTable: Sized {
    /// Returns `None` if a key that the record needs is missing or wrong.
    fn read(section: &mut Section<'_>, faults: &mut Diagnostics<'_>) -> Option<Self>;

    fn rows() -> Vec<TableRow>;
}

pub struct TableRow {
    pub key: &'static str,
    /// One line of Markdown, with a blank at its beginning and end.
    pub about: &'static str,
    pub required: bool,
    /// The default in the form of a document.
    pub default: Option<String>,
    pub schema: Value,
}

pub trait ValueKind {
    type Value;

    fn read(&self, field: &Field<'_>, faults: &mut Diagnostics<'_>) -> Option<Self::Value>;

    fn schema(&self) -> Value;

    /// The value in the form of a document; `None` if it has no short form.
    fn show(&self, _value: &Self::Value) -> Option<String> {
        None
    }
}

impl TableRow {
    pub fn section(key: &'static str, about: &'static str, schema: Value) -> Self {
        TableRow { key, about, required: false, default: None, schema }
    }

    pub fn optional<K: ValueKind>(
        key: &'static str,
        about: &'static str,
        kind: K,
        _: PhantomData<Option<K::Value>>,
    ) -> Self {
        TableRow { key, about, required: false, default: None, schema: kind.schema() }
    }

    pub fn required<K: ValueKind>(
        key: &'static str,
        about: &'static str,
        kind: K,
        _: PhantomData<K::Value>,
    ) -> Self {
        TableRow { key, about, required: true, default: None, schema: kind.schema() }
    }

    pub fn usual<K: ValueKind>(
        key: &'static str,
        about: &'static str,
        kind: K,
        usual: &K::Value,
    ) -> Self {
        TableRow { key, about, required: false, default: kind.show(usual), schema: kind.schema() }
    }
}

/// The JSON Schema of a record.
pub fn object<T: KeyTable>() -> Value {
    let rows = T::rows();
    let required: Vec<&str> = rows.iter().filter(|row| row.required).map(|row| row.key).collect();
    let properties: Map<String, Value> =
        rows.into_iter().map(|row| (row.key.to_owned(), property(row))).collect();
    let mut schema = json!({
        "type": if required.is_empty() { json!(["object", "null"]) } else { json!("object") },
        "additionalProperties": false,
        "properties": properties,
    });
    if let (false, Some(schema)) = (required.is_empty(), schema.as_object_mut()) {
        schema.insert("required".to_owned(), json!(required));
    }
    schema
}

fn property(row: TableRow) -> Value {
    let mut found = Map::new();
    found.insert("description".to_owned(), row.about.trim().into());
    found.extend(row.default.as_deref().map(|default| ("default".to_owned(), as_json(default))));
    found.extend(row.schema.as_object().cloned().unwrap_or_default());
    if !row.required {
        // `null` counts as a missing key.
        add_type(&mut found, "null");
        if let Some(Value::Array(words)) = found.get_mut("enum") {
            words.push(Value::Null);
        }
    }
    found.into()
}

/// Adds a type to those that a schema allows. A schema without types allows all.
pub(crate) fn add_type(schema: &mut Map<String, Value>, word: &str) {
    let Some(types) = schema.get_mut("type") else { return };
    let mut list = types.as_array().cloned().unwrap_or_else(|| vec![types.clone()]);
    if !list.iter().any(|one| one == word) {
        list.push(word.into());
    }
    *types = list.into();
}

/// Converts YAML to JSON.
pub(crate) fn as_json(text: &str) -> Value {
    let parsed = tree::parse(text).ok();
    let text = parsed.map(|parsed| tree::canonical(&parsed.root)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Reads a section and reports its unknown keys.
pub fn whole<T: KeyTable>(mut section: Section<'_>, faults: &mut Diagnostics<'_>) -> Option<T> {
    let found = T::read(&mut section, faults);
    section.finish(faults);
    found
}

/// Declares a record with a row for each key of a section:
///
/// ```text
/// /// Description in Markdown.
/// pub key: Type = kind(…), RULE;
/// ```
///
/// The rule decides what happens if the key is missing. Without a rule the type is an `Option`. `or
/// EXPRESSION` sets a default. `required` reports the key, and no record is made. `report
/// EXPRESSION` reports the key, and uses the value. `explicit` reports a key that is missing or
/// empty, and uses an empty value. Four rules have no kind: with `section` the type is another
/// such record, with `inline` it is one whose keys stand in this section, with `key` the field is
/// the key of the section itself, and with `derived` the field is not a key.
///
/// `: Default` after the name implements `Default` by the defaults. `check NAME` after the rows
/// names a method that checks several keys together.
#[macro_export]
macro_rules! section {
    (
        $(#[$about:meta])*
        $vis:vis struct $name:ident: Default { $($rows:tt)+ }
        $(check $check:ident)?
    ) => {
        $crate::section! { $(#[$about])* $vis struct $name { $($rows)+ } $(check $check)? }
        $crate::section! { @default $name { $($rows)+ } }
    };
    (
        $(#[$about:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $key_vis:vis $key:ident : $type:ty
                    $(= $kind:expr)? $(, $rule:ident $($with:expr)?)? ;
            )+
        }
        $(check $check:ident)?
    ) => {
        $(#[$about])*
        $vis struct $name {
            $($(#[doc = $doc])+ $key_vis $key: $type,)+
        }

        impl $crate::KeyTable for $name {
            fn read(
                section: &mut $crate::Section<'_>,
                faults: &mut $crate::Diagnostics<'_>,
            ) -> Option<Self> {
                struct Found {
                    $($key: Option<$type>,)+
                }
                // All keys are read before a missing one ends the reading. No local variable has
                // the name of a key.
                let found = Found {
                    $(
                        $key: $crate::section!(
                            @read (section, faults, $key, $type) $($kind)? $(, $rule $($with)?)?
                        ),
                    )+
                };
                #[allow(unused_mut)]
                let mut found = $name { $($key: found.$key?,)+ };
                $(found.$check(section, faults);)?
                Some(found)
            }

            fn rows() -> Vec<$crate::TableRow> {
                let mut rows = Vec::new();
                $(
                    rows.extend($crate::section!(
                        @row ($key, $type, concat!($($doc),+)) $($kind)? $(, $rule $($with)?)?
                    ));
                )+
                rows
            }
        }
    };

    (
        @default $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $key_vis:vis $key:ident : $type:ty
                    $(= $kind:expr)? $(, $rule:ident $($with:expr)?)? ;
            )+
        }
    ) => {
        impl Default for $name {
            fn default() -> Self {
                $name {
                    $($key: $crate::section!(@usual ($type) $($kind)? $(, $rule $($with)?)?),)+
                }
            }
        }
    };

    (@read ($section:ident, $faults:ident, $key:ident, $type:ty) , key) => {
        Some($section.key())
    };
    (@read ($section:ident, $faults:ident, $key:ident, $type:ty) , derived) => {
        Some(<$type>::default())
    };
    (@read ($section:ident, $faults:ident, $key:ident, $type:ty) , inline) => {
        <$type as $crate::KeyTable>::read($section, $faults)
    };
    (@read ($section:ident, $faults:ident, $key:ident, $type:ty) , section) => {{
        let below = $section.below(stringify!($key), $faults);
        $crate::whole::<$type>(below, $faults)
    }};
    (@read ($section:ident, $faults:ident, $key:ident, $type:ty) $kind:expr) => {
        Some($section.read(stringify!($key), $faults, |f, p| $crate::ValueKind::read(&$kind, f, p)))
    };
    (@read ($section:ident, $faults:ident, $key:ident, $type:ty) $kind:expr, or $usual:expr) => {
        $section
            .read(stringify!($key), $faults, |f, p| $crate::ValueKind::read(&$kind, f, p))
            .or_else(|| Some($usual))
    };
    (@read ($section:ident, $faults:ident, $key:ident, $type:ty) $kind:expr, required) => {{
        let found =
            $section.read(stringify!($key), $faults, |f, p| $crate::ValueKind::read(&$kind, f, p));
        $section.require(stringify!($key), $faults);
        found
    }};
    (
        @read ($section:ident, $faults:ident, $key:ident, $type:ty)
        $kind:expr, report $usual:expr
    ) => {
        $crate::section!(@read ($section, $faults, $key, $type) $kind, required)
            .or_else(|| Some($usual))
    };
    (@read ($section:ident, $faults:ident, $key:ident, $type:ty) $kind:expr, explicit) => {{
        let found =
            $section.read(stringify!($key), $faults, |f, p| $crate::ValueKind::read(&$kind, f, p));
        $section.require_explicit(stringify!($key), $faults);
        Some(found.unwrap_or_default())
    }};

    (@row ($key:ident, $type:ty, $about:expr) , inline) => { <$type as $crate::KeyTable>::rows() };
    (@row ($key:ident, $type:ty, $about:expr) , key) => { None };
    (@row ($key:ident, $type:ty, $about:expr) , derived) => { None };
    (@row ($key:ident, $type:ty, $about:expr) , section) => {
        Some($crate::TableRow::section(stringify!($key), $about, $crate::object::<$type>()))
    };
    (@row ($key:ident, $type:ty, $about:expr) $kind:expr) => {
        Some($crate::TableRow::optional(
            stringify!($key), $about, $kind, std::marker::PhantomData::<$type>,
        ))
    };
    (@row ($key:ident, $type:ty, $about:expr) $kind:expr, or $usual:expr) => {{
        let usual: $type = $usual;
        Some($crate::TableRow::usual(stringify!($key), $about, $kind, &usual))
    }};
    (@row ($key:ident, $type:ty, $about:expr) $kind:expr, $required:ident $($text:expr)?) => {
        Some($crate::TableRow::required(
            stringify!($key), $about, $kind, std::marker::PhantomData::<$type>,
        ))
    };

    (@usual ($type:ty) , section) => { <$type>::default() };
    (@usual ($type:ty) $kind:expr) => { None };
    (@usual ($type:ty) $kind:expr, or $usual:expr) => { $usual };
    (@usual ($type:ty) $kind:expr, explicit) => { Default::default() };
}
