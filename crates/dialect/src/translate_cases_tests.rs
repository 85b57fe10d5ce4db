//! Cases that no recording shows: Gemini, interleaved tool calls, missing ids, errors, and
//! generated answers.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::{CLIENTS, context, endpoint, ends_well, said, translated};
use super::*;
use crate::endpoint::Endpoint;
use crate::neutral::answer::{FailureKind, StopReason, TokenCounts};
use crate::neutral::part::{Part, Thinking, ToolCall};
use crate::neutral::seal::Seal;
use crate::recorded_answer::assemble;

fn events(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

fn chat_chunks(deltas: &[Value], finish: &str) -> String {
    let chunk = |delta: &Value, finish: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        json!({ "id": "chatcmpl-1", "created": 1, "model": "m", "choices": [choice] })
    };
    let mut chunks: Vec<Value> = deltas.iter().map(|delta| chunk(delta, Value::Null)).collect();
    chunks.push(chunk(&json!({}), finish.into()));
    events(&chunks) + "data: [DONE]\n\n"
}

fn call(index: Option<u64>, id: &str, name: &str, arguments: &str) -> Value {
    let function = if name.is_empty() {
        json!({ "arguments": arguments })
    } else {
        json!({ "name": name, "arguments": arguments })
    };
    let mut call = json!({ "id": id, "type": "function", "function": function });
    if let Some(index) = index {
        call["index"] = index.into();
    }
    json!({ "tool_calls": [call] })
}

fn said_of(to: Dialect, stream: &str) -> String {
    format!("{:?}", said(endpoint(to), &assemble(endpoint(to), stream.as_bytes())))
}

