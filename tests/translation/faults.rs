//! What goes wrong at a provider of another dialect, and what the client sees of it.

use rerouter::internals::dialect::endpoint::Endpoint;
use serde_json::{Value, json};

use crate::requests::endpoints::post;
use crate::support::client::Answer;
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::{envelope, until};
use crate::translation::dialects::{
    UPSTREAM_KEY, document, events, gateway, provider, request, stream,
};

const CHAT: Endpoint = Endpoint::ChatCompletions;

/// A gateway whose first target speaks Anthropic's protocol and answers like this, and whose second
/// speaks OpenAI's; without `next` there is no second.
async fn over(first: Vec<Step>, next: bool) -> (Gateway, Key, [Provider; 2]) {
    let (a, b) = (Provider::always(first).await, provider("openai").await);
    let (a_url, b_url) = (a.url(), b.url());
    let both = [("a", "anthropic", &*a_url), ("b", "openai", &*b_url)];
    let (gateway, key) = gateway(&document(if next { &both } else { &both[..1] })).await;
    (gateway, key, [a, b])
}

async fn chat(gateway: &Gateway, key: &Key, stream: bool) -> Answer {
    gateway.chat(key, request(CHAT, stream).to_string().as_bytes()).await
}

fn error(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

fn html(status: u16) -> Vec<Step> {
    let page = b"<html><head><title>Bad Gateway</title></head></html>";
    scripted::answer(status, &[("content-type", "text/html")], page)
}

#[tokio::test]
async fn an_error_of_the_request_is_the_client_s_in_its_own_envelope() {
    let wrong = scripted::json_answer(400, &error("invalid_request_error", "max_tokens: too many"));
    let (gateway, key, providers) = over(wrong, true).await;
    for stream in [false, true] {
        let answer = chat(&gateway, &key, stream).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let error = &answer.json()["error"];
        assert_eq!(error["message"], "max_tokens: too many", "{error}");
        assert_eq!(error["type"], "invalid_request_error", "{error}");
    }
    assert_eq!(providers[1].count(), 0, "such an error goes to no other target");
}

#[tokio::test]
async fn a_key_that_google_refuses_is_not_the_client_s_fault() {
    let error = json!({"error": {"code": 400, "status": "INVALID_ARGUMENT",
        "message": "API key not valid. Please pass a valid API key.",
        "details": [{"reason": "API_KEY_INVALID", "domain": "googleapis.com"}]}});
    let google = Provider::always(scripted::json_answer(400, &error)).await;
    let other = provider("openai").await;
    let (google_url, other_url) = (google.url(), other.url());
    let both = [("a", "gemini", &*google_url), ("b", "openai", &*other_url)];
    for (targets, status) in [(&both[..], 200), (&both[..1], 502)] {
        let (gateway, key) = gateway(&document(targets)).await;
        let answer = chat(&gateway, &key, false).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert!(!answer.text().contains("valid API key"), "{}", answer.text());
    }
}

#[tokio::test]
async fn the_last_error_is_passed_on_with_its_status() {
    let busy = scripted::answer(
        429,
        &[("content-type", "application/json"), ("retry-after", "7")],
        error("rate_limit_error", "slow down").to_string().as_bytes(),
    );
    let empty = scripted::answer(500, &[], b"");
    for (first, status, message) in [
        (busy, 429, "slow down"),
        (scripted::json_answer(529, &error("overloaded_error", "Overloaded")), 529, "Overloaded"),
        (html(502), 502, "Bad Gateway"),
        (empty, 500, "The provider answered with status 500 and no message."),
    ] {
        let (gateway, key, _providers) = over(first, false).await;
        let answer = chat(&gateway, &key, false).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(answer.json()["error"]["message"], message);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.header("x-should-retry"), Some("false"));
        assert_eq!(answer.header("retry-after"), (status == 429).then_some("7"));
    }
}

