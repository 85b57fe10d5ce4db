//! Several gateways on one database share budgets, idempotent creations, reroutes, nodes, login
//! throttles and the last use of keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use rerouter::internals::bounds;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::nodes::enrolment::{check_401, document};
use crate::support::client::Answer;
use crate::support::documents::{chat_body, in_order};
use crate::support::envelope;
use crate::support::fleet::{self, MASTER_KEY, Proxy};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::moved_clock::{MovedClock, TIMERS};
use crate::support::node::{Node, now, send};
use crate::support::postgres::{self, Cluster};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::until;

const KEYS: &str = "/v1/router/keys";
/// An answer with seven tokens in and three out costs ten cents.
const PRICED: &str = "models:\n  a/model: { input_per_mtok: 1000, output_per_mtok: 31000 }\n";
/// A request that reserves nearly eighteen cents.
const BODY: &[u8] =
    br#"{"model":"auto","messages":[{"role":"user","content":"Say a word."}],"max_tokens":3}"#;

async fn on(url: &str, routing: &str, more: &str) -> Gateway {
    let store = format!("store: {{ url: '{url}' }}\n{more}");
    Setup::new(routing).server(&store).env("REROUTER_MASTER_KEY", MASTER_KEY).start().await
}

/// Two gateways on a new database, and its URL.
async fn pair(routing: &str, more: &str) -> ([Gateway; 2], String) {
    let url = Cluster::shared().database().await;
    let (a, b) = tokio::join!(on(&url, routing, more), on(&url, routing, more));
    ([a, b], url)
}

fn demo() -> String {
    crate::support::fleet::ROUTING.to_owned()
}

