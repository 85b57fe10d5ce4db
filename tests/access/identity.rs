//! Who may call what: the table of routes, which `entrances` and `routes` try as strangers, and
//! each scope. Then whole lives of keys, sessions and agents, over sockets, restarts and a killed
//! process.

use std::collections::BTreeMap;
use std::time::Duration;

use rerouter::internals::api::{Policy, ROUTES};
use rerouter::internals::interface::{Interface, Surface};
use serde_json::{Value, json};

use crate::support::client::{self, Answer, pairs};
use crate::support::documents::{chat_body, in_order};
use crate::support::envelope;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

pub const CLOUD_KEY: &str = "agent-cloud-canary-0123456789abcdef";
pub const NO_KEY: &str = "key_00000000000000000000000000";
const NO_CAPTURE: &str = "req_00000000000000000000000000";
const NO_NODE: &str = "node_00000000000000000000000000";
const NO_AGENT: &str = "agent_00000000000000000000000000";

/// The kind of object that the `{…}` in a path names.
#[derive(Clone, Copy, PartialEq)]
pub enum Object {
    /// The path has no object.
    None,
    PinKey,
    RouterKey,
    /// AGENT has only one tenant, so somebody else's object is a key of another interface.
    AgentKey,
    Capture,
    /// All callers share these objects, so the only id to try is one that does not exist.
    Shared(&'static str),
    /// Admins see all of these objects, and other callers none.
    Admins(&'static str),
}

/// Method, path, object, and a status: that of a request with a valid credential of the interface,
/// no body, and an object that does not exist.
pub type Row = (&'static str, &'static str, Object, u16);

/// One row for each of `api::ROUTES`. A test fails for a route without a row.
#[rustfmt::skip]
pub const ROWS: &[Row] = &[
    ("GET", "/health", Object::None, 200),
    ("GET", "/version", Object::None, 200),
    ("GET", "/openapi.json", Object::None, 200),
    ("POST", "/v1/auth/register", Object::None, 400),
    ("POST", "/v1/auth/login", Object::None, 400),
    ("GET", "/v1/auth/me", Object::None, 200),
    ("POST", "/v1/auth/logout", Object::None, 403),
    ("POST", "/v1/auth/password", Object::None, 403),
    ("POST", "/v1/apikeys", Object::None, 201),
    ("GET", "/v1/apikeys", Object::None, 200),
    ("GET", "/v1/apikeys/{id}", Object::PinKey, 404),
    ("PATCH", "/v1/apikeys/{id}", Object::PinKey, 404),
    ("DELETE", "/v1/apikeys/{id}", Object::PinKey, 404),
    ("POST", "/v1/apikeys/{id}/rotate", Object::PinKey, 404),
    // Only for admins.
    ("POST", "/v1/users", Object::None, 403),
    ("GET", "/v1/users", Object::None, 403),
    ("GET", "/v1/users/{id}", Object::Admins("usr_00000000000000000000000000"), 403),
    ("PATCH", "/v1/users/{id}", Object::Admins("usr_00000000000000000000000000"), 403),
    ("DELETE", "/v1/users/{id}", Object::Admins("usr_00000000000000000000000000"), 403),
    ("GET", "/v1/audit", Object::None, 403),
    ("GET", "/v1/gateways", Object::None, 403),
    ("DELETE", "/v1/gateways/{id}", Object::Shared("gw_00000000000000000000000000"), 403),
    // Only admins may use these.
    ("POST", "/v1/nodes", Object::None, 403),
    ("GET", "/v1/nodes", Object::None, 403),
    ("GET", "/v1/nodes/{id}", Object::Shared(NO_NODE), 403),
    ("DELETE", "/v1/nodes/{id}", Object::Shared(NO_NODE), 403),
    ("POST", "/v1/nodes/{id}/rotate", Object::Shared(NO_NODE), 403),
    // Signed requests: no key or session is valid there (tests/nodes/enrolment.rs).
    ("POST", "/v1/agent/register", Object::None, 401),
    ("POST", "/v1/agent/heartbeat", Object::None, 401),
    ("POST", "/v1/agent/events", Object::None, 401),
    ("POST", "/v1/agent/deregister", Object::None, 401),
    ("POST", "/v1/agents", Object::None, 400),
    ("GET", "/v1/agents", Object::None, 200),
    ("GET", "/v1/agents/{id}", Object::Shared(NO_AGENT), 404),
    // A patch without a body is invalid.
    ("PATCH", "/v1/agents/{id}", Object::Shared(NO_AGENT), 400),
    ("DELETE", "/v1/agents/{id}", Object::Shared(NO_AGENT), 404),
    ("POST", "/v1/api-keys", Object::None, 201),
    ("GET", "/v1/api-keys", Object::None, 200),
    ("GET", "/v1/api-keys/{id}", Object::AgentKey, 404),
    ("PATCH", "/v1/api-keys/{id}", Object::AgentKey, 404),
    ("DELETE", "/v1/api-keys/{id}", Object::AgentKey, 404),
    ("POST", "/v1/api-keys/{id}/rotate", Object::AgentKey, 404),
    ("POST", "/v1/router/keys", Object::None, 201),
    ("GET", "/v1/router/keys", Object::None, 200),
    ("GET", "/v1/router/keys/{id}", Object::RouterKey, 404),
    ("PATCH", "/v1/router/keys/{id}", Object::RouterKey, 404),
    ("DELETE", "/v1/router/keys/{id}", Object::RouterKey, 404),
    ("POST", "/v1/router/keys/{id}/rotate", Object::RouterKey, 404),
    ("GET", "/v1/router/replay", Object::None, 200),
    ("DELETE", "/v1/router/replay", Object::None, 400),
    ("GET", "/v1/router/replay/{id}", Object::Capture, 404),
    ("DELETE", "/v1/router/replay/{id}", Object::Capture, 404),
    ("GET", "/v1/router/replay/{id}/compare/{other}", Object::Capture, 404),
    ("POST", "/v1/router/replay/{id}/reroute", Object::Capture, 404),
    ("POST", "/v1/router/decide", Object::None, 400),
    ("POST", "/v1/router/replay/evaluate", Object::None, 200),
    ("POST", "/v1/router/replay/import", Object::None, 403),
    // A key has this scope only if an admin gave it.
    ("GET", "/v1/router/providers", Object::None, 403),
    ("GET", "/v1/router/status", Object::None, 403),
    ("GET", "/v1/router/config", Object::None, 403),
    ("PUT", "/v1/router/config", Object::None, 403),
    ("POST", "/v1/router/config/validate", Object::None, 403),
    ("GET", "/v1/router/config/revisions", Object::None, 403),
    ("GET", "/v1/router/config/revisions/{revision}", Object::Shared("000000000000"), 403),
    ("POST", "/v1/router/config/rollback", Object::None, 403),
    ("GET", "/v1/router/usage", Object::None, 200),
    ("PATCH", "/v1/router/usage", Object::None, 403),
    ("GET", "/v1/router/usage/lost", Object::None, 403),
    ("GET", "/v1/models", Object::None, 200),
    ("GET", "/v1/models/{id...}", Object::Shared("nothing"), 404),
    ("POST", "/v1/chat/completions", Object::None, 400),
    ("POST", "/v1/embeddings", Object::None, 400),
    ("POST", "/v1/responses", Object::None, 400),
    ("POST", "/v1/messages", Object::None, 400),
    ("POST", "/v1/messages/count_tokens", Object::None, 400),
];

/// For each interface: its name, the path of its keys, and a path that shows whether a credential
/// is valid there.
pub const KEYS: [(&str, &str, &str); 3] = [
    ("pin", "/v1/apikeys", "/v1/auth/me"),
    ("agent", "/v1/api-keys", "/v1/agents"),
    ("router", "/v1/router/keys", "/v1/router/keys"),
];

pub async fn start(setup: impl FnOnce(Setup) -> Setup) -> (Gateway, Provider) {
    let a = Provider::always(scripted::completion("hello")).await;
    (setup(Setup::new(&in_order(&[("a", &a.url())], ""))).start().await, a)
}

pub async fn make(gateway: &Gateway, path: &str, credential: &str) -> Key {
    let scopes = json!({ "scopes": ["inference", "replay", "keys"] });
    let body = (path == "/v1/router/keys").then_some(&scopes);
    let answer = gateway.answers(201, "POST", path, credential, body).await;
    let record = answer.json();
    assert_eq!(
        answer.header("location"),
        Some(format!("{path}/{}", record["id"].as_str().unwrap()).as_str())
    );
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    Key::of(&answer)
}

async fn revoke(gateway: &Gateway, path: &str, credential: &str, key: &Key) {
    for _ in 0..2 {
        let done = gateway.manage("DELETE", &format!("{path}/{}", key.id), credential, None).await;
        assert_eq!((done.status, done.body.len()), (204, 0), "again the same");
    }
}

/// Asserts that a 401 has the envelope and the challenges of its surface.
pub fn check_401(surface: Surface, answer: &Answer) {
    let challenges = match surface {
        Surface::Agent => {
            envelope::agent(answer, 401, "Unauthorized");
            vec!["Bearer realm=\"agent\"", "ApiKey realm=\"agent\""]
        }
        Surface::DataPlane => {
            envelope::openai(answer, 401, "invalid_request_error", Some("invalid_api_key"));
            vec!["Bearer realm=\"router\""]
        }
        Surface::Messages => {
            envelope::anthropic(answer, 401, "authentication_error");
            vec!["Bearer realm=\"router\""]
        }
        Surface::RouterManagement => {
            envelope::management(answer, 401, "unauthorized");
            vec!["Bearer realm=\"router\""]
        }
        Surface::Pin | Surface::Console => {
            envelope::management(answer, 401, "unauthorized");
            vec!["Bearer realm=\"pin\""]
        }
        Surface::NodeCallback => {
            envelope::management(answer, 401, "unauthorized");
            vec!["Signature realm=\"pin-node-agent\""]
        }
    };
    assert_eq!(answer.header_lines("www-authenticate"), challenges);
}

/// Asserts a refusal other than 401, in the envelope of the surface.
pub fn check_refusal(surface: Surface, answer: &Answer, status: u16) {
    let (word, phrase) = match status {
        // By default, a key may not read or change the routing document.
        400 => ("invalid_request", "Bad Request"),
        403 if surface == Surface::RouterManagement => ("insufficient_scope", "Forbidden"),
        403 => ("forbidden", "Forbidden"),
        404 => ("not_found", "Not Found"),
        other => panic!("no word for {other}"),
    };
    match surface {
        Surface::Agent => envelope::agent(answer, status, phrase),
        Surface::DataPlane => envelope::openai(
            answer,
            status,
            "invalid_request_error",
            answer.json()["error"]["code"].as_str(),
        ),
        Surface::Messages => envelope::anthropic(answer, status, "invalid_request_error"),
        Surface::Pin | Surface::Console | Surface::NodeCallback | Surface::RouterManagement => {
            envelope::management(answer, status, word)
        }
    }
    assert!(answer.header("www-authenticate").is_none());
}

/// The pattern with `id` in place of each `{…}`.
pub fn fill(pattern: &str, id: &str) -> String {
    let segments =
        pattern.split('/').map(|segment| if segment.starts_with('{') { id } else { segment });
    segments.collect::<Vec<_>>().join("/")
}

pub fn without_object(object: Object) -> &'static str {
    match object {
        Object::None => "",
        Object::PinKey | Object::RouterKey | Object::AgentKey => NO_KEY,
        Object::Capture => NO_CAPTURE,
        Object::Shared(id) | Object::Admins(id) => id,
    }
}

#[test]
fn every_route_has_a_row() {
    let mut rows: Vec<String> =
        ROWS.iter().map(|(method, path, ..)| format!("{method} {path}")).collect();
    let mut routes: Vec<String> =
        ROUTES.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    rows.sort();
    routes.sort();
    assert_eq!(rows, routes, "the table of this test against api::ROUTES");
    for (method, path, object, _) in ROWS {
        assert_eq!(
            path.contains('{'),
            *object != Object::None,
            "{method} {path} says nothing of its object"
        );
    }
}

/// Registers the user if necessary, and logs in. Returns the session's cookie.
pub async fn cookie(gateway: &Gateway, email: &str) -> String {
    let body = json!({"email": email, "password": "a long enough password"}).to_string();
    let answer = gateway
        .send(
            "POST",
            "/v1/auth/login",
            &[("content-type", "application/json")],
            Some(body.as_bytes()),
        )
        .await;
    answer
        .header("set-cookie")
        .unwrap_or_else(|| panic!("{}", answer.text()))
        .split(';')
        .next()
        .unwrap()
        .to_owned()
}

/// Secrets that were valid and no longer are, each for another reason.
pub async fn no_longer_good(gateway: &mut Gateway, ann: &str) -> BTreeMap<String, String> {
    let mut spent = BTreeMap::new();
    let mut note = |name: String, secret: &str| _ = spent.insert(name, secret.to_owned());
    let carl = gateway.session("carl@example.com").await;
    note("disabled session".to_owned(), &carl);
    let mut sleeping = Vec::new();
    for (interface, path, probe) in KEYS {
        let (maker, others) =
            if interface == "agent" { (CLOUD_KEY, CLOUD_KEY) } else { (ann, carl.as_str()) };
        let revoked = make(gateway, path, maker).await;
        revoke(gateway, path, maker, &revoked).await;
        note(format!("revoked {interface}"), &revoked.secret);
        let rotated = make(gateway, path, maker).await;
        gateway.answers(200, "POST", &format!("{path}/{}/rotate", rotated.id), maker, None).await;
        note(format!("rotated {interface}"), &rotated.secret);
        let soon = jiff::Timestamp::now() + Duration::from_secs(2);
        let brief = gateway
            .manage("POST", path, maker, Some(&json!({"expires_at": soon.to_string()})))
            .await
            .json();
        let brief = brief["key"].as_str().unwrap();
        until("a key to expire", async || {
            (gateway.manage("GET", probe, brief, None).await.status == 401).then_some(())
        })
        .await;
        note(format!("expired {interface}"), brief);
        let asleep = make(gateway, path, maker).await;
        note(format!("inactive {interface}"), &asleep.secret);
        sleeping.push(asleep.id);
        if interface != "agent" {
            note(format!("disabled {interface}"), &make(gateway, path, others).await.secret);
        }
    }
    let id = gateway.manage("GET", "/v1/auth/me", &carl, None).await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    gateway
        .answers(
            200,
            "PATCH",
            &format!("/v1/users/{id}"),
            &gateway.admin_key,
            Some(&json!({"disabled": true})),
        )
        .await;
    gateway.kill_9();
    let file = rusqlite::Connection::open(gateway.dir().join("data/accounts.db")).unwrap();
    for id in sleeping {
        assert_eq!(
            file.execute("UPDATE keys SET status = 'inactive' WHERE id = ?1", [id]).unwrap(),
            1
        );
    }
    drop(file);
    gateway.start_again().await;
    spent
}

/// Every scope that a key of this interface can have.
fn scopes(surface: Surface) -> &'static [&'static str] {
    match surface {
        Surface::Pin | Surface::Console | Surface::NodeCallback => &["user", "admin"],
        Surface::Agent => &["agents", "keys"],
        Surface::RouterManagement | Surface::Messages | Surface::DataPlane => {
            &["inference", "replay", "keys", "evaluate", "config", "admin"]
        }
    }
}