/// Id, name and input of each tool call in a stream of messages.
fn message_calls(stream: &str) -> Vec<(String, String, Value)> {
    let message = assemble(Endpoint::Messages, stream.as_bytes());
    let blocks = message["content"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
    calls.map(|call| (text(&call["id"]), text(&call["name"]), call["input"].clone())).collect()
}

#[test]
fn tool_calls_side_by_side_come_one_after_another_in_messages() {
    let stream = chat_chunks(
        &[
            json!({ "role": "assistant", "content": "I look." }),
            call(Some(0), "a", "look", "{\"x\""),
            call(Some(1), "b", "hear", "{\"y\":"),
            call(Some(0), "", "", ":1}"),
            call(Some(1), "", "", "12345678901234567890123}"),
        ],
        "tool_calls",
    );
    let messages = translated(Dialect::Chat, Dialect::Messages, stream.as_bytes(), 9);
    let calls = message_calls(&messages);
    assert_eq!(calls[0], ("a".into(), "look".into(), json!({ "x": 1 })));
    assert_eq!((&*calls[1].0, &*calls[1].1), ("b", "hear"));
    assert!(messages.contains("12345678901234567890123"), "the digits of a number stay");
    // Each block ends before the next starts.
    let kinds: Vec<&str> =
        messages.lines().filter_map(|line| line.strip_prefix("event: content_block_")).collect();
    let shape: String = kinds.iter().map(|kind| kind.chars().nth(2).unwrap()).collect();
    let blocks: Vec<&str> = shape.split_terminator('o').collect();
    assert_eq!(blocks.len(), 3, "{kinds:?}");
    assert!(blocks.iter().all(|block| block.starts_with('a')), "{kinds:?}");
}

#[test]
fn calls_without_an_index_or_an_id_are_told_apart() {
    for (first, second) in [(None, None), (Some(0), Some(0))] {
        let stream = chat_chunks(
            &[call(first, "a", "look", "{\"x\":1}"), call(second, "b", "look", "{\"x\":2}")],
            "stop",
        );
        let messages = translated(Dialect::Chat, Dialect::Messages, stream.as_bytes(), 64);
        let calls = message_calls(&messages);
        assert_eq!(calls.len(), 2, "{messages}");
        assert_eq!(calls[1].2, json!({ "x": 2 }));
        // An answer with calls stops because of them, whatever the provider reports.
        assert!(messages.contains("\"stop_reason\":\"tool_use\""), "{messages}");
    }
    let stream = chat_chunks(&[call(Some(0), "", "look", "")], "tool_calls");
    for to in CLIENTS {
        let once = translated(Dialect::Chat, to, stream.as_bytes(), 64);
        assert!(once.contains("call_1_0"), "{once}");
        assert_eq!(once, translated(Dialect::Chat, to, stream.as_bytes(), 1));
        // A call without arguments gets an empty object.
        assert!(said_of(to, &once).contains("(\"look\", Object {}, \"call_1_0\")"), "{once}");
    }
}

#[test]
fn arguments_that_are_no_object_become_one_also_in_a_stream_of_messages() {
    for (pieces, input) in [
        (&["not \"J", "SON\"\n"][..], json!({ "arguments": "not \"JSON\"\n" })),
        (&[" ", "null"], json!({ "arguments": "null" })),
        (&["[1]"], json!({ "arguments": "[1]" })),
        (&[" ", "{\"a\"", ":1}"], json!({ "a": 1 })),
    ] {
        let deltas: Vec<Value> = (pieces.iter())
            .zip([("functions.f:0", "f"), ("", ""), ("", "")])
            .map(|(piece, (id, name))| call(Some(0), id, name, piece))
            .collect();
        let stream = chat_chunks(&deltas, "tool_calls");
        let messages = translated(Dialect::Chat, Dialect::Messages, stream.as_bytes(), 64);
        // An id has only characters that Anthropic takes back.
        assert_eq!(message_calls(&messages), [("functions_2ef_3a0".into(), "f".into(), input)]);
    }
}

#[test]
fn an_event_without_data_and_a_second_end_change_nothing() {
    let stream = chat_chunks(&[json!({ "content": "yes" })], "stop");
    let odd = stream.replace("\n\n", "\n\nevent: keepalive\ndata: \n\ndata:\n\n");
    for to in CLIENTS {
        let plain = translated(Dialect::Chat, to, stream.as_bytes(), 64);
        assert_eq!(translated(Dialect::Chat, to, odd.as_bytes(), 64), plain);
        let gemini = events(&[gemini_answer()]);
        let done = format!("{gemini}data: [DONE]\n\n");
        assert_eq!(
            translated(Dialect::Gemini, to, done.as_bytes(), 64),
            translated(Dialect::Gemini, to, gemini.as_bytes(), 64)
        );
    }
}

#[test]
fn an_end_by_failure_is_an_error() {
    for word in ["error", "insufficient_system_resource", "abort"] {
        let stream = chat_chunks(&[json!({ "content": "half" })], word);
        for to in CLIENTS {
            let said = translated(Dialect::Chat, to, stream.as_bytes(), 64);
            assert!(said.contains("did not finish its answer"), "{said}");
        }
    }
}

#[test]
fn arguments_that_come_before_the_name_are_kept() {
    let stream = chat_chunks(
        &[call(Some(0), "", "", "{\"x\""), call(Some(0), "a", "look", ":1}")],
        "tool_calls",
    );
    let messages = translated(Dialect::Chat, Dialect::Messages, stream.as_bytes(), 64);
    assert_eq!(message_calls(&messages), [("a".into(), "look".into(), json!({ "x": 1 }))]);
}

fn gemini_answer() -> Value {
    json!({
        "candidates": [{
            "index": 0,
            "content": { "role": "model", "parts": [
                { "text": "Let me think.", "thought": true },
                { "text": "It is " }, { "text": "warm." },
                {
                    "functionCall": { "name": "look", "args": { "where": "Paris", "n": 1.50 } },
                    "thoughtSignature": "c2ln"
                },
                { "functionCall": { "id": "own", "name": "hear", "args": {} } },
            ] },
            "finishReason": "STOP",
            "citationMetadata": { "citationSources": [{ "uri": "https://example.com" }] },
        }],
        "usageMetadata": {
            "promptTokenCount": 20, "cachedContentTokenCount": 5, "candidatesTokenCount": 7,
            "thoughtsTokenCount": 3, "totalTokenCount": 30,
        },
        "modelVersion": "gemini-3", "responseId": "abc",
    })
}

#[test]
fn gemini_is_read_whole_and_as_a_stream() {
    let answer = gemini_answer();
    let mut chunks = Vec::new();
    for part in answer["candidates"][0]["content"]["parts"].as_array().unwrap() {
        let content = json!({ "role": "model", "parts": [part] });
        chunks.push(json!({
            "candidates": [{ "content": content }], "responseId": "abc", "modelVersion": "gemini-3",
        }));
    }
    let mut last = answer.clone();
    last["candidates"][0]["content"] = json!({ "parts": [{ "text": "" }] });
    chunks.push(last);
    let stream = events(&chunks);
    for to in CLIENTS {
        let body = answer.to_string();
        let whole = translate_answer(Dialect::Gemini, to, body.as_bytes(), &context()).unwrap();
        let text = String::from_utf8(whole.body.to_vec()).unwrap();
        let streamed = translated(Dialect::Gemini, to, stream.as_bytes(), 11);
        assert!(ends_well(&streamed), "{streamed}");
        let read = said(endpoint(to), &serde_json::from_str(&text).unwrap());
        assert_eq!(read, said(endpoint(to), &assemble(endpoint(to), streamed.as_bytes())));
        let expected = "Said { text: \"It is warm.\", thoughts: \"Let me think.\", calls: [\
            (\"look\", Object {\"where\": String(\"Paris\"), \"n\": Number(1.5)}, \
            \"call_abc_0\"), (\"hear\", Object {}, \"own\")], \
            stop: \"calls\", usage: Some([20, 5, 10, 3]) }";
        assert_eq!(format!("{read:?}"), expected, "{to:?}");
        assert_eq!(whole.dropped, ["citations"]);
    }
    let messages = translate_answer(
        Dialect::Gemini,
        Dialect::Messages,
        answer.to_string().as_bytes(),
        &context(),
    )
    .unwrap();
    let message: Value = serde_json::from_slice(&messages.body).unwrap();
    let seal = Seal::from_text(message["content"][2]["signature"].as_str().unwrap()).unwrap();
    assert_eq!((seal.dialect, &seal.value["signature"]), ("gemini", &json!("c2ln")));
}

#[test]
fn what_gemini_blocks_is_a_refusal_and_what_it_cannot_use_an_error() {
    let blocked = json!({
        "promptFeedback": { "blockReason": "SAFETY" }, "usageMetadata": { "promptTokenCount": 4 },
    });
    for to in CLIENTS {
        let answer =
            translate_answer(Dialect::Gemini, to, blocked.to_string().as_bytes(), &context())
                .unwrap();
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(text.contains("The prompt was blocked: SAFETY."), "{text}");
        let streamed =
            translated(Dialect::Gemini, to, events(std::slice::from_ref(&blocked)).as_bytes(), 5);
        assert!(
            ends_well(&streamed) && said_of(to, &streamed).contains("stop: \"refusal\""),
            "{streamed}"
        );
        let broken = json!({ "candidates": [{ "finishReason": "MALFORMED_FUNCTION_CALL" }] });
        let failure =
            translate_answer(Dialect::Gemini, to, broken.to_string().as_bytes(), &context())
                .unwrap_err();
        assert!(failure.message.contains("MALFORMED_FUNCTION_CALL"), "{failure:?}");
        let cut =
            events(&[json!({ "candidates": [{ "content": { "parts": [{ "text": "a" }] } }] })]);
        assert!(!ends_well(&translated(Dialect::Gemini, to, cut.as_bytes(), 5)));
    }
}

#[test]
fn errors_have_the_client_s_envelope_the_status_s_type_and_the_provider_s_words() {
    let long = "prompt is too long: 9 tokens > 8 maximum";
    let of = |kind: &str, message: &str| json!({ "type": kind, "message": message });
    let of_anthropic =
        |kind: &str, message: &str| json!({ "type": "error", "error": of(kind, message) });
    let mut of_openai = of("invalid_request_error", "No.");
    of_openai["code"] = "invalid_api_key".into();
    let of_google = json!({ "code": 404, "message": "No such model.", "status": "NOT_FOUND" });
    let null = Value::Null;
    for (status, body, kind, (openai, code), message) in [
        (
            429,
            of_anthropic("rate_limit_error", "Slow.").to_string(),
            "rate_limit_error",
            ("rate_limit_error", json!("rate_limit_exceeded")),
            "Slow.",
        ),
        (
            529,
            of_anthropic("overloaded_error", "Busy").to_string(),
            "overloaded_error",
            ("server_error", json!("overloaded")),
            "Busy",
        ),
        (
            400,
            of_anthropic("invalid_request_error", long).to_string(),
            "invalid_request_error",
            ("invalid_request_error", json!("context_length_exceeded")),
            long,
        ),
        (
            401,
            json!({ "error": of_openai }).to_string(),
            "authentication_error",
            ("authentication_error", json!("invalid_api_key")),
            "No.",
        ),
        (
            404,
            json!([{ "error": of_google }]).to_string(),
            "not_found_error",
            ("invalid_request_error", null.clone()),
            "No such model.",
        ),
        (
            422,
            json!({ "detail": "Bad field." }).to_string(),
            "invalid_request_error",
            ("invalid_request_error", null),
            "Bad field.",
        ),
        (
            502,
            "<html><head><title>502 Bad Gateway</title></head></html>".into(),
            "api_error",
            ("server_error", json!("provider_error")),
            "502 Bad Gateway",
        ),
        (
            503,
            "upstream is down".into(),
            "overloaded_error",
            ("server_error", json!("overloaded")),
            "upstream is down",
        ),
        (
            500,
            String::new(),
            "api_error",
            ("server_error", json!("provider_error")),
            "The provider answered with status 500 and no message.",
        ),
    ] {
        let told = |to| -> Value {
            serde_json::from_slice(&translate_error(to, status, body.as_bytes())).unwrap()
        };
        assert_eq!(told(Dialect::Messages), of_anthropic(kind, message));
        let mut error = of(openai, message);
        error["param"] = Value::Null;
        error["code"] = code;
        assert_eq!(told(Dialect::Chat), json!({ "error": error }));
    }
    // Anthropic's clients recognize a long prompt by this text only.
    let mut error = of("invalid_request_error", "Too many tokens.");
    error["code"] = "context_length_exceeded".into();
    let body = json!({ "error": error });
    let error = translate_error(Dialect::Messages, 400, body.to_string().as_bytes());
    assert!(String::from_utf8_lossy(&error).contains("prompt is too long: Too many tokens."));
}

#[test]
fn an_error_inside_a_stream_is_the_client_s_error_event() {
    let started = chat_chunks(&[json!({ "content": "Hel" })], "stop")
        .split("data: [DONE]")
        .next()
        .unwrap()
        .to_owned();
    let stream = format!(
        "{started}data: {{\"error\":{{\"message\":\"Boom\",\"type\":\"server_error\"}}}}\n\n\
        data: [DONE]\n\n"
    );
    for (to, event) in [
        (
            Dialect::Chat,
            "data: {\"error\":{\"message\":\"Boom\",\"type\":\"server_error\",\
            \"param\":null,\"code\":\"provider_error\"}}\n\n",
        ),
        (
            Dialect::Messages,
            "event: error\ndata: {\"type\":\"error\",\
            \"error\":{\"type\":\"api_error\",\"message\":\"Boom\"}}\n\n",
        ),
        (
            Dialect::Responses,
            "event: error\ndata: {\"type\":\"error\",\"code\":\"provider_error\",\
            \"message\":\"Boom\",\"param\":null,\"sequence_number\":5}\n\n",
        ),
    ] {
        let out = translated(Dialect::Chat, to, stream.as_bytes(), 3);
        // Codex reads the event that follows.
        let told = out.split("event: response.failed").next().unwrap();
        assert!(told.ends_with(event) && !ends_well(&out), "{out}");
    }
}

fn text_strategy() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z\\n\"\\\\é\u{1F600} ]{1,20}", Just("\u{2028}\u{0}".to_owned())]
}

