//! The form of a reroute's answer, for any JSON that a provider may send.

use proptest::prelude::*;

use super::*;
use crate::usage_object::USAGE_TOKENS;

const DEFAULTS: CompletionDefaults<'_> = CompletionDefaults {
    id: "req_1",
    created: 1_764_000_000,
    model: "gpt",
    prompt_tokens: 9,
    usage: None,
};

fn shape(answer: Value) -> Value {
    shaped(answer, &DEFAULTS)
}

/// Asserts that every member exists and has its type.
fn holds(shaped: &Value) -> Result<(), TestCaseError> {
    for name in ["id", "model"] {
        prop_assert!(shaped[name].as_str().is_some_and(|text| !text.is_empty()), "{}", shaped);
    }
    prop_assert_eq!(&shaped["object"], "chat.completion");
    prop_assert!(shaped["created"].is_i64(), "{}", shaped);
    for choice in shaped["choices"].as_array().expect("choices") {
        prop_assert!(choice["index"].is_u64() && choice["finish_reason"].is_string(), "{}", shaped);
        prop_assert!(
            choice["message"]["role"].is_string() && choice["message"]["content"].is_string(),
            "{}",
            shaped
        );
    }
    for name in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        prop_assert!(shaped["usage"][name].is_u64(), "{}", shaped);
    }
    prop_assert!(
        shaped["usage"].get("estimated").is_none_or(|estimated| *estimated == true),
        "{}",
        shaped
    );
    Ok(())
}

/// Any JSON, with names that answers use.
fn json() -> impl Strategy<Value = Value> {
    let names = [
        "id",
        "object",
        "created",
        "model",
        "choices",
        "usage",
        "index",
        "message",
        "finish_reason",
        "role",
        "content",
        "text",
        "type",
        "tool_calls",
        "function_call",
        "function",
        "name",
        "arguments",
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "input_tokens",
        "output_tokens",
        "estimated",
        "stop_reason",
        "input",
        "other",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0u64..1000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z ]{0,8}".prop_map(Value::from),
        prop::sample::select(vec!["text", "tool_use", "stop", "assistant"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        let name = prop::sample::select(names.to_vec()).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A valid answer of each API, with some values replaced by any JSON or removed.
fn bent() -> impl Strategy<Value = Value> {
    let chat = json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{
            "index": 0, "message": {"role": "assistant", "content": "hi", "tool_calls": []},
            "finish_reason": "stop",
        }],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    });
    let message = json!({
        "id": "c", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 2},
    });
    let paths = [
        "/id",
        "/object",
        "/created",
        "/model",
        "/choices",
        "/choices/0",
        "/choices/0/index",
        "/choices/0/message",
        "/stop_reason",
        "/choices/0/message/role",
        "/choices/0/message/content",
        "/choices/0/message/tool_calls",
        "/choices/0/finish_reason",
        "/usage",
        "/usage/prompt_tokens",
        "/usage/completion_tokens",
        "/usage/total_tokens",
        "/usage/input_tokens",
        "/content/0",
        "/usage/output_tokens",
        "/content",
        "/content/0/type",
        "/content/0/text",
    ];
    let change = (prop::sample::select(paths.to_vec()), prop::option::of(json()));
    (prop::bool::ANY, prop::collection::vec(change, 0..5)).prop_map(move |(is_chat, changes)| {
        let mut answer = if is_chat { chat.clone() } else { message.clone() };
        for (path, other) in changes {
            let (above, name) = path.rsplit_once('/').unwrap();
            match (answer.pointer_mut(above), other) {
                (Some(Value::Object(fields)), None) => _ = fields.remove(name),
                (Some(Value::Object(fields)), Some(other)) => {
                    _ = fields.insert(name.to_owned(), other)
                }
                (Some(Value::Array(items)), Some(other)) if !items.is_empty() => items[0] = other,
                _ => {}
            }
        }
        answer
    })
}

proptest! {
    #[test]
    fn any_answer_has_the_shape(
        answer in prop_oneof![json(), bent()],
        bytes in prop::option::of(0..USAGE_TOKENS),
    ) {
        let usage = bytes.map(|bytes| Usage::estimate(9, bytes));
        let defaults = CompletionDefaults { usage, ..DEFAULTS };
        let once = shaped(answer, &defaults);
        holds(&once)?;
        prop_assert_eq!(shaped(once.clone(), &defaults), once, "once more changes nothing");
    }
}

#[test]
fn a_good_answer_stays_as_it_is() {
    let good = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "system_fingerprint": "f",
        "choices": [
            {
                "index": 1,
                "message": {
                    "role": "assistant", "content": "hi", "refusal": null, "annotations": [],
                },
                "logprobs": null, "finish_reason": "length",
            },
            {
                "index": 0, "message": {"role": "assistant", "content": ""},
                "finish_reason": "content_filter",
            },
        ],
        "usage": {
            "prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 5,
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
    });
    assert_eq!(shape(good.clone()), good);
}

#[test]
fn no_choice_is_invented() {
    for choices in [json!([]), Value::Null, json!("none")] {
        let shaped = shape(json!({ "id": "1", "choices": choices }));
        assert_eq!(shaped["choices"], json!([]));
    }
}

#[test]
fn what_is_estimated_is_marked_and_what_was_told_is_not() {
    let answer = |usage: Value| {
        json!({
            "choices": [{"message": {"content": "twelve bytes"}}], "usage": usage,
        })
    };
    for (usage, (prompt, completion, total), estimated) in [
        (Value::Null, (9, 3, 12), true),
        (json!({}), (9, 3, 12), true),
        (json!({"prompt_tokens": 5}), (5, 3, 8), true),
        (json!({"completion_tokens": 7}), (9, 7, 16), true),
        (json!({"total_tokens": 7}), (9, 3, 12), true),
        (json!({"prompt_tokens": -1, "completion_tokens": 7}), (9, 3, 12), true),
        (json!({"prompt_tokens": 5, "completion_tokens": 0}), (5, 0, 5), false),
        (json!({"input_tokens": 5, "output_tokens": 2}), (5, 2, 7), false),
    ] {
        let shaped = shape(answer(usage.clone()));
        let counts = ["prompt_tokens", "completion_tokens", "total_tokens"]
            .map(|name| shaped["usage"][name].as_u64());
        assert_eq!(counts, [Some(prompt), Some(completion), Some(total)], "{usage}");
        assert_eq!(shaped["usage"].get("estimated").is_some(), estimated, "{usage}");
    }
    // For a stream, the amount of relayed text is known.
    let defaults = CompletionDefaults { usage: Some(Usage::estimate(9, 400)), ..DEFAULTS };
    let shaped = shaped(answer(Value::Null), &defaults);
    assert_eq!(
        shaped["usage"],
        json!({
            "prompt_tokens": 9, "completion_tokens": 100, "total_tokens": 109, "estimated": true,
        })
    );
}
