//! The console's pages on captures: filtered, read, explained, replayed and compared. Some captures
//! are long, and some are full of markup.

use serde_json::{Value, json};

use crate::support::browser::{EMAIL, PASSWORD, account, drive};
use crate::support::documents::provider;
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{self as scripted, Provider, Received, Step};

/// Markup, and characters that hide or reorder other characters.
const HOSTILE: &str = "</pre><script>window.hacked = 1</script>\
    <img src=x onerror=\"window.hacked = 2\"> \u{202e}txet\u{202c} \u{1b}[31m\0";
/// Number of events in the long stream.
const EVENTS: usize = 5_000;

/// A document with rules by length and by tools. All other requests go to `a` first.
fn document(a: &Provider, b: &Provider) -> String {
    format!(
        "providers:\n{}{}models:\n  a/plain: {{ input_per_mtok: 1, output_per_mtok: 2 }}\n  \
         b/plain: {{ input_per_mtok: 3, output_per_mtok: 4 }}\nrecipes:\n  main:\n    \
         rules:\n      - {{ name: long, when: 'prompt_tokens > 900000', \
         targets: [ {{ target: b/long }} ] }}\n      \
         - {{ name: rest, targets: [ {{ target: a/plain }}, {{ target: b/plain }} ] }}\n    \
         retry: {{ attempts: 2, on: [connect, timeout, 429, 5xx] }}\naliases: {{ auto: main }}\n",
        provider("a", &a.url(), "sk-a"),
        provider("b", &b.url(), "sk-b"),
    )
}

/// The text of the last message of a chat completion.
fn asked(request: &Received) -> String {
    let body = request.json();
    let last = body["messages"].as_array().and_then(|all| all.last().cloned());
    last.map(|message| message["content"].to_string()).unwrap_or_default()
}

fn long_stream() -> Vec<Step> {
    let words = (0..EVENTS).map(|number| scripted::content_event(&format!("word{number} ")));
    let events = std::iter::once(scripted::role_event()).chain(words);
    let events: String = events.chain([scripted::last_events()]).collect();
    vec![scripted::stream_head(), Step::Chunk(events.into_bytes()), Step::Chunk(Vec::new())]
}

fn called_tool() -> Vec<Step> {
    let mut body = scripted::completion_body("");
    body["choices"][0]["message"] = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "call_2", "type": "function",
            "function": {"name": "look_up", "arguments": "{\"city\":\"Rome\"}"}}]});
    body["choices"][0]["finish_reason"] = "tool_calls".into();
    scripted::json_answer(200, &body)
}

async fn providers() -> (Provider, Provider) {
    let a = Provider::start(|request, number| match asked(request) {
        text if text.contains("busy") => scripted::failure(503, "Too busy."),
        text if text.contains("hostile") => scripted::completion(HOSTILE),
        text if text.contains("refuse") => scripted::failure(400, HOSTILE),
        text if text.contains("stream") => long_stream(),
        text if text.contains("weather") => called_tool(),
        _ => scripted::completion(&format!("The answer has the number {number}.")),
    });
    let b = Provider::start(|_, _| scripted::completion("From the second provider."));
    (a.await, b.await)
}

/// Sends a request. Returns the id of its capture.
async fn ask(gateway: &Gateway, key: &Key, path: &str, body: &Value) -> String {
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let answer = gateway.send("POST", path, &headers, Some(body.to_string().as_bytes())).await;
    answer.request_id()
}

fn chat(text: &str) -> Value {
    json!({"model": "auto", "messages": [{"role": "user", "content": text}]})
}

#[tokio::test]
async fn a_capture_is_found_read_explained_run_again_and_compared() {
    let (a, b) = providers().await;
    let gateway = Gateway::start(&document(&a, &b)).await;
    let mut given = account(&gateway, EMAIL, "admin").await;
    let login = json!({"email": EMAIL, "password": PASSWORD}).to_string();
    let headers = [("content-type", "application/json"), ("sec-fetch-site", "same-origin")];
    let login =
        gateway.send("POST", "/v1/auth/login", &headers, Some(login.as_bytes())).await.json();
    let (keys, named) = ("/v1/router/keys", json!({"name": "laptop"}));
    let key = gateway.make_key(keys, login["token"].as_str().unwrap(), &named).await;
    let path = "/v1/chat/completions";
    given["plain"] = ask(&gateway, &key, path, &chat("Say a number.")).await.into();
    given["failed_over"] = ask(&gateway, &key, path, &chat("Are you busy?")).await.into();
    let messages = json!({"model": "auto", "max_tokens": 50, "system": "You are terse.",
        "tools": [{"name": "look_up", "description": "Looks up.",
            "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}],
        "messages": [
            {"role": "user", "content": "How is it in Oslo?"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1",
                "name": "look_up", "input": {"city": "Oslo"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "Rainy."},
                {"type": "text", "text": "And the weather in Rome?"}]}]});
    given["tools"] = ask(&gateway, &key, "/v1/messages", &messages).await.into();
    given["key"] = key.secret.into();
    drive("captures", given).await;
}

#[tokio::test]
async fn long_captures_open_at_once() {
    let (a, b) = providers().await;
    let gateway = Gateway::start(&document(&a, &b)).await;
    let mut given = account(&gateway, EMAIL, "admin").await;
    let key = gateway.create_key().await;
    let mut stream = chat("A long stream, please.");
    stream["stream"] = true.into();
    given["stream"] = ask(&gateway, &key, "/v1/chat/completions", &stream).await.into();
    let text = "A megabyte of words, one after another. ".repeat((1 << 20) / 40);
    given["body"] = ask(&gateway, &key, "/v1/chat/completions", &chat(&text)).await.into();
    let turns: Vec<Value> = (0..500)
        .map(|turn| {
            let role = if turn % 2 == 0 { "user" } else { "assistant" };
            json!({"role": role, "content": format!("Turn {turn} of many. {}", "x".repeat(2_000))})
        })
        .collect();
    let many = json!({"model": "auto", "messages": turns});
    given["turns"] = ask(&gateway, &key, "/v1/chat/completions", &many).await.into();
    given["events"] = EVENTS.into();
    drive("captures_long", given).await;
}

#[tokio::test]
async fn what_is_foreign_is_shown_as_text() {
    let (a, b) = providers().await;
    let gateway = Gateway::start(&document(&a, &b)).await;
    let mut given = account(&gateway, EMAIL, "admin").await;
    let key = gateway.create_key().await;
    let path = "/v1/chat/completions";
    let text = format!("hostile {HOSTILE}");
    let mut with_tools = chat(&text);
    with_tools["tools"] = json!([{"type": "function",
        "function": {"name": "look", "description": HOSTILE, "parameters": {"title": HOSTILE}}}]);
    with_tools["user"] = HOSTILE.into();
    let ids = [
        ask(&gateway, &key, path, &with_tools).await,
        ask(&gateway, &key, path, &chat(&format!("refuse {HOSTILE}"))).await,
        // No model has this name, so the request is refused.
        ask(&gateway, &key, path, &json!({"model": HOSTILE, "messages": []})).await,
        ask(&gateway, &key, "/v1/embeddings", &json!({"model": "auto", "input": [HOSTILE]})).await,
    ];
    given["hostile"] = ids.as_slice().into();
    let other = account(&gateway, "other@example.com", "user").await;
    given["other"] = other["email"].clone();
    drive("captures_hostile", given).await;
}
