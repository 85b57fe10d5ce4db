//! What a model takes decides how it is asked.

use serde_json::{Value, json};

use super::Dialect;
use super::neutral::seal::Seal;
use super::neutral::target_terms::{Effort, ModelTerms};
use super::request_translation::{read_request, write_request};

/// The terms of a model with these efforts.
fn efforts(words: &[&str]) -> ModelTerms {
    let reasoning = words.iter().map(|word| Effort::parse(word).unwrap()).collect();
    ModelTerms { reasoning: Some(reasoning), ..ModelTerms::default() }
}

fn adaptive() -> ModelTerms {
    efforts(&["none", "low", "medium", "high", "max"])
}

/// The written body, and the members that were left out.
fn written(
    (source, target): (Dialect, Dialect),
    members: Value,
    terms: &ModelTerms,
) -> (Value, Vec<String>) {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    if source == Dialect::Responses {
        body = json!({"model": "m", "input": "hi"});
    }
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let mut request = read_request(source, body.to_string().as_bytes()).unwrap();
    request.target.model = terms.clone();
    let written = write_request(&request, target).unwrap();
    (serde_json::from_slice(&written.body).unwrap(), written.dropped)
}

fn to_claude(members: Value, terms: &ModelTerms) -> (Value, Vec<String>) {
    written((Dialect::Chat, Dialect::Messages), members, terms)
}

const NAMED: [&str; 1] = ["reasoning_effort"];

#[test]
fn an_effort_becomes_what_the_model_takes() {
    let none: [&str; 0] = [];
    let always = efforts(&["low", "high"]);
    let adaptive_as = |effort| (json!("adaptive"), json!({"effort": effort}));
    for (terms, effort, (mode, config), dropped) in [
        (adaptive(), "medium", adaptive_as("medium"), &none[..]),
        (adaptive(), "xhigh", adaptive_as("high"), &NAMED[..]),
        (adaptive(), "minimal", adaptive_as("low"), &NAMED[..]),
        (adaptive(), "none", (json!("disabled"), Value::Null), &none[..]),
        (always.clone(), "none", adaptive_as("low"), &NAMED[..]),
        (always, "medium", adaptive_as("low"), &NAMED[..]),
        (efforts(&["none", "high"]), "low", adaptive_as("high"), &NAMED[..]),
        (efforts(&[]), "high", (Value::Null, Value::Null), &NAMED[..]),
        // Of an unknown model the provider decides.
        (ModelTerms::default(), "xhigh", adaptive_as("xhigh"), &none[..]),
        (adaptive(), "strange", adaptive_as("strange"), &none[..]),
    ] {
        let (body, left_out) = to_claude(json!({"reasoning_effort": effort}), &terms);
        assert_eq!((&body["thinking"]["type"], &body["output_config"]), (&mode, &config), "{body}");
        assert_eq!(left_out, dropped, "{effort}: {body}");
    }
}

#[test]
fn a_budget_is_asked_of_models_that_know_no_effort() {
    let mut terms = efforts(&["none", "budget"]);
    terms.longest_answer = Some(64_000);
    for (effort, limit, budget) in [
        ("minimal", None, Some(1_024)),
        ("low", None, Some(1_024)),
        ("medium", None, Some(8_192)),
        ("high", None, Some(24_576)),
        ("max", Some(4_096), Some(2_048)),
        ("high", Some(2_047), None),
    ] {
        let mut members = json!({"reasoning_effort": effort});
        if let Some(limit) = limit {
            members["max_tokens"] = json!(limit);
        }
        let (body, dropped) = to_claude(members, &terms);
        let thinking = match budget {
            Some(budget) => json!({"type": "enabled", "budget_tokens": budget}),
            None => json!({"type": "disabled"}),
        };
        assert_eq!(body["thinking"], thinking, "{body}");
        assert_eq!(body["output_config"], Value::Null);
        assert_eq!(body["max_tokens"], limit.unwrap_or(64_000));
        assert_eq!(dropped.is_empty(), budget.is_some(), "{dropped:?}");
    }
    let reasoning = json!({"reasoning": {"summary": "auto"}});
    let (body, _) = written((Dialect::Responses, Dialect::Messages), reasoning, &terms);
    assert_eq!(body["thinking"], json!({"type": "enabled", "budget_tokens": 8_192}));
}

