//! Query parameters and pages of lists.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use rerouter_base::error::{Error, Result};
use rerouter_base::id::UserId;
use rerouter_base::url::decode;
use rerouter_records::read::read_query;
use rerouter_store::Reach;

/// Splits a query into parameters; 400 if one occurs twice.
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

/// 400 if a parameter is unknown.
pub fn read<T: DeserializeOwned + JsonSchema + 'static>(query: Option<&str>) -> Result<T> {
    read_query(pairs(query)?)
}

pub(super) fn after<T>(
    text: Option<&str>,
    what: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>> {
    value("after", text, &format!("the id of {what}"), parse)
}

/// Parses a parameter; 400 if it is not `what`.
pub(super) fn value<T>(
    name: &str,
    text: Option<&str>,
    what: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>> {
    let wrong = || Error::invalid(name, format!("{name} must be {what}."));
    text.map(|text| parse(text).ok_or_else(wrong)).transpose()
}

/// The reach of a list: the captures of `owner` that the caller may see. Only admins may ask for
/// other owners.
pub(super) fn within(owner: Option<&str>, reach: Reach, what: &str) -> Result<Reach> {
    match (owner, reach.owner()) {
        (None, _) => Ok(reach),
        (Some(owner), None) => Ok(Reach::Owner(UserId::known(owner))),
        (Some(owner), Some(own)) if owner == own.as_str() => Ok(reach),
        (Some(_), Some(_)) => {
            let detail = format!("Only an admin may list {what} of other users.");
            Err(Error::forbidden(detail).at("owner"))
        }
    }
}

/// The first value of a parameter in any query; `None` also if the value is badly encoded.
pub fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(found, _)| decode(found).as_deref() == Some(name))
        .find_map(|(_, value)| decode(value))
}

/// Decodes a value. A trailing `%` is literal, because people write `max_changed=2%`.
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
    use rerouter_records::page::PageQuery;

    #[test]
    fn every_parameter_is_known_and_there_once() {
        let query: PageQuery = read(Some("limit=5&after=a%2Bb+c&")).unwrap();
        assert_eq!((query.limit, query.after.as_deref()), (5, Some("a+b c")));
        assert_eq!(read::<PageQuery>(None).unwrap().limit, 20);
        for (text, field) in [
            ("x=1", "x"),
            ("limit=1&limit=1", "limit"),
            ("after=%f", "after"),
            ("after=%ff", "after"),
            ("%61=1&b=2", "a"),
        ] {
            assert_eq!(read::<PageQuery>(Some(text)).unwrap_err().field(), Some(field), "{text}");
        }
        for bad in ["0", "101", "", "x", "%2B5", "-1", "1.0", "99999999999999999999999"] {
            let error = read::<PageQuery>(Some(&format!("limit={bad}"))).unwrap_err();
            assert_eq!(error.field(), Some("limit"), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_read_back(value: String) {
            let encoded: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let query: PageQuery = read(Some(&format!("after={encoded}"))).unwrap();
            prop_assert_eq!(query.after, Some(value));
        }

        #[test]
        fn any_query_is_read_or_refused(text in "[ -~]{0,60}") {
            if let Ok(query) = read::<PageQuery>(Some(&text)) {
                prop_assert!((1..=100).contains(&query.limit));
            }
        }
    }
}