#[tokio::test]
async fn every_scope_is_asked_for() {
    let (gateway, a) = start(|setup| setup.env("AGENT_CLOUD_API_KEY", CLOUD_KEY)).await;
    let ann = gateway.session("ann@example.com").await;
    let id = gateway.manage("GET", "/v1/auth/me", &ann, None).await.json()["id"].clone();
    let mut keys: BTreeMap<(String, &str), String> = BTreeMap::new();
    for route in ROUTES.iter() {
        let Policy::Scope(scope) = route.policy else { continue };
        let surface = Surface::of(route.path);
        let (name, path) = match surface.interface() {
            Interface::Pin => ("pin", "/v1/apikeys"),
            Interface::Agent => ("agent", "/v1/api-keys"),
            Interface::Router => ("router", "/v1/router/keys"),
        };
        let place = (name.to_owned(), scope);
        if !keys.contains_key(&place) {
            // All scopes but this one, also those of admins, on a key of a user who is not an
            // admin.
            let others: Vec<&str> =
                scopes(surface).iter().copied().filter(|other| *other != scope).collect();
            let (maker, body) = match name {
                "agent" => (CLOUD_KEY, json!({ "scopes": others })),
                _ => (gateway.admin_key.as_str(), json!({ "scopes": others, "owner": id })),
            };
            let made = gateway.answers(201, "POST", path, maker, Some(&body)).await;
            keys.insert(place.clone(), made.json()["key"].as_str().unwrap().to_owned());
        }
        let answer = gateway
            .manage(route.method.as_str(), &fill(route.path, NO_KEY), &keys[&place], None)
            .await;
        match surface {
            Surface::Agent => envelope::agent(&answer, 403, "Forbidden"),
            Surface::DataPlane => {
                envelope::openai(&answer, 403, "permission_error", Some("insufficient_scope"))
            }
            Surface::Messages => envelope::anthropic(&answer, 403, "permission_error"),
            Surface::Pin | Surface::Console | Surface::NodeCallback | Surface::RouterManagement => {
                envelope::management(&answer, 403, "insufficient_scope")
            }
        }
    }
    assert_eq!((keys.len(), a.count()), (9, 0));
}

