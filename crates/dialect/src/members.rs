//! Reads JSON objects of a dialect: the values of known members, and the names of all others.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::feature::Feature;
use super::neutral::request::UsedFeatures;
use super::neutral::size;

/// Members whose values no reader needs, with the features that they belong to.
pub(super) type Table = &'static [(&'static str, Feature)];

thread_local! {
    /// The path of the object that is being read, and the members without a field so far.
    static NOTED: RefCell<(String, UsedFeatures)> = RefCell::default();
}

/// Notes a member without a field.
pub(super) fn note(table: Table, name: &str) {
    let known = table.iter().find(|(known, _)| *known == name);
    let feature = known.map_or(Feature::Unlisted, |(_, feature)| *feature);
    NOTED.with_borrow_mut(|(path, uses)| uses.add(feature, path.clone(), name.to_owned()));
}

/// Reads the value of a member. What its objects note has the member in the path.
pub(super) fn within<T>(member: &str, read: impl FnOnce() -> T) -> T {
    let outer = NOTED.with_borrow_mut(|(path, _)| {
        let outer = path.len();
        path.push_str(member);
        path.push('.');
        outer
    });
    let value = read();
    NOTED.with_borrow_mut(|(path, _)| path.truncate(outer));
    value
}

/// A member's name; borrowed, unless it has escapes.
pub(super) struct WireName<'a>(pub(super) Cow<'a, str>);

impl<'de> Deserialize<'de> for WireName<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = WireName<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<WireName<'de>, E> {
                Ok(WireName(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<WireName<'de>, E> {
                Ok(WireName(Cow::Owned(name.to_owned())))
            }
        }
        from.deserialize_str(NameVisitor)
    }
}

/// A request body with a wrong shape. The text names the member and its line and column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedRequest(pub String);

impl MalformedRequest {
    /// The text for a body that [`size::is_too_large`] refuses.
    pub(super) const TOO_LARGE: &str = "the body has too many objects and lists";
}

/// Parses a body, and notes the members of its objects that have no field. The error quotes no
/// value of the body.
pub(super) fn read<'a, T: Deserialize<'a>>(
    body: &'a [u8],
) -> Result<(T, UsedFeatures), MalformedRequest> {
    if size::is_too_large(body) {
        return Err(MalformedRequest(MalformedRequest::TOO_LARGE.to_owned()));
    }
    NOTED.take();
    let read = serde_json::from_slice(body);
    let (_, noted) = NOTED.take();
    read.map(|read| (read, noted)).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let member = text.split(" at line ").next().filter(|member| !member.contains(' '));
        MalformedRequest(format!("{} at line {line} column {column}", member.unwrap_or("the body")))
    })
}

/// Declares a struct for an object, with fields `name: type` or `name: type = "member"`. Each field
/// is an `Option`, and `null` counts as absent. Of repeated members the last wins. Names of other
/// members are noted, unless their value is `null`, `false` or empty.
macro_rules! wire_object {
    ($(#[$meta:meta])* $name:ident, $table:expr, {
        $($field:ident: $type:ty $(= $member:literal)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Default)]
        pub(super) struct $name {
            $(pub(super) $field: Option<$type>,)*
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Reader;
                impl<'de> serde::de::Visitor<'de> for Reader {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<$name, A::Error> {
                        let mut read = $name::default();
                        while let Some($crate::members::WireName(name)) = map.next_key()? {
                            $(if name == wire_object!(@ $field $($member)?) {
                                let member = wire_object!(@ $field $($member)?);
                                let value = $crate::members::within(member, || map.next_value());
                                let fail = |_| serde::de::Error::custom(member);
                                read.$field = value.map_err(fail)?;
                                continue;
                            })*
                            let value: $crate::neutral::json_text::JsonPresence = map.next_value()?;
                            if value.0 {
                                $crate::members::note($table, &name);
                            }
                        }
                        Ok(read)
                    }
                }
                from.deserialize_map(Reader)
            }
        }
    };
    (@ $field:ident) => { stringify!($field) };
    (@ $field:ident $member:literal) => { $member };
}