#[test]
fn thinking_gives_way_to_a_forced_tool() {
    let tool = json!({"type": "function", "function": {"name": "f"}});
    let named = json!({"type": "function", "function": {"name": "f"}});
    for (choice, is_forced) in [(json!("required"), true), (named, true), (json!("auto"), false)] {
        for (terms, mode) in [
            (ModelTerms::default(), Value::Null),
            (efforts(&["low", "high"]), Value::Null),
            (adaptive(), json!({"type": "disabled"})),
            (efforts(&["none", "budget"]), json!({"type": "disabled"})),
        ] {
            let members =
                json!({"reasoning_effort": "xhigh", "tools": [tool], "tool_choice": choice});
            let (body, dropped) = to_claude(members, &terms);
            assert!(body["tool_choice"].is_object());
            assert_eq!(body["thinking"] == mode && body["output_config"].is_null(), is_forced);
            assert_eq!(dropped.iter().filter(|name| *name == NAMED[0]).count() == 1, {
                is_forced || (terms.reasoning.is_some() && body["output_config"].is_object())
            });
        }
    }
}

#[test]
fn thinking_is_asked_to_be_shown() {
    let (body, _) = to_claude(json!({"reasoning_effort": "low"}), &ModelTerms::default());
    assert_eq!(body["thinking"], json!({"type": "adaptive", "display": "summarized"}));
}

#[test]
fn models_that_do_not_reason_get_no_effort() {
    let claude_code = json!({
        "max_tokens": 9, "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"},
    });
    for (target, member) in [
        (Dialect::Chat, "reasoning_effort"),
        (Dialect::Responses, "reasoning"),
        (Dialect::Gemini, "generationConfig"),
    ] {
        let way = (Dialect::Messages, target);
        let (body, dropped) = written(way, claude_code.clone(), &efforts(&[]));
        let left = &body[member];
        assert!(left.is_null() || *left == json!({"maxOutputTokens": 9}), "{body}");
        assert_eq!(dropped, ["thinking", "output_config.effort"]);
        let (body, dropped) = written(way, claude_code.clone(), &adaptive());
        assert!(!body[member].is_null() && dropped.is_empty(), "{body} {dropped:?}");
    }
    let minimal = json!({"reasoning": {"effort": "minimal"}});
    let (body, dropped) = written((Dialect::Responses, Dialect::Chat), minimal, &adaptive());
    assert_eq!(
        (&body["reasoning_effort"], dropped),
        (&json!("low"), vec!["reasoning.effort".into()])
    );
}

#[test]
fn what_fixes_sampling_leaves_only_the_default() {
    let terms = ModelTerms { sampling: Some(false), ..ModelTerms::default() };
    let (body, dropped) = to_claude(json!({"temperature": 0.5, "top_p": 0.9}), &terms);
    assert!(body["temperature"].is_null() && body["top_p"].is_null(), "{body}");
    assert_eq!(dropped, ["temperature", "top_p"]);
    let (body, dropped) = to_claude(json!({"temperature": 0.5}), &ModelTerms::default());
    assert_eq!((&body["temperature"], dropped.len()), (&json!(0.5), 0));
}

#[test]
fn the_longest_answer_is_the_default_limit() {
    let limit = |terms: &ModelTerms| Dialect::Messages.default_limit(terms);
    for longest in [None, Some(500), Some(128_000)] {
        let terms = ModelTerms { longest_answer: longest, ..ModelTerms::default() };
        let (body, _) = to_claude(json!({}), &terms);
        assert_eq!(body["max_tokens"].as_u64(), limit(&terms));
        assert_eq!(limit(&terms), longest.or(Some(8_192)));
        assert_eq!(Dialect::Chat.default_limit(&terms), None);
        let (body, _) = to_claude(json!({"max_tokens": 7}), &terms);
        assert_eq!(body["max_tokens"], 7);
    }
}

#[test]
fn what_anthropic_refuses_is_left_out_and_named() {
    let terms = ModelTerms::default();
    let asked = json!({"temperature": 0.5, "top_p": 0.9, "user": "a@b.example", "stop": ["\n"]});
    let (body, dropped) = to_claude(asked, &terms);
    assert_eq!(body["temperature"], 0.5);
    for left_out in ["top_p", "metadata", "stop_sequences"] {
        assert!(body[left_out].is_null(), "{body}");
    }
    assert_eq!(dropped, ["stop", "top_p", "user"]);
    let (body, dropped) =
        to_claude(json!({"top_p": 0.9, "user": "user-4711", "stop": ["\n", "END"]}), &terms);
    assert_eq!(
        (&body["top_p"], &body["metadata"]["user_id"], &body["stop_sequences"]),
        (&json!(0.9), &json!("user-4711"), &json!(["END"]))
    );
    assert_eq!(dropped, ["stop"]);
    let (_, dropped) = to_claude(json!({"user": "+49 170 1234567"}), &terms);
    assert_eq!(dropped, ["user"]);
}