#[tokio::test]
async fn a_failure_goes_on_to_a_target_of_another_protocol() {
    let text = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n";
    let overloaded = format!("event: error\ndata: {}\n\n", error("overloaded_error", "Overloaded"));
    let broken = scripted::answer(200, &[("content-type", "application/json")], b"{\"type\":");
    for (what, first, word) in [
        ("429", scripted::json_answer(429, &error("rate_limit_error", "no")), "rate_limited"),
        ("500", html(500), "server_error"),
        ("401", scripted::json_answer(401, &error("authentication_error", "no")), "unauthorized"),
        ("closed", vec![Step::Cut], "cut"),
        ("in-band", stream(&[overloaded]), "in_band_error"),
        ("in a document", scripted::json_answer(200, &error("api_error", "no")), "in_band_error"),
        ("a page", html(200), "in_band_error"),
        ("half a document", broken, "in_band_error"),
        ("a stream that ends early", stream(&[text.to_owned()]), "cut"),
        ("no JSON in a stream", stream(&["data: {\n\n".to_owned()]), "in_band_error"),
    ] {
        let (gateway, key, providers) = over(first, true).await;
        for stream in [false, true] {
            let answer = chat(&gateway, &key, stream).await;
            assert_eq!(answer.status, 200, "{what}: {}", answer.text());
            assert_eq!(answer.header("x-rerouter-provider"), Some("b"), "{what}");
            // The second speaks the client's dialect: its bytes are the client's.
            let got = if stream { answer.text() } else { String::new() };
            assert_eq!(got, if stream { events("openai").concat() } else { got.clone() }, "{what}");
            assert_eq!(answer.header("x-rerouter-dropped"), None, "{what}: nothing was translated");
            let capture = gateway.capture(&answer.request_id()).await;
            let attempts = &capture["decision"]["attempts"];
            assert_eq!(attempts[0]["error"], word, "{what}: {capture}");
            let sent: Value = request(CHAT, stream);
            let mut received = providers[1].last().json();
            received["model"] = "auto".into();
            assert_eq!(received, sent, "{what}: the second got the client's own request");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_a_failure() {
    for first in [html(200), scripted::answer(200, &[("content-type", "application/json")], b"{")] {
        let (gateway, key, _providers) = over(first, false).await;
        let answer = chat(&gateway, &key, false).await;
        assert_eq!(answer.status, 502, "{}", answer.text());
        assert!(answer.json()["error"]["message"].is_string());
        let capture = gateway.capture(&answer.request_id()).await;
        assert_eq!(capture["state"], "failed", "{capture}");
    }
}

#[tokio::test]
async fn a_credential_refused_within_an_answer_is_the_operator_s_matter() {
    let refused = json!({"type": "error", "error": {
        "type": "authentication_error", "message": "invalid x-api-key"}});
    let (gateway, key, _providers) = over(scripted::json_answer(200, &refused), false).await;
    let answer = chat(&gateway, &key, false).await;
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert!(!answer.text().contains("x-api-key"), "{}", answer.text());
}

#[tokio::test]
async fn few_bytes_that_take_much_memory_are_refused_both_ways() {
    let parts = vec![json!({}); 40_000];
    let many = json!({"type": "message", "role": "assistant", "content": parts});
    let (gateway, key, providers) = over(scripted::json_answer(200, &many), false).await;
    assert_eq!(chat(&gateway, &key, false).await.status, 502);
    let mut body = request(CHAT, false);
    body["messages"] = json!([{"role": "user", "content": parts}]);
    let answer = gateway.chat(&key, body.to_string().as_bytes()).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.text().contains("too many objects and lists"), "{}", answer.text());
    assert_eq!(providers[0].count(), 1);
}

#[tokio::test]
async fn servers_of_openai_s_protocol_get_members_that_all_of_them_know() {
    let provider = provider("openai").await;
    let text = document(&[("b", "openai", &provider.url())]);
    let text = text.replace("protocol: openai\n", "protocol: openai\n    stream_usage: never\n");
    let (gateway, key) = gateway(&text).await;
    let mut body = request(Endpoint::Messages, true);
    body["metadata"] = json!({"user_id": "u".repeat(65)});
    let answer = post(&gateway, &key, "/v1/messages", &[], &body.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.header("x-rerouter-dropped").unwrap().contains("user"));
    let sent = provider.last().json();
    assert_eq!(sent["max_tokens"], body["max_tokens"], "{sent}");
    for absent in ["max_completion_tokens", "stream_options", "user"] {
        assert!(sent.get(absent).is_none(), "{sent}");
    }
}

#[tokio::test]
async fn a_stream_cut_after_its_last_content_is_not_passed_off_as_whole() {
    let mut events = events("openai");
    events.pop_if(|event| event.contains("[DONE]"));
    let mut steps = stream(&events);
    *steps.last_mut().unwrap() = Step::Cut;
    let a = Provider::always(steps).await;
    let (gateway, key) = gateway(&document(&[("a", "openai", &a.url())])).await;
    let body = request(Endpoint::Messages, true).to_string();
    let answer = post(&gateway, &key, "/v1/messages", &[], &body).await;
    assert!(answer.text().contains("event: error"), "{}", answer.text());
    assert!(!answer.text().contains("message_stop"), "{}", answer.text());
}

/// Events of a stream up to its first content, in each client dialect, and what follows it.
async fn broken_off(endpoint: Endpoint, protocol: &'static str, last: Option<String>) -> Answer {
    let mut begun = events(protocol);
    begun.truncate(3);
    begun.extend(last);
    let a = Provider::always(stream(&begun)).await;
    let (gateway, key) = gateway(&document(&[("a", protocol, &a.url())])).await;
    let path = format!("/v1{}", endpoint.path());
    let answer = post(&gateway, &key, &path, &[], &request(endpoint, true).to_string()).await;
    assert!(answer.status == 200 && answer.whole, "{}", answer.text());
    let capture = gateway.capture(&answer.request_id()).await;
    assert_eq!(capture["state"], "failed", "{capture}");
    assert_eq!(capture["response"]["body"], answer.text(), "the capture has what the client saw");
    answer
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_the_client_s_error_event() {
    for (endpoint, protocol, last, good_end) in [
        (CHAT, "anthropic", "data: {\"error\"", "[DONE]"),
        (Endpoint::Responses, "anthropic", "event: response.failed", "response.completed"),
        (Endpoint::Messages, "openai", "event: error", "message_stop"),
    ] {
        let overloaded = match protocol {
            "anthropic" => {
                format!("event: error\ndata: {}\n\n", error("overloaded_error", "Overloaded"))
            }
            _ => "data: {\"error\":{\"message\":\"Overloaded\",\"code\":503}}\n\n".to_owned(),
        };
        for in_band in [None, Some(overloaded), Some("data: {\n\n".to_owned())] {
            let named = in_band.as_ref().is_some_and(|event| event.contains("Overloaded"));
            let text = broken_off(endpoint, protocol, in_band).await.text();
            let event = text.trim_end().rsplit("\n\n").next().unwrap();
            assert!(event.contains(last), "{text}");
            assert_eq!(event.contains("Overloaded"), named, "{text}");
            assert_eq!(text.matches(last).count(), 1, "one error event: {text}");
            assert!(text.contains("I will look.") && !text.contains(good_end), "{text}");
        }
    }
}

#[tokio::test]
async fn our_credential_is_masked_in_what_is_translated() {
    let leak = |text: &str| text.replace("I will look.", UPSTREAM_KEY);
    let leaked: Vec<String> = events("anthropic").iter().map(|event| leak(event)).collect();
    let refused = scripted::json_answer(400, &error("invalid_request_error", UPSTREAM_KEY));
    for (first, streams) in [(stream(&leaked), true), (refused, false)] {
        let (gateway, key, _providers) = over(first, false).await;
        let answer = chat(&gateway, &key, streams).await;
        assert!(answer.text().contains("****"), "{}", answer.text());
        assert!(!answer.text().contains(UPSTREAM_KEY), "{}", answer.text());
    }
}

#[tokio::test]
async fn a_feature_that_a_dialect_cannot_carry_bars_its_targets() {
    let (gateway, key, providers) = over(stream(&events("anthropic")), true).await;
    let mut body = request(CHAT, false);
    body["logprobs"] = true.into();
    let answer = gateway.chat(&key, body.to_string().as_bytes()).await;
    assert_eq!((answer.status, answer.header("x-rerouter-provider")), (200, Some("b")));
    let capture = gateway.capture(&answer.request_id()).await;
    let candidates = &capture["decision"]["candidates"];
    assert_eq!(candidates[0]["reason"], "translation", "{capture}");
    let told = &capture["inputs"]["request"]["untranslatable"];
    assert_eq!(told["messages"]["member"], "logprobs", "{capture}");
    assert_eq!(providers[0].count(), 0);
    let path = format!("/v1/router/replay/{}?with=explanation", answer.request_id());
    let why = gateway.manage("GET", &path, &gateway.admin_key, None).await.json();
    let targets = why["explanation"]["targets"].as_array().unwrap();
    let left_out = targets.iter().find(|target| target["target"] == "a/model").unwrap();
    assert!(left_out["detail"].as_str().unwrap().contains("Anthropic"), "{left_out}");
    // Without another target it is an error of the request.
    body["model"] = "a/model".into();
    let answer = gateway.chat(&key, body.to_string().as_bytes()).await;
    envelope::openai(&answer, 400, "invalid_request_error", Some("unsupported_feature"));
    let error = &answer.json()["error"];
    assert_eq!(error["param"], "logprobs", "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("log probabilities") && message.contains("a/model: translation"),
        "{message}"
    );
    assert_eq!(providers[0].count(), 0);
    // A shape that can't be read is an error too; the provider's own dialect might take it.
    body = json!({"model": "a/model", "messages": [{"role": "user", "content": 7}]});
    let answer = gateway.chat(&key, body.to_string().as_bytes()).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    // Embeddings are not translated.
    let body = json!({"model": "a/model", "input": "a"}).to_string();
    let answer = post(&gateway, &key, "/v1/embeddings", &[], &body).await;
    assert!(answer.status == 400 && answer.text().contains("endpoint"), "{}", answer.text());
}

#[tokio::test]
async fn a_chat_is_rerouted_to_a_target_of_another_protocol() {
    let (open, claude) = (provider("openai").await, provider("anthropic").await);
    let (open_url, claude_url) = (open.url(), claude.url());
    let first = document(&[("open", "openai", &open_url)]);
    let (gateway, key) = gateway(&first).await;
    let answer = chat(&gateway, &key, true).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    gateway.capture(&answer.request_id()).await;
    gateway.write_routing(&document(&[("claude", "anthropic", &claude_url)])).await;
    let path = format!("/v1/router/replay/{}/reroute", answer.request_id());
    let rerouted = gateway.answers(200, "POST", &path, &key.secret, None).await;
    let rerouted = rerouted.json();
    crate::captures::reroute_answers::check_shape(&rerouted["response"]);
    let choice = &rerouted["response"]["choices"][0];
    assert_eq!(choice["message"]["content"], "I will look.", "{rerouted}");
    assert_eq!(choice["finish_reason"], "tool_calls", "{rerouted}");
    assert_eq!(rerouted["decision"]["provider"], "claude", "{rerouted}");
    let new = gateway.capture(rerouted["new_id"].as_str().unwrap()).await;
    let body: Value = serde_json::from_str(new["response"]["body"].as_str().unwrap()).unwrap();
    assert_eq!(body["object"], "chat.completion", "{new}");
    assert_eq!(new["usage"]["total_tokens"], 27, "{new}");
    assert_eq!(claude.last().target, "/v1/messages");
}

#[tokio::test]
async fn an_evaluation_knows_what_another_dialect_could_not_carry() {
    let (open, claude) = (provider("openai").await, provider("anthropic").await);
    let (gateway, key) = gateway(&document(&[("open", "openai", &open.url())])).await;
    for refused in [true, false] {
        let mut body = request(CHAT, false);
        body["logprobs"] = refused.then_some(true).into();
        let answer = gateway.chat(&key, body.to_string().as_bytes()).await;
        let capture = gateway.capture(&answer.request_id()).await;
        assert!(capture["inputs"]["request"].get("untranslatable").is_none(), "{capture}");
    }
    let candidate = document(&[("claude", "anthropic", &claude.url())]);
    let candidate = candidate.replace("${UPSTREAM_API_KEY:-sk-upstream}", "${UPSTREAM_API_KEY}");
    let body = json!({ "document": candidate });
    let report = gateway
        .answers(200, "POST", "/v1/router/replay/evaluate", &gateway.admin_key, Some(&body))
        .await;
    let report = report.json();
    assert_eq!(report["evaluated"], 2, "{report}");
    assert_eq!(report["unroutable"], 1, "{report}");
    assert_eq!(report["inexact"], 0, "{report}");
}

#[tokio::test]
async fn a_budget_is_drawn_by_the_usage_of_a_translated_stream() {
    let claude = provider("anthropic").await;
    let (gateway, _) = gateway(&document(&[("a", "anthropic", &claude.url())])).await;
    let key = gateway.limited_key(json!({ "budget": { "usd": 0.05, "per": "day" } })).await;
    for calls in 1..=3 {
        let answer = chat(&gateway, &key, true).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        // 20 tokens in and 7 out cost 0.00009 $.
        let left: f64 = until("the budget to be settled", async || {
            let path = format!("/v1/router/keys/{}", key.id);
            let shown = gateway.manage("GET", &path, &gateway.admin_key, None).await.json();
            let budget = &shown["usage"]["budget"];
            let (spent, reserved) = (&budget["spent_usd"], &budget["reserved_usd"]);
            (reserved.as_f64() == Some(0.0)).then(|| spent.as_f64().unwrap())
        })
        .await;
        assert!((left - 0.000_09 * f64::from(calls)).abs() < 1e-9, "{calls}: {left}");
    }
}

#[tokio::test]
async fn a_large_request_its_shadow_and_its_reroute_are_translated() {
    let (gemini, claude) = (provider("gemini").await, provider("anthropic").await);
    let (gemini_url, claude_url) = (gemini.url(), claude.url());
    let text = document(&[("g", "gemini", &gemini_url), ("c", "anthropic", &claude_url)]);
    let shadow = "    shadow: { target: c/model, percent: 100 }\n    retry:";
    let (gateway, key) = gateway(&text.replace("    retry:", shadow)).await;
    let long = "a long story ".repeat(30_000);
    let mut body = request(CHAT, true);
    body["messages"][1]["content"] = long.clone().into();
    let answer = gateway.chat(&key, body.to_string().as_bytes()).await;
    assert_eq!((answer.status, answer.header("x-rerouter-provider")), (200, Some("g")));
    assert_eq!(gemini.last().json()["contents"][0]["parts"][0]["text"], long);
    until("the shadow", async || (claude.count() > 0).then_some(())).await;
    let sent = claude.last().json();
    assert_eq!(sent["messages"][0]["content"][0]["text"], long);
    assert_ne!(sent["stream"], true, "a shadow asks for no stream");
    // Captured where nothing was translated, it is read when it runs again.
    let open = provider("openai").await;
    gateway.write_routing(&document(&[("o", "openai", &open.url())])).await;
    let answer = gateway.chat(&key, body.to_string().as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    gateway.capture(&answer.request_id()).await;
    gateway.write_routing(&document(&[("c", "anthropic", &claude_url)])).await;
    let before = claude.count();
    for (query, calls) in [("?dry_run=true", 0), ("", 1)] {
        let path = format!("/v1/router/replay/{}/reroute{query}", answer.request_id());
        let rerouted = gateway.answers(200, "POST", &path, &key.secret, None).await;
        assert_eq!(rerouted.json()["decision"]["provider"], "c");
        assert_eq!(claude.count(), before + calls);
    }
    assert_eq!(claude.last().json()["messages"][0]["content"][0]["text"], long);
}
