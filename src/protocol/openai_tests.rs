//! Requests as clients write them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn read(body: &str) -> Result<ChatRequest, Error> {
    read_request(body.as_bytes(), Endpoint::ChatCompletions)
}

#[test]
fn the_facts_of_a_request() {
    let body = r#"{"messages":[{"role":"system","content":"Be brief."},
        {"role":"user","content":[{"type":"text","text":"Say \u00e9"},{"image_url":{"url":"data:..."},"type":"image_url"},{"type":"input_audio","input_audio":{}}]},
        {"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}],
        "model" : "au\u0074o", "stream":true,"stream_options":{"include_usage":true},"tools":[{"type":"function"},{}],
        "response_format":{"type":"json_schema","json_schema":{}},"max_tokens":5,"max_completion_tokens":70,"seed":1.50e3}"#;
    let request = read(body).unwrap();
    assert_eq!((request.model.as_str(), &body[request.model_span.clone()]), ("auto", r#""au\u0074o""#));
    assert!(request.stream && request.include_usage && request.json_output);
    assert_eq!((request.messages, request.tools, request.images, request.audio, request.max_tokens), (3, 2, 1, 1, Some(70)));
    let text = ["Be brief.", r"Say \u00e9", r#"{"type":"function"}"#, "{}"].map(|text| tokens::estimate(text.as_bytes()));
    assert_eq!(request.prompt_tokens, 16 + text.iter().sum::<u64>() + TOKENS_PER_CALL + 765 + 100 + tokens::estimate(b"{}") / 2);
    assert_eq!(last_user_text(body.as_bytes(), &request), "Say é");
}

#[test]
fn what_a_prompt_is_estimated_by() {
    let tokens = |message: &str| read(&format!(r#"{{"model":"m","messages":[{message}]}}"#)).unwrap().prompt_tokens;
    let said = tokens(r#"{"role":"assistant","content":"Well then, here it is."}"#);
    assert!((12..20).contains(&said), "{said}");
    // Thoughts of earlier answers are not told again; wherever the role stands, and only an answer's.
    for message in [
        r#"{"content":"<think>\nA long thought about this and that.\n</think>Well then, here it is.","role":"assistant"}"#,
        r#"{"role":"assistant","reasoning_content":"A long thought.","reasoning":"And more.","content":"Well then, here it is."}"#,
    ] {
        assert_eq!(tokens(message), said, "{message}");
    }
    assert!(
        tokens(r#"{"role":"user","content":"<think>\nA long thought about this and that.\n</think>Well then, here it is."}"#) > said + 8
    );
    let image = |detail: &str| {
        tokens(&format!(
            r#"{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,AAAA"{detail}}}}}]}}"#
        ))
    };
    assert_eq!((image(""), image(r#","detail":"low""#), image(r#","detail":"high""#)), (8 + 765, 8 + 85, 8 + 765));
    assert_eq!(tokens(r#"{"role":"user","content":[{"type":"file","file":{"file_data":"data:application/pdf;base64,AAAA"}}]}"#), 8 + 250);
    let call = tokens(
        r#"{"role":"assistant","tool_calls":[{"id":"call_0123456789abcdefghijklmn","type":"function","function":{"name":"f","arguments":"{}"}}]}"#,
    );
    assert!((14..24).contains(&call), "{call}");
}

#[test]
fn what_is_refused_names_its_field() {
    for (body, field) in [
        (r#"{"messages":[]}"#, Some("model")),
        (r#"{"model":5}"#, Some("model")),
        (r#"{"model":""}"#, Some("model")),
        (r#"{"model":null}"#, Some("model")),
        (r#"{"model":"\ud800"}"#, Some("model")),
        (r#"{"model":"a","model":"b"}"#, Some("model")),
        (r#"{"model":"a","mod\u0065l":"b"}"#, Some("model")),
        (r#"{"model":"a","stream":"yes"}"#, Some("stream")),
        (r#"{"model":"a","messages":{}}"#, Some("messages")),
        (r#"["model"]"#, None),
        (r#"{"model":"a""#, None),
    ] {
        let error = read(body).unwrap_err();
        assert_eq!((error.status().as_u16(), error.field()), (400, field), "{body}");
    }
    assert!(read(r#"{"model":"a","stream":null,"metadata":{"model":"b"}}"#).is_ok());
    assert_eq!(read(&format!(r#"{{"model":"{}"}}"#, "m".repeat(bounds::MODEL_BYTES + 1))).unwrap_err().field(), Some("model"));
}

fn member() -> impl Strategy<Value = (String, Value)> {
    let value = prop_oneof![
        "\\PC{0,8}".prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        Just(json!({"model": "inner", "a": [1, {"b": null}]})),
        Just(json!([])),
    ];
    ("[a-l\"\\\\é]{1,6}", value)
}

proptest! {
    #[test]
    fn a_new_name_changes_nothing_else(before in prop::collection::vec(member(), 0..4), after in prop::collection::vec(member(), 0..4), old in "\\PC{1,12}", new in "\\PC{0,12}|[\"\\\\\n\u{1}]{1,4}") {
        let write = |members: &[(String, Value)]| members.iter().map(|(n, v)| format!("{}: {v}", Value::from(n.as_str()))).collect::<Vec<_>>();
        let model = format!("\"model\" :{}", Value::from(old.as_str()));
        let text = format!("{{ {} }}", [write(&before), vec![model], write(&after)].concat().join(" ,"));
        let body = Bytes::from(text.clone());
        let request = read_request(&body, Endpoint::ChatCompletions).unwrap();
        prop_assert_eq!(&request.model, &old);
        let renamed = rename_model(&body, &request.model_span, &new);
        let mut expected: Value = serde_json::from_str(&text).unwrap();
        expected["model"] = Value::from(new);
        prop_assert_eq!(serde_json::from_slice::<Value>(&renamed).unwrap(), expected);
        prop_assert!(renamed.starts_with(&body[..request.model_span.start]));
        prop_assert!(renamed.ends_with(&body[request.model_span.end..]));
    }

    #[test]
    fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = read_request(&body, Endpoint::ChatCompletions);
    }
}