/// Sends requests until the budget is spent. Returns the number of answers. `waited` counts the
/// refusals that ask to come again.
async fn spend(gateway: &Gateway, key: &Key, waited: &AtomicUsize) -> usize {
    let mut answered = 0;
    loop {
        let answer = gateway.chat(key, BODY).await;
        match answer.status {
            200 => answered += 1,
            429 if answer.json()["error"]["code"] == "insufficient_quota" => return answered,
            429 => {
                waited.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            other => panic!("{other} {}", answer.text()),
        }
    }
}

#[tokio::test]
async fn a_budget_is_spent_once_by_two_gateways_at_once() {
    let a = Provider::always(scripted::completion("a word")).await;
    let ([one, two], _) = pair(&in_order(&[("a", &a.url())], PRICED), "").await;
    let budget = json!({"budget": {"usd": 10, "per": "month"}});
    let key = one.limited_key(budget).await;
    let waited = AtomicUsize::new(0);
    // Either gateway answers the first request on a budget.
    for gateway in [&two, &one] {
        let first = gateway.chat(&key, BODY).await;
        assert_eq!(first.status, 200, "{}", first.text());
    }
    let spenders = (0..8).map(|n| spend([&one, &two][n % 2], &key, &waited));
    let answered = 2 + join_all(spenders).await.into_iter().sum::<usize>();
    eprintln!(
        "a budget of 100 answers at two gateways: {answered}, {} refusals that said to come again",
        waited.load(Ordering::Relaxed)
    );
    assert_eq!(a.count(), answered);
    // A request reserves eighteen cents, so less than that may be left over.
    assert!((99..=100).contains(&answered), "{answered} answers of ten cents");
}

#[tokio::test]
async fn money_that_another_gateway_has_reserved_is_not_called_spent() {
    let open = Arc::new(Notify::new());
    let gate = Arc::clone(&open);
    let script = move |request: &scripted::Received, _| {
        let is_slow = request.json()["max_tokens"] == 10;
        let waits = is_slow.then(|| Step::Wait(Arc::clone(&gate)));
        waits.into_iter().chain(scripted::completion("a word")).collect()
    };
    let a = Provider::start(script).await;
    let ([one, two], _) = pair(&in_order(&[("a", &a.url())], PRICED), "").await;
    let key = one.limited_key(json!({"budget": {"usd": 0.5, "per": "day"}})).await;
    // The slow request reserves forty cents, and costs ten.
    let slow = String::from_utf8_lossy(BODY).replace(":3}", ":10}");
    let (answer, ()) = tokio::join!(two.chat(&key, slow.as_bytes()), async {
        until("the slow request", async || (a.count() == 1).then_some(())).await;
        // Longer than other gateways have to give back what they hold.
        let until = Instant::now() + Duration::from_millis(4_500);
        while Instant::now() < until {
            let refused = one.chat(&key, BODY).await;
            assert_eq!(
                refused.json()["error"]["code"],
                "rate_limit_exceeded",
                "{}",
                refused.text()
            );
            assert_eq!(refused.header("retry-after"), Some("1"), "{}", refused.text());
            assert!(refused.header("x-should-retry").is_none(), "{refused:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        open.notify_one();
    });
    assert_eq!(answer.status, 200, "{}", answer.text());
    let ended = Instant::now();
    until("an answer", async || (one.chat(&key, BODY).await.status == 200).then_some(())).await;
    assert!(ended.elapsed() < Duration::from_secs(15), "{:?}", ended.elapsed());
    // One gateway spends the rest: thirty cents, of which less than eighteen may be left over. Then
    // the budget is spent at the other gateway too.
    let waited = AtomicUsize::new(0);
    assert!(spend(&one, &key, &waited).await >= 1);
    assert!(spend(&two, &key, &waited).await <= 1);
    for gateway in [&one, &two] {
        let refused = gateway.chat(&key, BODY).await;
        assert_eq!(refused.json()["error"]["code"], "insufficient_quota", "{}", refused.text());
    }
}

#[tokio::test]
async fn three_gateways_tell_the_same_spend_and_refuse_nobody_while_there_is_room() {
    let a = Provider::always(scripted::completion("a word")).await;
    let ([one, two], url) = pair(&in_order(&[("a", &a.url())], PRICED), "").await;
    let three = on(&url, &in_order(&[("a", &a.url())], PRICED), "").await;
    let key = one.limited_key(json!({"budget": {"usd": 3, "per": "day"}})).await;
    let gateways = [&one, &two, &three];
    let budget = async |gateway: &Gateway| {
        let path = format!("{KEYS}/{}", key.id);
        let shown = gateway.manage("GET", &path, &gateway.admin_key, None).await.json();
        shown["usage"]["budget"].clone()
    };
    let tells = async |gateway: &Gateway, name: &str, wanted: f64| {
        until("the same sum", async || {
            let sum = budget(gateway).await[name].as_f64().unwrap();
            ((sum - wanted).abs() < 1e-9).then_some(())
        })
        .await;
    };
    for round in 1..=4 {
        for gateway in gateways {
            let answer = gateway.chat(&key, BODY).await;
            assert_eq!(answer.status, 200, "there is room: {}", answer.text());
        }
        for gateway in gateways {
            tells(gateway, "spent_usd", 0.3 * f64::from(round)).await;
        }
    }
    for gateway in gateways {
        tells(gateway, "held_usd", 0.0).await;
    }
}

#[tokio::test]
async fn a_request_without_a_hold_is_refused_while_the_database_is_away() {
    let a = Provider::always(scripted::completion("a word")).await;
    let cluster = Cluster::shared();
    let proxy = Proxy::start(cluster.port()).await;
    let url = cluster.database().await;
    let url = url.replace(&format!(":{}/", cluster.port()), &format!(":{}/", proxy.port));
    let gateway = on(&url, &in_order(&[("a", &a.url())], PRICED), "").await;
    let key = gateway.limited_key(json!({"budget": {"usd": 0.5, "per": "month"}})).await;
    proxy.close();
    let began = Instant::now();
    let refused = gateway.chat(&key, BODY).await;
    let took = began.elapsed();
    assert!([429, 503].contains(&refused.status), "{}", refused.text());
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(refused.header("x-should-retry").is_none(), "{refused:?}");
    assert!(took < Duration::from_secs(6), "{took:?}");
    assert_eq!(a.count(), 0, "nothing is let in that is not held");
    proxy.open();
    until("an answer", async || (gateway.chat(&key, BODY).await.status == 200).then_some(())).await;
}

#[tokio::test]
async fn one_that_refused_the_document_names_that_of_the_store() {
    let url = Cluster::shared().database().await;
    let with = fleet::setup(&url, "10s", "").env("ONLY_HERE_API_KEY", "sk-here");
    let (with, without) = tokio::join!(with.start(), fleet::setup(&url, "10s", "").start());
    let put = async |gateway: &Gateway, document: &str, tag: Option<&str>| {
        let bearer = format!("Bearer {}", gateway.admin_key);
        let mut headers =
            vec![("authorization", bearer.as_str()), ("content-type", "application/yaml")];
        headers.extend(tag.map(|tag| ("if-match", tag)));
        gateway.send("PUT", "/v1/router/config", &headers, Some(document.as_bytes())).await
    };
    let document = in_order(&[("a", "http://127.0.0.1:9")], "")
        .replace("UPSTREAM_API_KEY:-sk-upstream", "ONLY_HERE_API_KEY");
    assert!(document.contains("ONLY_HERE_API_KEY"), "{document}");
    let stored = put(&with, &document, None).await;
    assert_eq!(stored.status, 200, "{}", stored.text());
    assert!(stored.text().contains("refused the document"), "{}", stored.text());
    let path = "/v1/router/config";
    let seen = without.manage("GET", path, &without.admin_key, None).await;
    let tag = seen.header("etag").unwrap().to_owned();
    let refused = put(&without, &demo(), Some(&tag)).await;
    envelope::management(&refused, 412, "precondition_failed");
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    for revision in [&stored.json()["revision"], &seen.json()["revision"]] {
        assert!(detail.contains(revision.as_str().unwrap()), "{detail} {revision}");
    }
    assert!(detail.contains("this gateway refused"), "{detail}");
    let put = put(&without, &demo(), None).await;
    assert_eq!(put.status, 200, "{}", put.text());
}

/// Creates a key with an `Idempotency-Key`.
async fn create(gateway: &Gateway, by: &Key, name: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {}", by.secret);
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("idempotency-key", name),
    ];
    gateway.send("POST", KEYS, &headers, Some(body.to_string().as_bytes())).await
}

/// Idempotency keys are in the memory of one process.
#[tokio::test]
async fn another_gateway_and_a_restart_know_no_idempotency_key() {
    let ([mut one, two], _) = pair(&demo(), "").await;
    let maker = one.create_key().await;
    let body = json!({"name": "ci"});
    let mut made = vec![Key::of(&create(&one, &maker, "first", &body).await).id];
    assert_eq!(Key::of(&create(&one, &maker, "first", &body).await).id, made[0]);
    made.push(Key::of(&create(&two, &maker, "first", &body).await).id);
    one.restart().await;
    made.push(Key::of(&create(&one, &maker, "first", &body).await).id);
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 3);
}

#[tokio::test]
async fn a_node_of_one_gateway_is_a_node_of_all() {
    let (other, served) = (
        Provider::always(scripted::completion("elsewhere")).await,
        Provider::always(scripted::completion("here")).await,
    );
    let public = "public_url: http://gw.example.com";
    let ([one, two], _) = pair(&document(&other.url()), public).await;
    let key = one.create_key().await;
    let node = Node::enrol(&one, "rack", json!({ "endpoint": served.url() })).await;
    // Signed for the public name of both gateways, as a load balancer would pass it on.
    let signed =
        |path: &str, body: &str| node.sign_for("gw.example.com", path, body.as_bytes(), now());
    let call = async |gateway: &Gateway, name: &str, body: Value| {
        let (path, body) = (format!("/v1/agent/{name}"), body.to_string());
        send(gateway, &path, &signed(&path, &body), body.as_bytes()).await
    };
    let registration =
        json!({"version": "1", "endpoint": served.url(), "models": [{"id": "qwen"}]});
    let registered = call(&one, "register", registration).await;
    assert_eq!(registered.status, 200, "{}", registered.text());
    let beat = |seq| crate::support::node::report(seq, "ready", 0);
    // The node registers at one gateway, and sends its heartbeats to the other.
    for seq in 1..=3 {
        let taken = call(&two, "heartbeat", beat(seq)).await;
        assert_eq!(taken.status, 200, "{}", taken.text());
    }
    let body = chat_body("local", false);
    for gateway in [&one, &two] {
        until("the node to be routable", async || {
            (gateway.chat(&key, body.as_bytes()).await.status == 200).then_some(())
        })
        .await;
    }
    assert!(served.count() >= 2 && other.count() == 0);
    assert_eq!(call(&one, "heartbeat", beat(3)).await.status, 409, "it was told to the other");
    // A signed request is valid only once, whichever gateway gets the copy.
    let (path, nothing) = ("/v1/agent/heartbeat", beat(4).to_string());
    let headers = signed(path, &nothing);
    assert_eq!(send(&one, path, &headers, nothing.as_bytes()).await.status, 200);
    check_401(&send(&two, path, &headers, nothing.as_bytes()).await, "a nonce of the other");
    // Copies also count once if they reach both gateways at the same time.
    for seq in 5..25 {
        let body = beat(seq).to_string();
        let headers = signed(path, &body);
        let copies = [&one, &two, &one, &two].map(|to| send(to, path, &headers, body.as_bytes()));
        let answers = futures::future::join_all(copies).await;
        let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 401, 401, 401], "{seq}");
    }
    assert_eq!(call(&two, "heartbeat", beat(25)).await.status, 200);
}

