//! Recorded exchanges of real providers go in and out byte for byte, but for the value of `model`;
//! events leave at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Notify;

use crate::support::client::{self, Answer, Connection};
use crate::support::documents::{chat_body, in_order, provider};
use crate::support::gateway::{Gateway, Key};
use crate::support::json_text::{compact, odd, with_model};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::recorded::{Exchange, Recorded, all};

/// A document in which each recorded model, `provider/model`, is the only target of a recipe of its
/// own, with an alias.
fn document(recorded: &Recorded, models: &[String]) -> String {
    let mut recipes = String::new();
    let mut aliases = String::new();
    for (n, model) in models.iter().enumerate() {
        let target = serde_json::to_string(model).unwrap();
        recipes.push_str(&format!(
            "  only-{n}:\n    rules: [ {{ name: default, targets: [ {{ target: {target} }} ] }} ]\n"
        ));
        aliases.push_str(&format!("  alias-{n}: only-{n}\n"));
    }
    // Recorded failures come as often as they were recorded; they are to be passed on, not learnt
    // from.
    let breaker = "    breaker: { consecutive: 1000000, min_requests: 1000000 }\n";
    let rec = provider("rec", &recorded.url(), "sk-recorded");
    let ant = provider("ant", &recorded.url(), "sk-recorded")
        .replace("protocol: openai", "protocol: anthropic");
    format!("providers:\n{rec}{breaker}{ant}{breaker}recipes:\n{recipes}aliases:\n{aliases}")
}

/// The target that a recorded request goes to.
fn target(exchange: &Exchange) -> String {
    format!("{}/{}", exchange.provider(), exchange.model())
}

fn models(all: &[Exchange]) -> Vec<String> {
    all.iter().map(target).collect::<BTreeSet<_>>().into_iter().collect()
}

fn post(gateway: &Gateway, key: &Key, path: &str, body: &str) -> Vec<u8> {
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    client::request("POST", path, &gateway.host(), &headers, Some(body.as_bytes()))
}

/// What a client must see of an exchange: the provider's own answer, or ours where the provider
/// refused our credential.
fn check(exchange: &Exchange, answer: &Answer) {
    let id = &exchange.id;
    if matches!(exchange.status, 401 | 403) {
        assert_eq!(answer.status, 502, "{id}");
        return;
    }
    assert_eq!(answer.status, exchange.status, "{id}: {}", answer.text());
    assert_eq!(answer.header("content-type"), Some(exchange.content_type.as_str()), "{id}");
    assert!(answer.whole, "{id}: the body was cut");
    assert!(
        answer.body == exchange.response.as_bytes(),
        "{id}: {} bytes came, {} were recorded",
        answer.body.len(),
        exchange.response.len()
    );
    for name in ["retry-after", "retry-after-ms"] {
        if let Some(value) = exchange.headers.get(name) {
            assert_eq!(answer.header(name), Some(value.as_str()), "{id}: {name}");
        }
    }
}

#[tokio::test]
async fn every_recorded_exchange_goes_in_and_out_byte_for_byte() {
    let (all, recorded) = (all(), Recorded::start(0).await);
    let models = models(&all);
    let gateway = Gateway::start(&document(&recorded, &models)).await;
    let key = gateway.create_key().await;
    let mut connection = gateway.connect().await;
    let mut expected = Vec::new();
    for exchange in &all {
        let (model, target) = (exchange.model(), target(exchange));
        let alias = format!("alias-{}", models.iter().position(|known| *known == target).unwrap());
        let recorded_text = exchange.request.get();
        for text in [compact(recorded_text), odd(recorded_text), recorded_text.to_owned()] {
            for name in [&target, &alias] {
                let answer = match connection
                    .try_exchange(&post(&gateway, &key, exchange.path(), &with_model(&text, name)))
                    .await
                {
                    Some(answer) => answer,
                    None => panic!("{}: the connection closed", exchange.id),
                };
                check(exchange, &answer);
                if answer
                    .header("connection")
                    .is_some_and(|value| value.eq_ignore_ascii_case("close"))
                {
                    connection = gateway.connect().await;
                }
                expected.push((exchange, with_model(&text, &model)));
            }
        }
    }
    let received = recorded.received();
    assert_eq!(received.len(), expected.len(), "each request reached the provider once");
    for ((id, body), (exchange, sent)) in received.iter().zip(&expected) {
        assert_eq!(*id, exchange.id);
        assert!(
            body == sent.as_bytes(),
            "{id}: sent\n{sent}\nreceived\n{}",
            String::from_utf8_lossy(body)
        );
    }
}

