//! Property tests against privilege escalation. Nobody but an admin creates or changes users or
//! nodes, with any body. A body from an admin does what it says and nothing else. A node that
//! registers itself never gets more than its enrolment allows. Keys are in
//! `crates/core/src/api/tests/`.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

use crate::access::identity::{CLOUD_KEY, start};
use crate::support::client::Answer;
use crate::support::full;
use crate::support::gateway::Gateway;
use crate::support::node::Node;

const JSON: (&str, &str) = ("content-type", "application/json");

/// Draws a new value from a strategy on each call.
struct Draw(TestRunner);

impl Draw {
    fn one<S: Strategy>(&mut self, of: &S) -> S::Value {
        of.new_tree(&mut self.0).unwrap().current()
    }
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2i64..200).prop_map(Value::from),
        proptest::sample::select(vec![
            "",
            "admin",
            "user",
            "root",
            "usr_admin",
            "*",
            "a@example.com"
        ])
        .prop_map(Value::from),
        Just(json!({})),
        Just(json!([])),
    ]
}

fn object(
    member: impl Strategy<Value = (String, Value)>,
    most: usize,
) -> impl Strategy<Value = Value> {
    proptest::collection::vec(member, 0..most)
        .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>()))
}

/// A body for a user, mostly with known fields and valid values.
fn user() -> impl Strategy<Value = Value> {
    let limit = prop_oneof![
        ("rpm|tpm|concurrency|keys_per_user", (1u64..90).prop_map(Value::from)),
        ("budget", Just(json!({"usd": 5, "per": "day"}))),
        ("models|rpm|rps|budget", scalar()),
    ];
    let member = prop_oneof![
        5 => ("role", proptest::sample::select(vec!["admin", "user"]).prop_map(Value::from)),
        3 => ("disabled", any::<bool>().prop_map(Value::from)),
        3 => ("limits", object(limit, 3)),
        3 => ("name", "[a-z]{1,8}".prop_map(Value::from)),
        1 => ("email|password|role|disabled|limits|name|labels|id|object|created_at|scopes|owner|\
            secret|status", scalar()),
    ];
    object(member, 4)
}

async fn listed(gateway: &Gateway, path: &str) -> Value {
    let answer =
        gateway.answers(200, "GET", &format!("{path}?limit=100"), &gateway.admin_key, None).await;
    answer.json()
}

async fn id_of(gateway: &Gateway, token: &str) -> String {
    gateway.manage("GET", "/v1/auth/me", token, None).await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

async fn key(gateway: &Gateway, path: &str, by: &str, body: Value) -> String {
    let made = gateway.answers(201, "POST", path, by, Some(&body)).await;
    made.json()["key"].as_str().unwrap().to_owned()
}

async fn set_role(gateway: &Gateway, id: &str, role: &str) {
    gateway
        .answers(
            200,
            "PATCH",
            &format!("/v1/users/{id}"),
            &gateway.admin_key,
            Some(&json!({ "role": role })),
        )
        .await;
}

/// Credentials of everybody who is not an admin, or whose key does not act as an admin's, by
/// description.
async fn others(gateway: &Gateway, ann: &str, bob: &str) -> BTreeMap<&'static str, Option<String>> {
    let admin = gateway.admin_key.as_str();
    let owner = json!(id_of(gateway, ann).await);
    let mut found = BTreeMap::from([
        ("nobody", None),
        ("a member", Some(ann.to_owned())),
        ("AGENT's own", Some(CLOUD_KEY.to_owned())),
    ]);
    let given = json!({"scopes": ["user", "admin"], "owner": owner});
    found.insert(
        "a member's key that says admin",
        Some(key(gateway, "/v1/apikeys", admin, given).await),
    );
    let given = json!({
        "scopes": ["inference", "replay:all", "keys", "evaluate", "config", "admin"], "owner": owner
    });
    found.insert(
        "a member's ROUTER key with all scopes",
        Some(key(gateway, "/v1/router/keys", admin, given).await),
    );
    found.insert("a member's key", Some(key(gateway, "/v1/apikeys", ann, json!({})).await));
    found.insert("an AGENT key", Some(key(gateway, "/v1/api-keys", CLOUD_KEY, json!({})).await));
    // Keys of an admin without the scope `admin`, or for another interface.
    found.insert("an admin's plain key", Some(key(gateway, "/v1/apikeys", bob, json!({})).await));
    found.insert(
        "an admin's ROUTER key",
        Some(key(gateway, "/v1/router/keys", bob, json!({"scopes": ["admin", "keys"]})).await),
    );
    found
}

