mod ceiling;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::model_request::{Ceiling, MODEL_BYTES};
use super::*;
use crate::wire::json::JSON_WORD_BYTES;
use crate::wire::tokens;
use model_request::TOKENS_PER_CALL;

fn read(body: &str) -> Result<ModelRequest, Error> {
    read_request(body.as_bytes(), Endpoint::ChatCompletions)
}

#[test]
fn the_facts_of_a_request() {
    let body = r#"{"messages":[{"role":"system","content":"Be brief."},
        {"role":"user","content":[{"type":"text","text":"Say \u00e9"},
            {"image_url":{"url":"data:..."},"type":"image_url"},
            {"type":"input_audio","input_audio":{}}]},
        {"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}],
        "model" : "au\u0074o", "stream":true,"stream_options":{"include_usage":true},
        "tools":[{"type":"function"},{}],
        "response_format":{"type":"json_schema","json_schema":{}},"max_tokens":5,
        "max_completion_tokens":70,"seed":1.50e3}"#;
    let request = read(body).unwrap();
    assert_eq!((&*request.model, &body[request.model_span.clone()]), ("auto", r#""au\u0074o""#));
    assert!(request.stream && request.include_usage && request.json_output);
    assert_eq!(
        (request.messages, request.tools, request.images, request.audio, request.max_tokens),
        (3, 2, 1, 1, Some(70))
    );
    let text = ["Be brief.", r"Say \u00e9", r#"{"type":"function"}"#, "{}"]
        .map(|text| tokens::estimate(text.as_bytes()));
    assert_eq!(
        request.prompt_tokens,
        16 + text.iter().sum::<u64>() + TOKENS_PER_CALL + 765 + 100 + tokens::estimate(b"{}") / 2
    );
    assert_eq!(last_user_text(body.as_bytes(), &request), "Say é");
}

#[test]
fn what_a_prompt_is_estimated_by() {
    let tokens = |message: &str| {
        read(&format!(r#"{{"model":"m","messages":[{message}]}}"#)).unwrap().prompt_tokens
    };
    let said = tokens(r#"{"role":"assistant","content":"Well then, here it is."}"#);
    assert!((12..20).contains(&said), "{said}");
    // Thoughts of earlier answers do not count, wherever `role` stands. Only answers have thoughts.
    for message in [
        concat!(
            r#"{"content":"<think>\nA long thought about this and that.\n</think>Well then, here "#,
            r#"it is.","role":"assistant"}"#,
        ),
        concat!(
            r#"{"role":"assistant","reasoning_content":"A long thought.","reasoning":"And more.","#,
            r#""content":"Well then, here it is."}"#,
        ),
    ] {
        assert_eq!(tokens(message), said, "{message}");
    }
    assert!(
        tokens(concat!(
            r#"{"role":"user","content":"<think>\nA long thought about this and "#,
            r#"that.\n</think>Well then, here it is."}"#,
        )) > said + 8
    );
    let image = |detail: &str| {
        let url = format!(r#"{{"url":"data:image/png;base64,AAAA"{detail}}}"#);
        tokens(&format!(
            r#"{{"role":"user","content":[{{"type":"image_url","image_url":{url}}}]}}"#
        ))
    };
    assert_eq!(
        (image(""), image(r#","detail":"low""#), image(r#","detail":"high""#)),
        (8 + 765, 8 + 85, 8 + 765)
    );
    assert_eq!(
        tokens(concat!(
            r#"{"role":"user","content":[{"type":"file","#,
            r#""file":{"file_data":"data:application/pdf;base64,AAAA"}}]}"#,
        )),
        8 + 250
    );
    let call = tokens(concat!(
        r#"{"role":"assistant","tool_calls":[{"id":"call_0123456789abcdefghijklmn","#,
        r#""type":"function","function":{"name":"f","arguments":"{}"}}]}"#,
    ));
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
        (r#"{"model":"a","stream":true,"stream":true}"#, Some("stream")),
        (r#"{"model":"a","stream":true,"str\u0065am":false}"#, Some("stream")),
        (r#"{"model":"a","stream_options":null,"stream_options":{}}"#, Some("stream_options")),
        (
            r#"{"model":"a","stream_options":{"include_usage":true,"include_us\u0061ge":false}}"#,
            Some("stream_options.include_usage"),
        ),
        (r#"{"model":"a","messages":[],"messages":[]}"#, Some("messages")),
        (r#"{"model":"a","tools":[],"tools":[]}"#, Some("tools")),
        (r#"{"model":"a","response_format":{},"response_format":{}}"#, Some("response_format")),
        (r#"{"model":"a","max_tokens":1,"max_tokens":1}"#, Some("max_tokens")),
        (
            r#"{"model":"a","max_completion_tokens":1,"max_completion_tokens":9}"#,
            Some("max_completion_tokens"),
        ),
        (r#"{"model":"a","messages":{}}"#, Some("messages")),
        (r#"["model"]"#, None),
        (r#"{"model":"a""#, None),
    ] {
        let error = read(body).unwrap_err();
        assert_eq!((error.status().as_u16(), error.field()), (400, field), "{body}");
    }
    assert!(read(r#"{"model":"a","stream":null,"metadata":{"model":"b"}}"#).is_ok());
    assert_eq!(
        read(&format!(r#"{{"model":"{}"}}"#, "m".repeat(MODEL_BYTES + 1))).unwrap_err().field(),
        Some("model")
    );
}

#[test]
fn what_is_not_acted_on_may_come_twice() {
    let body = concat!(
        r#"{"model":"a","seed":1,"seed":2,"max_tokens":1,"max_completion_tokens":2,"#,
        r#""stream_options":{"x":1,"x":2},"metadata":{"model":1,"model":2}}"#,
    );
    assert_eq!(read(body).unwrap().max_tokens, Some(2));
}

#[test]
fn a_count_is_a_whole_number_in_digits() {
    let names = generation_limits::NAMES
        .iter()
        .take_while(|name| **name != "thinking")
        .chain(&["thinking_budget", "max_tool_calls"]);
    for name in names {
        for written in [
            "\"5\"",
            "5.0",
            "5e0",
            "[5]",
            "-5",
            "true",
            "{}",
            "9223372036854775808",
            "18446744073709551616",
            "\"\"",
        ] {
            for endpoint in Endpoint::ALL {
                let error = read_request(
                    format!(r#"{{"model":"a","{name}":{written}}}"#).as_bytes(),
                    endpoint,
                )
                .unwrap_err();
                assert_eq!(
                    (error.status().as_u16(), error.field()),
                    (400, Some(*name)),
                    "{name} {written}"
                );
            }
        }
        for written in ["null", "0", "5", "9223372036854775807"] {
            assert!(
                read(&format!(r#"{{"model":"a","{name}":{written}}}"#)).is_ok(),
                "{name} {written}"
            );
        }
    }
    for (body, field) in [
        (r#"{"model":"a","thinking":{"budget_tokens":"5"}}"#, "thinking.budget_tokens"),
        (r#"{"model":"a","thinking":{"Budget_Tokens":5}}"#, "thinking.budget_tokens"),
        (r#"{"model":"a","reasoning":{"max_tokens":5e3}}"#, "reasoning.max_tokens"),
        (r#"{"model":"a","extra_body":{"max_tokens":5}}"#, "extra_body.max_tokens"),
        (r#"{"model":"a","extra_body":{"model":"b"}}"#, "extra_body.model"),
        (r#"{"model":"a","extra_body":{"N":5}}"#, "extra_body.n"),
    ] {
        assert_eq!(read(body).unwrap_err().field(), Some(field), "{body}");
    }
    assert!(
        read(concat!(
            r#"{"model":"a","extra_body":{"google":{"max_tokens":"5"}},"thinking":true,"#,
            r#""reasoning":null}"#,
        ))
        .is_ok()
    );
}

#[test]
fn what_is_acted_on_has_one_spelling_at_any_depth() {
    for (endpoint, body, field) in [
        (
            Endpoint::ChatCompletions,
            r#"{"model":"a","stream_options":{"Include_usage":true}}"#,
            "stream_options.include_usage",
        ),
        (
            Endpoint::ChatCompletions,
            r#"{"model":"a","response_format":{"TYPE":"json_object"}}"#,
            "response_format.type",
        ),
        (Endpoint::ChatCompletions, r#"{"model":"a","Messages":[]}"#, "messages"),
        (
            Endpoint::ChatCompletions,
            r#"{"model":"a","messages":[{"role":"user","CONTENT":"x"}]}"#,
            "messages.content",
        ),
        (
            Endpoint::ChatCompletions,
            r#"{"model":"a","messages":[{"content":"x","content":"y"}]}"#,
            "messages.content",
        ),
        (
            Endpoint::ChatCompletions,
            r#"{"model":"a","messages":[{"content":[{"Type":"text"}]}]}"#,
            "content.type",
        ),
        (
            Endpoint::ChatCompletions,
            r#"{"model":"a","messages":[{"content":[{"imageUrl":{}}]}]}"#,
            "content.image_url",
        ),
        (
            Endpoint::ChatCompletions,
            r#"{"model":"a","messages":[{"content":[{"image_url":{"URL":"x"}}]}]}"#,
            "content.image_url.url",
        ),
        (Endpoint::ChatCompletions, r#"{"model":"a","tools":[{"\u0074ype":"x"}]}"#, "tools.type"),
        (Endpoint::ChatCompletions, r#"{"model":"a","Functions":[]}"#, "functions"),
        (Endpoint::Embeddings, r#"{"model":"a","Input":"x"}"#, "input"),
        (Endpoint::Responses, r#"{"model":"a","INPUT":"x"}"#, "input"),
        (Endpoint::Responses, r#"{"model":"a","input":[{"Output":"x"}]}"#, "input.output"),
        (
            Endpoint::Responses,
            r#"{"model":"a","Previous_Response_Id":"x"}"#,
            "previous_response_id",
        ),
        (Endpoint::Responses, r#"{"model":"a","text":{"Format":{}}}"#, "text.format"),
        (
            Endpoint::Messages,
            r#"{"model":"a","messages":[{"content":[{"source":{"DATA":"x"}}]}]}"#,
            "content.source.data",
        ),
        (Endpoint::Messages, r#"{"model":"a","System":"x"}"#, "system"),
        (Endpoint::CountTokens, r#"{"model":"a","Max_Tokens":5}"#, "max_tokens"),
    ] {
        let error = read_request(body.as_bytes(), endpoint).unwrap_err();
        assert_eq!((error.status().as_u16(), error.field()), (400, Some(field)), "{body}");
    }
    let others = concat!(
        r#"{"model":"a","Temperature":1,"metadata":{"Model":"b","N":"5"},"#,
        r#""messages":[{"role":"user","content":"x","Tool_Call_ID":1}],"#,
        r#""tools":[{"function":{"Type":1}}]}"#,
    );
    assert!(read(others).is_ok());
}

#[test]
fn functions_calls_and_names_are_estimated() {
    let text = "The members agreed to postpone the vote until next month.";
    let tokens = |more: &str, message: &str| {
        read(&format!(r#"{{"model":"m","messages":[{{"role":"user"{message}}}]{more}}}"#))
            .unwrap()
            .prompt_tokens
    };
    let (bare, said) = (tokens("", ""), tokens::estimate(text.as_bytes()));
    for (more, message) in [
        (format!(r#","functions":[{{"description":"{text}"}}]"#), String::new()),
        (String::new(), format!(r#","function_call":{{"arguments":"{text}"}}"#)),
        (String::new(), format!(r#","content":[{{"type":"refusal","refusal":"{text}"}}]"#)),
        (String::new(), format!(r#","refusal":"{text}""#)),
        (String::new(), format!(r#","name":"{text}""#)),
    ] {
        let found = tokens(&more, &message);
        assert!(
            (bare + said..bare + said + 16).contains(&found),
            "{found}, {bare} without it: {more}{message}"
        );
    }
}

/// The edit that asks for a stream's usage, with each form of `stream_options` that a client may
/// send.
#[test]
fn a_stream_is_made_to_tell_its_usage() {
    let body =
        |options: &str| format!(r#"{{ "stream" : true{options}, "model":"a","messages":[] }}"#);
    for (written, expected) in [
        ("", r#","stream_options":{"include_usage":true}"#),
        (r#","stream_options": null"#, r#","stream_options": {"include_usage":true}"#),
        (r#","stream_options": { }"#, r#","stream_options": {"include_usage":true }"#),
        (
            r#","stream_options":{"include_usage": false}"#,
            r#","stream_options":{"include_usage": true}"#,
        ),
        (
            r#","stream_options":{"include_usage":null }"#,
            r#","stream_options":{"include_usage":true }"#,
        ),
        (
            r#","stream_options":{"a":[1.50], "include_usage":false,"b":2}"#,
            r#","stream_options":{"a":[1.50], "include_usage":true,"b":2}"#,
        ),
        (r#","stream_options":{ "a":1}"#, r#","stream_options":{"include_usage":true, "a":1}"#),
    ] {
        let text = Bytes::from(body(written));
        let request = read_request(&text, Endpoint::ChatCompletions).unwrap();
        assert!(request.stream && !request.include_usage, "{written}");
        let edited = rename_model(&text, &request.model_span, "b", request.ask_usage.as_ref());
        assert_eq!(
            edited,
            body(expected).replace(r#""a","messages""#, r#""b","messages""#),
            "{written}"
        );
        let again = read_request(&edited, Endpoint::ChatCompletions).unwrap();
        assert!(again.include_usage && again.ask_usage.is_none(), "{written}");
    }
    for untouched in [
        r#"{"stream":true,"stream_options":{"include_usage":true},"model":"a"}"#,
        r#"{"stream":true,"stream_options":{"include_usage":"yes"},"model":"a"}"#,
        r#"{"stream":true,"stream_options":[],"model":"a"}"#,
        r#"{"stream":false,"stream_options":{"include_usage":false},"model":"a"}"#,
        r#"{"stream":null,"model":"a"}"#,
        r#"{"model":"a"}"#,
    ] {
        assert_eq!(read(untouched).unwrap().ask_usage, None, "{untouched}");
    }
}

#[test]
fn numbers_and_names_are_bounded_and_texts_are_not() {
    let digits = |count: usize| format!(r#"{{"model":"a","seed":{}}}"#, "7".repeat(count));
    let name =
        |count: usize| format!(r#"{{"model":"a","metadata":{{"{}":1}}}}"#, "n".repeat(count));
    assert!(read(&digits(JSON_WORD_BYTES)).is_ok() && read(&name(JSON_WORD_BYTES - 2)).is_ok());
    for body in [digits(JSON_WORD_BYTES + 1), name(JSON_WORD_BYTES - 1), digits(1 << 20)] {
        let error = read(&body).unwrap_err();
        assert!(error.status().as_u16() == 400 && error.detail().contains("4096"), "{error}");
    }
    assert!(
        read(&format!(
            r#"{{"model":"a","messages":[{{"role":"user","content":"{}"}}]}}"#,
            "t".repeat(10 << 20)
        ))
        .is_ok()
    );
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
    fn a_new_name_changes_nothing_else(
        before in prop::collection::vec(member(), 0..4),
        after in prop::collection::vec(member(), 0..4),
        old in "\\PC{1,12}",
        new in "\\PC{0,12}|[\"\\\\\n\u{1}]{1,4}",
    ) {
        let write = |members: &[(String, Value)]| {
            members
                .iter()
                .map(|(n, v)| format!("{}: {v}", Value::from(n.as_str())))
                .collect::<Vec<_>>()
        };
        let model = format!("\"model\" :{}", Value::from(old.as_str()));
        let text =
            format!("{{ {} }}", [write(&before), vec![model], write(&after)].concat().join(" ,"));
        let body = Bytes::from(text.clone());
        let request = read_request(&body, Endpoint::ChatCompletions).unwrap();
        prop_assert_eq!(&*request.model, &*old);
        let renamed = rename_model(&body, &request.model_span, &new, None);
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
