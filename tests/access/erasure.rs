//! Erased captures are gone for every caller when the call returns, and nothing else is erased.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::captures::on_disk::files;
use crate::support::client::{Answer, find};
use crate::support::documents::{chat_body, in_order};
use crate::support::fleet::fleet;
use crate::support::gateway::{Gateway, Key};
use crate::support::postgres::Cluster;
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::until;

const REPLAYS: &str = "/v1/router/replay";
const KEYS: &str = "/v1/router/keys";

async fn start() -> (Gateway, Provider) {
    let provider = Provider::always(scripted::completion("well")).await;
    (Gateway::start(&in_order(&[("a", &provider.url())], "")).await, provider)
}

/// Sends a request. Returns the id of its capture.
async fn ask(gateway: &Gateway, key: &Key) -> String {
    let answer = gateway.chat(key, chat_body("auto", false).as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    gateway.capture(&answer.request_id()).await;
    answer.request_id()
}

async fn erase(gateway: &Gateway, by: &str, query: &str) -> Answer {
    gateway.manage("DELETE", &format!("{REPLAYS}{query}"), by, None).await
}

async fn erased(gateway: &Gateway, by: &str, query: &str) -> Value {
    let answer = erase(gateway, by, query).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()["deleted"].clone()
}

/// The ids of all captures.
async fn left(gateway: &Gateway) -> BTreeSet<String> {
    let path = format!("{REPLAYS}?limit=100");
    let page = gateway.manage("GET", &path, &gateway.admin_key, None).await.json();
    let ids = page["data"].as_array().unwrap().iter();
    ids.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

fn set<const N: usize>(ids: [&String; N]) -> BTreeSet<String> {
    ids.into_iter().cloned().collect()
}

async fn user_id(gateway: &Gateway, token: &str) -> String {
    let me = gateway.manage("GET", "/v1/auth/me", token, None).await.json();
    me["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn captures_leave_by_key_time_and_user_within_reach() {
    let (mut gateway, _provider) = start().await;
    let admin = gateway.admin_key.clone();
    let (ann, bob) =
        (gateway.session("ann@example.com").await, gateway.session("bob@example.com").await);
    let scopes = json!({"scopes": ["inference", "replay", "keys"]});
    let parent = gateway.make_key(KEYS, &ann, &scopes).await;
    let child = json!({"scopes": ["inference"]});
    let child = gateway.make_key(KEYS, &parent.secret, &child).await;
    let other = gateway.make_key(KEYS, &ann, &json!({})).await;
    let bobs = gateway.make_key(KEYS, &bob, &json!({})).await;
    let admins = gateway.create_key().await;
    let (first, second) = (ask(&gateway, &parent).await, ask(&gateway, &parent).await);
    let of_child = ask(&gateway, &child).await;
    let of_other = ask(&gateway, &other).await;
    let of_bob = ask(&gateway, &bobs).await;
    let of_admin = ask(&gateway, &admins).await;
    let bob_id = user_id(&gateway, &bob).await;
    let of_bobs = format!("?user={bob_id}");
    for (by, query, status, told) in [
        (&admin, "", 400, "user"),
        (&parent.secret, "?", 400, "key"),
        (&admin, "?owner=usr_1", 400, "Unknown parameter"),
        (&admin, "?until=yesterday", 400, "RFC 3339"),
        (&admin, "?key=mine", 400, "id of a key"),
        (&admin, "?user=ann@example.com", 400, "user must be the id of a user."),
        (&admin, "?user=usr_agents", 400, "user must be the id of a user."),
        (&ann, of_bobs.as_str(), 403, "admin"),
        (&parent.secret, of_bobs.as_str(), 403, "admin"),
        (&child.secret, "?until=2999-01-01T00:00:00Z", 403, "replay"),
    ] {
        let refused = erase(&gateway, by, query).await;
        assert_eq!(refused.status, status, "{query}: {}", refused.text());
        assert!(refused.text().contains(told), "{query}: {}", refused.text());
    }
    let all = set([&first, &second, &of_child, &of_other, &of_bob, &of_admin]);
    assert_eq!(left(&gateway).await, all);
    let reroute = format!("{REPLAYS}/{of_other}/reroute");
    let rerouted = gateway.answers(200, "POST", &reroute, &admin, None).await;
    gateway.capture(rerouted.json()["new_id"].as_str().unwrap()).await;

    // Captures beyond the caller's reach are not erased.
    assert_eq!(erased(&gateway, &parent.secret, &format!("?key={}", other.id)).await, 0);
    assert_eq!(erased(&gateway, &ann, &format!("?key={}", bobs.id)).await, 0);
    // First a descendant key's captures, then what the caller's line has made until a time.
    let query = format!("?key={}", child.id);
    assert_eq!(erased(&gateway, &parent.secret, &query).await, 1);
    assert_eq!(erased(&gateway, &parent.secret, &query).await, 0, "again");
    let at = gateway.capture(&second).await["created_at"].as_str().unwrap().to_owned();
    assert_eq!(erased(&gateway, &parent.secret, &format!("?until={at}")).await, 1);
    // A replay belongs to the same key as its original.
    assert_eq!(erased(&gateway, &ann, &format!("?key={}", other.id)).await, 2);
    // All filters of the query must match.
    let query = format!("?user={bob_id}&key={}", parent.id);
    assert_eq!(erased(&gateway, &admin, &query).await, 0);
    let query = format!("?user={bob_id}&key={}&until=2001-01-01T00:00:00Z", bobs.id);
    assert_eq!(erased(&gateway, &admin, &query).await, 0);
    assert_eq!(left(&gateway).await, set([&second, &of_bob, &of_admin]));
    assert_eq!(erased(&gateway, &admin, "?user=usr_00000000000000000000000000").await, 0, "nobody");
    assert_eq!(erased(&gateway, &admin, &of_bobs).await, 1);
    gateway.kill_9();
    gateway.start_again().await;
    assert_eq!(left(&gateway).await, set([&second, &of_admin]));
    let until = "?until=2999-01-01T00:00:00Z";
    assert_eq!(erased(&gateway, &admin, until).await, 2);
    assert!(left(&gateway).await.is_empty());

    let rows = "/v1/audit?limit=100&action=capture.erase";
    let rows = gateway.manage("GET", rows, &admin, None).await.json();
    let rows = rows["data"].as_array().unwrap();
    assert_eq!(rows.len(), 11, "a row for each call that was not refused: {rows:?}");
    let target = json!({"type": "captures", "id": "until=2999-01-01T00:00:00Z"});
    assert_eq!(rows[0]["target"], target);
    assert_eq!(rows[8]["target"]["id"], format!("key={}", child.id));
    assert_eq!(rows[8]["actor"], json!({"type": "api_key", "id": parent.id}));

    // An erasure counts against the rate limits of its key.
    let limited = json!({"scopes": ["replay"], "limits": {"rpm": 1}});
    let limited = gateway.make_key(KEYS, &admin, &limited).await;
    assert_eq!(erased(&gateway, &limited.secret, until).await, 0);
    assert_eq!(erase(&gateway, &limited.secret, until).await.status, 429);
}

/// A capture that is not yet written when its key is erased is never written.
#[tokio::test]
async fn what_is_under_way_is_erased_too() {
    let gates = [Arc::new(Notify::new()), Arc::new(Notify::new())];
    let held = gates.clone();
    let provider = Provider::start(move |_, number| {
        vec![
            scripted::stream_head(),
            Step::Chunk(scripted::content_event("a").into_bytes()),
            Step::Wait(Arc::clone(&held[number % 2])),
            Step::Chunk(scripted::last_events().into_bytes()),
            Step::Chunk(Vec::new()),
        ]
    })
    .await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let (key, other) = (gateway.create_key().await, gateway.create_key().await);
    let body = chat_body("auto", true);
    let asked = async |key: &Key| gateway.chat(key, body.as_bytes()).await.request_id();
    let erase = async {
        until("both at the provider", async || (provider.count() == 2).then_some(())).await;
        let query = format!("?key={}", key.id);
        assert_eq!(erased(&gateway, &gateway.admin_key, &query).await, 0);
        gates.iter().for_each(|gate| gate.notify_one());
    };
    let (_gone, kept, ()) = tokio::join!(asked(&key), asked(&other), erase);
    gateway.capture(&kept).await;
    assert_eq!(left(&gateway).await, set([&kept]));
    until("the other one to be left out", async || {
        let deleted = gateway.metric("rerouter_captures_total", &["outcome=\"deleted\""]).await;
        (deleted == 1.0).then_some(())
    })
    .await;
}

async fn delete_user(gateway: &Gateway, by: &str, id: &str) -> u16 {
    gateway.manage("DELETE", &format!("/v1/users/{id}"), by, None).await.status
}

#[tokio::test]
async fn a_deleted_user_leaves_usage_and_audit_under_the_id_alone() {
    let (mut gateway, _provider) = start().await;
    let admin = gateway.admin_key.clone();
    let (ann, bob) =
        (gateway.session("ann@example.com").await, gateway.session("bob@example.com").await);
    let (id, bobs_id) = (user_id(&gateway, &ann).await, user_id(&gateway, &bob).await);
    let named = json!({"name": "Anns-canary-laptop", "metadata": {"of": "Anns-canary"},
        "scopes": ["inference", "keys"]});
    let key = gateway.make_key(KEYS, &ann, &named).await;
    let child = json!({"scopes": ["inference"]});
    let child = gateway.make_key(KEYS, &key.secret, &child).await;
    let bobs = gateway.make_key(KEYS, &bob, &json!({})).await;
    let (_, _, of_bob) =
        (ask(&gateway, &key).await, ask(&gateway, &child).await, ask(&gateway, &bobs).await);
    let used = async |gateway: &Gateway| {
        let usage = "/v1/router/usage?group_by=user";
        let usage = gateway.manage("GET", usage, &gateway.admin_key, None).await.json();
        let rows = usage["data"].as_array().unwrap();
        let of_user = rows.iter().find(|row| row["user"] == id.as_str())?;
        (of_user["requests"] == 2).then_some(())
    };
    until("usage", async || used(&gateway).await).await;
    for (by, id, status) in [
        (&admin, "usr_admin", 409),
        (&admin, "usr_00000000000000000000000000", 404),
        (&ann, id.as_str(), 403),
        (&bob, id.as_str(), 403),
    ] {
        assert_eq!(delete_user(&gateway, by, id).await, status, "{id}");
    }
    assert_eq!(delete_user(&gateway, &admin, &id).await, 204);
    for secret in [&key, &child] {
        let body = chat_body("auto", false);
        assert_eq!(gateway.chat(secret, body.as_bytes()).await.status, 401);
    }
    gateway.answers(401, "GET", "/v1/auth/me", &ann, None).await;
    assert_eq!(left(&gateway).await, set([&of_bob]));
    assert_eq!(delete_user(&gateway, &admin, &id).await, 404, "again");
    let users = gateway.manage("GET", "/v1/users", &admin, None).await.text();
    assert!(users.contains("bob@example.com") && !users.contains("ann@example.com"), "{users}");
    let rows = gateway.manage("GET", &format!("/v1/audit?target={id}"), &admin, None).await.json();
    let actions: Vec<&str> = rows["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["action"].as_str().unwrap())
        .collect();
    assert_eq!(actions.first(), Some(&"user.delete"), "{actions:?}");
    gateway.stop().await;
    for path in files(&gateway.dir().join("data")) {
        for text in ["ann@example.com", "Anns-canary"] {
            let found = find(&std::fs::read(&path).unwrap(), text.as_bytes());
            assert!(found.is_none(), "{text} is in {}", path.display());
        }
    }
    gateway.start_again().await;
    until("usage", async || used(&gateway).await).await;
    let again = gateway.session("ann@example.com").await;
    assert_ne!(user_id(&gateway, &again).await, id);

    // The last admin cannot be deleted, but a disabled one can, as after a deletion that broke off.
    let path = format!("/v1/users/{bobs_id}");
    let role = json!({"role": "admin"});
    gateway.answers(200, "PATCH", &path, &admin, Some(&role)).await;
    let bob = gateway.session("bob@example.com").await;
    assert_eq!(delete_user(&gateway, &bob, &bobs_id).await, 409);
    let disabled = json!({"disabled": true});
    gateway.answers(200, "PATCH", &path, &admin, Some(&disabled)).await;
    assert_eq!(delete_user(&gateway, &admin, &bobs_id).await, 204);
    assert!(left(&gateway).await.is_empty());
}

#[tokio::test]
async fn what_one_gateway_erases_is_gone_at_all() {
    let members = fleet(Cluster::shared(), 2, "10s", "").await;
    let (a, b) = (&members[0].gateway, &members[1].gateway);
    let token = a.session("ann@example.com").await;
    let (mine, anns) = (a.create_key().await, a.make_key(KEYS, &token, &json!({})).await);
    let body = chat_body("auto", false);
    let ask = async |gateway: &Gateway, key: &Key| {
        assert_eq!(gateway.chat(key, body.as_bytes()).await.status, 200);
    };
    ask(a, &mine).await;
    ask(a, &mine).await;
    // The latest captures of the other gateway are not in the index yet.
    let query = format!("?key={}", mine.id);
    assert_eq!(erased(b, &b.admin_key, &query).await, 2);
    assert!(left(a).await.is_empty() && left(b).await.is_empty());
    ask(a, &anns).await;
    ask(b, &anns).await;
    let id = user_id(a, &token).await;
    assert_eq!(delete_user(b, &b.admin_key, &id).await, 204);
    for gateway in [a, b] {
        assert_eq!(gateway.chat(&anns, body.as_bytes()).await.status, 401);
        gateway.answers(401, "GET", "/v1/auth/me", &token, None).await;
        assert_eq!(delete_user(gateway, &gateway.admin_key, &id).await, 404);
        assert!(left(gateway).await.is_empty());
    }
}
