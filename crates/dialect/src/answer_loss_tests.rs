//! What becomes of parts of answers that only some dialects have.

use serde_json::{Value, json};

use super::Dialect;
use super::neutral::answer::AnswerContext;
use super::request_translation::{read_request, write_request};
use super::translate_answer::{StreamTranslator, translate_answer};
use Dialect::{Chat, Gemini, Messages, Responses};

fn context() -> AnswerContext {
    AnswerContext { id: "req_1".into(), include_usage: true, ..AnswerContext::default() }
}

/// A translated answer, and the words for what it lost.
fn whole(from: Dialect, to: Dialect, answer: &Value) -> (Value, Vec<String>) {
    let made = translate_answer(from, to, answer.to_string().as_bytes(), &context()).unwrap();
    (serde_json::from_slice(&made.body).unwrap(), made.dropped)
}

/// The text of a translated stream.
fn stream(from: Dialect, to: Dialect, events: &[Value], end: &str) -> String {
    let (mut translator, mut out) = (StreamTranslator::new(from, to, context()), Vec::new());
    let events = events.iter().map(|event| format!("data: {event}\n\n"));
    translator.feed((events.collect::<String>() + end).as_bytes(), &mut out);
    translator.finish(&mut out);
    String::from_utf8(out).unwrap()
}

fn message(content: Value, more: &Value) -> Value {
    let mut message = json!({ "type": "message", "id": "msg_1", "content": content });
    message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    message
}

/// The events of a message with these blocks, each whole at its start, and the end's members.
fn message_events(blocks: &[Value], end: &Value) -> Vec<Value> {
    let mut events = vec![json!({ "type": "message_start", "message": { "id": "msg_1" } })];
    for (index, block) in blocks.iter().enumerate() {
        events.extend([
            json!({ "type": "content_block_start", "index": index, "content_block": block }),
            json!({ "type": "content_block_stop", "index": index }),
        ]);
    }
    events.push(json!({ "type": "message_delta", "delta": end }));
    events.push(json!({ "type": "message_stop" }));
    events
}

#[test]
fn a_paused_turn_is_not_over() {
    let text = json!([{ "type": "text", "text": "Wait" }]);
    let answer = message(text.clone(), &json!({ "stop_reason": "pause_turn" }));
    let (chat, dropped) = whole(Messages, Chat, &answer);
    assert_eq!(
        (&chat["choices"][0]["finish_reason"], &*dropped[0]),
        (&json!("length"), "pause_turn")
    );
    let (response, dropped) = whole(Messages, Responses, &answer);
    assert_eq!((&response["status"], &*dropped[0]), (&json!("incomplete"), "pause_turn"));
    let events = message_events(text.as_array().unwrap(), &json!({ "stop_reason": "pause_turn" }));
    let out = stream(Messages, Chat, &events, "");
    assert!(
        out.contains("\"finish_reason\":\"length\"")
            && out.contains(": x-rerouter-dropped: pause_turn\n\n")
    );
    assert!(stream(Messages, Responses, &events, "").contains("event: response.incomplete"));
}

#[test]
fn the_explanation_of_a_refusal_is_its_text() {
    let end = json!({ "stop_reason": "refusal",
        "stop_details": { "type": "refusal", "category": "cyber", "explanation": "Not this." } });
    let (chat, dropped) = whole(Messages, Chat, &message(json!([]), &end));
    assert_eq!(chat["choices"][0]["message"]["refusal"], "Not this.");
    assert!(dropped.is_empty());
    let (response, _) = whole(Messages, Responses, &message(json!([]), &end));
    assert_eq!(response["output"][0]["content"][0]["refusal"], "Not this.");
    let out = stream(Messages, Chat, &message_events(&[], &end), "");
    assert!(out.contains("\"refusal\":\"Not this.\""), "{out}");
}

#[test]
fn messages_of_one_response_keep_apart() {
    let said = |text: &str| {
        json!({ "type": "message", "content": [
        { "type": "output_text", "text": text }] })
    };
    let response = json!({ "id": "resp_1", "status": "completed", "output": [
        { "type": "reasoning", "summary": [{ "type": "summary_text", "text": "Hm." }] },
        said("First."), said("Then."),
    ] });
    let (chat, _) = whole(Responses, Chat, &response);
    assert_eq!(chat["choices"][0]["message"]["content"], "First.\n\nThen.");
    let (message, _) = whole(Responses, Messages, &response);
    assert_eq!(
        (&message["content"][1]["text"], &message["content"][2]["text"]),
        (&json!("First."), &json!("Then."))
    );
    // Blocks of one message are one text.
    let texts = json!([{ "type": "text", "text": "Fir" }, { "type": "text", "text": "st." }]);
    let (chat, _) = whole(Messages, Chat, &message_of(texts));
    assert_eq!(chat["choices"][0]["message"]["content"], "First.");
}

