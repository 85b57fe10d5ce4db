use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use rerouter_core::config;

/// Imports a configuration, and asserts that the result is a document without problems.
fn checked(configuration: &Value) -> LitellmImport {
    let imported = import(configuration);
    let env_allow = json!({ "routing": { "env_allow": ["*"] } }).to_string();
    let server = config::read_server("test", &env_allow, &|_| None).unwrap();
    let read = config::read_unexpanded(&imported.routing, &server, None);
    if let Err(problems) = read {
        panic!("{}\n{problems:?}\n{configuration:#}", imported.routing);
    }
    imported
}

/// One of these words.
fn word(words: &'static [&'static str]) -> impl Strategy<Value = Value> {
    proptest::sample::select(words).prop_map(Value::from)
}

/// Any value, in place of the value that is expected.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        word(&["os.environ/", "os.environ/A_B", "os.environ/1", "${X}", "*", "a/*/b", "none"]),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[a-z*]{1,4}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn entry() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        word(&["a", "b", "b", "gpt-4", "x/*", "*", "agent/x", "*a", "nodes", "ü", "x.y/z", ""]),
        anything(),
    ];
    let model = prop_oneof![
        word(&[
            "openai/gpt-4",
            "openai/*",
            "gpt-4o",
            "azure/deployment one",
            "azure/d",
            "hosted_vllm/org/m",
            "ollama/llama3:8b",
            "gemini/g",
            "bedrock/x",
            "openai/",
            "*",
            "openrouter/a/${model}",
            "together_ai/t",
            "lm_studio/m",
            "openai/responses/o1-pro",
            "azure/responses/d",
            "cohere/c",
        ]),
        anything(),
    ];
    let base = prop_oneof![
        Just(Value::Null),
        word(&[
            "http://127.0.0.1:1/v1",
            "https://a.example.com/",
            "os.environ/BASE",
            "nonsense",
            "https://a.example.com/?q=1"
        ]),
        anything(),
    ];
    let key = prop_oneof![
        Just(Value::Null),
        word(&["os.environ/K_API_KEY", "sk-1", "sk-2", "none", "a b", "ü"]),
        anything(),
    ];
    let other = proptest::collection::btree_map(
        proptest::sample::select(vec![
            "rpm",
            "weight",
            "timeout",
            "organization",
            "extra_headers",
            "max_parallel_requests",
            "input_cost_per_token",
            "output_cost_per_token",
            "temperature",
            "api_version",
            "custom_llm_provider",
            "litellm_credential_name",
        ]),
        prop_oneof![
            anything(),
            word(&["2024-10-21", "openai", "azure", "0.5", "c"]),
            any::<u32>().prop_map(Value::from),
            (0.0..2.0).prop_map(Value::from),
            Just(json!({ "x-a": "b", "host": "c", "x-api-key": "d" })),
        ],
        0..4,
    );
    let info = prop_oneof![
        Just(Value::Null),
        Just(json!({ "id": "one", "mode": "chat", "supports_vision": false })),
        any::<u32>().prop_map(|n| json!({ "max_input_tokens": n, "input_cost_per_token": n })),
        anything(),
    ];
    (name, model, base, key, other, info).prop_map(|(name, model, base, key, other, info)| {
        let mut params = json!({ "model": model, "api_base": base, "api_key": key });
        if let Value::Object(params) = &mut params {
            params.extend(other.into_iter().map(|(name, value)| (name.to_owned(), value)));
        }
        json!({ "model_name": name, "litellm_params": params, "model_info": info })
    })
}

fn settings() -> impl Strategy<Value = Value> {
    let fallbacks = prop_oneof![
        anything(),
        Just(json!([{ "a": ["b", "one"] }, { "*": ["gpt-4"] }, { "b": ["x/y", "a"] }])),
    ];
    let strategy = word(&[
        "simple-shuffle",
        "least-busy",
        "latency-based-routing",
        "cost-based-routing",
        "usage-based-routing",
    ]);
    let aliases = prop_oneof![
        anything(),
        Just(json!({ "alias": "a", "b": "a", "hid": { "model": "gpt-4", "hidden": true } })),
        Just(json!({ "agent/x": "a", "a*b": "a", "ü": "b" })),
    ];
    let number = prop_oneof![anything(), (0_u32..2000).prop_map(Value::from)];
    (fallbacks, strategy, aliases, number).prop_map(|(fallbacks, strategy, aliases, number)| {
        json!({
            "fallbacks": fallbacks, "context_window_fallbacks": fallbacks,
            "routing_strategy": strategy, "model_group_alias": aliases, "num_retries": number,
            "timeout": number, "allowed_fails": number, "cooldown_time": number,
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn what_is_imported_is_a_document_without_problems(
        list in proptest::collection::vec(entry(), 0..6),
        settings in settings(),
        rest in anything(),
    ) {
        let imported = checked(&json!({
            "model_list": list, "router_settings": settings, "litellm_settings": rest,
            "general_settings": rest, "other": rest,
            "credential_list": [
                { "credential_name": "c", "credential_values": { "api_key": "k" } },
            ],
        }));
        prop_assert!(!imported.routing.contains("sk-1"), "{}", imported.routing);
        prop_assert!(imported.notes.iter().all(|note| !note.contains("sk-")));
    }

    #[test]
    fn anything_is_imported_or_left_out(configuration in anything()) {
        checked(&configuration);
    }
}
