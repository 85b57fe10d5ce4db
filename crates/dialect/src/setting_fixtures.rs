//! Sample requests for the features that are settings.

use serde_json::{Value, json};

use super::Dialect;
use super::feature::Feature;

/// Requests as those of [`super::fixtures::samples`].
pub(super) fn settings(feature: Feature) -> Vec<(Dialect, Value)> {
    use Dialect::{Chat as C, Messages as M, Responses as R};
    let says = |client: Dialect, role: &str, parts: Value| {
        let member = if client == R { "input" } else { "messages" };
        (
            client,
            json!({member: [{"role": "user", "content": "hi"}, {"role": role, "content": parts}]}),
        )
    };
    let uses = |client: Dialect, tool: Value| (client, json!({"tools": [tool]}));
    let items = |item: Value| (R, json!({"input": [{"role": "user", "content": "hi"}, item]}));
    match feature {
        Feature::Reasoning => vec![
            (C, json!({"reasoning_effort": "low"})),
            (C, json!({"reasoning": {"effort": "low"}})),
            (C, json!({"reasoning": {"max_tokens": 2000}})),
            (C, json!({"reasoning": {"enabled": false}})),
            (C, json!({"thinking": {"type": "enabled", "budget_tokens": 2000}})),
            (C, json!({"thinking": {"type": "disabled"}})),
            (M, json!({"thinking": {"type": "enabled", "budget_tokens": 2000}})),
            (M, json!({"thinking": {"type": "disabled"}})),
            (R, json!({"reasoning": {"effort": "low"}})),
        ],
        Feature::ReasoningSummary => {
            vec![
                (R, json!({"reasoning": {"effort": "low", "summary": "auto"}})),
                (C, json!({"reasoning": {"effort": "low", "exclude": true}})),
            ]
        }
        Feature::CacheControl => {
            let mark = json!({"type": "ephemeral"});
            let part = json!([{"type": "text", "text": "hi", "cache_control": mark}]);
            let function = json!({"name": "f", "cache_control": mark});
            vec![
                says(C, "user", part.clone()),
                (
                    C,
                    json!({
                        "messages": [{"role": "user", "content": "hi", "cache_control": mark}],
                    }),
                ),
                uses(C, json!({"type": "function", "function": function})),
                says(M, "user", part),
                (M, json!({"cache_control": mark})),
            ]
        }
        Feature::JsonObject => vec![
            (C, json!({"response_format": {"type": "json_object"}})),
            (R, json!({"text": {"format": {"type": "json_object"}}})),
        ],
        Feature::JsonSchema => vec![
            (
                C,
                json!({
                    "response_format": {
                        "type": "json_schema",
                        "json_schema": {"name": "n", "schema": {"type": "object"}},
                    },
                }),
            ),
            (
                M,
                json!({
                    "output_config": {
                        "format": {"type": "json_schema", "schema": {"type": "object"}},
                    },
                }),
            ),
            (M, json!({"output_format": {"type": "json_schema", "schema": {"type": "object"}}})),
            (
                R,
                json!({
                    "text": {
                        "format": {
                            "type": "json_schema", "name": "n", "schema": {"type": "object"},
                        },
                    },
                }),
            ),
        ],
        Feature::Verbosity => {
            vec![(C, json!({"verbosity": "low"})), (R, json!({"text": {"verbosity": "low"}}))]
        }
        Feature::MaxTokens => vec![
            (C, json!({"max_tokens": 5})),
            (C, json!({"max_completion_tokens": 5})),
            (M, json!({"max_tokens": 5})),
            (R, json!({"max_output_tokens": 5})),
        ],
        Feature::Stop => vec![
            (C, json!({"stop": "x"})),
            (C, json!({"stop": ["x"]})),
            (M, json!({"stop_sequences": ["x"]})),
        ],
        Feature::Temperature => vec![
            (C, json!({"temperature": 0.5})),
            (M, json!({"temperature": 0.5})),
            (R, json!({"temperature": 0.5})),
        ],
        Feature::TopP => {
            vec![(C, json!({"top_p": 0.5})), (M, json!({"top_p": 0.5})), (R, json!({"top_p": 0.5}))]
        }
        Feature::TopK => vec![(C, json!({"top_k": 5})), (M, json!({"top_k": 5}))],
        Feature::Seed => vec![(C, json!({"seed": 5}))],
        Feature::Penalties => {
            vec![(C, json!({"presence_penalty": 0.5})), (C, json!({"frequency_penalty": 0.5}))]
        }
        Feature::User => vec![
            (C, json!({"user": "u"})),
            (M, json!({"metadata": {"user_id": "u"}})),
            (R, json!({"user": "u"})),
        ],
        Feature::Stream => vec![
            (C, json!({"stream": true})),
            (M, json!({"stream": true})),
            (R, json!({"stream": true})),
        ],
        Feature::SeveralAnswers => vec![(C, json!({"n": 2}))],
        Feature::Logprobs => vec![
            (C, json!({"logprobs": true})),
            (C, json!({"top_logprobs": 2})),
            (R, json!({"top_logprobs": 2})),
            (R, json!({"include": ["message.output_text.logprobs"]})),
        ],
        Feature::LogitBias => vec![(C, json!({"logit_bias": {"1": 5}}))],
        Feature::AudioOutput => vec![
            (C, json!({"modalities": ["text", "audio"]})),
            (C, json!({"audio": {"voice": "v"}})),
        ],
        Feature::ImageOutput => vec![(C, json!({"modalities": ["image", "text"]}))],
        Feature::Functions => vec![(C, json!({"functions": [{"name": "f"}]}))],
        Feature::StoredState => vec![
            (M, json!({"container": "c"})),
            (R, json!({"previous_response_id": "r"})),
            (R, json!({"conversation": "c"})),
            (R, json!({"prompt": {"id": "p"}})),
            items(json!({"type": "item_reference", "id": "i"})),
        ],
        Feature::Compaction => vec![
            says(M, "assistant", json!([{"type": "compaction", "content": "x"}])),
            items(json!({"type": "compaction", "encrypted_content": "e"})),
        ],
        Feature::Background => vec![(R, json!({"background": true}))],
        Feature::Moderation => vec![
            (C, json!({"moderation": {"model": "m"}})),
            (R, json!({"moderation": {"model": "m"}})),
        ],
        Feature::Citations => vec![says(
            M,
            "user",
            json!([{
                "type": "document", "source": {"type": "text", "data": "x"},
                "citations": {"enabled": true},
            }]),
        )],
        Feature::Region => vec![(M, json!({"inference_geo": "us"}))],
        Feature::Hints => vec![
            (C, json!({"store": true})),
            (C, json!({"stream_options": {"include_obfuscation": true}})),
            (M, json!({"service_tier": "auto"})),
            (R, json!({"truncation": "auto"})),
        ],
        Feature::Unlisted => {
            vec![(C, json!({"mystery": 1})), (M, json!({"mystery": 1})), (R, json!({"mystery": 1}))]
        }
        _ => Vec::new(),
    }
}
