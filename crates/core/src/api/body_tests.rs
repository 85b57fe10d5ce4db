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
fn a_body_is_an_object_without_duplicates() {
    let json = Some("Application/JSON; charset=utf-8");
    let read = |body: &[u8]| object(&request(json, body));
    assert_eq!(read(br#"{"a":1}"#).unwrap()["a"], 1);
    assert_eq!(read(br#"{"a":1,"a":1}"#).unwrap_err().field(), Some("a"));
    assert!(read(b"").is_err());
    assert!(object_if_any(&request(None, b"")).unwrap().is_empty());
    for content_type in [
        None,
        Some("text/plain"),
        Some("application/jsonx"),
        Some("application/x-www-form-urlencoded"),
    ] {
        assert_eq!(
            object(&request(content_type, b"{}")).unwrap_err().kind(),
            Kind::UnsupportedMediaType
        );
    }
    let refused = read(br#""hunter2""#).unwrap_err();
    assert_eq!(refused.detail(), "The body must be a JSON object.");
    let deep = [b"{\"a\":".to_vec(), vec![b'['; 10_000]].concat();
    for bad in [&b"[]"[..], b"3", b"{", b"{}{}", b"\xff", &deep] {
        assert_eq!(read(bad).unwrap_err().kind(), Kind::InvalidRequest);
    }
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
    for (name, value) in [("a\0", "b"), ("a", "\0")] {
        assert!(check_pairs("labels", &BTreeMap::from([(name.into(), value.into())])).is_err());
    }
}

#[test]
fn a_merge_patch_is_for_patch_alone() {
    let mut patch = request(Some(MERGE_PATCH), b"{}");
    let refused = object(&patch).unwrap_err();
    assert_eq!(refused.kind(), Kind::UnsupportedMediaType);
    *patch.method_mut() = Method::PATCH;
    object(&patch).unwrap();
}

proptest! {
    #[test]
    fn any_body_is_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(fields) = object_if_any(&request(Some("application/json"), &body)) {
            prop_assert!(
                body.is_empty() || serde_json::from_slice::<serde_json::Map<String, Value>>(&body)
                    .is_ok()
            );
            drop(fields);
        }
    }
}
