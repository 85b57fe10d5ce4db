//! Every recorded answer and stream in each client dialect. Both sides are compared by parsing
//! their JSON here, without the readers.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::endpoint::Endpoint;
use crate::recorded::{Exchange, exchanges, streams};
use crate::recorded_answer::assemble;

pub(super) const CLIENTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

pub(super) fn context() -> AnswerContext {
    AnswerContext {
        id: "req_1".into(),
        model: "auto".into(),
        created: 1_700_000_000,
        include_usage: true,
        text_tools: vec!["apply.patch".into()],
        ..AnswerContext::default()
    }
}

fn provider(exchange: &Exchange) -> Option<Dialect> {
    match exchange.kind.as_str() {
        "chat" => Some(Dialect::Chat),
        "messages" => Some(Dialect::Messages),
        "responses" => Some(Dialect::Responses),
        _ => None,
    }
}

pub(super) fn endpoint(client: Dialect) -> Endpoint {
    match client {
        Dialect::Chat => Endpoint::ChatCompletions,
        Dialect::Messages => Endpoint::Messages,
        _ => Endpoint::Responses,
    }
}

/// What an SDK reads from an answer.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Said {
    text: String,
    thoughts: String,
    /// Name, parsed arguments, and id if the provider sent one.
    calls: Vec<(String, Value, String)>,
    pub(super) stop: &'static str,
    /// Tokens of the prompt, cached, of the answer, and of its reasoning.
    usage: Option<[u64; 4]>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn arguments(written: &str) -> Value {
    serde_json::from_str(if written.is_empty() { "{}" } else { written })
        .unwrap_or_else(|_| json!({ "INVALID_JSON": written }))
}

fn count(usage: &Value, pointers: &[&str]) -> u64 {
    pointers.iter().find_map(|pointer| usage.pointer(pointer)?.as_u64()).unwrap_or(0)
}

pub(super) fn said(endpoint: Endpoint, answer: &Value) -> Said {
    match endpoint {
        Endpoint::Messages => said_by_message(answer),
        Endpoint::Responses => said_by_response(answer),
        _ => said_by_completion(answer),
    }
}

fn said_by_completion(answer: &Value) -> Said {
    let mut said = Said::default();
    let message = &answer["choices"][0]["message"];
    match &message["content"] {
        Value::Array(pieces) => {
            for piece in pieces {
                said.text += text(&piece["text"]);
                for thought in piece["thinking"].as_array().into_iter().flatten() {
                    said.thoughts += text(&thought["text"]);
                }
            }
        }
        content => said.text += text(content),
    }
    said.text += text(&message["refusal"]);
    let thoughts = ["reasoning_content", "reasoning"].map(|name| text(&message[name]));
    said.thoughts += thoughts.into_iter().find(|thoughts| !thoughts.is_empty()).unwrap_or("");
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        said.calls.push((
            text(&function["name"]).into(),
            arguments(text(&function["arguments"])),
            text(&call["id"]).into(),
        ));
    }
    said.stop = match text(&answer["choices"][0]["finish_reason"]) {
        "length" => "length",
        "tool_calls" => "calls",
        "content_filter" => "refusal",
        "" => "none",
        _ if !said.calls.is_empty() => "calls",
        _ if !text(&message["refusal"]).is_empty() => "refusal",
        _ => "end",
    };
    let usage = &answer["usage"];
    said.usage = usage.is_object().then(|| {
        let cached = [
            "/prompt_tokens_details/cached_tokens",
            "/prompt_cache_hit_tokens",
            "/num_cached_tokens",
            "/cached_tokens",
        ];
        [
            count(usage, &["/prompt_tokens"]),
            count(usage, &cached),
            count(usage, &["/completion_tokens"]),
            count(usage, &["/completion_tokens_details/reasoning_tokens"]),
        ]
    });
    said
}