#[test]
fn a_budget_of_thinking_needs_the_thinking_before_tool_results() {
    let call = json!({"role": "assistant", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
    let result = json!({"role": "tool", "tool_call_id": "a", "content": "1"});
    let ask = json!({"role": "user", "content": "hi"});
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let asked = |messages: Value| {
        json!({"reasoning_effort": "high", "max_tokens": 9_000, "tools": tools,
            "messages": messages})
    };
    let terms = efforts(&["budget"]);
    let (body, dropped) = to_claude(asked(json!([ask, call, result])), &terms);
    assert!(body["thinking"].is_null() && dropped == ["reasoning_effort"], "{body} {dropped:?}");
    let (body, _) = to_claude(asked(json!([ask, call, result, call, result])), &terms);
    assert!(body["thinking"].is_null(), "{body}");
    let seal = Seal { dialect: "messages", value: json!({"signature": "s"}) }.to_text();
    let mut thought = call.clone();
    thought["reasoning_content"] = "Hm.".into();
    thought["reasoning_details"] =
        json!([{"type": "reasoning.encrypted", "data": seal, "format": "unknown"}]);
    let (body, _) = to_claude(asked(json!([ask, thought, result, call, result])), &terms);
    assert_eq!(body["thinking"]["type"], "enabled", "{body}");
    let said = json!({"role": "assistant", "content": "one"});
    let (body, dropped) = to_claude(asked(json!([ask, call, result, said, ask])), &terms);
    assert_eq!((&body["thinking"]["type"], dropped.len()), (&json!("enabled"), 0), "{body}");
    let (body, _) = to_claude(asked(json!([ask, call, result])), &adaptive());
    assert_eq!(body["thinking"]["type"], "adaptive", "{body}");
}

/// DeepSeek and Moonshot refuse calls of tools without it.
#[test]
fn thinking_is_sent_back_as_text_where_the_provider_wants_it() {
    let messages = json!({ "messages": [
        { "role": "user", "content": "hi" },
        { "role": "assistant", "content": [
            { "type": "thinking", "thinking": "Hm.", "signature": "rerouter.none" },
            { "type": "tool_use", "id": "c", "name": "f", "input": {} }] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "c", "content": "4" }] },
    ] });
    let responses = json!({ "input": [
        { "role": "user", "content": "hi" },
        { "type": "reasoning", "id": "r", "summary": [{ "type": "summary_text", "text": "Hm." }],
            "encrypted_content": "rerouter.none" },
        { "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" },
        { "type": "function_call_output", "call_id": "c", "output": "4" },
    ] });
    for (source, mut body) in [(Dialect::Messages, messages), (Dialect::Responses, responses)] {
        body["model"] = "m".into();
        let mut request = read_request(source, body.to_string().as_bytes()).unwrap();
        for wanted in [true, false] {
            request.target.reasoning_content = wanted;
            let made = write_request(&request, Dialect::Chat).unwrap();
            let sent: Value = serde_json::from_slice(&made.body).unwrap();
            let message = &sent["messages"][1];
            assert_eq!(message["tool_calls"][0]["id"], "c", "{sent}");
            let thought = if wanted { json!("Hm.") } else { Value::Null };
            assert_eq!(message["reasoning_content"], thought, "{sent}");
            assert_eq!(made.dropped.is_empty(), wanted, "{:?}", made.dropped);
        }
    }
}

#[test]
fn an_object_of_arguments_has_properties_for_openai() {
    for target in [Dialect::Chat, Dialect::Responses] {
        for (schema, sent) in [
            (json!({"type": "object"}), json!({"type": "object", "properties": {}})),
            (
                json!({"type": "object", "title": "T"}),
                json!({"properties": {}, "type": "object", "title": "T"}),
            ),
            (json!({"anyOf": []}), json!({"anyOf": []})),
        ] {
            let asked = json!({"tools": [{"name": "f", "input_schema": schema}]});
            let (body, _) = written((Dialect::Messages, target), asked, &ModelTerms::default());
            let tool = &body["tools"][0];
            let tool = if target == Dialect::Chat { &tool["function"] } else { tool };
            assert_eq!(tool["parameters"], sent);
        }
    }
}
