//! Keys as clients see them: what an answer says of a key holds for every later request, under
//! load, after `kill -9`, and for descendant keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::client::{self, Answer, Connection, pairs};
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{envelope, full, until};

const ROUTER: &str = "/v1/router/keys";
/// A path that shows whether a key is valid, without asking a provider.
const PROBE: &str = "/v1/models";

async fn start(threads: usize) -> (Gateway, Provider) {
    let a = Provider::always(scripted::completion("a word")).await;
    let setup = Setup::new(&in_order(&[("a", &a.url())], "")).server("pin: { registration: open }");
    (setup.threads(threads).start().await, a)
}

async fn make(gateway: &Gateway, maker: &str, body: Value) -> Key {
    gateway.make_key(ROUTER, maker, &body).await
}

async fn patch(gateway: &Gateway, who: &str, key: &Key, body: Value) -> Answer {
    gateway.manage("PATCH", &format!("{ROUTER}/{}", key.id), who, Some(&body)).await
}

async fn probe(gateway: &Gateway, key: &Key) -> u16 {
    gateway.manage("GET", PROBE, &key.secret, None).await.status
}

#[tokio::test]
async fn a_patch_holds_for_the_next_request_of_an_open_connection() {
    let (mut gateway, _a) = start(1).await;
    let admin = gateway.admin_key.clone();
    let key = make(&gateway, &admin, json!({"limits": {"rpm": 3}})).await;
    let bearer = format!("Bearer {}", key.secret);
    let ask = client::request("GET", PROBE, &gateway.host(), &[("authorization", &bearer)], None);
    let mut connection = gateway.connect().await;
    for (status, expected) in [("inactive", 401), ("active", 200), ("inactive", 401)] {
        let patched = patch(&gateway, &admin, &key, json!({"status": status})).await;
        assert_eq!(
            (patched.status, &patched.json()["status"]),
            (200, &json!(status)),
            "{}",
            patched.text()
        );
        assert_eq!(connection.exchange(&ask).await.status, expected, "{status}");
    }
    gateway.kill_9();
    gateway.start_again().await;
    assert_eq!(probe(&gateway, &key).await, 401);
    assert_eq!(patch(&gateway, &admin, &key, json!({"status": "active"})).await.status, 200);

    // Usage counts under a changed limit too. A higher limit applies at once, and so does a lower
    // one.
    let chat = async || gateway.chat(&key, chat_body("auto", false).as_bytes()).await.status;
    assert_eq!([chat().await, chat().await, chat().await, chat().await], [200, 200, 200, 429]);
    assert_eq!(patch(&gateway, &admin, &key, json!({"limits": {"rpm": 5}})).await.status, 200);
    assert_eq!([chat().await, chat().await, chat().await], [200, 200, 429]);
    assert_eq!(patch(&gateway, &admin, &key, json!({"limits": {"rpm": 1}})).await.status, 200);
    assert_eq!(chat().await, 429);
    assert_eq!(patch(&gateway, &admin, &key, json!({"limits": null})).await.status, 200);
    assert_eq!(chat().await, 200);

    for (path, wrong) in
        [("/v1/apikeys", json!({"scopes": []})), ("/v1/router/keys", json!({"scopes": []}))]
    {
        let id = if path == ROUTER { key.id.as_str() } else { "key_00000000000000000000000000" };
        let refused = gateway.manage("PATCH", &format!("{path}/{id}"), &admin, Some(&wrong)).await;
        envelope::management(&refused, 400, "invalid_request");
        assert_eq!(refused.json()["field"], "scopes");
    }
    let merge = [
        ("authorization", format!("Bearer {admin}")),
        ("content-type", "application/merge-patch+json".to_owned()),
    ];
    let merge = pairs(&merge);
    let target = format!("{ROUTER}/{}", key.id);
    assert_eq!(
        gateway.send("PATCH", &target, &merge, Some(br#"{"name":"merged"}"#)).await.json()["name"],
        "merged"
    );
    envelope::management(
        &gateway.send("POST", ROUTER, &merge, Some(b"{}")).await,
        415,
        "unsupported_media_type",
    );
    gateway.answers(204, "DELETE", &target, &admin, None).await;
    envelope::management(
        &patch(&gateway, &admin, &key, json!({"name": "x"})).await,
        409,
        "key_revoked",
    );
}

#[tokio::test]
async fn a_budget_that_is_changed_keeps_what_was_spent() {
    // Prices are a thousandth of a dollar per token, so an answer of ten tokens costs a cent.
    let priced = "models:\n  a/model: { input_per_mtok: 1000, output_per_mtok: 1000 }\n";
    let a = Provider::always(scripted::completion("a word")).await;
    let gateway = Gateway::start(&in_order(&[("a", &a.url())], priced)).await;
    let admin = gateway.admin_key.clone();
    let key =
        make(&gateway, &admin, json!({"limits": {"budget": {"usd": 0.15, "per": "month"}}})).await;
    let body =
        br#"{"model":"auto","messages":[{"role":"user","content":"Say a word."}],"max_tokens":3}"#;
    let spend = async || {
        let mut answered = 0;
        loop {
            let answer = until("an answer that does not ask to come back soon", async || {
                let answer = gateway.chat(&key, body).await;
                let soon = answer.header("retry-after") == Some("1")
                    && answer.header("x-should-retry").is_none();
                (!soon).then_some(answer)
            })
            .await;
            if answer.status != 200 {
                assert_eq!(answer.json()["error"]["code"], "insufficient_quota");
                return answered;
            }
            answered += 1;
        }
    };
    // A request reserves nine cents, one token for each byte of the prompt.
    let first = spend().await;
    assert!((6..=8).contains(&first), "{first}");
    assert_eq!(
        patch(&gateway, &admin, &key, json!({"limits": {"budget": {"usd": 0.21}}})).await.status,
        200
    );
    let second = spend().await;
    assert!((12..=14).contains(&(first + second)), "{first} {second}");
    assert_eq!(
        patch(&gateway, &admin, &key, json!({"limits": {"budget": {"usd": 0.09}}})).await.status,
        200
    );
    assert_eq!(spend().await, 0);
}

#[tokio::test]
async fn ten_dollars_over_a_hundred_children_and_grandchildren_are_ten_dollars() {
    // Prices are a hundredth of a dollar per token, so an answer of ten tokens costs ten cents.
    let priced = "models:\n  a/model: { input_per_mtok: 10000, output_per_mtok: 10000 }\n";
    let a = Provider::always(scripted::completion("a word")).await;
    let setup =
        Setup::new(&in_order(&[("a", &a.url())], priced)).server("pin: { registration: open }");
    let gateway = setup.threads(2).start().await;
    let admin = gateway.admin_key.clone();
    let account = json!({"email": "ann@example.com", "password": "correct horse"});
    let made = gateway.manage("POST", "/v1/auth/register", "none", Some(&account)).await;
    let ann = made.json()["user"]["id"].clone();
    let budget = json!({"budget": {"usd": 10, "per": "month"}});
    let maker =
        make(&gateway, &admin, json!({"scopes": ["admin", "keys", "inference"], "limits": budget}))
            .await;
    let mut children: Vec<Key> = Vec::new();
    for n in 0..100 {
        // Every second key is made by the key before it, and shares that key's budget.
        let child = json!({"owner": ann, "scopes": ["inference", "keys"], "limits": budget});
        let made = match children.last().filter(|_| n % 2 == 1) {
            Some(before) => make(&gateway, &before.secret, json!({"scopes": ["inference"]})).await,
            None => make(&gateway, &maker.secret, child).await,
        };
        children.push(made);
    }
    let body =
        br#"{"model":"auto","messages":[{"role":"user","content":"Say a word."}],"max_tokens":3}"#;
    let (gateway, answered) = (&gateway, &AtomicUsize::new(0));
    futures::future::join_all(children.iter().map(async |child| {
        until("the end of the money", async || {
            loop {
                let answer = gateway.chat(child, body).await;
                match answer.status {
                    200 => _ = answered.fetch_add(1, Ordering::Relaxed),
                    _ => {
                        return (answer.json()["error"]["code"] == "insufficient_quota")
                            .then_some(());
                    }
                }
            }
        })
        .await;
    }))
    .await;
    let answered = answered.load(Ordering::Relaxed);
    assert!(
        (90..=100).contains(&answered) && a.count() == answered,
        "{answered} answers of ten cents, {} asked for",
        a.count()
    );
}

#[tokio::test]
async fn a_descent_ends_with_its_root_and_a_creation_is_told_once_more() {
    let (mut gateway, _a) = start(1).await;
    let admin = gateway.admin_key.clone();
    let top = make(&gateway, &admin, json!({})).await;
    let child = make(&gateway, &top.secret, json!({})).await;
    let grandchild = make(&gateway, &child.secret, json!({})).await;
    let beside = make(&gateway, &admin, json!({})).await;
    let named = async |key: &str, body: &[u8]| {
        let bearer = format!("Bearer {}", beside.secret);
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("idempotency-key", key),
        ];
        gateway.send("POST", ROUTER, &headers, Some(body)).await
    };
    let (first, again) = (named("one", b"{}").await, named("one", b"{}").await);
    assert_eq!(
        (first.status, first.text(), first.header("location")),
        (again.status, again.text(), again.header("location"))
    );
    let other = named("one", br#"{"name": "x"}"#).await;
    envelope::management(&other, 409, "conflict");
    let made = Key::of(&again);
    assert_eq!(probe(&gateway, &made).await, 200);

    let target = format!("{ROUTER}/{}?descendants=true", top.id);
    for _ in 0..2 {
        gateway.answers(204, "DELETE", &target, &admin, None).await;
    }
    for _ in 0..2 {
        for key in [&top, &child, &grandchild] {
            assert_eq!(probe(&gateway, key).await, 401);
        }
        assert_eq!((probe(&gateway, &beside).await, probe(&gateway, &made).await), (200, 200));
        gateway.kill_9();
        gateway.start_again().await;
    }
    let log = gateway.log();
    for key in [&top, &made] {
        assert!(!log.contains(&key.secret));
    }
}

#[tokio::test]
async fn when_a_key_was_last_used_survives_an_orderly_stop() {
    let (mut gateway, _a) = start(1).await;
    let admin = gateway.admin_key.clone();
    let key = make(&gateway, &admin, json!({})).await;
    let last = async |gateway: &Gateway| {
        let shown =
            gateway.manage("GET", &format!("{ROUTER}/{}", key.id), &admin, None).await.json();
        shown["last_used_at"].as_str().map(str::to_owned)
    };
    assert_eq!(last(&gateway).await, None);
    assert_eq!(probe(&gateway, &key).await, 200);
    let first = last(&gateway).await.expect("shown at once");
    gateway.restart().await;
    assert_eq!(last(&gateway).await.as_ref(), Some(&first));
    assert_eq!(probe(&gateway, &key).await, 200);
    assert!(last(&gateway).await.unwrap() > first);
}

/// What a client knows about a key.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    Good,
    Inactive,
    Dead,
    /// A request about the key was not answered.
    Either,
}

/// A client's journal: secrets, and what it knows about their keys.
type Journal = BTreeMap<String, Known>;

/// Makes, changes and ends keys until the gateway is gone. Returns the acknowledged results.
async fn work(address: SocketAddr, admin: String, acknowledged: Arc<AtomicUsize>) -> Journal {
    let mut journal = Journal::new();
    let Some(mut connection) = Connection::try_open(address).await else { return journal };
    let bearer = format!("Bearer {admin}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let mut send = async |method: &str, target: &str, body: &str| {
        let body = (!body.is_empty()).then_some(body.as_bytes());
        let request = client::request(method, target, &address.to_string(), &headers, body);
        let answer = connection.try_exchange(&request).await.filter(|answer| answer.whole)?;
        acknowledged.fetch_add(1, Ordering::SeqCst);
        Some(answer)
    };
    for n in 0_usize.. {
        let Some(made) = send("POST", ROUTER, "{}").await else { return journal };
        assert_eq!(made.status, 201, "{}", made.text());
        let key = Key::of(&made);
        journal.insert(key.secret.clone(), Known::Good);
        let target = format!("{ROUTER}/{}", key.id);
        let (method, target, body, then) = match n % 5 {
            0 => ("DELETE", format!("{target}?descendants=true"), "", Known::Dead),
            1 | 2 => ("DELETE", target, "", Known::Dead),
            3 => ("PATCH", target, r#"{"status":"inactive"}"#, Known::Inactive),
            _ => ("POST", format!("{target}/rotate"), "{}", Known::Dead),
        };
        journal.insert(key.secret.clone(), Known::Either);
        let Some(done) = send(method, &target, body).await else { return journal };
        assert!(matches!(done.status, 200 | 204), "{}", done.text());
        journal.insert(key.secret.clone(), then);
        if method == "POST" {
            journal.insert(Key::of(&done).secret, Known::Good);
        }
        // An owner may have only a limited number of live keys.
        if n % 5 >= 3 {
            let target = format!("{ROUTER}/{}", key.id);
            if n % 2 == 0 && send("DELETE", &target, "").await.is_none() {
                journal
                    .values_mut()
                    .filter(|known| matches!(known, Known::Good | Known::Inactive))
                    .for_each(|known| *known = Known::Either);
                return journal;
            } else if n % 2 == 0 {
                let rotated = (method == "POST").then(|| Key::of(&done).secret);
                journal.insert(rotated.unwrap_or(key.secret), Known::Dead);
            }
        }
    }
    journal
}

async fn check(gateway: &Gateway, journal: &Journal) {
    for (secret, known) in journal {
        let status = gateway.manage("GET", PROBE, secret, None).await.status;
        let good = match known {
            Known::Good => status == 200,
            Known::Inactive | Known::Dead => status == 401,
            Known::Either => matches!(status, 200 | 401),
        };
        assert!(good, "{known:?}, and now {status}");
    }
}

async fn sign_in(gateway: &Gateway, path: &str, email: &str) -> Value {
    let body = json!({"email": email, "password": "a long enough password"}).to_string();
    let answer = gateway
        .send("POST", path, &[("content-type", "application/json")], Some(body.as_bytes()))
        .await;
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill_and_nothing_that_ended_revives() {
    let (mut gateway, _a) = start(2).await;
    let admin = gateway.admin_key.clone();
    let (mut dead, mut sessions) = (Journal::new(), Vec::<(String, u16)>::new());
    for round in 0..if full() { 100 } else { 3 } {
        let email = format!("user{round}@example.com");
        sign_in(&gateway, "/v1/auth/register", &email).await;
        for keep in [true, false] {
            let token = sign_in(&gateway, "/v1/auth/login", &email).await["token"]
                .as_str()
                .unwrap()
                .to_owned();
            if !keep {
                gateway.answers(204, "POST", "/v1/auth/logout", &token, None).await;
            }
            sessions.push((token, if keep { 200 } else { 401 }));
        }
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..4)
            .map(|_| {
                tokio::spawn(work(gateway.address(), admin.clone(), Arc::clone(&acknowledged)))
            })
            .collect();
        // The number of acknowledgements before the kill differs in each round.
        let enough = 20 + usize::try_from(round).unwrap() % 17;
        until("acknowledgements", async || {
            (acknowledged.load(Ordering::SeqCst) >= enough).then_some(())
        })
        .await;
        gateway.kill_9();
        let mut journal = Journal::new();
        for client in clients {
            journal.extend(client.await.unwrap());
        }
        gateway.start_again().await;
        check(&gateway, &journal).await;
        check(&gateway, &dead).await;
        for (token, status) in &sessions {
            assert_eq!(gateway.manage("GET", "/v1/auth/me", token, None).await.status, *status);
        }
        assert_eq!(
            sign_in(&gateway, "/v1/auth/login", &email).await["user"]["email"],
            email.as_str()
        );
        dead.extend(journal.into_iter().filter(|(_, known)| *known == Known::Dead).take(20));
        if sessions.len() > 20 {
            sessions.drain(..10);
        }
        // Makes room for the keys of the next round.
        gateway.end_keys(ROUTER, &admin, "").await;
    }
}