#[tokio::test]
async fn logins_are_throttled_by_all_gateways_together() {
    let ([one, two], _) = pair(&demo(), "").await;
    one.session("ann@example.com").await;
    let log_in = async |gateway: &Gateway, password: &str| {
        let account = json!({"email": "ann@example.com", "password": password}).to_string();
        let headers = [("content-type", "application/json")];
        gateway.send("POST", "/v1/auth/login", &headers, Some(account.as_bytes())).await
    };
    for n in 1..bounds::LOGINS as usize {
        assert_eq!(log_in([&one, &two][n % 2], "wrong").await.status, 401, "{n}");
    }
    for gateway in [&one, &two] {
        let refused = log_in(gateway, "a long enough password").await;
        envelope::management(&refused, 429, "rate_limited");
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((600..=900).contains(&wait), "{wait}");
    }
}

#[tokio::test]
async fn the_last_use_of_a_key_is_that_at_any_gateway() {
    let ([mut one, mut two], url) = pair(&demo(), "").await;
    let keys = [one.create_key().await, one.create_key().await, one.create_key().await];
    let used = async |gateway: &Gateway, key: &Key| {
        gateway.answers(200, "GET", "/v1/models", &key.secret, None).await;
    };
    let last = async |gateway: &Gateway, key: &Key| {
        let path = format!("{KEYS}/{}", key.id);
        let shown = gateway.manage("GET", &path, &gateway.admin_key, None).await.json();
        shown["last_used_at"].as_str().map(str::to_owned)
    };
    used(&one, &keys[0]).await;
    used(&two, &keys[1]).await;
    used(&one, &keys[2]).await;
    used(&two, &keys[2]).await;
    let later = last(&two, &keys[2]).await.expect("it is shown at once where it was used");
    assert!(last(&one, &keys[2]).await.unwrap() < later, "the other hears of it later");
    // The gateway that writes last has seen an earlier use.
    two.stop().await;
    one.stop().await;
    let third = on(&url, &demo(), "").await;
    for key in &keys[..2] {
        assert!(last(&third, key).await.is_some());
    }
    assert_eq!(last(&third, &keys[2]).await, Some(later));
}