#[tokio::test]
async fn what_is_anothers_is_not_there() {
    let (gateway, a) = start(|setup| setup.env("AGENT_CLOUD_API_KEY", CLOUD_KEY)).await;
    let (ann, bob) =
        (gateway.session("ann@example.com").await, gateway.session("bob@example.com").await);
    let pin = make(&gateway, "/v1/apikeys", &ann).await;
    let router = make(&gateway, "/v1/router/keys", &ann).await;
    let capture = gateway.chat(&router, chat_body("auto", false).as_bytes()).await.request_id();
    gateway.capture(&capture).await;
    for (method, path, object, _) in ROWS {
        let (caller, id) = match object {
            Object::None | Object::Shared(_) | Object::Admins(_) => continue,
            Object::PinKey => (bob.as_str(), pin.id.as_str()),
            Object::RouterKey => (bob.as_str(), router.id.as_str()),
            Object::AgentKey => (CLOUD_KEY, router.id.as_str()),
            Object::Capture => (bob.as_str(), capture.as_str()),
        };
        let surface = Surface::of(path);
        let answer = gateway.manage(method, &fill(path, id), caller, None).await;
        check_refusal(surface, &answer, 404);
        let missing =
            gateway.manage(method, &fill(path, without_object(*object)), caller, None).await;
        assert_eq!(answer.text(), missing.text(), "{method} {path}");
        let none = gateway.manage(method, &fill(path, "nonsense"), caller, None).await;
        assert_eq!(none.text(), missing.text(), "{method} {path}");
    }
    // Bob's lists are empty, so nothing that he tried had an effect.
    for path in ["/v1/apikeys", "/v1/router/keys", "/v1/router/replay"] {
        assert_eq!(
            gateway.manage("GET", path, &bob, None).await.json()["data"],
            json!([]),
            "{path}"
        );
    }
    gateway.answers(200, "GET", "/v1/auth/me", &pin.secret, None).await;
    assert_eq!(gateway.chat(&router, chat_body("auto", false).as_bytes()).await.status, 200);
    assert_eq!(a.count(), 2);
}