/// Answers of parts that all dialects have. No two texts are adjacent.
fn answer_strategy() -> impl Strategy<Value = Answer> {
    let call = ("[a-z]{1,8}", "[a-z_]{1,8}", 0u32..99).prop_map(|(id, name, number)| {
        let arguments = format!("{{\"n\": {number}, \"exact\": 1.10e400}}");
        Part::ToolCall(ToolCall { id, name, arguments })
    });
    let thinking = prop::option::of(text_strategy())
        .prop_map(|text| text.map(|text| Part::Thinking(Thinking { text, seal: None })));
    let text = prop::option::of(text_strategy()).prop_map(|text| text.map(Part::Text));
    let counts = prop::option::of((0u64..9_999, 0u64..9_999, 0u64..99, 0u64..9_999, 0u64..99));
    let stop = prop_oneof![Just(StopReason::End), Just(StopReason::MaxTokens)];
    (thinking, text, prop::collection::vec(call, 0..4), stop, counts).prop_map(
        |(thinking, text, calls, stop, counts)| Answer {
            citations: Vec::new(),
            namespaced: Vec::new(),
            id: "abc".into(),
            model: "m".into(),
            created: 7,
            stop: if calls.is_empty() { stop } else { StopReason::ToolCalls },
            content: thinking.into_iter().chain(text).chain(calls).collect(),
            usage: counts.map(|(beside, cache_read, cache_written, output, reasoning)| {
                TokenCounts {
                    input: beside + cache_read + cache_written,
                    cache_read,
                    cache_written,
                    output,
                    reasoning,
                }
            }),
        },
    )
}

