//! Tests of conversations as HTML: each kind of part, large ones, and texts full of markup.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::captures::fixtures;

const EVIL: &str = "</pre><script>x</script>\" onload=\"x\u{202e}\0\u{1b}[31m";

fn capture(request: &Value, answer: &Value) -> CaptureRecord {
    fixtures::record(json!({ "conversation": { "request": request, "answer": answer } }))
}

fn request(messages: &[Value]) -> Value {
    json!({"system": [], "messages": messages, "tools": [], "settings": {}, "unshown": [],
        "problem": null})
}

fn message(text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "text", "text": text}]})
}

/// Whether captured texts add no markup and no hidden characters to this HTML.
fn is_text(html: &str) -> bool {
    !html.contains("<script")
        && !html.contains("\" onload")
        && !html.contains(['\u{202e}', '\0', '\u{1b}'])
}

#[test]
fn every_kind_of_part_is_shown_as_text() {
    let parts = json!([
        {"type": "text", "text": EVIL},
        {"type": "thinking", "text": EVIL},
        {"type": "refusal", "text": EVIL},
        {"type": "image", "name": EVIL, "media_type": EVIL, "bytes": 2048},
        {"type": "file", "name": EVIL, "url": EVIL},
        {"type": "file", "name": "a.txt", "text": EVIL},
        {"type": "audio", "media_type": "wav", "bytes": 3},
        {"type": "tool_call", "id": EVIL, "name": EVIL, "arguments": EVIL},
        {"type": "tool_result", "id": EVIL, "is_error": true,
            "content": [{"type": "text", "text": EVIL}]},
        {"type": "tokens", "count": 1200},
        {"type": "vectors", "count": 2, "numbers": 1536},
    ]);
    let mut asked = request(&[json!({"role": "user", "content": parts})]);
    asked["system"] = json!([EVIL]);
    asked["tools"] = json!([{"name": EVIL, "description": EVIL, "parameters": {"type": EVIL}}]);
    asked["settings"] = json!({EVIL: EVIL});
    asked["unshown"] = json!([EVIL]);
    asked["problem"] = EVIL.into();
    let answer = json!({"content": parts, "stop": "max_tokens", "unshown": [EVIL],
        "problem": EVIL});
    let html = conversation(&capture(&asked, &answer)).into_string();
    assert!(is_text(&html), "{html}");
    for part in
        ["␀␛[31m", "2 KiB", "stopped: max tokens", "1\u{2009}200 tokens", "of 1\u{2009}536 numbers"]
    {
        assert!(html.contains(part), "{part} in {html}");
    }
}

#[test]
fn long_conversations_show_their_end() {
    let messages: Vec<Value> = (0..300).map(|number| message(&format!("word-{number}."))).collect();
    let whole = capture(&request(&messages), &Value::Null);
    let html = conversation(&whole).into_string();
    assert!(
        html.contains("word-299.") && html.contains("word-280.") && !html.contains("word-279.")
    );
    assert!(html.contains("/console/captures/req_1/messages?until=280"), "{html}");
    assert!(html.contains("No body of an answer was kept."));
    let mut view = ConversationView { id: "req_1", left: BYTES };
    let request = whole.conversation.unwrap().request.unwrap();
    let html = view.messages(&request.messages, 10).into_string();
    assert!(html.contains("word-9.") && !html.contains("word-10.") && !html.contains("until="));
}

#[test]
fn a_page_is_bounded_however_long_the_texts_are() {
    let long = "0123456789".repeat(100_000);
    let messages = vec![message(&long); 20];
    let whole = capture(
        &request(&messages),
        &json!({"content": [{"type": "text", "text": long}],
        "stop": "end", "unshown": [], "problem": null}),
    );
    let html = conversation(&whole).into_string();
    assert!(html.len() < 200 << 10, "{}", html.len());
    assert!(html.contains("Show more (969 KiB left)"), "{}", &html[..2000]);
    assert!(html.contains("part=answer%3A%2Fcontent%2F0"), "the answer is in reach");
}

proptest! {
    #[test]
    fn any_text_is_text(text: String) {
        let parts = json!([
            {"type": "text", "text": text},
            {"type": "file", "name": text, "text": text},
            {"type": "tool_call", "id": text, "name": text, "arguments": text},
        ]);
        let asked = request(&[json!({"role": "user", "content": parts})]);
        let html = conversation(&capture(&asked, &Value::Null)).into_string();
        let open = html.matches('<').count();
        prop_assert_eq!(open, html.matches('>').count());
        prop_assert!(visible(&html) == html.as_str());
    }
}