#[tokio::test]
async fn a_rotated_key_on_each_interface_on_a_kept_connection_and_across_restarts() {
    let (mut gateway, _a) = start(|setup| setup.env("AGENT_CLOUD_API_KEY", CLOUD_KEY)).await;
    let admin = gateway.admin_key.clone();
    let mut graced = Vec::new();
    for (interface, path, probe) in KEYS {
        let maker = if interface == "agent" { CLOUD_KEY } else { admin.as_str() };
        let key = make(&gateway, path, maker).await;
        let mut connection = gateway.connect().await;
        let bearer = format!("Bearer {}", key.secret);
        let ask =
            client::request("GET", probe, &gateway.host(), &[("authorization", &bearer)], None);
        assert_eq!(connection.exchange(&ask).await.status, 200, "{interface}");
        let rotate = async |body: Option<Value>| {
            let answer = gateway
                .manage("POST", &format!("{path}/{}/rotate", key.id), maker, body.as_ref())
                .await;
            assert_eq!(
                (answer.status, answer.header("cache-control")),
                (200, Some("no-store")),
                "{}",
                answer.text()
            );
            assert_eq!(answer.json()["id"], key.id.as_str());
            answer.json()["key"].as_str().unwrap().to_owned()
        };
        let second = rotate(None).await;
        assert_eq!(
            connection.exchange(&ask).await.status,
            401,
            "{interface}: dead on the open connection"
        );
        let third = rotate(Some(json!({"grace_period_seconds": 600}))).await;
        graced.push((path, probe, maker.to_owned(), key, second, third));
        let bad = gateway
            .manage(
                "POST",
                &format!("{path}/{NO_KEY}/rotate"),
                maker,
                Some(&json!({"grace_period_seconds": -1})),
            )
            .await;
        check_refusal(Surface::of(path), &bad, 400);
    }
    let statuses = async |gateway: &Gateway, expected: u16| {
        for (_, probe, _, key, second, third) in &graced {
            assert_eq!(
                gateway.manage("GET", probe, &key.secret, None).await.status,
                401,
                "{probe}: the first secret"
            );
            for secret in [second, third] {
                assert_eq!(
                    gateway.manage("GET", probe, secret, None).await.status,
                    expected,
                    "{probe}"
                );
            }
        }
    };
    statuses(&gateway, 200).await;
    gateway.restart().await;
    statuses(&gateway, 200).await;
    for (path, _, maker, key, ..) in &graced {
        revoke(&gateway, path, maker, key).await;
        let answer =
            gateway.manage("POST", &format!("{path}/{}/rotate", key.id), maker, None).await;
        match *path {
            "/v1/api-keys" => envelope::agent(&answer, 409, "Conflict"),
            _ => envelope::management(&answer, 409, "key_revoked"),
        }
    }
    statuses(&gateway, 401).await;
    gateway.kill_9();
    gateway.start_again().await;
    statuses(&gateway, 401).await;
}

