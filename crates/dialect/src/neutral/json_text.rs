//! Reads JSON of providers without copies, whatever type a member has, and writes JSON into one
//! buffer.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A string; empty if the value has another type.
#[derive(Clone, Debug, Default)]
pub struct JsonText<'a>(pub Cow<'a, str>);

impl Deref for JsonText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Shape::<IgnoredAny, IgnoredAny>::deserialize(deserializer)? {
            Shape::Text(text) => JsonText(text),
            _ => JsonText::default(),
        })
    }
}

/// Text that the model wrote as JSON: a string or, as some servers write it, the object itself.
#[derive(Debug, Default)]
pub struct JsonWritten<'a>(pub Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for JsonWritten<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        let read = || serde_json::from_str::<JsonText<'_>>(raw).map_err(Error::custom);
        Ok(JsonWritten(if raw.starts_with('{') { raw.into() } else { read()?.0 }))
    }
}

/// A value of any type. An object is read as `O`, and a list as `L`.
#[derive(Debug, Default)]
pub enum Shape<'a, O, L> {
    /// A number, a boolean or null.
    #[default]
    Nothing,
    Text(Cow<'a, str>),
    Object(O),
    List(L),
}

struct ShapeVisitor<S>(PhantomData<S>);

/// Reads a value that is neither a string, an object nor a list.
macro_rules! nothing {
    ($($visit:ident $type:ty)*) => {
        $(fn $visit<E>(self, _: $type) -> Result<Self::Value, E> {
            Ok(Shape::Nothing)
        })*
    };
}

impl<'de: 'a, 'a, O: Deserialize<'de>, L: Deserialize<'de>> Visitor<'de>
    for ShapeVisitor<Shape<'a, O, L>>
{
    type Value = Shape<'a, O, L>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Shape::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Shape::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        O::deserialize(MapAccessDeserializer::new(map)).map(Shape::Object)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        L::deserialize(SeqAccessDeserializer::new(list)).map(Shape::List)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Shape::Nothing)
    }

    nothing!(visit_bool bool visit_i64 i64 visit_u64 u64 visit_f64 f64);
}

impl<'de: 'a, 'a, O: Deserialize<'de>, L: Deserialize<'de>> Deserialize<'de> for Shape<'a, O, L> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor::<Self>(PhantomData))
    }
}

/// A string or a list, such as the content of a message.
pub(crate) type TextOrList<'a, T> = Shape<'a, IgnoredAny, JsonList<T>>;

impl<T> TextOrList<'_, T> {
    /// Bytes of the text, or of a list with so many in each object.
    pub(crate) fn bytes(&self, each: impl Fn(&T) -> usize) -> usize {
        match self {
            TextOrList::Text(text) => text.len(),
            TextOrList::List(JsonList(items)) => items.iter().flatten().map(each).sum(),
            _ => 0,
        }
    }
}

/// An object; `None` if the value has another type.
pub struct JsonObject<T>(pub Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Shape::<T, IgnoredAny>::deserialize(deserializer)?;
        Ok(JsonObject(if let Shape::Object(object) = read { Some(object) } else { None }))
    }
}

/// The objects of a list; `None` if the value has another type.
#[derive(Debug)]
pub struct JsonList<T>(pub Option<Vec<T>>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Shape::<IgnoredAny, Vec<JsonObject<T>>>::deserialize(deserializer)?;
        let Shape::List(items) = read else { return Ok(JsonList(None)) };
        // The items stay where they are.
        Ok(JsonList(Some(items.into_iter().filter_map(|JsonObject(item)| item).collect())))
    }
}

/// A non-negative integer; `None` if the value is no number. Long numbers are refused before
/// parsing, as parsing may take quadratic time.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonCount(pub Option<u64>);

impl<'de> Deserialize<'de> for JsonCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        let whole = || raw.parse().ok();
        // Negative numbers and fractions are converted by a saturating cast.
        let cut = || raw.parse::<f64>().ok().map(|number| number as u64);
        Ok(JsonCount(if raw.len() <= 32 { whole().or_else(cut) } else { None }))
    }
}

/// Whether a value is other than null, false or empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonPresence(pub bool);

impl<'de> Deserialize<'de> for JsonPresence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        Ok(JsonPresence(!matches!(raw, "null" | "false" | "\"\"" | "[]" | "{}")))
    }
}

/// A value that can be written as JSON. A `&str` has to be JSON already.
pub trait WriteJson {
    fn write_json(&self, out: &mut Vec<u8>);
}

impl WriteJson for &str {
    fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}

/// A text that is written as a JSON string.
pub struct Quoted<'a>(pub &'a str);

impl WriteJson for Quoted<'_> {
    fn write_json(&self, out: &mut Vec<u8>) {
        push_text(self.0, out);
    }
}

impl WriteJson for Option<&str> {
    fn write_json(&self, out: &mut Vec<u8>) {
        write_value(self, out);
    }
}

impl WriteJson for u64 {
    fn write_json(&self, out: &mut Vec<u8>) {
        write_value(self, out);
    }
}

/// Writes texts, numbers, raw values and lists of them, which cannot fail in memory.
pub(crate) fn write_value(value: &(impl Serialize + ?Sized), out: &mut Vec<u8>) {
    let written = serde_json::to_writer(out, value);
    debug_assert!(written.is_ok());
}

/// Appends a text as a JSON string, with the same bytes as `serde_json`. That examines each byte
/// alone, which took half the time of translating 8 KiB.
pub(crate) fn push_text(text: &str, out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let (chunks, rest) = text.as_bytes().as_chunks::<32>();
    for chunk in chunks {
        // The fold has no branch per byte, so many bytes are compared at once.
        if chunk.iter().fold(false, |found, byte| found | is_escaped(*byte)) {
            chunk.iter().for_each(|byte| push_byte(*byte, out));
        } else {
            out.extend_from_slice(chunk);
        }
    }
    rest.iter().for_each(|byte| push_byte(*byte, out));
    out.push(b'"');
}

fn is_escaped(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

fn push_byte(byte: u8, out: &mut Vec<u8>) {
    let letter = match byte {
        _ if !is_escaped(byte) => return out.push(byte),
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        b'"' | b'\\' => byte,
        _ => return out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
    };
    out.extend_from_slice(&[b'\\', letter]);
}

/// Appends pieces of JSON to a buffer, one after another.
macro_rules! put {
    ($out:expr, $($piece:expr),+ $(,)?) => {{
        $($crate::neutral::json_text::WriteJson::write_json(&$piece, $out);)+
    }};
}
pub(crate) use put;

/// Writes a tool call's arguments as an object. A text that is no JSON object becomes its member
/// `arguments`.
pub(crate) fn put_arguments(arguments: &str, out: &mut Vec<u8>) {
    match arguments.trim() {
        "" => put!(out, "{}"),
        object if is_object(object) => put!(out, object),
        _ => put!(out, "{\"arguments\":", Quoted(arguments), "}"),
    }
}

/// Whether a text that the model wrote is a JSON object.
pub fn is_object(text: &str) -> bool {
    text.trim_ascii_start().starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::push_text;

    proptest! {
        #[test]
        fn texts_are_written_as_serde_json_writes_them(
            text in prop_oneof!["[a-z\"\\\\ \u{0}-\u{1f}\u{7f}é😀]{0,99}", any::<String>()],
        ) {
            let mut out = Vec::new();
            push_text(&text, &mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&text).unwrap());
        }
    }
}
