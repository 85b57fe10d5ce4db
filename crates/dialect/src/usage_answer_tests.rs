use proptest::prelude::*;
use rerouter_base::usage_kind::UsageCounts;
use serde_json::{Value, json};

use super::*;
use crate::usage::UsageExtra;
use crate::usage_object::PartialUsage;

#[test]
fn an_answer_is_read_as_far_as_it_goes() {
    let body = r#"{"id":"chatcmpl-1","model":"m-2024",
        "choices":[{"finish_reason":"stop","message":{}},{"finish_reason":"length"}],
        "usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,
            "prompt_tokens_details":{"cached_tokens":4}}}"#;
    let usage = Usage {
        prompt_tokens: 9,
        completion_tokens: 3,
        total_tokens: 12,
        counts: UsageCounts { cached_tokens: Some(4), ..UsageCounts::default() },
        estimated: false,
        ..Usage::default()
    };
    assert_eq!(read(body.as_bytes()), Some(usage.clone()));
    assert_eq!(read(body.trim_end_matches('}').as_bytes()), None);
    assert_eq!(read(body.replace("\"usage\"", "\"us\\u0061ge\"").as_bytes()), Some(usage.clone()));
    assert_eq!(
        read(format!("{},", body.strip_suffix('}').unwrap()).as_bytes()),
        Some(usage),
        "it broke off after its usage"
    );
    assert_eq!(read(b"<html>"), None);
    assert_eq!(read(br#"{"id":7,"usage":[],"choices":{}}"#), None);
}

#[test]
fn vendors_and_protocols_are_understood() {
    let told = |written: &str| {
        let usage = Usage::read(written)?;
        Some((
            usage.prompt_tokens,
            usage.counts.cached_tokens,
            usage.completion_tokens,
            usage.total_tokens,
        ))
    };
    for (written, expected) in [
        (r#"{"prompt_tokens":4,"total_tokens":4}"#, (4, None, 0, 4)),
        (
            concat!(
                r#"{"prompt_tokens":9,"completion_tokens":3,"prompt_cache_hit_tokens":8,"#,
                r#""prompt_cache_miss_tokens":1}"#,
            ),
            (9, Some(8), 3, 12),
        ),
        (r#"{"prompt_tokens":9,"completion_tokens":3,"num_cached_tokens":5}"#, (9, Some(5), 3, 12)),
        (
            concat!(
                r#"{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":null,"#,
                r#""cached_tokens":0}"#,
            ),
            (9, Some(0), 3, 12),
        ),
        (
            concat!(
                r#"{"prompt_tokens":9.0,"completion_tokens":3e0,"#,
                r#""prompt_tokens_details":{"cached_tokens":null}}"#,
            ),
            (9, None, 3, 12),
        ),
        (r#"{"prompt_tokens":35,"completion_tokens":12,"total_tokens":109}"#, (35, None, 12, 109)),
        (
            concat!(
                r#"{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"#,
                r#""output_tokens":3,"total_tokens":12}"#,
            ),
            (9, Some(4), 3, 12),
        ),
        (
            concat!(
                r#"{"input_tokens":9,"cache_creation_input_tokens":100,"#,
                r#""cache_read_input_tokens":20,"output_tokens":3}"#,
            ),
            (129, Some(20), 3, 132),
        ),
        // A gateway that counts the whole prompt as OpenAI does, and its parts as Anthropic does.
        (
            concat!(
                r#"{"prompt_tokens":129,"completion_tokens":3,"cache_creation_input_tokens":100,"#,
                r#""cache_read_input_tokens":20}"#,
            ),
            (129, Some(20), 3, 132),
        ),
    ] {
        assert_eq!(told(written), Some(expected), "{written}");
    }
    let google =
        Usage::read(r#"{"prompt_tokens":35,"completion_tokens":12,"total_tokens":109}"#).unwrap();
    assert_eq!(
        google.output_tokens(),
        74,
        "thoughts cost as output, also where only the total has them"
    );
}

#[test]
fn absurd_counts_are_not_believed() {
    for written in [
        r#"{"prompt_tokens":-1,"completion_tokens":3}"#,
        r#"{"prompt_tokens":1,"completion_tokens":18446744073709551615}"#,
        r#"{"prompt_tokens":1,"completion_tokens":18446744073709551616}"#,
        r#"{"prompt_tokens":1e300,"completion_tokens":3}"#,
        r#"{"prompt_tokens":"12","completion_tokens":3}"#,
        r#"{"prompt_tokens":1.5,"completion_tokens":3}"#,
        r#"{"input_tokens":{},"output_tokens":3}"#,
        r#"{"input_tokens":1,"output_tokens":3,"cache_read_input_tokens":-7}"#,
        "[]",
        "7",
        "{}",
    ] {
        assert_eq!(Usage::read(written), None, "{written}");
    }
    // An invalid detail is kept as told, and so are the counts.
    let usage = Usage::read(concat!(
        r#"{"prompt_tokens":1,"completion_tokens":2,"total_tokens":-3,"#,
        r#""prompt_tokens_details":{"cached_tokens":"x"}}"#,
    ));
    assert_eq!(
        usage,
        Some(Usage {
            prompt_tokens: 1,
            completion_tokens: 2,
            total_tokens: 3,
            extra: UsageExtra {
                unknown: [("prompt_tokens_details.cached_tokens".to_owned(), "x".into())].into(),
                ..UsageExtra::default()
            },
            ..Usage::default()
        })
    );
    let told = PartialUsage::read(r#"{"prompt_tokens":1,"completion_tokens":-2}"#).unwrap();
    assert_eq!(told.completed_by(Usage::estimate(5, 8)), Usage::estimate(5, 8));
    assert_eq!(Usage::estimate(u64::MAX, u64::MAX).total_tokens, u64::MAX);
}

/// What a usage object tells beside the counts that every answer has, as in records.
fn kinds(usage: &Usage) -> Value {
    let mut told = serde_json::to_value(usage).unwrap();
    let members = told.as_object_mut().unwrap();
    for name in ["prompt_tokens", "completion_tokens", "total_tokens", "estimated"] {
        members.remove(name);
    }
    members.retain(|_, value| !value.is_null());
    told
}

#[test]
fn every_kind_is_read_where_a_dialect_tells_it() {
    for (written, counts, told) in [
        (
            // Anthropic: the prompt is counted in three parts.
            json!({
                "input_tokens": 5, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 30,
                "cache_creation":
                    { "ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20 },
                "output_tokens": 9, "output_tokens_details": { "thinking_tokens": 4 },
                "server_tool_use": { "web_search_requests": 2, "web_fetch_requests": 1 },
                "service_tier": "standard", "speed": "fast", "inference_geo": "us",
                "iterations": [{ "type": "message", "input_tokens": 5 }],
            }),
            (115, 9),
            json!({
                "cached_tokens": 80, "cache_write_tokens": 30, "cache_write_1h_tokens": 20,
                "reasoning_tokens": 4, "web_searches": 2,
                "modes": { "service_tier": "standard", "speed": "fast", "inference_geo": "us" },
            }),
        ),
        (
            // OpenAI: parts of the prompt and of the answer.
            json!({
                "prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
                "prompt_tokens_details": {
                    "cached_tokens": 40, "cache_write_tokens": 7, "audio_tokens": 20,
                    "image_tokens": 3, "text_tokens": 77,
                    "cached_tokens_details": { "audio_tokens": 6, "text_tokens": 34 },
                },
                "completion_tokens_details": {
                    "reasoning_tokens": 10, "audio_tokens": 11, "image_tokens": 12,
                    "accepted_prediction_tokens": 1, "rejected_prediction_tokens": 0,
                },
            }),
            (100, 50),
            json!({
                "cached_tokens": 40, "cached_audio_tokens": 6, "cache_write_tokens": 7,
                "input_audio_tokens": 20, "input_image_tokens": 3, "reasoning_tokens": 10,
                "output_audio_tokens": 11, "output_image_tokens": 12,
            }),
        ),
        (
            // Gemini: lists of modalities. Thoughts and results of tools are counted apart.
            json!({
                "promptTokenCount": 100, "toolUsePromptTokenCount": 8,
                "candidatesTokenCount": 30, "thoughtsTokenCount": 12, "totalTokenCount": 150,
                "cachedContentTokenCount": 40,
                "promptTokensDetails": [
                    { "modality": "TEXT", "tokenCount": 60 },
                    { "modality": "AUDIO", "tokenCount": 40 },
                ],
                "cacheTokensDetails": [{ "modality": "AUDIO", "tokenCount": 15 }],
                "candidatesTokensDetails": [{ "modality": "IMAGE", "tokenCount": 30 }],
                "trafficType": "ON_DEMAND_FLEX",
            }),
            (108, 42),
            json!({
                "cached_tokens": 40, "cached_audio_tokens": 15, "input_audio_tokens": 40,
                "reasoning_tokens": 12, "output_image_tokens": 30,
                "modes": { "service_tier": "flex" },
            }),
        ),
        (
            // OpenRouter: its cost, and that of the provider which the caller's own key pays.
            json!({
                "prompt_tokens": 9, "completion_tokens": 3, "cost": 0.001, "is_byok": true,
                "cost_details": { "upstream_inference_cost": 0.02, "other": 7 },
            }),
            (9, 3),
            json!({ "cost_usd": 0.021 }),
        ),
        (
            json!({
                "prompt_tokens": 9, "completion_tokens": 3, "cost": { "total_cost": 0.5 },
                "num_search_queries": 4, "reasoning_tokens": 2, "search_context_size": "low",
            }),
            (9, 3),
            json!({ "cost_usd": 0.5, "web_searches": 4, "reasoning_tokens": 2 }),
        ),
        (
            json!({
                "input_tokens": 9, "output_tokens": 3, "cost_in_usd_ticks": 30_000_000,
                "cost": -1,
            }),
            (9, 3),
            json!({ "cost_usd": 0.003, "unknown": { "cost": -1 } }),
        ),
        (
            // What is not known is kept as told, but nothing that says nothing.
            json!({
                "prompt_tokens": 9, "completion_tokens": 3, "gpu_seconds": 1.5, "free": 0,
                "details": { "deep": { "pages": 7, "none": null } }, "level": "deluxe",
                "iterations": [{ "type": "compaction", "input_tokens": 5 }],
                "promptTokensDetails": [{ "modality": "SMELL", "tokenCount": 2 }],
            }),
            (9, 3),
            json!({ "unknown": {
                "gpu_seconds": 1.5, "details.deep.pages": 7, "level": "deluxe",
                "iterations.compaction": { "type": "compaction", "input_tokens": 5 },
                "promptTokensDetails.SMELL": 2,
            } }),
        ),
    ] {
        let usage = Usage::read(&written.to_string()).unwrap();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), counts, "{written}");
        assert_eq!(kinds(&usage), told, "{written}");
        let back: Usage = serde_json::from_value(serde_json::to_value(&usage).unwrap()).unwrap();
        assert_eq!(back, usage);
    }
}

#[test]
fn what_is_kept_of_unknown_members_is_bounded() {
    let mut members = json!({ "prompt_tokens": 1 });
    for at in 0..100 {
        members[format!("{at}{}", "n".repeat(300))] = "v".repeat(300).into();
    }
    let unknown = Usage::read(&members.to_string()).unwrap().extra.unknown;
    assert_eq!(unknown.len(), 16);
    // Also if each event of a stream has other ones.
    let mut all = PartialUsage::default();
    for at in 0..100 {
        let told = json!({ "prompt_tokens": 1, format!("m{at}"): at + 1 }).to_string();
        all.update(PartialUsage::read(&told).unwrap());
    }
    assert_eq!(all.usage().unwrap().extra.unknown.len(), 16);
    assert!(unknown.iter().all(|(path, told)| path.len() + told.as_str().unwrap().len() <= 256));
}

#[test]
fn the_tier_that_an_answer_names_is_its_own() {
    let tier = |answer: &str| read(answer.as_bytes()).unwrap().extra.modes.remove("service_tier");
    let usage = r#""usage":{"prompt_tokens":1,"completion_tokens":1}"#;
    for (before, after, found) in [
        (r#""service_tier":"flex","#, "", Some("flex")),
        ("", r#", "service_tier" : "PRIORITY""#, Some("priority")),
        (r#""service_tier":"default","#, "", Some("default")),
        (
            r#""service_tier":"priority","#,
            r#","metadata":{"service_tier":"flex"}"#,
            Some("priority"),
        ),
        (r#""text":""service_tier":"flex"","#, "", None),
        (r#""tools":[{"service_tier":"flex"}],"#, "", None),
        ("", r#","metadata":{"service_tier":"default"}"#, None),
        ("", r#","metadata":{"usage":{"prompt_tokens":1},"service_tier":"flex"}"#, None),
        (r#""service_tier":null,"#, "", None),
    ] {
        assert_eq!(
            tier(&format!("{{{before}{usage}{after}}}")).as_deref(),
            found,
            "{before}{after}"
        );
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..80)) {
        read(&body);
        last_member(&body, "usage").and_then(Usage::read);
    }
}

#[test]
fn of_an_answer_whose_beginning_was_not_kept_the_last_usage_counts() {
    let ending = concat!(
        r#"ext \"usage\": {\"prompt_tokens\":1} and so on"},"usage":{"prompt_tokens":1}}],"#,
        r#""usage" : {"prompt_tokens":9,"completion_tokens":3},"id":1}"#,
    )
    .as_bytes();
    let usage = read_ending(ending, USAGE.member).unwrap();
    assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.estimated), (9, 3, false));
    for none in [
        &b""[..],
        b"\"usage\"",
        b"\"usage\":",
        b"\"usage\":{\"prompt_tokens\":3",
        b"a \\\"usage\\\":{\"prompt_tokens\":3}",
        b"\"usage\":null}",
    ] {
        assert_eq!(read_ending(none, USAGE.member), None, "{}", String::from_utf8_lossy(none));
    }
}

proptest! {
    #[test]
    fn no_ending_panics(ending in prop::collection::vec(any::<u8>(), 0..80), at in 0usize..80) {
        let mut ending = ending;
        ending.splice(at.min(ending.len()).., b"\"usage\":".iter().copied());
        let _ = read_ending(&ending, USAGE.member);
    }
}

/// Answers with a usage at any position: among other members, inside one, in strings, twice, with
/// an escaped name, pretty-printed or not.
fn answers() -> impl Strategy<Value = String> {
    let usage = prop::sample::select(vec![
        r#"{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}"#,
        r#"{"input_tokens":7,"output_tokens":2}"#,
        r#"{ "prompt_tokens" : 1 , "completion_tokens" : -1 }"#,
        r#"{"usage":{"prompt_tokens":1,"completion_tokens":1}}"#,
        "null",
        "[]",
        "{}",
    ]);
    let name = prop::sample::select(vec![
        r#""usage""#,
        r#""us\u0061ge""#,
        r#""x\"usage""#,
        r#""x\\usage""#,
        r#""Usage""#,
        r#""id""#,
    ]);
    let other = prop::sample::select(vec![
        r#""id":"usage""#,
        r#""id":["usage","usage"]"#,
        r#""text":"a \"usage\":{\"prompt_tokens\":5,\"completion_tokens\":5}""#,
        r#""choices":[{"usage":{"prompt_tokens":8,"completion_tokens":8}}]"#,
        r#""x_groq":{"usage":{"prompt_tokens":6,"completion_tokens":6}}"#,
        r#""service_tier":"default","system_fingerprint":null"#,
    ]);
    let member = prop_oneof![
        (name, usage).prop_map(|(name, usage)| format!("{name}:{usage}")),
        other.prop_map(str::to_owned),
    ];
    let separator = prop::sample::select(vec![",", " ,\n "]);
    let end = prop::sample::select(vec!["}", "\n}\n"]);
    (prop::collection::vec(member, 0..5), separator, end)
        .prop_map(|(members, separator, end)| format!("{{{}{end}", members.join(separator)))
}

proptest! {
    #[test]
    fn the_end_of_an_answer_tells_what_all_of_it_tells(answer in answers()) {
        if let Some(usage) = usage_at_end(answer.as_bytes()) {
            let all = last_member(answer.as_bytes(), "usage").and_then(Usage::read);
            prop_assert_eq!(usage.counted(), all);
        }
    }
}

#[test]
fn of_most_answers_only_the_end_is_read() {
    let usage = r#""usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}"#;
    let content = format!(r#""choices":[{{"message":{{"content":"{}"}}}}]"#, "a ".repeat(2_000));
    for answer in [
        format!("{{{content},{usage}}}"),
        format!("{{\n {content},\n {usage},\n \"service_tier\": \"default\"\n}}\n"),
    ] {
        let found = usage_at_end(answer.as_bytes()).unwrap().counted().unwrap();
        assert_eq!((found.prompt_tokens, found.completion_tokens), (9, 3), "{usage}");
        // An answer that is truncated, or begins with its usage, is parsed as a whole.
        assert_eq!(usage_at_end(answer.trim_end().strip_suffix('}').unwrap().as_bytes()), None);
    }
    assert_eq!(usage_at_end(format!("{{{usage},{content}}}").as_bytes()), None);
}