#[tokio::test]
async fn keys_and_agents_of_the_open_days_are_nobodys_once_agent_is_enforced() {
    let (mut gateway, _a) = start(|setup| setup).await;
    let send = async |gateway: &Gateway,
                      method: &str,
                      path: &str,
                      credential: Option<&str>,
                      body: Option<Value>| {
        let bearer = credential.map(|secret| format!("ApiKey {secret}"));
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(bearer.iter().map(|value| ("authorization", value.as_str())));
        gateway
            .send(
                method,
                path,
                &headers,
                body.map(|body| body.to_string()).as_deref().map(str::as_bytes),
            )
            .await
    };
    let key = send(&gateway, "POST", "/v1/api-keys", None, Some(json!({"name": "early"}))).await;
    assert_eq!((key.status, &key.json()["status"]), (201, &json!("active")), "{}", key.text());
    let (id, secret) = (
        key.json()["id"].as_str().unwrap().to_owned(),
        key.json()["key"].as_str().unwrap().to_owned(),
    );
    let early =
        send(&gateway, "POST", "/v1/agents", None, Some(json!({"name": "early", "model": "auto"})))
            .await;
    assert_eq!((early.status, &early.json()["trusted"]), (201, &json!(false)), "{}", early.text());
    assert_eq!(
        early.header("location"),
        Some(format!("/v1/agents/{}", early.json()["id"].as_str().unwrap()).as_str())
    );
    envelope::agent(
        &send(
            &gateway,
            "POST",
            "/v1/agents",
            None,
            Some(json!({"name": "early", "model": "auto"})),
        )
        .await,
        409,
        "Conflict",
    );
    envelope::agent(
        &send(&gateway, "POST", "/v1/agents", None, Some(json!({"name": "x", "model": "none"})))
            .await,
        400,
        "Bad Request",
    );
    envelope::agent(
        &send(&gateway, "PUT", "/v1/agents/early", None, Some(json!({}))).await,
        405,
        "Method Not Allowed",
    );
    let written = send(
        &gateway,
        "PATCH",
        "/v1/agents/early",
        None,
        Some(json!({"instructions": "Be brief."})),
    )
    .await;
    assert_eq!(
        (written.status, &written.json()["trusted"]),
        (200, &json!(false)),
        "{}",
        written.text()
    );

    gateway.set_env("AGENT_CLOUD_API_KEY", CLOUD_KEY);
    gateway.restart().await;
    envelope::agent(
        &send(&gateway, "GET", "/v1/agents", Some(&secret), None).await,
        401,
        "Unauthorized",
    );
    let cloud = Some(CLOUD_KEY);
    let record = send(&gateway, "GET", &format!("/v1/api-keys/{id}"), cloud, None).await.json();
    assert_eq!(record["status"], "inactive", "{record}");
    let own = send(&gateway, "POST", "/v1/api-keys", cloud, None).await.json()["key"]
        .as_str()
        .unwrap()
        .to_owned();
    let late = send(
        &gateway,
        "POST",
        "/v1/agents",
        Some(&own),
        Some(json!({"name": "late", "model": "auto"})),
    )
    .await;
    assert_eq!((late.status, &late.json()["trusted"]), (201, &json!(true)), "{}", late.text());
    let listed = send(&gateway, "GET", "/v1/agents", Some(&own), None).await.json();
    assert_eq!(listed["data"], json!([late.json(), written.json()]), "newest first, as they were");
    let mut now = send(&gateway, "PATCH", "/v1/agents/early", Some(&own), Some(json!({}))).await;
    assert_eq!((now.status, &now.json()["trusted"]), (200, &json!(true)), "{}", now.text());
    let tag = now.header("etag").expect("an entity tag").to_owned();
    let bearer = format!("Bearer {own}");
    let on = |name: &'static str, value: &str| {
        [
            ("authorization", bearer.clone()),
            (name, value.to_owned()),
            ("content-type", "application/json".to_owned()),
        ]
    };
    for (method, name, value, status) in [
        ("GET", "if-none-match", tag.as_str(), 304),
        ("HEAD", "if-none-match", &tag, 304),
        ("GET", "if-none-match", "\"other\"", 200),
        ("PATCH", "if-match", "\"other\"", 412),
        ("PATCH", "if-match", "other", 400),
        ("DELETE", "if-match", "\"other\"", 412),
        ("PATCH", "if-match", &tag, 200),
    ] {
        let headers = on(name, value);
        let headers = pairs(&headers);
        now = gateway
            .send(method, "/v1/agents/early", &headers, (method == "PATCH").then_some(b"{}"))
            .await;
        assert_eq!(now.status, status, "{method} {name}: {value}: {}", now.text());
        match status {
            412 => envelope::agent(&now, 412, "Precondition Failed"),
            304 => assert!(now.body.is_empty() && now.header("etag") == Some(tag.as_str())),
            _ => {}
        }
    }
    assert_eq!(send(&gateway, "DELETE", "/v1/agents/early", Some(&own), None).await.status, 204);
    gateway.kill_9();
    gateway.start_again().await;
    envelope::agent(
        &send(&gateway, "GET", "/v1/agents/early", Some(&own), None).await,
        404,
        "Not Found",
    );
    assert_eq!(
        send(&gateway, "GET", "/v1/agents/late", Some(&own), None).await.json(),
        late.json()
    );
}
