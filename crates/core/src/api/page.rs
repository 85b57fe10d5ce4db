//! Query parameters and pages of lists.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::UserId;
use rerouter_base::url::decode;
use rerouter_records::page::{PAGE_DEFAULT, PAGE_MAX};
use rerouter_store::Reach;

/// A query in which every parameter is known and unique.
#[derive(Debug)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    /// Reads a query; 400 for parameters that are not `known`.
    pub(super) fn read(query: Option<&str>, known: &[&str]) -> Result<Self> {
        Query::of(Query::pairs(query)?, known)
    }

    /// The parameters of a query; 400 if one is there twice.
    pub(super) fn pairs(query: Option<&str>) -> Result<BTreeMap<String, String>> {
        let mut values = BTreeMap::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let malformed = || Error::invalid(name, "The query is not validly percent-encoded.");
            let (name, value) =
                (decode(name).ok_or_else(malformed)?, decode_value(value).ok_or_else(malformed)?);
            if values.insert(name.clone(), value).is_some() {
                return Err(Error::invalid(name.clone(), format!("Duplicate parameter {name}.")));
            }
        }
        Ok(values)
    }

    /// As [`Query::read`], for parameters that come in a body.
    pub(super) fn of(
        pairs: impl IntoIterator<Item = (String, String)>,
        known: &[&str],
    ) -> Result<Self> {
        let values: BTreeMap<String, String> = pairs.into_iter().collect();
        match values.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(Error::invalid(name.clone(), format!("Unknown parameter {name}."))),
            None => Ok(Query(values)),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn limit(&self) -> Result<usize> {
        match self.get("limit") {
            None => Ok(PAGE_DEFAULT),
            Some(text) => {
                let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                let limit = if digits { text.parse().ok() } else { None };
                limit.filter(|limit| (1..=PAGE_MAX).contains(limit)).ok_or_else(|| {
                    Error::invalid("limit", format!("limit must be 1 to {}.", PAGE_MAX))
                })
            }
        }
    }
}

/// The entry after which a page of a list begins.
pub(super) fn after<T>(
    text: Option<&str>,
    what: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>> {
    let wrong = || Error::invalid("after", format!("after must be the id of {what}."));
    text.map(|text| parse(text).ok_or_else(wrong)).transpose()
}

/// Whose entries a list has: those in reach, of the `owner` that is asked for. Only admins ask for
/// those of others.
pub(super) fn narrowed(query: &Query, reach: Reach, what: &str) -> Result<Reach> {
    within(query.get("owner"), reach, what)
}

/// As [`narrowed`], of a typed query.
pub(super) fn within(owner: Option<&str>, reach: Reach, what: &str) -> Result<Reach> {
    match (owner, reach.owner()) {
        (None, _) => Ok(reach),
        (Some(owner), None) => Ok(Reach::Owner(UserId::known(owner))),
        (Some(owner), Some(own)) if owner == own.as_str() => Ok(reach),
        (Some(_), Some(_)) => {
            let detail = format!("Only an admin may list {what} of other users.");
            Err(Error::new(Kind::Forbidden, detail).at("owner"))
        }
    }
}

/// A page of a list. `found` holds one entry more than `limit` if more follow; ids are the cursors.
pub(super) fn list(mut found: Vec<Value>, limit: usize) -> Value {
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next = if has_more {
        found.last().and_then(|last| last.get("id")).cloned().unwrap_or(Value::Null)
    } else {
        Value::Null
    };
    part(&found, next)
}

/// A page with the cursor `next`; null if nothing follows.
pub(super) fn part(found: &[Value], next: Value) -> Value {
    json!({"object": "list", "data": found, "has_more": !next.is_null(), "next": next})
}

/// The first value of a parameter in a query of any parameters; `None` also if it is badly encoded.
pub fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(found, _)| decode(found).as_deref() == Some(name))
        .find_map(|(_, value)| decode(value))
}

/// Decodes a value. A trailing `%` is literal: people write `max_changed=2%`.
fn decode_value(text: &str) -> Option<String> {
    match text.strip_suffix('%') {
        Some(number) => decode(number).map(|number| number + "%"),
        None => decode(text),
    }
}

/// Decodes a path segment, in which `+` is literal.
pub(super) fn decode_path(text: &str) -> Option<String> {
    decode(&text.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_parameter_is_known_and_there_once() {
        let query = Query::read(Some("limit=5&after=a%2Bb+c&"), &["limit", "after"]).unwrap();
        assert_eq!((query.limit().unwrap(), query.get("after")), (5, Some("a+b c")));
        assert_eq!(Query::read(None, &[]).unwrap().limit().unwrap(), 20);
        for (text, field) in [
            ("x=1", "x"),
            ("limit=1&limit=1", "limit"),
            ("after=%f", "after"),
            ("after=%ff", "after"),
            ("%61=1&b=2", "a"),
        ] {
            assert_eq!(
                Query::read(Some(text), &["limit", "after"]).unwrap_err().field(),
                Some(field),
                "{text}"
            );
        }
        for bad in ["0", "101", "", "x", "+5", "-1", "1.0", "99999999999999999999999"] {
            let query =
                Query::read(Some(&format!("limit={}", bad.replace('+', "%2B"))), &["limit"])
                    .unwrap();
            assert_eq!(query.limit().unwrap_err().field(), Some("limit"), "{bad}");
        }
    }

    #[test]
    fn a_page_says_whether_there_is_more() {
        let entries = |count: usize| (0..count).map(|id| json!({"id": id})).collect::<Vec<_>>();
        assert_eq!(
            list(entries(0), 2),
            json!({"object": "list", "data": [], "has_more": false, "next": null})
        );
        assert_eq!(list(entries(2), 2)["next"], Value::Null);
        assert_eq!(
            list(entries(3), 2),
            json!({"object": "list", "data": [{"id": 0}, {"id": 1}], "has_more": true, "next": 1})
        );
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_read_back(value: String) {
            let encoded: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let query = Query::read(Some(&format!("after={encoded}")), &["after"]).unwrap();
            prop_assert_eq!(query.get("after"), Some(value.as_str()));
        }

        #[test]
        fn any_query_is_read_or_refused(text in "[ -~]{0,60}") {
            if let Ok(query) = Query::read(Some(&text), &["limit", "after"]) {
                prop_assert!(query.0.len() <= 2);
            }
        }
    }
}