fn message_of(content: Value) -> Value {
    message(content, &json!({ "stop_reason": "end_turn" }))
}

#[test]
fn arguments_that_are_no_object_become_a_member() {
    let call =
        json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{oh" } });
    let completion = json!({ "choices": [{ "index": 0, "finish_reason": "tool_calls",
        "message": { "role": "assistant", "tool_calls": [call] } }] });
    let (message, _) = whole(Chat, Messages, &completion);
    assert_eq!(message["content"][0]["input"], json!({ "arguments": "{oh" }));
}

#[test]
fn done_with_usage_is_an_end() {
    let chunks = [
        json!({ "choices": [{ "index": 0, "delta": { "content": "Hi" } }] }),
        json!({ "choices": [], "usage": { "prompt_tokens": 3, "completion_tokens": 1 } }),
    ];
    let out = stream(Chat, Messages, &chunks, "data: [DONE]\n\n");
    assert!(out.contains("\"stop_reason\":\"end_turn\"") && !out.contains("event: error"), "{out}");
    // Without usage, the stream may have broken off.
    let out = stream(Chat, Messages, &chunks[..1], "data: [DONE]\n\n");
    assert!(out.contains("event: error"), "{out}");
}

#[test]
fn reasoning_details_are_read_where_there_is_no_other_text() {
    let details = json!([{ "type": "reasoning.text", "text": "Hm.", "index": 0 }]);
    let completion = |more: Value| {
        let mut said = json!({ "role": "assistant", "content": "4", "reasoning_details": details });
        said.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "choices": [{ "index": 0, "finish_reason": "stop", "message": said }] })
    };
    for more in [json!({}), json!({ "reasoning": "Hm." })] {
        let (message, dropped) = whole(Chat, Messages, &completion(more));
        assert_eq!(message["content"][0]["thinking"], "Hm.");
        assert!(dropped.is_empty());
    }
}

#[test]
fn tools_that_a_provider_ran_are_named() {
    let answer = json!({ "candidates": [{ "finishReason": "STOP", "content": { "parts": [
        { "toolCall": { "toolType": "GOOGLE_SEARCH_WEB", "id": "x" } },
        { "toolResponse": { "id": "x" } }, { "text": "So." },
    ] } }] });
    for to in [Chat, Messages, Responses] {
        assert_eq!(whole(Gemini, to, &answer).1, ["server_tools"]);
        let out = stream(Gemini, to, std::slice::from_ref(&answer), "");
        assert!(out.contains(": x-rerouter-dropped: server_tools\n\n"), "{out}");
    }
}

/// The same citation in each dialect.
fn cited(from: Dialect) -> Value {
    let (url, title) = ("https://a.example/1", "A");
    match from {
        Messages => message_of(json!([
            { "type": "text", "text": "See " },
            { "type": "text", "text": "here", "citations": [{
                "type": "web_search_result_location", "url": url, "title": title,
                "cited_text": "", "encrypted_index": "e",
            }] },
        ])),
        Responses => json!({ "id": "resp_1", "status": "completed", "output": [
            { "type": "message", "content": [{ "type": "output_text", "text": "See here",
                "annotations": [{ "type": "url_citation", "url": url, "title": title,
                    "start_index": 4, "end_index": 8 }] }] },
        ] }),
        Gemini => json!({ "candidates": [{ "finishReason": "STOP",
            "content": { "parts": [{ "text": "See here" }] },
            "groundingMetadata": { "groundingChunks": [{ "web": { "uri": url, "title": title } }] },
        }] }),
        _ => json!({ "choices": [{ "index": 0, "finish_reason": "stop", "message": {
            "role": "assistant", "content": "See here", "annotations": [{ "type": "url_citation",
                "url_citation": { "url": url, "title": title, "start_index": 4, "end_index": 8 },
            }] } }] }),
    }
}

#[test]
fn citations_of_the_web_are_carried() {
    for from in [Chat, Messages, Responses, Gemini] {
        for to in [Chat, Messages, Responses].into_iter().filter(|to| *to != from) {
            let (answer, dropped) = whole(from, to, &cited(from));
            assert_eq!(dropped, Vec::<String>::new(), "{from:?}");
            let found = match to {
                Chat => answer["choices"][0]["message"]["annotations"][0]["url_citation"].clone(),
                Responses => {
                    let items = answer["output"].as_array().unwrap();
                    items.last().unwrap()["content"][0]["annotations"][0].clone()
                }
                _ => {
                    let blocks = answer["content"].as_array().unwrap();
                    blocks.last().unwrap()["citations"][0].clone()
                }
            };
            assert_eq!(
                (&found["url"], &found["title"]),
                (&json!("https://a.example/1"), &json!("A"))
            );
            if to == Chat && from != Gemini {
                assert_eq!((&found["start_index"], &found["end_index"]), (&json!(4), &json!(8)));
            }
        }
    }
    // A place in a document of the request has no URL.
    let place = json!({ "type": "char_location", "cited_text": "x", "document_index": 0 });
    let answer = message_of(json!([{ "type": "text", "text": "x", "citations": [place] }]));
    assert_eq!(whole(Messages, Chat, &answer).1, ["citations"]);
}

