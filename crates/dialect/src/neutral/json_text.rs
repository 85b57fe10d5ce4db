//! Reads JSON of providers without copies, whatever type a member has, and writes JSON into one
//! buffer.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::value::MapAccessDeserializer;
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

/// A type that is made of some shapes of JSON values, and tells what becomes of all others.
pub(crate) trait OfShape<'de>: Sized {
    /// The value in the place of another shape.
    fn other<E: Error>() -> Result<Self, E>;

    fn text<E: Error>(_: Cow<'de, str>) -> Result<Self, E> {
        Self::other()
    }

    fn object<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Self::other()
    }

    fn list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Self::other()
    }
}

struct ShapeVisitor<T>(PhantomData<T>);

/// Reads a value that is neither a string, an object nor a list.
macro_rules! others {
    ($($visit:ident $type:ty)*) => {
        $(fn $visit<E: Error>(self, _: $type) -> Result<T, E> {
            T::other()
        })*
    };
}

impl<'de, T: OfShape<'de>> Visitor<'de> for ShapeVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<T, E> {
        T::text(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::text(Cow::Owned(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::object(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::list(list)
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        T::other()
    }

    others!(visit_bool bool visit_i64 i64 visit_u64 u64 visit_f64 f64);
}

pub(crate) fn read_shape<'de, T: OfShape<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    from.deserialize_any(ShapeVisitor(PhantomData))
}

impl<'de: 'a, 'a> OfShape<'de> for JsonText<'a> {
    fn other<E: Error>() -> Result<Self, E> {
        Ok(JsonText::default())
    }

    fn text<E: Error>(text: Cow<'de, str>) -> Result<Self, E> {
        Ok(JsonText(text))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonText<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read_shape(from)
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

/// An object; `None` if the value has another type.
pub struct JsonObject<T>(pub Option<T>);

impl<'de, T: Deserialize<'de>> OfShape<'de> for JsonObject<T> {
    fn other<E: Error>() -> Result<Self, E> {
        Ok(JsonObject(None))
    }

    fn object<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|object| JsonObject(Some(object)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read_shape(from)
    }
}

/// The objects of a list; `None` if the value has another type.
pub struct JsonList<T>(pub Option<Vec<T>>);

impl<'de, T: Deserialize<'de>> OfShape<'de> for JsonList<T> {
    fn other<E: Error>() -> Result<Self, E> {
        Ok(JsonList(None))
    }

    fn list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut items = Vec::new();
        while let Some(JsonObject(item)) = list.next_element()? {
            items.extend(item);
        }
        Ok(JsonList(Some(items)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonList<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read_shape(from)
    }
}

/// The text of a string, or the objects of a list, such as the content of a message; nothing if the
/// value has another type.
#[derive(Debug)]
pub(crate) enum TextOrList<'a, T> {
    Text(Cow<'a, str>),
    List(Vec<T>),
}

impl<T> Default for TextOrList<'_, T> {
    fn default() -> Self {
        TextOrList::Text(Cow::default())
    }
}

impl<T> TextOrList<'_, T> {
    /// The text; empty if there is a list.
    pub(crate) fn text(&self) -> &str {
        if let TextOrList::Text(text) = self { text } else { "" }
    }

    /// The objects; none if there is a text.
    pub(crate) fn list(&self) -> &[T] {
        if let TextOrList::List(list) = self { list } else { &[] }
    }

    /// Bytes of text, with so many of each object.
    pub(crate) fn bytes(&self, each: impl Fn(&T) -> usize) -> usize {
        self.text().len() + self.list().iter().map(each).sum::<usize>()
    }
}

impl<'de: 'a, 'a, T: Deserialize<'de>> OfShape<'de> for TextOrList<'a, T> {
    fn other<E: Error>() -> Result<Self, E> {
        Ok(TextOrList::default())
    }

    fn text<E: Error>(text: Cow<'de, str>) -> Result<Self, E> {
        Ok(TextOrList::Text(text))
    }

    fn list<A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        JsonList::list(list).map(|list| TextOrList::List(list.0.unwrap_or_default()))
    }
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for TextOrList<'a, T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read_shape(from)
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
