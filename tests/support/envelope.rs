//! The error envelopes of contract section 2, held exactly: which fields, which words, nothing
//! more.

use std::collections::BTreeSet;

use serde_json::Value;

use super::client::Answer;

fn fields(value: &Value) -> BTreeSet<&str> {
    value
        .as_object()
        .unwrap_or_else(|| panic!("not an object: {value}"))
        .keys()
        .map(String::as_str)
        .collect()
}

fn set<const N: usize>(names: [&'static str; N]) -> BTreeSet<&'static str> {
    names.into_iter().collect()
}

fn is_sentence(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.len() > 3)
}

fn is_json(answer: &Answer) {
    let content_type = answer.header("content-type").unwrap_or_default();
    assert!(
        content_type.starts_with("application/json"),
        "content-type {content_type:?}: {answer:?}"
    );
    assert!(answer.whole, "cut body: {answer:?}");
}

/// PIN and ROUTER management: `{"error", "detail"}`, a 400 may name its `field`.
pub fn management(answer: &Answer, status: u16, word: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    is_json(answer);
    let body = answer.json();
    let mut names = fields(&body);
    if status == 400 {
        names.remove("field");
    }
    assert_eq!(names, set(["error", "detail"]), "{body}");
    assert_eq!(body["error"], word, "{body}");
    assert!(is_sentence(&body["detail"]), "{body}");
}

/// AGENT: the reason phrase, and a detail on all but 401.
pub fn agent(answer: &Answer, status: u16, phrase: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    is_json(answer);
    let body = answer.json();
    if status == 401 {
        assert_eq!(answer.text(), r#"{"error":"Unauthorized"}"#);
    } else {
        assert_eq!(fields(&body), set(["error", "detail"]), "{body}");
        assert!(is_sentence(&body["detail"]), "{body}");
    }
    assert_eq!(body["error"], phrase, "{body}");
}

/// Data plane: OpenAI's envelope with all four fields.
pub fn openai(answer: &Answer, status: u16, kind: &str, code: Option<&str>) {
    assert_eq!(answer.status, status, "{}", answer.text());
    is_json(answer);
    let body = answer.json();
    assert_eq!(fields(&body), set(["error"]), "{body}");
    assert_eq!(fields(&body["error"]), set(["message", "type", "param", "code"]), "{body}");
    assert_eq!(body["error"]["type"], kind, "{body}");
    assert_eq!(body["error"]["code"].as_str(), code, "{body}");
    assert!(is_sentence(&body["error"]["message"]), "{body}");
}

/// `/v1/messages`: Anthropic's envelope (a `request_id` beside it, as theirs).
pub fn anthropic(answer: &Answer, status: u16, kind: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    is_json(answer);
    let body = answer.json();
    let mut names = fields(&body);
    names.remove("request_id");
    assert_eq!(names, set(["type", "error"]), "{body}");
    assert_eq!(body["type"], "error", "{body}");
    assert_eq!(body["error"]["type"], kind, "{body}");
    assert!(is_sentence(&body["error"]["message"]), "{body}");
}