fn said_by_message(answer: &Value) -> Said {
    let mut said = Said::default();
    for block in answer["content"].as_array().into_iter().flatten() {
        match text(&block["type"]) {
            "text" => said.text += text(&block["text"]),
            "thinking" => said.thoughts += text(&block["thinking"]),
            "tool_use" => said.calls.push((
                text(&block["name"]).into(),
                block["input"].clone(),
                text(&block["id"]).into(),
            )),
            _ => {}
        }
    }
    said.stop = match text(&answer["stop_reason"]) {
        "max_tokens" | "model_context_window_exceeded" => "length",
        "tool_use" => "calls",
        "refusal" => "refusal",
        "" => "none",
        _ => "end",
    };
    let usage = &answer["usage"];
    let cached = count(usage, &["/cache_read_input_tokens"]);
    let prompt =
        count(usage, &["/input_tokens"]) + cached + count(usage, &["/cache_creation_input_tokens"]);
    let thinking = count(usage, &["/output_tokens_details/thinking_tokens"]);
    said.usage =
        usage.is_object().then(|| [prompt, cached, count(usage, &["/output_tokens"]), thinking]);
    said
}

fn said_by_response(answer: &Value) -> Said {
    let mut said = Said::default();
    let mut refused = false;
    for item in answer["output"].as_array().into_iter().flatten() {
        match text(&item["type"]) {
            "message" => {
                for content in item["content"].as_array().into_iter().flatten() {
                    said.text += text(&content["text"]);
                    said.text += text(&content["refusal"]);
                    refused |= content["type"] == "refusal";
                }
            }
            "reasoning" => {
                let pieces = ["summary", "content"]
                    .into_iter()
                    .flat_map(|name| item[name].as_array().into_iter().flatten())
                    .map(|piece| text(&piece["text"]));
                said.thoughts += &pieces.collect::<Vec<_>>().join("\n\n");
            }
            "function_call" => said.calls.push((
                text(&item["name"]).into(),
                arguments(text(&item["arguments"])),
                text(&item["call_id"]).into(),
            )),
            _ => {}
        }
    }
    said.stop = match (text(&answer["status"]), text(&answer["incomplete_details"]["reason"])) {
        ("queued" | "in_progress", _) | ("incomplete", "") => "none",
        ("incomplete", "content_filter") => "refusal",
        ("incomplete", _) => "length",
        _ if !said.calls.is_empty() => "calls",
        _ if refused => "refusal",
        _ => "end",
    };
    let usage = &answer["usage"];
    said.usage = usage.is_object().then(|| {
        [
            count(usage, &["/input_tokens"]),
            count(usage, &["/input_tokens_details/cached_tokens"]),
            count(usage, &["/output_tokens"]),
            count(usage, &["/output_tokens_details/reasoning_tokens"]),
        ]
    });
    said
}

/// Asserts that the client reads what the provider's answer says.
fn same(mut provider: Said, mut client: Said, what: &str) {
    // A message always has a usage. Calls without an id get one.
    if provider.usage.is_none() && client.usage == Some([0; 4]) {
        client.usage = None;
    }
    for (made, own) in client.calls.iter_mut().zip(&mut provider.calls) {
        assert!(!made.2.is_empty(), "{what}");
        if own.2.is_empty() {
            made.2.clear();
        }
    }
    assert_eq!(provider, client, "{what}");
}

