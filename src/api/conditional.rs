//! Conditional requests by entity tag (RFC 9110 section 13): `If-Match` of changes, `If-None-Match` of reads.

use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use crate::error::{Error, Kind, Result};

/// Which state of the object a request is for.
#[derive(Debug, PartialEq, Eq)]
enum Tags {
    /// `*`: whatever there is.
    Any,
    /// One of these; `true` where the tag is strong.
    OneOf(Vec<(bool, String)>),
}

/// What a change expects to find.
#[derive(Debug)]
pub(super) struct IfMatch(Option<Tags>);

impl IfMatch {
    /// Reads it; 400 where it is neither `*` nor a list of entity tags.
    pub(super) fn read(headers: &HeaderMap) -> Result<Self> {
        let malformed =
            || Error::invalid("If-Match", "If-Match must be entity tags, as GET gives them, or *.");
        read(headers, &IF_MATCH).map(IfMatch).map_err(|Malformed| malformed())
    }

    /// Refuses with 412 an object whose entity tag is none of those expected; weak ones match nothing here.
    pub(super) fn check(&self, etag: &str) -> Result<()> {
        let met = match &self.0 {
            None | Some(Tags::Any) => true,
            Some(Tags::OneOf(tags)) => tags.iter().any(|(strong, tag)| *strong && tag == etag),
        };
        if met {
            Ok(())
        } else {
            Err(Error::new(
                Kind::PreconditionFailed,
                "It was changed since; read it again before you change it.",
            ))
        }
    }

    /// Whether it names a state: then what has come between is told, and not written over.
    pub(super) fn names_one(&self) -> bool {
        matches!(self.0, Some(Tags::OneOf(_)))
    }
}

/// Whether the client has this state of the object already, so that 304 says it all. What cannot be read is not there.
pub(super) fn has(headers: &HeaderMap, etag: &str) -> bool {
    match read(headers, &IF_NONE_MATCH) {
        Ok(Some(Tags::Any)) => true,
        Ok(Some(Tags::OneOf(tags))) => tags.iter().any(|(_, tag)| tag == etag),
        Ok(None) | Err(Malformed) => false,
    }
}

/// Puts the entity tag on an answer.
pub(super) fn tag<T>(response: &mut Response<T>, etag: &str) {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{etag}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
}

struct Malformed;

fn read(headers: &HeaderMap, name: &HeaderName) -> std::result::Result<Option<Tags>, Malformed> {
    let mut found = None;
    for line in headers.get_all(name) {
        let mut rest = line.to_str().map_err(|_| Malformed)?.trim();
        if rest == "*" && found.is_none() {
            found = Some(Tags::Any);
            continue;
        }
        let Tags::OneOf(tags) = found.get_or_insert_with(|| Tags::OneOf(Vec::new())) else {
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
        Some(Tags::OneOf(tags)) if tags.is_empty() => Err(Malformed),
        found => Ok(found),
    }
}

#[cfg(test)]
mod tests {
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
                prop_assert!(condition.check("a").is_err() || lines.is_empty() || lines.iter().any(|line| line.contains(['a', '*'])));
            }
        }
    }
}