fn written(answer: &Answer, to: Dialect) -> Vec<u8> {
    let mut out = Vec::new();
    (to.row().client.as_ref().unwrap().write_answer)(answer, &mut out);
    out
}

proptest! {
    #[test]
    fn there_and_back_keeps_the_answer(answer in answer_strategy()) {
        for there in CLIENTS {
            let first = written(&answer, there);
            let (mut read, dropped) = read_answer(there, true, &first, &context()).unwrap();
            prop_assert!(dropped.is_empty());
            // Messages have no time and always a usage.
            read.created = answer.created;
            read.usage = read.usage.filter(|_| answer.usage.is_some());
            read.id = read.id.rsplit(['-', '_']).next().unwrap().to_owned();
            prop_assert_eq!(&read, &answer);
            for to in CLIENTS {
                let other = translate_answer(there, to, &first, &context()).unwrap();
                let (again, _) = read_answer(to, true, &other.body, &context()).unwrap();
                prop_assert_eq!(&again.content, &answer.content);
                prop_assert_eq!(&again.stop, &answer.stop);
            }
        }
    }

    #[test]
    fn any_bytes_are_an_answer_or_a_failure(body in prop::collection::vec(any::<u8>(), 0..200)) {
        for from in [Dialect::Chat, Dialect::Gemini] {
            for to in CLIENTS {
                let _ = translate_answer(from, to, &body, &context());
                translated(from, to, &body, 7);
                let error = translate_error(to, 500, &body);
                let error: Value = serde_json::from_slice(&error).unwrap();
                prop_assert!(error["error"]["message"].is_string());
            }
        }
    }
}

