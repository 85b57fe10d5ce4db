use bytes::Bytes;
use http::Request;

use super::*;
use proptest::prelude::*;

fn request(content_type: Option<&str>, body: &[u8]) -> Request<Bytes> {
    let mut request = Request::new(Bytes::copy_from_slice(body));
    if let Some(content_type) = content_type {
        request.headers_mut().insert(http::header::CONTENT_TYPE, content_type.parse().unwrap());
    }
    request
}

#[test]
fn fields_are_taken_or_named() {
    let json = Some("Application/JSON; charset=utf-8");
    let mut fields =
        BodyFields::read(&request(json, br#"{"email":"a","name":null,"age":3}"#)).unwrap();
    assert_eq!(fields.text("email").unwrap(), "a");
    assert_eq!(fields.take::<String>("name", "a string").unwrap(), None);
    assert_eq!(fields.text("password").unwrap_err().field(), Some("password"));
    let error = fields.finish().unwrap_err();
    assert_eq!((error.kind(), error.field()), (Kind::InvalidRequest, Some("age")));

    let mut fields = BodyFields::read(&request(json, br#"{"email":3}"#)).unwrap();
    assert_eq!(fields.text("email").unwrap_err().field(), Some("email"));
    assert_eq!(
        BodyFields::read(&request(json, br#"{"a":1,"a":1}"#)).unwrap_err().field(),
        Some("a")
    );
    assert!(BodyFields::read(&request(json, b"")).is_err());
    BodyFields::read_if_any(&request(None, b"")).unwrap().finish().unwrap();
    for content_type in [
        None,
        Some("text/plain"),
        Some("application/jsonx"),
        Some("application/x-www-form-urlencoded"),
    ] {
        assert_eq!(
            BodyFields::read(&request(content_type, b"{}")).unwrap_err().kind(),
            Kind::UnsupportedMediaType
        );
    }
    for bad in [&b"[]"[..], b"3", b"{", b"{}{}", b"\xff"] {
        assert_eq!(BodyFields::read(&request(json, bad)).unwrap_err().kind(), Kind::InvalidRequest);
    }
    let deep = [b"{\"a\":".to_vec(), vec![b'['; 10_000]].concat();
    assert_eq!(BodyFields::read(&request(json, &deep)).unwrap_err().kind(), Kind::InvalidRequest);
}

#[test]
fn names_and_pairs_have_bounds() {
    assert!(check_name("ci ✓").is_ok());
    assert!(check_name(&"x".repeat(128)).is_ok());
    for name in ["", "a\nb", &"x".repeat(129)] {
        assert!(check_name(name).is_err());
    }
    let pairs = |count: usize, name: usize, value: usize| {
        (0..count).map(|at| (format!("{at:0name$}"), "v".repeat(value))).collect::<BTreeMap<_, _>>()
    };
    assert!(check_pairs("metadata", &pairs(16, 64, 512)).is_ok());
    for (count, name, value) in [(17, 2, 1), (1, 65, 1), (1, 1, 513)] {
        assert_eq!(
            check_pairs("labels", &pairs(count, name, value)).unwrap_err().field(),
            Some("labels")
        );
    }
    assert!(check_pairs("metadata", &BTreeMap::from([(String::new(), String::new())])).is_err());
}

/// The examples of RFC 7396, appendix A, but for members that only differ in the letters.
#[test]
fn merge_patches_do_as_their_rfc_says() {
    for (target, patch, merged) in [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
        (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
        (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
        (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
        (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
        (r#"{"a":"foo"}"#, "null", "null"),
        (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
        ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
        ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
    ] {
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(merge(read(target), read(patch)), read(merged), "{target} {patch}");
    }
}

#[test]
fn a_patch_says_what_it_speaks_of() {
    let mut patch = request(Some(MERGE_PATCH), br#"{"a":{"x":null,"y":"1"},"b":null}"#);
    assert_eq!(
        BodyFields::read(&patch).unwrap_err().kind(),
        Kind::UnsupportedMediaType,
        "no patch"
    );
    *patch.method_mut() = Method::PATCH;
    let mut fields = BodyFields::read(&patch).unwrap();
    let pairs = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(
        fields.patched("a", &pairs(&[("x", "0"), ("z", "2")]), "pairs").unwrap(),
        Some(Some(pairs(&[("y", "1"), ("z", "2")])))
    );
    assert_eq!(fields.patched::<String>("b", &"before", "a string").unwrap(), Some(None));
    assert_eq!(fields.patched::<String>("c", &"before", "a string").unwrap(), None);
    fields.finish().unwrap();
}

proptest! {
    #[test]
    fn any_body_is_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(fields) = BodyFields::read_if_any(&request(Some("application/json"), &body)) {
            prop_assert!(
                body.is_empty() || serde_json::from_slice::<serde_json::Map<String, Value>>(&body)
                    .is_ok()
            );
            drop(fields);
        }
    }
}
