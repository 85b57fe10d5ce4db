//! The JSON object of a management call.

use std::collections::BTreeMap;
use std::fmt;

use http::Method;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::route::{ApiRequest, MERGE_PATCH};
use rerouter_base::error::{Error, Kind, Result};

/// Longest name of a key or user, in characters.
const NAME_CHARS: usize = 128;
/// Most pairs in a key's `metadata`.
const METADATA_PAIRS: usize = 16;
/// Longest name in `metadata`, in characters.
pub(super) const METADATA_NAME_CHARS: usize = 64;
/// Longest value in `metadata`, in characters.
const METADATA_VALUE_CHARS: usize = 512;

pub(super) fn object(request: &ApiRequest) -> Result<Map<String, Value>> {
    if request.body().is_empty() {
        return Err(Error::new(Kind::InvalidRequest, "The body must be a JSON object."));
    }
    object_if_any(request)
}

/// The JSON object of an optional body; an empty one counts as `{}`.
pub(super) fn object_if_any(request: &ApiRequest) -> Result<Map<String, Value>> {
    if request.body().is_empty() {
        return Ok(Map::new());
    }
    if !is_json(request) {
        let why = "The body must be application/json.";
        return Err(Error::new(Kind::UnsupportedMediaType, why));
    }
    // For JSON of another type the parser's message would quote the value.
    let wrong = |error: serde_json::Error| match error.is_data() {
        true => Error::new(Kind::InvalidRequest, "The body must be a JSON object."),
        false => Error::new(Kind::InvalidRequest, format!("The body is not JSON: {error}.")),
    };
    let Members { members, twice } = serde_json::from_slice(request.body()).map_err(wrong)?;
    match twice {
        Some(name) => Err(Error::invalid(name.clone(), format!("Duplicate field {name}."))),
        None => Ok(members),
    }
}

/// The members of an object, and the first name that occurs twice.
#[derive(Default)]
struct Members {
    members: Map<String, Value>,
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Members, A::Error> {
                let mut found = Members::default();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if found.members.insert(name.clone(), value).is_some() {
                        found.twice.get_or_insert(name);
                    }
                }
                Ok(found)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

fn is_json(request: &ApiRequest) -> bool {
    let mut lines = request.headers().get_all(http::header::CONTENT_TYPE).iter();
    let (Some(line), None) = (lines.next().and_then(|line| line.to_str().ok()), lines.next())
    else {
        return false;
    };
    let essence = line.split(';').next().unwrap_or_default().trim();
    let is_patch = request.method() == Method::PATCH && essence.eq_ignore_ascii_case(MERGE_PATCH);
    is_patch || essence.eq_ignore_ascii_case("application/json")
}

pub(super) fn check_name(name: &str) -> Result<()> {
    let characters = name.chars().count();
    if characters == 0 || characters > NAME_CHARS || name.chars().any(char::is_control) {
        let most = NAME_CHARS;
        return Err(Error::invalid(
            "name",
            format!("name must have 1 to {most} characters and no control characters."),
        ));
    }
    Ok(())
}

pub(super) fn check_pairs(field: &str, pairs: &BTreeMap<String, String>) -> Result<()> {
    let fits = |name: &str, value: &str| {
        (1..=METADATA_NAME_CHARS).contains(&name.chars().count())
            && value.chars().count() <= METADATA_VALUE_CHARS
            // PostgreSQL reads no JSON with it.
            && !name.contains('\0')
            && !value.contains('\0')
    };
    if pairs.len() > METADATA_PAIRS || !pairs.iter().all(|(name, value)| fits(name, value)) {
        return Err(Error::invalid(
            field,
            format!(
                "{field} may have up to {METADATA_PAIRS} pairs, with names of 1 to \
                 {METADATA_NAME_CHARS} and values of up to {METADATA_VALUE_CHARS} characters, \
                 without U+0000."
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