#[tokio::test]
async fn nobody_but_an_admin_changes_users_or_nodes_by_whatever_body() {
    let (gateway, _provider) = start(|setup| setup.env("AGENT_CLOUD_API_KEY", CLOUD_KEY)).await;
    let (ann, bob) =
        (gateway.session("ann@example.com").await, gateway.session("bob@example.com").await);
    let (own, other) = (id_of(&gateway, &ann).await, id_of(&gateway, &bob).await);
    let node = Node::enrol(&gateway, "rack", json!({})).await;
    set_role(&gateway, &other, "admin").await;
    let mut callers = others(&gateway, &ann, &bob).await;
    let lapsed = key(&gateway, "/v1/apikeys", &bob, json!({"scopes": ["user", "admin"]})).await;
    gateway.answers(200, "GET", "/v1/users", &lapsed, None).await;
    set_role(&gateway, &other, "user").await;
    callers.extend([("who was an admin", Some(bob)), ("a key of who was an admin", Some(lapsed))]);
    let mut before = Vec::new();
    for path in ["/v1/users", "/v1/nodes", "/v1/audit"] {
        before.push(listed(&gateway, path).await);
    }
    let (mut draw, bodies) = (Draw(TestRunner::default()), user());
    let id = &node.id;
    for (who, secret) in &callers {
        let bearer = secret.as_ref().map(|secret| format!("Bearer {secret}"));
        for _ in 0..if full() { 100 } else { 6 } {
            for (method, path) in [
                ("POST", "/v1/users".to_owned()),
                ("PATCH", format!("/v1/users/{own}")),
                ("PATCH", format!("/v1/users/{other}")),
                ("PATCH", "/v1/users/usr_admin".to_owned()),
                ("POST", "/v1/nodes".to_owned()),
                ("POST", format!("/v1/nodes/{id}/rotate")),
                ("DELETE", format!("/v1/nodes/{id}")),
                ("GET", format!("/v1/users/{own}")),
                ("GET", "/v1/nodes".to_owned()),
            ] {
                let mut body = draw.one(&bodies);
                if method == "POST" {
                    body["email"] = json!("eve@example.com");
                    body["password"] = json!("correct horse");
                }
                let headers: Vec<(&str, &str)> = bearer
                    .iter()
                    .map(|bearer| ("authorization", bearer.as_str()))
                    .chain([JSON])
                    .collect();
                let text = (method != "GET").then(|| body.to_string());
                let answer =
                    gateway.send(method, &path, &headers, text.as_deref().map(str::as_bytes)).await;
                assert!(
                    matches!(answer.status, 401 | 403),
                    "{method} {path} by {who}: {body}: {} {}",
                    answer.status,
                    answer.text()
                );
            }
        }
    }
    for (path, before) in ["/v1/users", "/v1/nodes", "/v1/audit"].into_iter().zip(before) {
        assert_eq!(listed(&gateway, path).await, before, "{path}");
    }
}

/// What user `before` becomes if `body` is accepted as a patch.
fn wanted(before: &Value, body: &Value) -> Value {
    let mut user = before.clone();
    for name in ["name", "role", "disabled"] {
        if let Some(value) = body.get(name) {
            user[name] = value.clone();
        }
    }
    match body.get("limits") {
        Some(Value::Null) => user["limits"] = json!({}),
        Some(limits) => user["limits"] = merged(&user["limits"], limits),
        None => {}
    }
    user
}

