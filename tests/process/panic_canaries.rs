//! What is secret in a call on its way to a provider or to a node, through a panic at each place of
//! that way: the caller's credential, in whatever header it came, that of the provider, and that of
//! the node. It is in no answer, no access line, no diagnostic down to `trace`, no metric, no
//! capture and no file.

use rerouter::internals::store::PanicPoint;
use serde_json::json;

use crate::process::panics::{CHAT, HEADER_KEY, NODE_KEY, PASSWORD, PROVIDER_KEY, World, prompt};
use crate::process::plugin::ADMIN;
use crate::support::client::{Answer, pairs};
use crate::support::documents::in_order;
use crate::support::envelope;
use crate::support::node::{Node, now, report};
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

const PLACES: [PanicPoint; 4] =
    [PanicPoint::Entry, PanicPoint::Decision, PanicPoint::Attempt, PanicPoint::Head];
const JSON: (&str, &str) = ("content-type", "application/json");

/// Says back what it was asked with, as careless providers do.
async fn echoing() -> Provider {
    Provider::start(|request, _| {
        let said = scripted::completion_body("well").to_string();
        let told = ["authorization", "x-goog-api-key"]
            .map(|name| request.header(name).unwrap_or_default());
        scripted::answer(
            200,
            &[("content-type", "application/json"), ("x-key", &told[0]), ("x-other", &told[1])],
            said.as_bytes(),
        )
    })
    .await
}

fn check_500(target: &str, answer: &Answer) {
    match target {
        "/v1/messages" => envelope::anthropic(answer, 500, "api_error"),
        target if target.starts_with("/v1/router/") => {
            envelope::management(answer, 500, "internal")
        }
        _ => envelope::openai(answer, 500, "server_error", Some("internal")),
    }
}

/// One request that panics at a place, and what is kept of it.
async fn panic(
    world: &mut World,
    place: PanicPoint,
    target: &str,
    credential: (&str, &str),
    body: &str,
) {
    world.arm(place);
    let answer = world.host.send(target, &[credential, JSON], body.as_bytes()).await;
    check_500(target, &answer);
    world.keep(&answer);
    if matches!(place, PanicPoint::Attempt | PanicPoint::Head) {
        let capture = whole(world, &answer.request_id()).await;
        world.captures.push(capture);
    }
}

/// A capture as an admin and an export see it: with everything.
async fn whole(world: &World, id: &str) -> String {
    let path = format!("/v1/router/replay/{id}");
    until("the capture", async || {
        let found = world.host.ask("GET", &path, Some(ADMIN), None).await;
        (found.status == 200).then(|| found.text())
    })
    .await
}

