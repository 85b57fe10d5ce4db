//! Reads JSON objects of a dialect: the values of known members, and the names of all others.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::feature::Feature;
use super::neutral::json_text::{JsonPresence, JsonText, OfShape, read_shape};
use super::neutral::part::Part;
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

/// Reads the value of a member, whose name is the error. What its objects note has the member in
/// the path.
pub(super) fn read_field<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    member: &'static str,
    map: &mut A,
) -> Result<T, A::Error> {
    let outer = NOTED.with_borrow_mut(|(path, _)| {
        let outer = path.len();
        path.push_str(member);
        path.push('.');
        outer
    });
    let value = map.next_value();
    NOTED.with_borrow_mut(|(path, _)| path.truncate(outer));
    value.map_err(|_| Error::custom(member))
}

/// An object whose known members have fields.
pub(super) trait Fields<'de>: Default {
    /// Reads the value of a member into its field. `false` if there is none.
    fn read<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error>;

    fn note(&mut self, name: Cow<'de, str>);
}

/// Of repeated members the last wins. Members without a field are noted, unless their value is
/// `null`, `false` or empty.
pub(super) fn read_object<'de, T: Fields<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    struct ObjectVisitor<T>(PhantomData<T>);
    impl<'de, T: Fields<'de>> Visitor<'de> for ObjectVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
            let mut read = T::default();
            while let Some(JsonText(name)) = map.next_key()? {
                if !read.read(&name, &mut map)? && map.next_value::<JsonPresence>()?.0 {
                    read.note(name);
                }
            }
            Ok(read)
        }
    }
    from.deserialize_map(ObjectVisitor(PhantomData))
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
/// is an `Option`, and `null` counts as absent. See [`read_object`] for the rest.
macro_rules! wire_object {
    ($(#[$meta:meta])* $name:ident, $table:expr, {
        $($field:ident: $type:ty $(= $member:literal)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Default)]
        pub(super) struct $name {
            $(pub(super) $field: Option<$type>,)*
        }

        impl<'de> $crate::members::Fields<'de> for $name {
            #[inline(always)]
            fn read<A: serde::de::MapAccess<'de>>(
                &mut self,
                name: &str,
                map: &mut A,
            ) -> Result<bool, A::Error> {
                match name {
                    $(wire_object!(@ $field $($member)?) => {
                        let member = wire_object!(@ $field $($member)?);
                        self.$field = $crate::members::read_field(member, map)?;
                    })*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            fn note(&mut self, name: std::borrow::Cow<'de, str>) {
                $crate::members::note($table, &name);
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::members::read_object(from)
            }
        }
    };
    (@ $field:ident) => { stringify!($field) };
    (@ $field:ident $member:literal) => { $member };
}

pub(super) use wire_object;

/// Declares a struct for an object of an answer, with fields `name: type` or `name: type =
/// "member"`, whose types read any value: `; JsonObject` and `; JsonList` make an `Option` of an
/// object and of a list do so. Names of members without a field go to `others`, unless they say
/// nothing that a client asks for (the list before the fields). See [`read_object`] for the rest.
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

        impl<'de: 'a, 'a> $crate::members::Fields<'de> for $name<'a> {
            #[inline(always)]
            fn read<A: serde::de::MapAccess<'de>>(
                &mut self,
                name: &str,
                map: &mut A,
            ) -> Result<bool, A::Error> {
                match name {
                    $($crate::members::wire_object!(@ $field $($member)?) => {
                        self.$field = answer_object!(= map, $($shape)?);
                    })*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            fn note(&mut self, name: std::borrow::Cow<'de, str>) {
                let silent: &[&str] = &[$($silent),*];
                if !silent.contains(&&*name) {
                    self.others.push(name);
                }
            }
        }

        impl<'de: 'a, 'a> serde::Deserialize<'de> for $name<'a> {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::members::read_object(from)
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
    pub(super) fn parts(self) -> Vec<(&'static str, String)> {
        let Place { city, country, region, timezone, .. } = self;
        let all =
            [("city", city), ("country", country), ("region", region), ("timezone", timezone)];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
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
        read_shape(from)
    }
}

impl<'de, P: Deserialize<'de>> OfShape<'de> for Content<P> {
    fn other<E: Error>() -> Result<Self, E> {
        Err(Error::custom("no text and no list"))
    }

    fn text<E: Error>(text: Cow<'de, str>) -> Result<Self, E> {
        Ok(Content::Text(text.into_owned()))
    }

    fn object<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        IgnoredAny.visit_map(map).map(|_| Content::Other)
    }

    fn list<A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Content::Parts)
    }
}

/// The parts that `read` makes of content at this path.
pub(super) fn read_parts<P>(
    content: Option<Content<P>>,
    path: &'static str,
    uses: &mut UsedFeatures,
    read: fn(P, &'static str, &mut UsedFeatures) -> Option<Part>,
) -> Vec<Part> {
    match content {
        Some(Content::Text(text)) => vec![Part::Text(text)],
        Some(Content::Parts(parts)) => {
            parts.into_iter().filter_map(|part| read(part, path, uses)).collect()
        }
        content => {
            uses.add_if(content.is_some(), Feature::OtherContent, path, "content");
            Vec::new()
        }
    }
}

pub(super) enum WordOr<T> {
    Word(String),
    Object(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for WordOr<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read_shape(from)
    }
}

impl<'de, T: Deserialize<'de>> OfShape<'de> for WordOr<T> {
    fn other<E: Error>() -> Result<Self, E> {
        Err(Error::custom("no word and no object"))
    }

    fn text<E: Error>(word: Cow<'de, str>) -> Result<Self, E> {
        Ok(WordOr::Word(word.into_owned()))
    }

    fn object<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(WordOr::Object)
    }

    fn list<A: SeqAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Self::other()
    }
}
