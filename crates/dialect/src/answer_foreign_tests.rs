//! Members of recorded answers and events that no reader knows are in the translation or among the
//! words.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::Dialect;
use super::neutral::answer::AnswerContext;
use super::neutral::event::Lost;
use super::neutral::part::Part;
use super::recorded::{Exchange, exchanges};
use super::recorded_answer::read_recorded;
use super::translate_answer::{StreamTranslator, translate_answer};

const NAME: &str = "zz_foreign";

/// Members whose objects repeat the request or say nothing that a client asks for.
const SILENT: [&str; 25] = [
    "annotation",
    "billing",
    "caller",
    "container",
    "content_filter_results",
    "content_filters",
    "context_management",
    "conversation",
    "cost_details",
    "incomplete",
    "instructions",
    "metadata",
    "moderation",
    "part",
    "prompt",
    "prompt_filter_results",
    "reasoning",
    "safetyRatings",
    "text",
    "time_info",
    "tool_choice",
    "tool_usage",
    "tools",
    "usage_breakdown",
    "x_groq",
];

/// An answer of Gemini's own API, with all that it may hold.
fn gemini() -> Value {
    json!({
        "candidates": [{
            "content": { "role": "model", "parts": [
                { "text": "Hm.", "thought": true },
                { "text": "It is 4." },
                { "executableCode": { "language": "PYTHON", "code": "2+2" } },
                { "functionCall": { "name": "note", "args": { "sum": 4 } } },
            ] },
            "index": 0, "finishReason": "STOP", "safetyRatings": [{ "category": "X" }],
            "groundingMetadata": {
                "groundingChunks": [{ "web": { "uri": "https://a.example", "title": "A" } }],
                "groundingSupports": [{ "segment": { "text": "It" } }],
            },
        }],
        "usageMetadata": { "promptTokenCount": 12, "totalTokenCount": 30 },
        "modelVersion": "gemini-2.5-flash", "responseId": "r1",
    })
}

/// The paths of the objects in a value.
fn objects(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.push(path.to_owned());
            for (name, member) in members {
                if !SILENT.contains(&name.as_str()) || member.is_string() {
                    objects(member, &format!("{path}/{name}"), found);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                objects(item, &format!("{path}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// Puts the foreign member into one of the objects, and returns its path.
fn bend(value: &mut Value, at: prop::sample::Index) -> String {
    let mut found = Vec::new();
    objects(value, "", &mut found);
    let path = at.get(&found).clone();
    if let Some(Value::Object(members)) = value.pointer_mut(&path) {
        members.insert(NAME.to_owned(), json!({ "deep": [1] }));
    }
    path
}

/// Whether the member is told: itself, or what it is part of.
fn is_told(text: &str, words: &[String]) -> bool {
    let is_lost = |word: &String| Lost::ALL.iter().any(|lost| lost.word() == word);
    text.contains(NAME) || words.iter().any(|word| word.contains(NAME) || is_lost(word))
}

static ANSWERS: LazyLock<Vec<(Dialect, Value)>> = LazyLock::new(|| {
    let recorded = exchanges().into_iter().filter(|exchange| !exchange.is_stream());
    let answer = |exchange: Exchange| {
        Some((dialect(&exchange)?, serde_json::from_str(&exchange.response).ok()?))
    };
    recorded.filter_map(answer).chain([(Dialect::Gemini, gemini())]).collect()
});

static STREAMS: LazyLock<Vec<(Dialect, Vec<Value>)>> = LazyLock::new(|| {
    let recorded = exchanges().into_iter().filter(Exchange::is_stream);
    let events = |exchange: Exchange| Some((dialect(&exchange)?, exchange.events()));
    recorded.filter_map(events).chain([(Dialect::Gemini, vec![gemini()])]).collect()
});

fn dialect(exchange: &Exchange) -> Option<Dialect> {
    let dialect = exchange.endpoint().dialect();
    (exchange.status == 200 && dialect != Dialect::Embeddings).then_some(dialect)
}

fn others(from: Dialect) -> impl Iterator<Item = Dialect> {
    let clients = [Dialect::Chat, Dialect::Messages, Dialect::Responses];
    clients.into_iter().filter(move |to| *to != from)
}

fn context() -> AnswerContext {
    AnswerContext { id: "req_1".into(), include_usage: true, ..AnswerContext::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_foreign_member_of_an_answer_is_told(
        which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(),
    ) {
        let (from, mut answer) = which.get(&ANSWERS).clone();
        let path = bend(&mut answer, at);
        for to in others(from) {
            let body = answer.to_string();
            let Ok(made) = translate_answer(from, to, body.as_bytes(), &context()) else {
                continue;
            };
            let text = String::from_utf8_lossy(&made.body);
            prop_assert!(is_told(&text, &made.dropped), "{from:?} to {to:?}: {path}");
        }
    }

    #[test]
    fn a_foreign_member_of_an_event_is_told(
        which in any::<prop::sample::Index>(), event in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
    ) {
        let (from, mut events) = which.get(&STREAMS).clone();
        let number = event.index(events.len());
        let path = bend(&mut events[number], at);
        let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        for to in others(from) {
            let mut translator = StreamTranslator::new(from, to, context());
            let mut out = Vec::new();
            translator.feed(stream.as_bytes(), &mut out);
            translator.finish(&mut out);
            let kind = events[number]["type"].as_str().unwrap_or_default();
            let text = String::from_utf8_lossy(&out);
            prop_assert!(
                is_told(&text, translator.dropped()) || translator.has_failed(),
                "{from:?} to {to:?}: {kind} {path}"
            );
            let words = translator.dropped().join(", ");
            let comment = format!(": x-rerouter-dropped: {words}\n\n");
            prop_assert!(words.is_empty() || translator.has_failed() || text.contains(&comment));
        }
    }
}

#[test]
fn arguments_that_are_an_object_are_read_as_their_text() {
    let arguments = r#"{"n": 1.50e1}"#;
    let body = format!(
        r#"{{"id":"r","model":"m","status":"completed","output":[{{"type":"function_call",
            "call_id":"c","name":"f","arguments":{arguments}}}]}}"#
    );
    let context = AnswerContext::default();
    let read = translate_answer(Dialect::Responses, Dialect::Chat, body.as_bytes(), &context);
    let read: Value = serde_json::from_slice(&read.unwrap().body).unwrap();
    let call = &read["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(call["arguments"], arguments);
}

#[test]
fn a_last_event_without_a_streamed_item_repeats_no_text() {
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant"});
    let mut whole = message.clone();
    whole["content"] = json!([{"type": "output_text", "text": "It is 4."}]);
    let added = |index: u64, item: &Value| {
        let kind = "response.output_item.added";
        json!({"type": kind, "output_index": index, "item": item})
    };
    let events = [
        json!({"type": "response.created", "response": {"id": "resp_1", "model": "m"}}),
        added(0, &json!({"type": "reasoning", "id": "rs_1"})),
        added(1, &message),
        json!({"type": "response.output_text.delta", "output_index": 1, "content_index": 0,
            "delta": "It is 4."}),
        json!({"type": "response.completed",
            "response": {"id": "resp_1", "status": "completed", "output": [whole]}}),
    ];
    let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let read = read_recorded(Dialect::Responses, stream.as_bytes(), true);
    assert_eq!(read.answer.content, [Part::Text("It is 4.".to_owned())]);
}