/// Applies a merge patch (RFC 7396).
fn merged(before: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut all = before.as_object().cloned().unwrap_or_default();
    for (name, value) in patch {
        match value {
            Value::Null => _ = all.remove(name),
            value => {
                _ = all
                    .insert(name.clone(), merged(before.get(name).unwrap_or(&Value::Null), value))
            }
        }
    }
    Value::Object(all)
}

/// Whether two values are equal, with numbers compared by value.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(name, value)| other.get(name).is_some_and(|other| same(value, other)))
        }
        _ => one == other,
    }
}

#[tokio::test]
async fn an_admin_s_bodies_do_what_they_say_of_a_user_and_nothing_else() {
    let (gateway, _provider) = start(|setup| setup).await;
    let (ann, bob) =
        (gateway.session("ann@example.com").await, gateway.session("bob@example.com").await);
    let (own, other) = (id_of(&gateway, &ann).await, id_of(&gateway, &bob).await);
    set_role(&gateway, &other, "admin").await;
    let (mut draw, bodies) = (Draw(TestRunner::default()), user());
    let (path, mut taken) = (format!("/v1/users/{own}"), 0);
    let admins =
        gateway.manage("GET", &format!("/v1/users/{other}"), &gateway.admin_key, None).await.json();
    for n in 0..if full() { 1_000 } else { 80 } {
        let body = draw.one(&bodies);
        let before = gateway.manage("GET", &path, &bob, None).await.json();
        let by = if n % 2 == 0 { &bob } else { &gateway.admin_key };
        let answer = gateway.manage("PATCH", &path, by, Some(&body)).await;
        let after = gateway.manage("GET", &path, &bob, None).await.json();
        let expected = match answer.status {
            200 => wanted(&before, &body),
            _ => before,
        };
        taken += usize::from(answer.status == 200);
        assert!(matches!(answer.status, 200 | 400), "{body}: {}", answer.text());
        assert!(same(&after, &expected), "{body}: {after} and not {expected}");
        // A disabled user has no session. After the next login, the role is the new one.
        let me = gateway.manage("GET", "/v1/auth/me", &ann, None).await;
        assert!(me.status == 401 || me.json()["role"] == after["role"], "{}", me.text());
    }
    assert!(taken > 20, "{taken} were taken");
    let mut made = 0;
    for n in 0..if full() { 200 } else { 24 } {
        let mut body = draw.one(&bodies);
        (body["email"], body["password"]) =
            (json!(format!("{n}@example.com")), json!("correct horse"));
        let answer = gateway.manage("POST", "/v1/users", &bob, Some(&body)).await;
        if answer.status == 201 {
            made += 1;
            let record = answer.json();
            let plain = json!({"name": null, "role": "user", "disabled": false, "limits": {}});
            let mut expected = record.clone();
            for (name, value) in wanted(&plain, &body).as_object().unwrap() {
                expected[name] = value.clone();
            }
            // A null counts as an absent field.
            expected["role"] =
                body.get("role").filter(|role| !role.is_null()).cloned().unwrap_or(json!("user"));
            assert!(same(&record, &expected), "{body}: {record}");
            assert!(
                body.get("disabled").is_none_or(Value::is_null) && record["labels"] == json!({}),
                "{body}: {record}"
            );
        }
    }
    assert!(made > 3, "{made} were made");
    assert_eq!(
        gateway.manage("GET", &format!("/v1/users/{other}"), &gateway.admin_key, None).await.json(),
        admins
    );
}

