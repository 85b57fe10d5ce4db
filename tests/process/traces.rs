//! Traces as a collector gets them, and trace contexts as providers get them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::documents::{chat_body, in_order};
use crate::support::fleet::ROUTING;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::otlp::{Collector, Span};
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";
const PRICES: &str = "models:\n  good/model: { input_per_mtok: 2.0, output_per_mtok: 10.0 }\n";

/// A chat completion in the trace of the client.
async fn chat(gateway: &Gateway, key: &Key, body: &str, headers: &[(&str, &str)]) -> String {
    let bearer = format!("Bearer {}", key.secret);
    let mut all = vec![("authorization", bearer.as_str()), ("content-type", "application/json")];
    all.extend(headers);
    let answer = gateway.send("POST", "/v1/chat/completions", &all, Some(body.as_bytes())).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.request_id()
}

/// The access line of a request.
async fn line(gateway: &Gateway, request: &str) -> Value {
    until("the access line", async || {
        let log = gateway.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.into_iter().find(|line| line["request_id"] == request)
    })
    .await
}

fn holds(span: &Span, expected: &Value) {
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(span.attributes.get(key), Some(value), "{key}: {span:?}");
    }
}

/// Trace, parent and flags of a `traceparent`.
fn parts(traceparent: &str) -> (String, String, String) {
    let parts: Vec<&str> = traceparent.split('-').collect();
    let [version, trace, parent, flags] = parts[..] else { panic!("{traceparent}") };
    assert_eq!((version, trace.len(), parent.len()), ("00", 32, 16));
    (trace.to_owned(), parent.to_owned(), flags.to_owned())
}

#[tokio::test]
async fn a_client_s_trace_goes_through_the_gateway_to_the_provider() {
    let collector = Collector::start().await;
    let bad = Provider::always(scripted::failure(500, "broken")).await;
    let good = Provider::always(scripted::completion("well")).await;
    let document = in_order(&[("bad", &bad.url()), ("good", &good.url())], PRICES);
    let gateway = Setup::new(&document)
        .server(&collector.settings(", headers: { x-token: \"${OTLP_TOKEN}\" }"))
        .env("OTLP_TOKEN", "collector-canary")
        .start()
        .await;
    let key = gateway.create_key().await;
    let parent = format!("00-{TRACE}-{SPAN}-01");
    let headers = [("traceparent", parent.as_str()), ("tracestate", "theirs=1")];
    let id = chat(&gateway, &key, &chat_body("auto", false), &headers).await;

    let spans = collector.trace(TRACE, 3).await;
    let [call, first, second] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((call.kind, call.parent.as_str(), call.name.as_str()), (2, SPAN, "chat auto"));
    assert!(!call.failed);
    holds(
        call,
        &json!({
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "good",
            "gen_ai.request.model": "auto", "gen_ai.response.model": "model",
            "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 3,
            "http.response.status_code": 200,
            "rerouter.request_id": id, "rerouter.state": "completed", "rerouter.recipe": "main",
            "rerouter.rule": "default", "rerouter.key": key.id, "rerouter.cost_usd": 0.000_044,
            "rerouter.endpoint": "chat.completions", "rerouter.stream": false,
        }),
    );
    for (span, provider) in [(first, &bad), (second, &good)] {
        assert_eq!((span.kind, &span.parent, span.name.as_str()), (3, &call.id, "chat model"));
        assert!(call.start <= span.start && span.end <= call.end, "{call:?} {span:?}");
        holds(
            span,
            &json!({
                "gen_ai.operation.name": "chat", "gen_ai.request.model": "model",
                "server.address": "127.0.0.1", "server.port": provider.address().port(),
            }),
        );
        // The provider's own spans become parts of the attempt.
        let got = provider.last().header("traceparent").unwrap();
        assert_eq!(parts(&got), (TRACE.into(), span.id.clone(), "01".into()));
        assert_eq!(provider.last().header("tracestate").as_deref(), Some("theirs=1"));
    }
    assert!(first.end <= second.start && first.failed && !second.failed);
    holds(
        first,
        &json!({
            "gen_ai.provider.name": "bad", "http.response.status_code": 500,
            "error.type": "server_error",
        }),
    );
    holds(second, &json!({ "gen_ai.response.model": "model", "gen_ai.usage.output_tokens": 3 }));
    assert_eq!(call.resource["service.name"], "rerouter");

    let request = collector.0.request(0);
    assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/v1/traces"));
    assert_eq!(request.header("x-token").as_deref(), Some("collector-canary"));
    assert_eq!(request.header("content-type").as_deref(), Some("application/json"));
    assert_eq!(line(&gateway, &id).await["trace_id"], TRACE);
    assert_eq!(gateway.capture(&id).await["trace_id"], TRACE);
    let everything = [gateway.log(), gateway.metrics().await].concat();
    assert!(!everything.contains("canary") && !everything.contains(&key.secret));
    assert!(!String::from_utf8_lossy(&request.body).contains(&key.secret));
    until("the count of spans", async || {
        (gateway.metric("rerouter_spans_total", &["\"sent\""]).await >= 3.0).then_some(())
    })
    .await;
}

