//! Recorded answers and streams in other dialects, read by the official SDKs:
//! `tests/sdk/translated_sdk.py` compares what they read with what the provider's own SDK reads.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rerouter::internals::dialect::Dialect;
use rerouter::internals::dialect::neutral::AnswerContext;
use rerouter::internals::dialect::translate_answer::{
    StreamTranslator, translate_answer, translate_error,
};

use crate::support::provider::{self as scripted, Provider, Received, Step};
use crate::support::recorded::{self, Exchange};
use crate::translation::{document, gateway, provider};

fn context() -> AnswerContext {
    AnswerContext {
        id: "req_1".into(),
        model: "auto".into(),
        created: 1_700_000_000,
        include_usage: true,
        ..AnswerContext::default()
    }
}

/// The recorded answer in the dialect of the client.
fn translated(exchange: &Exchange, to: Dialect) -> Vec<u8> {
    let from = match exchange.kind.as_str() {
        "chat" => Dialect::Chat,
        "messages" => Dialect::Messages,
        _ => Dialect::Responses,
    };
    let body = exchange.response.as_bytes();
    if exchange.status != 200 {
        return translate_error(to, exchange.status, body).to_vec();
    }
    if !exchange.content_type.starts_with("text/event-stream") {
        return translate_answer(from, to, body, &context()).unwrap().body.to_vec();
    }
    let mut translator = StreamTranslator::new(from, to, context());
    let mut out = Vec::new();
    body.chunks(777).for_each(|chunk| translator.feed(chunk, &mut out));
    translator.finish(&mut out);
    out
}

/// Answers `/ID/DIALECT/…`.
fn script(received: &Received, exchanges: &HashMap<String, Exchange>) -> Vec<Step> {
    let mut path = received.target.split('/').skip(1);
    let exchange = &exchanges[path.next().unwrap()];
    let dialect = path.next().unwrap();
    let body = match dialect {
        kind if kind == exchange.kind => exchange.response.clone().into_bytes(),
        "chat" => translated(exchange, Dialect::Chat),
        "messages" => translated(exchange, Dialect::Messages),
        _ => translated(exchange, Dialect::Responses),
    };
    scripted::answer(exchange.status, &[("content-type", &exchange.content_type)], &body)
}

/// Runs a script of `tests/sdk/`; what it printed.
async fn run(script: &str, environment: impl FnOnce(&mut Command)) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("timeout");
    command
        .arg("600")
        .arg(root.join(".test/venv/bin/python"))
        .arg(root.join("tests/sdk").join(script))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null());
    environment(&mut command);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Each SDK as a client of a gateway whose providers have other APIs.
#[tokio::test]
async fn the_sdks_for_python_are_served_by_providers_of_other_protocols() {
    let words = ["openai", "anthropic", "gemini"];
    let [open, claude, gemini] =
        [provider(words[0]).await, provider(words[1]).await, provider(words[2]).await];
    let urls = [open.url(), claude.url(), gemini.url()];
    let providers = [0, 1, 2].map(|n| (words[n], words[n], &*urls[n]));
    let (gateway, key) = gateway(&document(&providers)).await;
    let said = run("other_protocols.py", |command| {
        command
            .env("REROUTER_BASE_URL", format!("http://{}/v1", gateway.host()))
            .env("REROUTER_KEY", &key.secret);
    })
    .await;
    assert!(said.trim_end().ends_with("all read"), "{said}");
}

#[tokio::test]
async fn the_sdks_for_python_read_translations_as_the_provider_s_own_reads_recordings() {
    let exchanges: HashMap<String, Exchange> =
        recorded::all().into_iter().map(|exchange| (exchange.id.clone(), exchange)).collect();
    let provider = Provider::start(move |received, _| script(received, &exchanges)).await;
    let recordings = std::env::join_paths(recorded::files()).unwrap();
    let said = run("translated_sdk.py", |command| {
        command
            .env("REROUTER_BASE_URL", format!("http://{}", provider.address()))
            .env("REROUTER_RECORDED", recordings);
    })
    .await;
    assert!(said.trim_end().ends_with("done"), "{said}");
    // All but the embeddings, each in two dialects; two requests were refused, one stream broke.
    let counts = "answers: {'messages': 133, 'responses': 127, 'chat': 138} \
        streams: {'messages': 17, 'responses': 18, 'chat': 17} errors: 4 errors in streams: 2";
    assert!(said.contains(counts), "{said}");
}