#[tokio::test]
async fn the_events_of_a_recorded_stream_arrive_while_the_provider_still_writes() {
    let (all, recorded) = (all(), Recorded::start(50).await);
    let models = models(&all);
    let gateway = Gateway::start(&document(&recorded, &models)).await;
    let key = gateway.create_key().await;
    // Long enough that a busy machine cannot hide the order, short enough that the test stays
    // quick.
    let events = |exchange: &Exchange| exchange.response.matches("data: ").count();
    let streams = all.iter().filter(|exchange| {
        exchange.stream && exchange.status == 200 && (10..60).contains(&events(exchange))
    });
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for exchange in streams {
        let seen = seen.entry(&exchange.kind).or_default();
        *seen += 1;
        if *seen > 2 {
            continue;
        }
        let mut connection = gateway.connect().await;
        connection
            .send(&post(
                &gateway,
                &key,
                exchange.path(),
                &with_model(exchange.request.get(), &target(exchange)),
            ))
            .await;
        let head = connection.head().await.expect("an answer");
        assert_eq!(head.status, 200);
        let (pieces, whole) = connection.pieces().await;
        let (first, last) = (pieces.first().unwrap(), pieces.last().unwrap());
        assert!(
            whole && first.0 < last.0 && pieces.len() > 2,
            "{}: {} pieces",
            exchange.id,
            pieces.len()
        );
        let body: Vec<u8> = pieces.iter().flat_map(|(_, piece)| piece.clone()).collect();
        assert!(body == exchange.response.as_bytes(), "{}: the stream's bytes", exchange.id);
    }
    assert!(seen.contains_key("chat"), "no recorded stream of a fitting length");
}

/// The order itself, without clocks: the provider writes its last event only after the client has
/// the first.
#[tokio::test]
async fn the_first_event_is_at_the_client_before_the_provider_writes_the_last() {
    let gate = Arc::new(Notify::new());
    let chunk = |text: String| Step::Chunk(text.into_bytes());
    let provider = Provider::always(vec![
        scripted::stream_head(),
        chunk(scripted::role_event()),
        chunk(scripted::content_event("first")),
        Step::Wait(Arc::clone(&gate)),
        chunk(scripted::content_event("second")),
        Step::Wait(Arc::clone(&gate)),
        chunk(scripted::last_events()),
        Step::Chunk(Vec::new()),
    ])
    .await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let key = gateway.create_key().await;
    let mut connection = gateway.connect().await;
    connection.send(&post(&gateway, &key, "/v1/chat/completions", &chat_body("auto", true))).await;
    assert_eq!(connection.head().await.unwrap().status, 200);
    let mut body = read_until(&mut connection, "first").await;
    assert_eq!(body, [scripted::role_event(), scripted::content_event("first")].concat());
    let first = Instant::now();
    gate.notify_one();
    body.push_str(&read_until(&mut connection, "second").await);
    gate.notify_one();
    let (rest, whole) = connection.pieces().await;
    assert!(whole && rest.iter().all(|(at, _)| *at > first));
    body.extend(rest.iter().map(|(_, piece)| String::from_utf8_lossy(piece).into_owned()));
    let whole_text = [
        scripted::role_event(),
        scripted::content_event("first"),
        scripted::content_event("second"),
        scripted::last_events(),
    ];
    assert_eq!(body, whole_text.concat());
}

async fn read_until(connection: &mut Connection, word: &str) -> String {
    let mut text = String::new();
    while !(text.contains(word) && text.ends_with("\n\n")) {
        text.push_str(
            &String::from_utf8(connection.piece().await.expect("the stream goes on")).unwrap(),
        );
    }
    text
}
