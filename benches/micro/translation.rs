//! Cost of translation between dialects: an event of a stream, and whole requests and answers of 8
//! KiB.

use std::hint::black_box;

use rerouter::internals::dialect::Dialect;
use rerouter::internals::dialect::neutral::AnswerContext;
use rerouter::internals::dialect::request_translation::{read_request, write_request};
use rerouter::internals::dialect::translate_answer::{StreamTranslator, translate_answer};
use serde_json::{Value, json};

use crate::Bench;

/// Events per stream.
const EVENTS: u32 = 100;

/// For each dialect: the first events of a stream, an event that is repeated, and a whole answer.
fn samples() -> [(Dialect, String, String, Value); 4] {
    let long = "word ".repeat(8 * 1_024 / 5);
    let chunk = |delta: Value| {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": null });
        let chunk = json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [choice],
        });
        format!("data: {chunk}\n\n")
    };
    let event = |data: Value| {
        format!("event: {}\ndata: {data}\n\n", data["type"].as_str().expect("a type"))
    };
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [{ "type": "text", "text": long }], "stop_reason": "end_turn",
        "usage": { "input_tokens": 9, "output_tokens": 9 },
    });
    let response = json!({
        "id": "resp_1", "status": "completed", "model": "m", "created_at": 1,
        "output": [{ "type": "message", "content": [{ "type": "output_text", "text": long }] }],
        "usage": { "input_tokens": 9, "output_tokens": 9 },
    });
    let candidate = |text: &str| {
        json!({
            "candidates": [{
                "content": { "parts": [{ "text": text }], "role": "model" }, "index": 0,
            }],
            "modelVersion": "m", "responseId": "r",
        })
    };
    [
        (
            Dialect::Chat,
            chunk(json!({ "role": "assistant", "content": "" })),
            chunk(json!({ "content": " word" })),
            json!({
                "id": "chatcmpl-1", "created": 1, "model": "m",
                "choices": [{
                    "index": 0, "message": { "role": "assistant", "content": long },
                    "finish_reason": "stop",
                }],
                "usage": { "prompt_tokens": 9, "completion_tokens": 9 },
            }),
        ),
        (
            Dialect::Messages,
            event(json!({ "type": "message_start", "message": { "id": "msg_1", "model": "m" } })),
            event(json!({
                "type": "content_block_delta", "index": 0,
                "delta": { "type": "text_delta", "text": " word" },
            })),
            message,
        ),
        (
            Dialect::Responses,
            event(
                json!({ "type": "response.created", "response": { "id": "resp_1", "model": "m" } }),
            ),
            event(json!({
                "type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0,
                "content_index": 0, "delta": " word", "sequence_number": 4, "logprobs": [],
            })),
            response,
        ),
        (
            Dialect::Gemini,
            format!("data: {}\n\n", candidate("")),
            format!("data: {}\n\n", candidate(" word")),
            json!({
                "candidates": [{
                    "content": { "parts": [{ "text": long }] }, "finishReason": "STOP",
                }],
            }),
        ),
    ]
}

/// A request of 8 KiB in each client dialect.
fn requests() -> [(Dialect, Value); 3] {
    let text = "word ".repeat(8 * 1_024 / 5);
    let turns = json!([{ "role": "user", "content": text }]);
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let function = json!({ "name": "f", "parameters": schema });
    [
        (
            Dialect::Chat,
            json!({
                "model": "auto", "messages": turns, "max_completion_tokens": 64,
                "tools": [{ "type": "function", "function": function }],
            }),
        ),
        (
            Dialect::Messages,
            json!({
                "model": "auto", "messages": turns, "max_tokens": 64,
                "tools": [{ "name": "f", "input_schema": schema }],
            }),
        ),
        (
            Dialect::Responses,
            json!({
                "model": "auto", "input": turns, "max_output_tokens": 64,
                "tools": [{ "type": "function", "name": "f", "parameters": schema }],
            }),
        ),
    ]
}

pub fn measure(bench: &Bench) {
    for (from, request) in requests() {
        let request = request.to_string();
        for to in Dialect::TRANSLATED.into_iter().filter(|to| *to != from) {
            bench.call(&format!("a request of 8 KiB of {from:?} as {to:?}"), || {
                let read = read_request(from, black_box(request.as_bytes())).expect("a request");
                write_request(&read, to).expect("a request that can be carried");
            });
        }
    }
    for (from, first, event, answer) in samples() {
        let answer = answer.to_string();
        for to in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
            if from == to {
                continue;
            }
            let begun = || {
                let mut translator = StreamTranslator::new(from, to, AnswerContext::default());
                translator.feed(first.as_bytes(), &mut Vec::new());
                translator
            };
            let run = |mut translator: StreamTranslator| {
                let mut out = Vec::with_capacity(1_024);
                for _ in 0..EVENTS {
                    out.clear();
                    translator.feed(black_box(event.as_bytes()), &mut out);
                    assert!(!out.is_empty(), "an event goes on at once");
                }
                translator
            };
            bench.stage(&format!("an event of {from:?} as {to:?}"), EVENTS, begun, run);
            let context = AnswerContext::default();
            bench.call(&format!("an answer of 8 KiB of {from:?} as {to:?}"), || {
                let body = black_box(answer.as_bytes());
                translate_answer(from, to, body, &context).expect("an answer");
            });
        }
    }
}