/// Streams, refusals, reroutes and shadows, without a trace of the client.
#[tokio::test]
async fn every_kind_of_call_has_its_spans() {
    let collector = Collector::start().await;
    let good = Provider::start(|request, _| match request.json()["stream"] == true {
        true => scripted::stream("well"),
        false => scripted::completion("well"),
    })
    .await;
    let other = Provider::always(scripted::completion("shadow")).await;
    let document = in_order(&[("good", &good.url()), ("other", &other.url())], PRICES)
        .replace("    retry:", "    shadow: { target: other/model, percent: 100 }\n    retry:");
    let gateway = Setup::new(&document).server(&collector.settings("")).start().await;
    let key = gateway.create_key().await;
    let id = chat(&gateway, &key, &chat_body("auto", true), &[]).await;
    let trace = line(&gateway, &id).await["trace_id"].as_str().unwrap().to_owned();
    // The call and its attempt; the shadow and its own.
    let spans = collector.trace(&trace, 4).await;
    let of = |about: &str| {
        let found = spans.iter().find(|span| {
            span.kind == 2
                && span.attributes.contains_key("rerouter.shadow_of") == (about == "shadow")
        });
        let call = found.unwrap_or_else(|| panic!("{spans:?}"));
        let attempt = spans.iter().find(|span| span.parent == call.id && span.kind == 3).unwrap();
        (call, attempt)
    };
    let (call, attempt) = of("call");
    assert_eq!(call.parent, "");
    let ttft = call.attributes["gen_ai.response.time_to_first_chunk"].as_f64().unwrap();
    assert!((0.0..60.0).contains(&ttft), "{ttft}");
    holds(call, &json!({ "rerouter.stream": true, "rerouter.usage_estimated": true }));
    assert_eq!(parts(&good.request(0).header("traceparent").unwrap()).1, attempt.id);
    let (shadow, attempt) = of("shadow");
    assert_eq!(shadow.parent, call.id);
    holds(shadow, &json!({ "rerouter.shadow_of": id, "gen_ai.provider.name": "other" }));
    assert_eq!(parts(&other.request(0).header("traceparent").unwrap()).1, attempt.id);

    gateway.capture(&id).await;
    let path = format!("/v1/router/replay/{id}/reroute");
    let bearer = format!("Bearer {}", key.secret);
    let parent = format!("00-{TRACE}-{SPAN}-01");
    let headers = [("authorization", bearer.as_str()), ("traceparent", parent.as_str())];
    let answer = gateway.send("POST", &path, &headers, None).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let spans = collector.trace(TRACE, 2).await;
    assert_eq!(spans[0].parent, SPAN);
    holds(&spans[0], &json!({ "rerouter.replay_of": id, "rerouter.stream": true }));

    let refused = gateway.chat(&key, chat_body("nothing", false).as_bytes()).await;
    assert_eq!(refused.status, 404, "{}", refused.text());
    let told = line(&gateway, &refused.request_id()).await;
    let spans = collector.trace(told["trace_id"].as_str().unwrap(), 1).await;
    assert_eq!(spans[0].name, "chat nothing");
    holds(
        &spans[0],
        &json!({
            "rerouter.state": "refused", "http.response.status_code": 404,
            "error.type": "model_not_found",
        }),
    );
}