/// A registration of a node, with names, addresses and fields inside and outside its enrolment.
fn registration(port: u16) -> impl Strategy<Value = Value> {
    let name = || {
        prop_oneof![
            6 => proptest::sample::select(vec!["qwen", "qwen-2", "llama"]),
            1 => proptest::sample::select(
                vec!["llama-3", "gpt-5", "*", "", "qwen/../gpt", "QWEN", "nodes/qwen"]
            ),
        ]
    };
    let model = prop_oneof![
        12 => name().prop_map(|id| json!({ "id": id })),
        2 => (name(), 1u64..1_000_000).prop_map(
            |(id, context)| json!({"id": id, "context": context, "capabilities": ["tools"]})
        ),
        1 => scalar(),
    ];
    let at = |rest: String| json!(rest);
    let endpoint = prop_oneof![
        14 => Just(at(format!("http://127.0.0.1:{port}/v1"))),
        4 => Just(at(format!("http://127.0.0.1:{port}"))),
        1 => Just(at(format!("http://127.0.0.1:{}/v1", port + 1))),
        1 => Just(at(format!("http://localhost:{port}/v1"))),
        1 => Just(at(format!("https://127.0.0.1:{port}/v1"))),
        1 => Just(at(format!("http://user@127.0.0.1:{port}/v1"))),
        1 => Just(at(format!("http://127.0.0.1:{port}/v1/../../admin"))),
        1 => Just(at(format!("http://127.0.0.1:{port}/v2"))),
        1 => Just(at("http://169.254.169.254/v1".to_owned())),
        1 => scalar(),
    ];
    let more = prop_oneof![
        9 => Just(("labels".to_owned(), json!({"a": "b"}))),
        2 => ("max_concurrency", (1u64..9).prop_map(Value::from)),
        2 => ("name|secret|generation|scopes|role|state|id|enrolment|epoch|max_concurrency|labels|\
            api_key", scalar()),
    ];
    (proptest::collection::vec(model, 1..4), endpoint, object(more, 3)).prop_map(
        |(models, endpoint, mut body)| {
            (body["version"], body["endpoint"], body["models"]) =
                (json!("1"), endpoint, json!(models));
            body
        },
    )
}

#[tokio::test]
async fn a_node_is_never_more_than_its_enrolment_whatever_it_says() {
    let (gateway, provider) = start(|setup| setup).await;
    let port = provider.address().port();
    let base = format!("http://127.0.0.1:{port}/v1");
    let node =
        Node::enrol(&gateway, "rack", json!({"models": ["qwen*", "llama"], "endpoint": base}))
            .await;
    let enrolled = node.shown(&gateway).await;
    let (mut draw, bodies) = (Draw(TestRunner::default()), registration(port));
    let (mut taken, mut refused, mut seq) = (0, 0, 0);
    for n in 0..if full() { 1_000 } else { 120 } {
        let body = draw.one(&bodies);
        let before = node.shown(&gateway).await["registered"].clone();
        let answer: Answer = match n % 3 {
            2 => {
                seq += 1;
                let report = json!({
                    "seq": seq, "status": "ready", "running": 0, "queued": 0,
                    "models": body["models"]
                });
                node.call(&gateway, "heartbeat", &report).await
            }
            _ => node.call(&gateway, "register", &body).await,
        };
        let shown = node.shown(&gateway).await;
        for field in ["id", "name", "models", "endpoint", "generation", "object", "created_at"] {
            assert_eq!(shown[field], enrolled[field], "{field}: {body}");
        }
        let said = &shown["registered"];
        if answer.status == 200 {
            taken += 1;
            let ids = said["models"]
                .as_array()
                .unwrap()
                .iter()
                .map(|model| model["id"].as_str().unwrap());
            assert!(
                ids.into_iter().all(|id| id.starts_with("qwen") || id == "llama"),
                "{body}: {said}"
            );
            assert!(
                [json!(base), json!(base.trim_end_matches("/v1"))].contains(&said["endpoint"]),
                "{body}: {said}"
            );
        } else {
            refused += 1;
            assert!(
                matches!(answer.status, 400 | 403 | 409),
                "{body}: {} {}",
                answer.status,
                answer.text()
            );
            assert_eq!(*said, before, "{body}");
        }
        if answer.status == 200 && n % 3 != 2 {
            // A registration starts `seq` over.
            seq = 0;
        }
    }
    assert!(taken > 10 && refused > 20, "{taken} were taken, {refused} refused");
}
