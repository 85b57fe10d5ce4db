//! Compares two captures, field by field. A streamed answer is compared by its assembled object, so
//! that it can equal an answer that was not streamed.

use serde_json::{Value, json};

use rerouter_captures::capture::record::Capture;
use rerouter_captures::redaction::lost_text;
use rerouter_records::replay::{ComparedField, Comparison};

/// Value of one field in a capture; `None` if unknown, because the body was not kept completely.
type FieldValue = Option<Value>;

/// `equal` is null if a value is unknown or redacted: different values may be equal after
/// redaction.
pub fn compare(a: &Capture, b: &Capture) -> Comparison {
    let (left, right) = (fields(a), fields(b));
    let lacks = |capture: &Capture, value: &FieldValue| {
        capture.head.redacted && value.as_ref().is_some_and(lost_text)
    };
    let known = |left: &FieldValue, right: &FieldValue| !lacks(a, left) && !lacks(b, right);
    let row = |((name, a), (_, b)): ((&str, FieldValue), (&str, FieldValue))| {
        let equal = a.as_ref().zip(b.as_ref()).filter(|_| known(&a, &b)).map(|(a, b)| a == b);
        ComparedField { field: name.to_owned(), a, b, equal }
    };
    let fields = left.into_iter().zip(right).map(row).collect();
    Comparison { a: a.head.id.clone(), b: b.head.id.clone(), fields }
}

fn fields(capture: &Capture) -> [(&'static str, FieldValue); 18] {
    let head = &capture.head;
    let (decision, served, usage) =
        (head.decision.as_ref(), head.served.as_ref(), head.usage.as_ref());
    let answer = answer(capture);
    let of_answer = |read: fn(&Value) -> Value| answer.as_ref().map(read);
    [
        ("decision.provider", Some(json!(decision.map(|decision| &decision.provider)))),
        ("decision.model", Some(json!(decision.map(|decision| &decision.model)))),
        ("decision.recipe", Some(json!(decision.map(|decision| &decision.recipe)))),
        ("decision.rule", Some(json!(decision.and_then(|decision| decision.rule.as_ref())))),
        ("decision.revision", Some(json!(decision.map(|decision| &decision.revision)))),
        ("served.provider", Some(json!(served.map(|served| &served.provider)))),
        ("served.model", Some(json!(served.map(|served| &served.model)))),
        ("status", Some(head.status.into())),
        ("state", Some(head.state.as_str().into())),
        ("finish_reason", of_answer(finish_reason)),
        ("text", of_answer(text)),
        ("tool_calls", of_answer(tool_calls)),
        ("usage.prompt_tokens", Some(json!(usage.map(|usage| usage.prompt_tokens)))),
        ("usage.completion_tokens", Some(json!(usage.map(|usage| usage.completion_tokens)))),
        ("usage.total_tokens", Some(json!(usage.map(|usage| usage.total_tokens)))),
        ("cost_usd", Some(json!(head.cost_usd))),
        ("latency.ttft_ms", Some(json!(head.ttft_ms))),
        ("latency.total_ms", Some(head.total_ms.into())),
    ]
}

/// The answer's object, for a stream the assembled one. Null if the answer is not JSON, `None` if
/// the body was not kept completely.
fn answer(capture: &Capture) -> Option<Value> {
    let (head, body) = (&capture.head, &capture.bodies.response);
    // The body was empty, or redaction removed all of it.
    let gone = head.redacted && body.is_empty();
    if !head.request_captured || head.response_truncated || gone {
        return None;
    }
    Some(if head.response_stream {
        head.assembled(body)
    } else {
        serde_json::from_slice(body).unwrap_or(Value::Null)
    })
}

/// Structure of an answer, judged by its fields: a replay may use another protocol than its
/// original.
enum AnswerShape<'a> {
    /// Chat completion with choices, or unknown.
    Choices,
    /// Response with output items.
    Items(&'a [Value]),
    /// Message with content blocks.
    Blocks(&'a [Value]),
}

fn shape(answer: &Value) -> AnswerShape<'_> {
    let list = |name: &str| answer.get(name).and_then(Value::as_array).map(Vec::as_slice);
    match (list("choices"), list("output"), list("content")) {
        (None, Some(items), _) => AnswerShape::Items(items),
        (None, None, Some(blocks)) => AnswerShape::Blocks(blocks),
        _ => AnswerShape::Choices,
    }
}

/// The finish reason in the protocol's words. For a response: why it is incomplete, else its
/// status.
fn finish_reason(answer: &Value) -> Value {
    match shape(answer) {
        AnswerShape::Choices => by_choice(answer, |choice| part(choice, "/finish_reason")),
        AnswerShape::Items(_) => match part(answer, "/incomplete_details/reason") {
            Value::Null => part(answer, "/status"),
            reason => reason,
        },
        AnswerShape::Blocks(_) => part(answer, "/stop_reason"),
    }
}

/// The text of the answer; null if there is none.
fn text(answer: &Value) -> Value {
    match shape(answer) {
        AnswerShape::Choices => by_choice(answer, text_of_choice),
        AnswerShape::Items(items) => {
            let said = of_kind(items, "message")
                .filter_map(|item| item.get("content")?.as_array())
                .flatten();
            joined(said.filter(|part| part.get("type").is_none_or(|kind| kind == "output_text")))
        }
        AnswerShape::Blocks(blocks) => joined(of_kind(blocks, "text")),
    }
}

fn of_kind<'a>(parts: &'a [Value], kind: &str) -> impl Iterator<Item = &'a Value> {
    parts.iter().filter(move |part| part.get("type").is_some_and(|word| word == kind))
}

