//! SDKs and frameworks as clients of providers of other dialects, and recorded answers and streams
//! in other dialects, read by the official SDKs: the scripts in `tests/sdk/` compare what they read
//! with what the provider's own SDK reads.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rerouter::internals::dialect::Dialect;
use rerouter::internals::dialect::neutral::AnswerContext;
use serde_json::{Value, json};

use crate::requests::sdk::{check_types, installed, python};
use crate::support::provider::{self as scripted, Provider, Received, Step};
use crate::support::recorded::{self, Exchange};
use crate::translation::dialects::{answer, dialect, document, gateway, reply};

fn context() -> AnswerContext {
    AnswerContext {
        id: "req_1".into(),
        model: "auto".into(),
        created: 1_700_000_000,
        include_usage: true,
        ..AnswerContext::default()
    }
}

/// Answers `/ID/DIALECT/…`.
fn script_of(received: &Received, exchanges: &HashMap<String, Exchange>) -> Vec<Step> {
    let mut path = received.target.split('/').skip(1);
    let exchange = &exchanges[path.next().unwrap()];
    let dialect = path.next().unwrap();
    let body = match dialect {
        kind if kind == exchange.kind => exchange.response.clone().into_bytes(),
        "chat" => exchange.translated(Dialect::Chat, context()),
        "messages" => exchange.translated(Dialect::Messages, context()),
        _ => exchange.translated(Dialect::Responses, context()),
    };
    scripted::answer(exchange.status, &[("content-type", &exchange.content_type)], &body)
}

/// Runs a script of `tests/sdk/`; what it printed.
async fn run(program: &Path, script: &str, environment: impl FnOnce(&mut Command)) -> String {
    installed();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new("timeout");
    command
        .arg("600")
        .arg(program)
        .arg(root.join("tests/sdk").join(script))
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null());
    environment(&mut command);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

pub const ADVICE: &str = "Take an umbrella.";

/// An answer that ends a conversation.
pub fn advice(dialect: &str) -> Value {
    let mut last = answer(dialect);
    match dialect {
        "openai" => {
            let message = json!({"role": "assistant", "content": ADVICE});
            last["choices"][0]["message"] = message;
            last["choices"][0]["finish_reason"] = "stop".into();
        }
        "anthropic" => {
            last["content"] = json!([{"type": "text", "text": ADVICE}]);
            last["stop_reason"] = "end_turn".into();
        }
        "responses" => {
            last["output"].as_array_mut().unwrap().truncate(1);
            last["output"][0]["content"][0]["text"] = ADVICE.into();
        }
        _ => last["candidates"][0]["content"]["parts"] = json!([{"text": ADVICE}]),
    }
    last
}

/// Whether the request is for this model.
fn is_for(received: &Received, model: &str) -> bool {
    // Gemini has it in the path.
    received.json()["model"] == model || received.target.contains(&format!("/{model}:"))
}

/// The errors of the models `busy` and `bad`: status, and OpenAI's, Anthropic's and Google's words.
const ERRORS: [(&str, u16, [&str; 4]); 2] = [
    ("busy", 429, ["Slow down.", "rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED"]),
    (
        "bad",
        400,
        ["Bad value.", "invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"],
    ),
];

/// Answers a question with a call, its result with advice, and of two models with errors.
fn conversation(protocol: &'static str, received: &Received) -> Vec<Step> {
    for (model, status, [message, openai, anthropic, google]) in ERRORS {
        if is_for(received, model) {
            let body = match protocol {
                "openai" => json!({"error": {"message": message, "type": openai, "code": openai,
                    "param": null}}),
                "anthropic" => json!({"type": "error",
                    "error": {"type": anthropic, "message": message}}),
                _ => json!({"error": {"code": status, "message": message, "status": google}}),
            };
            return scripted::json_answer(status, &body);
        }
    }
    if received.json().to_string().contains("It rains in Paris.") {
        return scripted::json_answer(200, &advice(dialect(protocol, received)));
    }
    reply(protocol, received)
}