pub(super) use wire_object;

/// Declares a struct for an object of an answer, with fields `name: type` or `name: type =
/// "member"`, whose types read any value: `; JsonObject` and `; JsonList` make an `Option` of an
/// object and of a list do so. Of repeated members the last wins. Names of other members
/// go to `others`, unless they say nothing that a client asks for (the list before the fields) or
/// their value is `null`, `false` or empty.
macro_rules! answer_object {
    ($(#[$meta:meta])* $name:ident, [$($silent:literal),* $(,)?], {
        $($field:ident: $type:ty $(= $member:literal)? $(; $shape:ident)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Default)]
        pub(super) struct $name<'a> {
            $(pub(super) $field: $type,)*
            pub(super) others: Vec<std::borrow::Cow<'a, str>>,
        }

        impl<'de: 'a, 'a> serde::Deserialize<'de> for $name<'a> {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Reader<'a>(std::marker::PhantomData<&'a ()>);
                impl<'de: 'a, 'a> serde::de::Visitor<'de> for Reader<'a> {
                    type Value = $name<'a>;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<$name<'a>, A::Error> {
                        let mut read = $name::default();
                        while let Some($crate::members::WireName(name)) = map.next_key()? {
                            $(if name == $crate::members::wire_object!(@ $field $($member)?) {
                                read.$field = answer_object!(= map, $($shape)?);
                                continue;
                            })*
                            let value: $crate::neutral::json_text::JsonPresence = map.next_value()?;
                            let silent: &[&str] = &[$($silent),*];
                            if value.0 && !silent.contains(&&*name) {
                                read.others.push(name);
                            }
                        }
                        Ok(read)
                    }
                }
                from.deserialize_map(Reader(std::marker::PhantomData))
            }
        }
    };
    (= $map:ident, ) => { $map.next_value()? };
    (= $map:ident, $shape:ident) => {
        $map.next_value::<$crate::neutral::json_text::$shape<_>>()?.0
    };
}

pub(super) use answer_object;

/// The name, with characters that a header cannot hold replaced.
pub(super) fn printable(member: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    member.chars().take(80).map(|c| if allowed(c) { c } else { '?' }).collect()
}

// The user's place in the options of a web search, in every dialect.
wire_object!(Place, &[], {
    kind: String = "type",
    city: String,
    country: String,
    region: String,
    timezone: String,
});

impl Place {
    /// The members as the neutral form has them.
    pub(super) fn parts(self) -> [Option<String>; 4] {
        [self.city, self.country, self.region, self.timezone]
    }
}

/// Message content: a text or a list of parts.
pub(super) enum Content<P> {
    Text(String),
    Parts(Vec<P>),
    /// A single object, such as the result of a provider's own tool.
    Other,
}

impl<'de, P: Deserialize<'de>> Deserialize<'de> for Content<P> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ContentVisitor<P>(PhantomData<P>);
        impl<'de, P: Deserialize<'de>> Visitor<'de> for ContentVisitor<P> {
            type Value = Content<P>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Content<P>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Content::Other)
            }

            fn visit_str<E>(self, text: &str) -> Result<Content<P>, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content<P>, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = list.next_element()? {
                    parts.push(part);
                }
                Ok(Content::Parts(parts))
            }
        }
        from.deserialize_any(ContentVisitor(PhantomData))
    }
}

/// A value that is either a string or an object.
pub(super) enum WordOr<T> {
    Word(String),
    Object(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for WordOr<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct WordVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for WordVisitor<T> {
            type Value = WordOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word or an object")
            }

            fn visit_str<E>(self, word: &str) -> Result<WordOr<T>, E> {
                Ok(WordOr::Word(word.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<WordOr<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(WordOr::Object)
            }
        }
        from.deserialize_any(WordVisitor(PhantomData))
    }
}