/// A user's token and cookie.
async fn log_in(world: &World) -> (String, String) {
    let account = json!({"email": "canary@example.com", "password": PASSWORD}).to_string();
    assert_eq!(world.host.ask("POST", "/v1/auth/register", None, Some(&account)).await.status, 201);
    let login = world.host.ask("POST", "/v1/auth/login", None, Some(&account)).await;
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    (login.json()["token"].as_str().unwrap().to_owned(), cookie)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_the_caller_s_credential_nor_the_provider_s_is_told_by_a_panic() {
    let provider = echoing().await;
    let header =
        format!("{}\n    headers: {{ x-goog-api-key: \"${{HEADER_API_KEY}}\" }}\n", provider.url());
    let mut world = World::start_on(provider, &in_order(&[("up", &header)], ""), json!({})).await;
    let (token, cookie) = log_in(&world).await;
    let (key, secret) = (world.key.clone(), cookie.split_once('=').unwrap().1.to_owned());
    world.secrets = vec![token.clone(), secret];
    let (by_key, by_token) = (format!("Bearer {key}"), format!("Bearer {token}"));
    let ways: [(&str, &str); 5] = [
        ("authorization", &by_key),
        ("x-api-key", &key),
        ("api-key", &key),
        ("authorization", &by_token),
        ("cookie", &cookie),
    ];
    let targets = [
        (CHAT, prompt(false)),
        (CHAT, prompt(true)),
        ("/v1/responses", json!({"model": "auto", "input": "Say a word."}).to_string()),
        ("/v1/embeddings", json!({"model": "auto", "input": "a word"}).to_string()),
        (
            "/v1/messages",
            json!({"model": "auto", "max_tokens": 8,
                    "messages": [{"role": "user", "content": "Say a word."}]})
            .to_string(),
        ),
    ];
    let mut panics = 0.0;
    for (n, place) in PLACES.into_iter().enumerate() {
        for (credential, (target, body)) in
            ways.iter().flat_map(|way| targets.iter().map(move |target| (*way, target)))
        {
            // Messages go to no provider of this protocol, unless they are translated.
            if n < 2 || *target != "/v1/messages" {
                panic(&mut world, place, target, credential, body).await;
                panics += 1.0;
            }
        }
    }
    let good = world.host.send(CHAT, &[("cookie", &cookie), JSON], prompt(false).as_bytes()).await;
    assert_eq!(good.status, 200, "{}", good.text());
    let asked = world.provider.last();
    let told = ["authorization", "x-goog-api-key"].map(|name| asked.header(name).unwrap());
    assert_eq!(
        told,
        [format!("Bearer {PROVIDER_KEY}"), HEADER_KEY.to_owned()],
        "the canaries were in play"
    );
    let capture = whole(&world, &good.request_id()).await;
    world.captures.push(capture);
    let reroute = format!("/v1/router/replay/{}/reroute", good.request_id());
    for place in PLACES {
        for credential in [("authorization", by_token.as_str()), ("cookie", &cookie)] {
            panic(&mut world, place, &reroute, credential, "").await;
            panics += 1.0;
        }
    }
    assert_eq!(world.metric("rerouter_panics_total").await, panics);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_is_the_node_s_own() {
    let serving = echoing().await;
    let document = in_order(&[("up", &serving.url())], "")
        .replace("{ target: up/model }", "{ target: nodes/qwen }");
    let mut world = World::start_on(serving, &document, json!({})).await;
    let node = Node::of(
        &world.host.ask("POST", "/v1/nodes", Some(ADMIN), Some(r#"{"name": "rack"}"#)).await.json(),
    );
    world.secrets = vec![node.secret.clone()];
    let registration = json!({
        "version": "1", "endpoint": world.provider.url(), "models": [{"id": "qwen"}],
        "api_key": NODE_KEY
    });
    for (path, body) in
        [("/v1/agent/register", registration), ("/v1/agent/heartbeat", report(1, "ready", 0))]
    {
        let body = body.to_string();
        let signed = node.sign_for(&world.host.address().to_string(), path, body.as_bytes(), now());
        let signed = pairs(&signed);
        let answer = world.host.send(path, &signed, body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        world.shown.push(format!("{answer:?}"));
    }
    let bearer = format!("Bearer {}", world.key);
    for place in PLACES {
        for stream in [false, true] {
            panic(&mut world, place, CHAT, ("authorization", &bearer), &prompt(stream)).await;
        }
    }
    let good =
        world.host.send(CHAT, &[("authorization", &bearer), JSON], prompt(false).as_bytes()).await;
    assert_eq!(good.status, 200, "{}", good.text());
    assert_eq!(
        world.provider.last().header("authorization"),
        Some(format!("Bearer {NODE_KEY}")),
        "the canary was in play"
    );
    let capture = whole(&world, &good.request_id()).await;
    world.captures.push(capture);
    let reroute = format!("/v1/router/replay/{}/reroute", good.request_id());
    for place in PLACES {
        panic(&mut world, place, &reroute, ("authorization", &bearer), "").await;
    }
    for path in [
        "/v1/nodes".to_owned(),
        format!("/v1/nodes/{}", node.id),
        "/v1/router/providers".to_owned(),
        "/v1/router/status".to_owned(),
    ] {
        let shown = world.host.ask("GET", &path, Some(ADMIN), None).await.text();
        world.shown.push(shown);
    }
    world.end().await;
}
