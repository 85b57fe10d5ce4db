//! From a row of the shipped list to the body that its model is sent.

use rerouter_dialect::Dialect;
use rerouter_dialect::request_translation::{read_request, write_request};
use serde_json::{Value, json};

use super::{LIST, find};

#[test]
fn models_that_always_think_are_not_asked_for_none() {
    for (model, budget) in
        [("gemini-2.5-pro", 1_024), ("gemini-3.1-pro-preview", 1_024), ("gemini-2.5-flash", 0)]
    {
        let body = json!({"model": "m", "reasoning_effort": "none",
            "messages": [{"role": "user", "content": "hi"}]});
        let mut request = read_request(Dialect::Chat, body.to_string().as_bytes()).unwrap();
        request.target.model = find(Some("gemini"), model).unwrap().terms.clone();
        let written = write_request(&request, Dialect::Gemini).unwrap();
        let body: Value = serde_json::from_slice(&written.body).unwrap();
        let thinking = &body["generationConfig"]["thinkingConfig"];
        assert_eq!(thinking["thinkingBudget"], budget, "{model}");
        assert_eq!(written.dropped.is_empty(), budget == 0, "{model}: {:?}", written.dropped);
    }
}

/// A request of a chat or messages client, as it is written for a listed model.
fn written(client: Dialect, (part, model): (&str, &str), target: Dialect) -> (Value, Vec<String>) {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    match client {
        Dialect::Messages => body["output_config"] = json!({"effort": "high"}),
        _ => body["reasoning_effort"] = json!("xhigh"),
    }
    let mut request = read_request(client, body.to_string().as_bytes()).unwrap();
    request.target.model = find(Some(part), model).unwrap().terms.clone();
    let written = write_request(&request, target).unwrap();
    (serde_json::from_slice(&written.body).unwrap(), written.dropped)
}

#[test]
fn listed_models_are_asked_for_what_they_take() {
    let adaptive = json!({"type": "adaptive", "display": "summarized"});
    let enabled = json!({"type": "enabled", "budget_tokens": 24_576});
    for (model, thinking, effort, limit, is_named) in [
        ("claude-haiku-4-5", &enabled, None, 64_000, false),
        ("claude-sonnet-4-5", &enabled, None, 64_000, false),
        ("claude-opus-4-5", &enabled, None, 64_000, false),
        ("claude-opus-4-6", &adaptive, Some("high"), 128_000, true),
        ("claude-sonnet-4-6", &adaptive, Some("high"), 128_000, true),
        ("claude-opus-4-7", &adaptive, Some("xhigh"), 128_000, false),
        ("claude-opus-5-5", &adaptive, Some("xhigh"), 128_000, false),
    ] {
        let (body, dropped) = written(Dialect::Chat, ("anthropic", model), Dialect::Messages);
        assert_eq!(&body["thinking"], thinking, "{model}");
        assert_eq!(body["output_config"]["effort"].as_str(), effort, "{model}");
        assert_eq!(body["max_tokens"], limit, "{model}");
        assert_eq!(!dropped.is_empty(), is_named, "{model}: {dropped:?}");
    }
    for (model, effort) in [("gpt-4.1", None), ("gpt-4o", None), ("gpt-5", Some("high"))] {
        let (body, dropped) = written(Dialect::Messages, ("openai", model), Dialect::Chat);
        assert_eq!(body["reasoning_effort"].as_str(), effort, "{model}");
        assert_eq!(dropped.is_empty(), effort.is_some(), "{model}: {dropped:?}");
    }
}

#[test]
fn claude_models_that_are_not_retired_have_their_terms() {
    let retired = ["-4-0", "-4-1", "-4-20250514", "-4-1-20250805"];
    for (name, model) in &LIST.models["anthropic"] {
        if !retired.iter().any(|end| name.ends_with(end)) {
            assert!(model.terms.reasoning.is_some(), "{name}");
            assert!(model.terms.longest_answer >= Some(64_000), "{name}");
        }
    }
    assert!(LIST.models["openrouter"].values().all(|model| model.terms.reasoning.is_none()));
}
