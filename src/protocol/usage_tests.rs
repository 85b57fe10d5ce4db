//! Usage as answers have it.

use proptest::prelude::*;

use super::*;

#[test]
fn an_answer_is_read_as_far_as_it_goes() {
    let body = r#"{"id":"chatcmpl-1","model":"m-2024","choices":[{"finish_reason":"stop","message":{}},{"finish_reason":"length"}],
        "usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":4}}}"#;
    let usage = Usage { prompt_tokens: 9, completion_tokens: 3, total_tokens: 12, cached_tokens: Some(4), estimated: false };
    assert_eq!(read(body.as_bytes()), Some(usage));
    assert_eq!(read(body.trim_end_matches('}').as_bytes()), None);
    assert_eq!(read(body.replace("\"usage\"", "\"us\\u0061ge\"").as_bytes()), Some(usage));
    assert_eq!(read(format!("{},", body.strip_suffix('}').unwrap()).as_bytes()), Some(usage), "it broke off after its usage");
    assert_eq!(read(b"<html>"), None);
    assert_eq!(read(br#"{"id":7,"usage":[],"choices":{}}"#), None);
}

proptest! {
    #[test]
    fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..80)) {
        read(&body);
        walk_to_usage(&body);
    }
}