#[test]
fn citations_of_streams_are_carried() {
    let delta = json!({ "type": "citations_delta", "citation": {
        "type": "web_search_result_location", "url": "https://a.example/1", "title": "A",
        "cited_text": "c", "encrypted_index": "e" } });
    let mut events = message_events(
        &[json!({ "type": "text", "text": "See here" })],
        &json!({ "stop_reason": "end_turn" }),
    );
    events.insert(2, json!({ "type": "content_block_delta", "index": 0, "delta": delta }));
    let chat = stream(Messages, Chat, &events, "");
    assert!(
        chat.contains("\"delta\":{\"annotations\":[{\"index\":0,\"type\":\"url_citation\""),
        "{chat}"
    );
    let response = stream(Messages, Responses, &events, "");
    assert!(response.contains("event: response.output_text.annotation.added"), "{response}");
    let chunk = json!({ "choices": [{ "index": 0, "finish_reason": "stop",
        "delta": cited(Chat)["choices"][0]["message"] }] });
    let messages = stream(Chat, Messages, &[chunk], "data: [DONE]\n\n");
    assert!(messages.contains("\"type\":\"citations_delta\""), "{messages}");
}

#[test]
fn a_client_of_chat_gets_seals_of_thinking() {
    let blocks = json!([
        { "type": "thinking", "thinking": "Hm.", "signature": "c2ln" },
        { "type": "tool_use", "id": "t", "name": "f", "input": {} },
    ]);
    let answer = message(blocks.clone(), &json!({ "stop_reason": "tool_use" }));
    let (chat, dropped) = whole(Messages, Chat, &answer);
    let detail = &chat["choices"][0]["message"]["reasoning_details"][0];
    assert_eq!((&detail["type"], dropped.len()), (&json!("reasoning.encrypted"), 0));
    assert!(detail["data"].as_str().unwrap().starts_with("rerouter.messages."));
    let events = message_events(blocks.as_array().unwrap(), &json!({ "stop_reason": "tool_use" }));
    let out = stream(Messages, Chat, &events, "");
    assert!(
        out.contains("\"reasoning_details\":[{") && out.contains("rerouter.messages."),
        "{out}"
    );
}

#[test]
fn calls_of_tools_in_namespaces_have_both_names_again() {
    let namespaced = vec![("agents__spawn".to_owned(), ["agents".to_owned(), "spawn".to_owned()])];
    let context = AnswerContext { namespaced, ..context() };
    let answer = message(
        json!([
            { "type": "tool_use", "id": "a", "name": "agents__spawn", "input": {} },
            { "type": "tool_use", "id": "b", "name": "plain", "input": {} },
        ]),
        &json!({ "stop_reason": "tool_use" }),
    );
    let body = answer.to_string();
    let made = translate_answer(Messages, Responses, body.as_bytes(), &context).unwrap();
    let response: Value = serde_json::from_slice(&made.body).unwrap();
    let (first, second) = (&response["output"][0], &response["output"][1]);
    assert_eq!((&first["name"], &first["namespace"]), (&json!("spawn"), &json!("agents")));
    assert_eq!((&second["name"], second.get("namespace")), (&json!("plain"), None));
    let blocks = answer["content"].as_array().unwrap();
    let events = message_events(blocks, &json!({ "stop_reason": "tool_use" }));
    let events: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let (mut translator, mut out) = (StreamTranslator::new(Messages, Responses, context), vec![]);
    translator.feed(events.as_bytes(), &mut out);
    let out = String::from_utf8(out).unwrap();
    // The item as it begins, at the end of its arguments, as it ends, and in the whole response.
    assert_eq!(out.matches("\"name\":\"spawn\",\"namespace\":\"agents\"").count(), 4, "{out}");
}