/// Each gateway writes the uses that it has seen once a minute, and reads those of the others.
#[tokio::test]
async fn a_use_is_shown_by_another_gateway_within_two_minutes() {
    let url = Cluster::shared().database().await;
    let dir = tempfile::tempdir().unwrap();
    let clocks = ["one", "two"].map(|name| MovedClock::new(dir.path(), name, TIMERS, 0));
    let start = async |clock: &MovedClock| {
        let setup = Setup::new(&demo()).server(&format!("store: {{ url: '{url}' }}"));
        let setup = setup.env("REROUTER_MASTER_KEY", MASTER_KEY);
        let environment = clock.environment().into_iter();
        environment.fold(setup, |setup, (name, value)| setup.env(name, value)).start().await
    };
    let (one, two) = (start(&clocks[0]).await, start(&clocks[1]).await);
    let key = one.create_key().await;
    let asked = one.manage("GET", "/v1/models", &key.secret, None).await;
    assert_eq!(asked.status, 200, "{}", asked.text());
    let last = async |gateway: &Gateway| {
        let path = format!("{KEYS}/{}", key.id);
        let shown = gateway.manage("GET", &path, &gateway.admin_key, None).await;
        shown.json()["last_used_at"].as_str().map(str::to_owned)
    };
    let used = last(&one).await.expect("it is shown at once where it was used");
    assert_eq!(last(&two).await, None);
    clocks[0].set(60);
    until("the first to write it", async || {
        let written = "SELECT id FROM keys WHERE last_used_at IS NOT NULL";
        (!postgres::run(&url, written).await.is_empty()).then_some(())
    })
    .await;
    clocks[1].set(60);
    until("the second to show it", async || last(&two).await.filter(|shown| *shown == used)).await;
}