#[test]
fn statuses_have_their_kinds() {
    for (status, kind) in
        [(402, FailureKind::Billing), (413, FailureKind::TooLarge), (504, FailureKind::Timeout)]
    {
        assert_eq!(failure::read(status, b"").kind, kind);
    }
}

#[test]
fn a_whole_answer_without_a_reason_has_ended() {
    let call =
        json!({ "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let chat =
        |message: Value| json!({ "id": "1", "choices": [{ "index": 0, "message": message }] });
    let parts = |part: Value| json!({ "candidates": [{ "content": { "parts": [part] } }] });
    let message = |block: Value| json!({ "id": "1", "type": "message", "content": [block] });
    let block = json!({ "type": "tool_use", "id": "a", "name": "f", "input": {} });
    for (from, body, stop) in [
        (Dialect::Chat, chat(json!({ "content": "a" })), "end"),
        (Dialect::Chat, chat(json!({ "content": null, "tool_calls": [call] })), "calls"),
        (Dialect::Messages, message(json!({ "type": "text", "text": "a" })), "end"),
        (Dialect::Messages, message(block), "calls"),
        (Dialect::Gemini, parts(json!({ "text": "a" })), "end"),
        (Dialect::Gemini, parts(json!({ "functionCall": { "name": "f" } })), "calls"),
    ] {
        for to in CLIENTS {
            let answer = translate_answer(from, to, body.to_string().as_bytes(), &context());
            let answer: Value = serde_json::from_slice(&answer.unwrap().body).unwrap();
            assert_eq!(said(endpoint(to), &answer).stop, stop, "{answer}");
        }
    }
}

#[test]
fn a_call_with_free_text_is_the_same_whole_and_as_a_stream() {
    let text = "*** \"é\"\n";
    let arguments = json!({ "input": text }).to_string();
    let pieces: Vec<Value> =
        arguments.chars().map(|letter| call(Some(0), "", "", &letter.to_string())).collect();
    let mut deltas = vec![call(Some(0), "c", "apply.patch", "")];
    deltas.extend(pieces);
    let stream = chat_chunks(&deltas, "tool_calls");
    let function = json!({ "name": "apply.patch", "arguments": arguments });
    let message =
        json!({ "tool_calls": [{ "id": "c", "type": "function", "function": function }] });
    let whole = json!({ "id": "1", "choices": [
        { "index": 0, "finish_reason": "tool_calls", "message": message },
    ] });
    let whole = translate_answer(
        Dialect::Chat,
        Dialect::Responses,
        whole.to_string().as_bytes(),
        &context(),
    );
    let whole: Value = serde_json::from_slice(&whole.unwrap().body).unwrap();
    for size in [1, 7, 4_096] {
        let streamed = translated(Dialect::Chat, Dialect::Responses, stream.as_bytes(), size);
        let streamed = assemble(Endpoint::Responses, streamed.as_bytes());
        assert_eq!(streamed["output"], whole["output"]);
    }
    let item = &whole["output"][0];
    assert_eq!((&item["type"], &item["input"]), (&json!("custom_tool_call"), &json!(text)));
}
