//! Conditional requests (RFC 9110 section 13): `If-Match` for changes, `If-None-Match` for reads.

use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName};

use rerouter_base::error::{Error, Kind, Result};

#[derive(Debug, PartialEq, Eq)]
enum EntityTags {
    Any,
    /// A list of tags; `true` if a tag is strong.
    OneOf(Vec<(bool, String)>),
}

#[derive(Debug)]
pub(super) struct IfMatch(Option<EntityTags>);

impl IfMatch {
    /// 400 if it is neither `*` nor a list of entity tags.
    pub(super) fn read(headers: &HeaderMap) -> Result<Self> {
        let malformed =
            || Error::invalid("If-Match", "If-Match must be `*` or a list of entity tags.");
        read(headers, &IF_MATCH).map(IfMatch).map_err(|Malformed| malformed())
    }

    /// 412 unless `etag` is one of the strong tags in the header.
    pub(super) fn check(&self, etag: &str) -> Result<()> {
        let met = match &self.0 {
            None | Some(EntityTags::Any) => true,
            Some(EntityTags::OneOf(tags)) => {
                tags.iter().any(|(strong, tag)| *strong && tag == etag)
            }
        };
        if met {
            Ok(())
        } else {
            Err(Error::new(
                Kind::PreconditionFailed,
                "The object has changed. Read it again, then retry.",
            ))
        }
    }

    /// The version that must still be the current one when the change happens: `current` if the
    /// header names it, else no version at all. `None` if it may be any.
    pub(super) fn expected(&self, current: &str) -> Option<String> {
        let expected = if self.check(current).is_ok() { current } else { "" };
        self.names_one().then(|| expected.to_owned())
    }

    /// Whether the header names a version, so that a concurrent change must fail.
    pub(super) fn names_one(&self) -> bool {
        matches!(self.0, Some(EntityTags::OneOf(_)))
    }
}

/// Whether the client already has this version, so that 304 is enough. Ignores a malformed header.
pub(super) fn has(headers: &HeaderMap, etag: &str) -> bool {
    match read(headers, &IF_NONE_MATCH) {
        Ok(Some(EntityTags::Any)) => true,
        Ok(Some(EntityTags::OneOf(tags))) => tags.iter().any(|(_, tag)| tag == etag),
        Ok(None) | Err(Malformed) => false,
    }
}

struct Malformed;

fn read(
    headers: &HeaderMap,
    name: &HeaderName,
) -> std::result::Result<Option<EntityTags>, Malformed> {
    let mut found = None;
    for line in headers.get_all(name) {
        let mut rest = line.to_str().map_err(|_| Malformed)?.trim();
        if rest == "*" && found.is_none() {
            found = Some(EntityTags::Any);
            continue;
        }
        let EntityTags::OneOf(tags) = found.get_or_insert_with(|| EntityTags::OneOf(Vec::new()))
        else {
            return Err(Malformed);
        };
        while !rest.is_empty() {
            // Elements of a list may be empty (RFC 9110 section 5.6.1).
            if let Some(after) = rest.strip_prefix(',') {
                rest = after.trim_start();
                continue;
            }
            let (strong, quoted) =
                rest.strip_prefix("W/").map_or((true, rest), |quoted| (false, quoted));
            let (tag, after) = quoted
                .strip_prefix('"')
                .and_then(|inner| inner.split_once('"'))
                .ok_or(Malformed)?;
            tags.push((strong, tag.to_owned()));
            rest = after.trim_start();
            if !rest.is_empty() && !rest.starts_with(',') {
                return Err(Malformed);
            }
        }
    }
    match found {
        Some(EntityTags::OneOf(tags)) if tags.is_empty() => Err(Malformed),
        found => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn headers(name: &HeaderName, lines: &[&str]) -> HeaderMap {
        lines
            .iter()
            .map(|line| (name.clone(), HeaderValue::from_bytes(line.as_bytes()).unwrap()))
            .collect()
    }

    #[test]
    fn a_change_is_for_the_states_that_it_names() {
        let check = |lines: &[&str]| {
            IfMatch::read(&headers(&IF_MATCH, lines))
                .map(|condition| condition.check("a,b").is_ok())
        };
        for met in [
            &[][..],
            &["*"],
            &["\"a,b\""],
            &["\"x\" , \"a,b\""],
            &["\"x\"", "\"y\",\"a,b\""],
            &[",, \"a,b\",", ""],
        ] {
            assert!(check(met).unwrap(), "{met:?}");
        }
        for stale in [&["\"a\""][..], &["\"\""], &["W/\"a,b\""], &["\"x\",W/\"a,b\""]] {
            assert!(!check(stale).unwrap(), "{stale:?}");
        }
        for malformed in [
            &[""][..],
            &["a,b"],
            &["\"a,b"],
            &["*, \"a,b\""],
            &["*", "\"a,b\""],
            &["\"a\" \"a,b\""],
            &["w/\"a,b\""],
            &["*", "*"],
        ] {
            assert_eq!(check(malformed).unwrap_err().field(), Some("If-Match"), "{malformed:?}");
        }
        let expected = |lines: &[&str]| {
            IfMatch::read(&headers(&IF_MATCH, lines)).map(|condition| condition.expected("a"))
        };
        assert_eq!(expected(&["*"]).unwrap(), None);
        assert_eq!(expected(&["\"b\", \"a\""]).unwrap().as_deref(), Some("a"));
        assert_eq!(expected(&["W/\"a\""]).unwrap().as_deref(), Some(""));
        let stale = IfMatch::read(&headers(&IF_MATCH, &["\"a\""])).unwrap().check("b").unwrap_err();
        assert_eq!(stale.kind(), Kind::PreconditionFailed);
    }

    #[test]
    fn a_read_is_spared_what_the_client_has() {
        let has = |lines: &[&str]| has(&headers(&IF_NONE_MATCH, lines), "a");
        for lines in [&["*"][..], &["\"a\""], &["W/\"a\""], &["\"b\", W/\"a\""]] {
            assert!(has(lines), "{lines:?}");
        }
        for lines in [&[][..], &["\"b\""], &["a"], &[""]] {
            assert!(!has(lines), "{lines:?}");
        }
    }

    proptest! {
        #[test]
        fn any_header_is_read_or_refused(lines in prop::collection::vec("[W/\"*, a]{0,12}", 0..3)) {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            if let Ok(condition) = IfMatch::read(&headers(&IF_MATCH, &lines)) {
                prop_assert!(
                    condition.check("a").is_err() || lines.is_empty() || lines.iter().any(
                        |line| line.contains(['a', '*'])
                    )
                );
            }
        }
    }
}