/// Clients of a script, each at providers of every protocol. What is translated for these is a
/// request by the types of their own SDKs: of Gemini too, whose API no client of ours speaks.
async fn served_by_every_provider(program: &Path, script: &str) {
    // Each provider's name, and its protocol. The last one has responses only.
    let words = [
        ("openai", "openai"),
        ("anthropic", "anthropic"),
        ("gemini", "gemini"),
        ("responder", "openai"),
    ];
    let mut providers = Vec::new();
    for (_, word) in words {
        providers.push(Provider::start(move |received, _| conversation(word, received)).await);
    }
    let urls: Vec<String> = providers.iter().map(Provider::url).collect();
    let named: Vec<(&str, &str, &str)> =
        words.iter().zip(&urls).map(|((name, word), url)| (*name, *word, url.as_str())).collect();
    let breaker = "    breaker: { consecutive: 1000000, min_requests: 1000000 }\n    api_key";
    let mut text = document(&named).replace("    api_key", breaker);
    let all = "  responder:\n    protocol: openai\n";
    text = text.replace(all, &format!("{all}    endpoints: [responses]\n"));
    for (word, _) in words {
        text += &format!("  {word}/busy: {{}}\n  {word}/bad: {{}}\n");
    }
    let (gateway, key) = gateway(&text).await;
    let said = run(program, script, |command| {
        command
            .env("REROUTER_BASE_URL", format!("http://{}/v1", gateway.host()))
            .env("REROUTER_KEY", &key.secret);
    })
    .await;
    assert!(said.trim_end().ends_with("all read"), "{said}");
    let mut bodies = Vec::new();
    for ((name, word), provider) in words.into_iter().zip(&providers) {
        for received in (0..provider.count()).map(|number| provider.request(number)) {
            let passed = ["anthropic-beta", "openai-beta"].map(|name| received.header(name));
            if passed.into_iter().flatten().any(|value| value.contains("passed")) {
                continue;
            }
            let dialect = match dialect(word, &received) {
                "openai" => "chat",
                "anthropic" => "messages",
                dialect => dialect,
            };
            bodies.push((format!("{script} to {name}"), dialect, received.body.clone()));
        }
    }
    // Of each client at least five requests to two of the providers.
    assert!(bodies.len() >= 6 * 2 * 5, "{}", bodies.len());
    check_types(bodies).await;
}

#[tokio::test]
async fn clients_for_python_are_served_by_every_provider() {
    served_by_every_provider(&python(), "other_protocols.py").await;
}

#[tokio::test]
async fn clients_for_node_are_served_by_every_provider() {
    served_by_every_provider(Path::new("node"), "other_protocols.mjs").await;
}

/// Runs a script that reads every recording as it is and translated.
async fn read_recordings(program: &Path, script: &str) -> String {
    let exchanges: HashMap<String, Exchange> =
        recorded::all().into_iter().map(|exchange| (exchange.id.clone(), exchange)).collect();
    let provider = Provider::start(move |received, _| script_of(received, &exchanges)).await;
    let recordings = std::env::join_paths(recorded::files()).unwrap();
    let said = run(program, script, |command| {
        command
            .env("REROUTER_BASE_URL", format!("http://{}", provider.address()))
            .env("REROUTER_RECORDED", recordings);
    })
    .await;
    assert!(said.trim_end().ends_with("done"), "{said}");
    said
}

// All but the embeddings, each in two dialects; two requests were refused, and of one stream the
// provider says itself that it broke.
const COUNTS: &str = "answers: {'messages': 133, 'responses': 127, 'chat': 138} \
    streams: {'messages': 17, 'responses': 18, 'chat': 17} errors: 4 errors in streams: 2";

#[tokio::test]
async fn the_sdks_for_python_read_translations_as_the_provider_s_own_reads_recordings() {
    let said = read_recordings(&python(), "translated_sdk.py").await;
    assert!(said.contains(COUNTS), "{said}");
}

#[tokio::test]
async fn the_sdks_for_node_read_translations_as_the_provider_s_own_reads_recordings() {
    let said = read_recordings(Path::new("node"), "translated_sdk.mjs").await;
    assert!(said.contains(COUNTS), "{said}");
}