fn joined<'a>(parts: impl Iterator<Item = &'a Value>) -> Value {
    let texts: Vec<&str> = parts.filter_map(|part| part.get("text")?.as_str()).collect();
    if texts.is_empty() { Value::Null } else { texts.concat().into() }
}

/// Tool calls without their ids, which always differ. Arguments that are JSON are compared as JSON.
fn tool_calls(answer: &Value) -> Value {
    let ending = |parts: &[Value], end: &str| {
        let is_call = |part: &&Value| {
            part.get("name").is_some()
                && part.get("type").and_then(Value::as_str).is_some_and(|kind| kind.ends_with(end))
        };
        listed(parts.iter().filter(is_call).map(called).collect())
    };
    match shape(answer) {
        AnswerShape::Choices => by_choice(answer, calls_of_choice),
        AnswerShape::Items(items) => ending(items, "_call"),
        AnswerShape::Blocks(blocks) => ending(blocks, "tool_use"),
    }
}

fn listed(called: Vec<Value>) -> Value {
    if called.is_empty() { Value::Null } else { called.into() }
}

/// The value of the only choice, or an array of the values of several choices.
fn by_choice(answer: &Value, read: fn(&Value) -> Value) -> Value {
    match answer.get("choices").and_then(Value::as_array).map(Vec::as_slice) {
        None | Some([]) => Value::Null,
        Some([only]) => read(only),
        Some(several) => several.iter().map(read).collect(),
    }
}

fn part(value: &Value, pointer: &str) -> Value {
    value.pointer(pointer).cloned().unwrap_or(Value::Null)
}

/// The message's text. Text parts are joined.
fn text_of_choice(choice: &Value) -> Value {
    match part(choice, "/message/content") {
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part.get("text")?.as_str()).collect::<String>().into()
        }
        content => content,
    }
}

fn calls_of_choice(choice: &Value) -> Value {
    let calls = part(choice, "/message/tool_calls");
    let old = part(choice, "/message/function_call");
    let functions = calls
        .as_array()
        .into_iter()
        .flatten()
        .map(|call| call.get("function").or_else(|| call.get("custom")).unwrap_or(call));
    listed(functions.chain(old.is_object().then_some(&old)).map(called).collect())
}

fn called(function: &Value) -> Value {
    let written =
        function.get("arguments").or_else(|| function.get("input")).cloned().unwrap_or(Value::Null);
    let parsed = written.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    json!({ "name": part(function, "/name"), "arguments": parsed.unwrap_or(written) })
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