pub(super) fn translated(from: Dialect, to: Dialect, stream: &[u8], size: usize) -> String {
    let mut translator = StreamTranslator::new(from, to, context());
    let mut out = Vec::new();
    stream.chunks(size.max(1)).for_each(|chunk| translator.feed(chunk, &mut out));
    translator.finish(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn every_recorded_answer_says_the_same_in_each_dialect() {
    let (mut carried, mut failed) = (0, 0);
    for exchange in exchanges() {
        let Some(from) = provider(&exchange) else { continue };
        if exchange.is_stream() {
            continue;
        }
        for to in CLIENTS {
            let what = format!("{} of {} as {to:?}", exchange.id, exchange.host);
            let body = exchange.response.as_bytes();
            if exchange.status != 200 {
                let error: Value =
                    serde_json::from_slice(&translate_error(to, exchange.status, body)).unwrap();
                let original: Value = serde_json::from_slice(body).unwrap();
                assert_eq!(error["error"]["message"], original["error"]["message"], "{what}");
                failed += 1;
                continue;
            }
            let answer = translate_answer(from, to, body, &context()).unwrap();
            let written: Value = serde_json::from_slice(&answer.body).unwrap();
            let original: Value = serde_json::from_slice(body).unwrap();
            same(said(exchange.endpoint(), &original), said(endpoint(to), &written), &what);
            carried += 1;
        }
    }
    assert_eq!((carried, failed), (3 * 199, 3 * 2));
}

#[test]
fn every_recorded_stream_says_the_same_in_each_dialect() {
    let mut broken = 0;
    for exchange in streams() {
        let from = provider(&exchange).unwrap();
        let whole = assemble(exchange.endpoint(), exchange.response.as_bytes());
        for to in CLIENTS {
            let what = format!("{} of {} as {to:?}", exchange.id, exchange.host);
            let stream = translated(from, to, exchange.response.as_bytes(), usize::MAX);
            if exchange.response.contains("\"error\":{\"code\"") {
                assert!(stream.contains("Token limit reached") && !ends_well(&stream), "{what}");
                broken += 1;
                continue;
            }
            assert!(ends_well(&stream), "{what}: {stream}");
            let read = said(endpoint(to), &assemble(endpoint(to), stream.as_bytes()));
            // Groq reports the usage of some streams in another member.
            let mut original = said(exchange.endpoint(), &whole);
            original.usage = original.usage.or(read.usage);
            if exchange.kind == "chat" {
                original.thoughts = thoughts_of_chunks(&exchange);
            }
            same(original, said(endpoint(to), &assemble(endpoint(to), stream.as_bytes())), &what);
            // The stream agrees with the translated whole answer.
            let answer =
                translate_answer(from, to, whole.to_string().as_bytes(), &context()).unwrap();
            let answer = said(endpoint(to), &serde_json::from_slice(&answer.body).unwrap());
            let plain = |said: Said| Said { usage: None, thoughts: String::new(), ..said };
            assert_eq!(plain(answer), plain(read), "{what}");
        }
    }
    assert_eq!(broken, 3);
}

/// The thoughts in chunks. The assembled answer lacks thoughts that are in a list.
fn thoughts_of_chunks(exchange: &Exchange) -> String {
    let lines = exchange.response.lines().filter_map(|line| line.strip_prefix("data: "));
    let chunks = lines.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    chunks
        .map(|chunk| {
            let message = chunk["choices"][0]["delta"].clone();
            said_by_completion(&json!({ "choices": [{ "message": message }] })).thoughts
        })
        .collect()
}

pub(super) fn ends_well(stream: &str) -> bool {
    [
        "data: [DONE]",
        "event: message_stop",
        "event: response.completed",
        "event: response.incomplete",
    ]
    .iter()
    .any(|end| stream.contains(end))
}

#[test]
fn a_stream_that_ends_early_is_never_whole() {
    for exchange in streams() {
        let from = provider(&exchange).unwrap();
        let text = exchange.response.trim_end().trim_end_matches("data: [DONE]");
        let ends: Vec<usize> = text.match_indices("\n\n").map(|(at, _)| at + 2).collect();
        // A chat stream has its finish reason in one of the last chunks.
        let reason = ["finish_reason\":\"s", "finish_reason\":\"l", "finish_reason\":\"t"];
        let told = reason.iter().filter_map(|word| text.find(word)).min().unwrap_or(text.len());
        for end in ends.into_iter().filter(|end| *end <= told).step_by(7) {
            for to in CLIENTS {
                let cut = &text.as_bytes()[..end];
                if end + 4 >= text.len() {
                    continue;
                }
                let stream = translated(from, to, cut, 4_096);
                assert!(!ends_well(&stream), "{} at {end} as {to:?}: {stream}", exchange.id);
                assert!(stream.contains("ended before"), "{} at {end}: {stream}", exchange.id);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn chunking_changes_nothing(
        at in any::<prop::sample::Index>(),
        sizes in prop::collection::vec(1usize..400, 1..8),
    ) {
        let all = streams();
        let exchange = at.get(&all);
        let (from, bytes) = (provider(exchange).unwrap(), exchange.response.as_bytes());
        for to in CLIENTS {
            let mut translator = StreamTranslator::new(from, to, context());
            let (mut out, mut rest) = (Vec::new(), bytes);
            for size in sizes.iter().cycle() {
                let (chunk, next) = rest.split_at((*size).min(rest.len()));
                translator.feed(chunk, &mut out);
                rest = next;
                if rest.is_empty() {
                    break;
                }
            }
            translator.finish(&mut out);
            let cut = String::from_utf8(out).unwrap();
            prop_assert_eq!(cut, translated(from, to, bytes, usize::MAX));
        }
    }
}