#[test]
fn calls_of_tools_with_long_names_have_their_whole_names_again() {
    let long = "n".repeat(70);
    let body = json!({ "model": "m", "max_tokens": 9,
        "tool_choice": { "type": "tool", "name": long },
        "tools": [{ "name": long, "input_schema": { "type": "object" } }],
        "messages": [
            { "role": "user", "content": "hi" },
            { "role": "assistant", "content": [
                { "type": "tool_use", "id": "c", "name": long, "input": {} }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c" }] },
        ] });
    let request = read_request(Messages, body.to_string().as_bytes()).unwrap();
    let sent = write_request(&request, Chat).unwrap();
    let sent = String::from_utf8(sent.body.to_vec()).unwrap();
    assert_eq!(sent.matches(&"n".repeat(64)).count(), 3, "{sent}");
    assert!(!sent.contains(&"n".repeat(65)), "{sent}");
    let mut like_another = request.clone();
    like_another.tools[0].name = "n".repeat(64);
    like_another.tools.extend(request.tools.clone());
    let sent = write_request(&like_another, Chat).unwrap();
    let sent = String::from_utf8(sent.body.to_vec()).unwrap();
    assert!(sent.contains(&long) && like_another.renamed_tools().is_empty(), "{sent}");
    let context = AnswerContext { namespaced: request.renamed_tools(), ..context() };
    let call = json!({ "index": 0, "id": "d", "type": "function",
        "function": { "name": "n".repeat(64), "arguments": "{}" } });
    let choice = json!({ "index": 0, "finish_reason": "tool_calls",
        "message": { "role": "assistant", "tool_calls": [call] } });
    let answer = json!({ "choices": [choice] }).to_string();
    let made = translate_answer(Chat, Messages, answer.as_bytes(), &context).unwrap();
    let message: Value = serde_json::from_slice(&made.body).unwrap();
    assert_eq!(message["content"][0]["name"], *long);
    let event = format!("data: {}\n\ndata: [DONE]\n\n", answer.replace("\"message\"", "\"delta\""));
    let (mut translator, mut out) = (StreamTranslator::new(Chat, Messages, context), vec![]);
    translator.feed(event.as_bytes(), &mut out);
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains(&format!("\"name\":\"{long}\"")), "{out}");
}

/// Errors in documents of success have many forms.
#[test]
fn a_document_that_is_no_answer_is_unreadable() {
    for body in [
        json!({}),
        json!({ "detail": "Not authenticated" }),
        json!({ "choices": null, "base_resp": { "status_code": 1002, "status_msg": "busy" } }),
        json!({ "code": 500, "message": "no Route matched", "error": null }),
    ] {
        for (from, to) in
            [(Chat, Messages), (Messages, Chat), (Responses, Chat), (Gemini, Messages)]
        {
            let made = translate_answer(from, to, body.to_string().as_bytes(), &context());
            assert!(made.is_err(), "{from:?} {body}");
        }
    }
    let body = json!({ "error": { "message": "bad", "code": 429 } }).to_string();
    for from in [Chat, Messages, Responses, Gemini] {
        let to = if from == Chat { Messages } else { Chat };
        let failure = translate_answer(from, to, body.as_bytes(), &context()).unwrap_err();
        assert_eq!((failure.status, failure.message.as_str()), (429, "bad"), "{from:?}");
    }
}

#[test]
fn sources_before_their_text_and_behind_a_break_are_right() {
    let delta = json!({ "type": "citations_delta", "citation": {
        "type": "web_search_result_location", "url": "https://a.example/1", "title": "A",
        "cited_text": "", "encrypted_index": "e" } });
    let mut events = message_events(
        &[json!({ "type": "text", "text": "" })],
        &json!({ "stop_reason": "end_turn" }),
    );
    let text = json!({ "type": "text_delta", "text": "See here" });
    for (at, delta) in [(2, delta), (3, text)] {
        let event = json!({ "type": "content_block_delta", "index": 0, "delta": delta });
        events.insert(at, event);
    }
    let chat = stream(Messages, Chat, &events, "");
    assert!(chat.contains("\"annotations\":[{") && !chat.contains("x-rerouter"), "{chat}");
    let said = |text: &str, end: u64| {
        json!({ "type": "message", "content": [{ "type": "output_text", "text": text,
            "annotations": [{ "type": "url_citation", "url": "https://a.example", "title": "A",
                "start_index": 1, "end_index": end }] }] })
    };
    let response =
        json!({ "status": "completed", "output": [said("hello", 3), said("world", u64::MAX)] });
    let (chat, _) = whole(Responses, Chat, &response);
    let spans = chat["choices"][0]["message"]["annotations"].as_array().unwrap().iter();
    let spans = spans.map(|cited| &cited["url_citation"]);
    let spans: Vec<_> = spans.map(|cited| (&cited["start_index"], &cited["end_index"])).collect();
    assert_eq!(spans, [(&json!(1), &json!(3)), (&json!(8), &json!(12))]);
}
