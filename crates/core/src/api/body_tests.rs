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

#[test]
fn a_merge_patch_is_for_patch_alone() {
    let mut patch = request(Some(MERGE_PATCH), b"{}");
    let refused = BodyFields::read(&patch).unwrap_err();
    assert_eq!(refused.kind(), Kind::UnsupportedMediaType);
    *patch.method_mut() = Method::PATCH;
    BodyFields::read(&patch).unwrap().finish().unwrap();
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