#[tokio::test]
async fn without_an_endpoint_trace_contexts_stay_where_they_are() {
    let good = Provider::always(scripted::completion("well")).await;
    let gateway = Gateway::start(&in_order(&[("good", &good.url())], "")).await;
    let key = gateway.create_key().await;
    let parent = format!("00-{TRACE}-{SPAN}-01");
    let headers = [("traceparent", parent.as_str()), ("tracestate", "theirs=1")];
    let id = chat(&gateway, &key, &chat_body("auto", false), &headers).await;
    let got = good.last();
    assert_eq!((got.header("traceparent"), got.header("tracestate")), (None, None));
    assert_eq!(line(&gateway, &id).await.get("trace_id"), None);
    assert_eq!(gateway.capture(&id).await["trace_id"], Value::Null);
}

/// A client decides for its own traces; of others a share is exported. Providers are told either
/// way, so that they do not begin traces of their own.
#[tokio::test]
async fn what_is_not_sampled_is_passed_on_and_not_exported() {
    let collector = Collector::start().await;
    let good = Provider::always(scripted::completion("well")).await;
    let gateway = Setup::new(&in_order(&[("good", &good.url())], ""))
        .server(&collector.settings(", sample: 0"))
        .start()
        .await;
    let key = gateway.create_key().await;
    chat(&gateway, &key, &chat_body("auto", false), &[]).await;
    let (trace, _, flags) = parts(&good.last().header("traceparent").unwrap());
    assert_eq!(flags, "00");
    let unsampled = format!("00-{TRACE}-{SPAN}-00");
    chat(&gateway, &key, &chat_body("auto", false), &[("traceparent", &unsampled)]).await;
    assert!(good.last().header("traceparent").unwrap().ends_with("-00"));
    // One more that is: the others would have come before it.
    let theirs = TRACE.replace('4', "5");
    let sampled = format!("00-{theirs}-{SPAN}-01");
    chat(&gateway, &key, &chat_body("auto", false), &[("traceparent", &sampled)]).await;
    collector.trace(&theirs, 2).await;
    let came: BTreeMap<String, usize> =
        collector.came().into_iter().map(|span| (span.trace, 1)).collect();
    assert!(!came.contains_key(TRACE) && !came.contains_key(&trace), "{came:?}");
}

#[tokio::test]
async fn spans_that_the_collector_refuses_are_counted_and_calls_go_on() {
    let collector = Collector::answering(scripted::failure(400, "no")).await;
    let good = Provider::always(scripted::completion("well")).await;
    let gateway = Setup::new(&in_order(&[("good", &good.url())], ""))
        .server(&collector.settings(""))
        .start()
        .await;
    let key = gateway.create_key().await;
    chat(&gateway, &key, &chat_body("auto", false), &[]).await;
    until("the dropped spans to be counted", async || {
        let dropped = gateway.metric("rerouter_spans_total", &["dropped_unsent"]).await;
        (dropped >= 2.0).then_some(())
    })
    .await;
    assert!(gateway.log().contains("the collector: status 400"), "{}", gateway.log());
    chat(&gateway, &key, &chat_body("auto", false), &[]).await;
}

#[tokio::test]
async fn a_collector_that_egress_denies_gets_nothing() {
    let collector = Collector::start().await;
    let gateway = Setup::new(ROUTING)
        .server(&collector.settings(""))
        .server("egress: { deny: [127.0.0.0/8] }")
        .start()
        .await;
    let key = gateway.create_key().await;
    chat(&gateway, &key, &chat_body("auto", false), &[]).await;
    until("the spans to be dropped", async || {
        let dropped = gateway.metric("rerouter_spans_total", &["outcome=\"dropped_unsent\""]).await;
        (dropped > 0.0).then_some(())
    })
    .await;
    assert_eq!(collector.0.count(), 0);
    assert!(gateway.log().contains("denied by `egress`"), "{}", gateway.log());
}
