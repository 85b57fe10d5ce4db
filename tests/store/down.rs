//! With a store that cannot be written every change is a 503 in the envelope of its interface, and
//! nothing has changed: not in memory, not in a list, not in a file, not in the audit. But what
//! ends a credential ends it here and now.

use std::collections::BTreeSet;

use rerouter::internals::api::NOTED;
use rerouter::internals::interface::Surface;
use rerouter::internals::store::Faults;
use serde_json::{Value, json};

use crate::process::plugin::{ADMIN, Extras, Host};
use crate::support::client::Answer;
use crate::support::documents::{chat_body, in_order};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{envelope, until};

const PASSWORD: &str = "correct horse";

/// A change: the route of it, where it goes, by whom, and with what. `None` for whom: nobody.
struct Change {
    route: (&'static str, &'static str),
    target: String,
    by: Option<String>,
    body: Option<Value>,
    /// It ends a credential, which is then dead though nobody has written that down.
    ends: bool,
}

struct World {
    host: Host,
    faults: Faults,
    dir: tempfile::TempDir,
    provider: Provider,
    token: String,
    user: String,
    revision: String,
}

impl World {
    async fn start() -> World {
        let (dir, faults) = (tempfile::tempdir().unwrap(), Faults::default());
        let provider = Provider::always(scripted::completion("well")).await;
        let document = in_order(&[("up", &provider.url())], "")
            .replace("\"${UPSTREAM_API_KEY:-sk-upstream}\"", "\"${UP_API_KEY}\"");
        let document = document.replace("    api_key: \"${UP_API_KEY}\"\n", "");
        let host =
            Host::start_failing(dir.path(), provider.address(), &document, faults.clone()).await;
        let account = json!({"email": "ann@example.com", "password": PASSWORD}).to_string();
        let user = host.ask("POST", "/v1/auth/register", None, Some(&account)).await.json()["user"]
            ["id"]
            .as_str()
            .unwrap()
            .to_owned();
        let token = host.ask("POST", "/v1/auth/login", None, Some(&account)).await.json()["token"]
            .as_str()
            .unwrap()
            .to_owned();
        let revision = host.ask("GET", "/health", None, None).await.json()["revision"]
            .as_str()
            .unwrap()
            .to_owned();
        World { host, faults, dir, provider, token, user, revision }
    }

    async fn make(&self, path: &str, body: Value) -> Value {
        let by = (!path.starts_with("/v1/a") || path == "/v1/apikeys").then_some(ADMIN);
        let made = self.host.ask("POST", path, by, Some(&body.to_string())).await;
        assert_eq!(made.status, 201, "{path}: {}", made.text());
        made.json()
    }

    async fn send(&self, change: &Change) -> Answer {
        let body = change.body.as_ref().map(Value::to_string);
        self.host.ask(change.route.0, &change.target, change.by.as_deref(), body.as_deref()).await
    }

    /// All that can be seen of what can be changed.
    async fn seen(&self) -> Vec<String> {
        let mut seen = Vec::new();
        for path in [
            "/v1/users",
            "/v1/apikeys",
            "/v1/router/keys",
            "/v1/nodes",
            "/v1/audit",
            "/v1/router/config",
            "/v1/router/replay",
        ] {
            let answer = self.host.ask("GET", path, Some(ADMIN), None).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            seen.push(answer.text());
        }
        for path in ["/v1/agents", "/v1/api-keys"] {
            seen.push(self.host.ask("GET", path, None, None).await.text());
        }
        seen.push(self.host.ask("GET", "/v1/auth/me", Some(&self.token), None).await.text());
        seen.push(std::fs::read_to_string(self.dir.path().join("routing.yaml")).unwrap());
        seen
    }

    /// Everything that the audit is told of, in an order in which all of it can be done.
    async fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut add = |route: (&'static str, &'static str),
                       target: &str,
                       by: Option<&str>,
                       body: Option<Value>| {
            let (target, by, ends) = (
                target.to_owned(),
                by.map(str::to_owned),
                route.0 == "DELETE" && (route.1.contains("keys") || route.1.contains("users")),
            );
            changes.push(Change { route, target, by, body, ends });
        };
        let (admin, session) = (Some(ADMIN), Some(self.token.as_str()));
        let account = |email: &str| Some(json!({"email": email, "password": PASSWORD}));
        add(("POST", "/v1/auth/register"), "/v1/auth/register", None, account("new@example.com"));
        add(("POST", "/v1/auth/login"), "/v1/auth/login", None, account("ann@example.com"));
        add(("POST", "/v1/users"), "/v1/users", admin, account("bob@example.com"));
        let user = format!("/v1/users/{}", self.user);
        add(
            ("PATCH", "/v1/users/{id}"),
            &user,
            admin,
            Some(json!({"name": "Ann", "role": "admin", "limits": {"rpm": 5}})),
        );
        let eve = self.make("/v1/users", account("eve@example.com").unwrap()).await;
        let eve = format!("/v1/users/{}", eve["id"].as_str().unwrap());
        add(("DELETE", "/v1/users/{id}"), &eve, admin, None);
        for (path, one, rotate) in [
            ("/v1/apikeys", "/v1/apikeys/{id}", "/v1/apikeys/{id}/rotate"),
            ("/v1/router/keys", "/v1/router/keys/{id}", "/v1/router/keys/{id}/rotate"),
            ("/v1/api-keys", "/v1/api-keys/{id}", "/v1/api-keys/{id}/rotate"),
        ] {
            let by = if path == "/v1/api-keys" { None } else { admin };
            let target =
                format!("{path}/{}", self.make(path, json!({})).await["id"].as_str().unwrap());
            add(("POST", path), path, by, Some(json!({"name": "another"})));
            add(("PATCH", one), &target, by, Some(json!({"name": "other", "status": "inactive"})));
            add(("POST", rotate), &format!("{target}/rotate"), by, None);
            add(("DELETE", one), &target, by, None);
        }
        self.make("/v1/agents", json!({"name": "reviewer", "model": "auto"})).await;
        add(
            ("POST", "/v1/agents"),
            "/v1/agents",
            None,
            Some(json!({"name": "writer", "model": "auto"})),
        );
        add(
            ("PATCH", "/v1/agents/{id}"),
            "/v1/agents/reviewer",
            None,
            Some(json!({"instructions": "Be brief."})),
        );
        add(("DELETE", "/v1/agents/{id}"), "/v1/agents/reviewer", None, None);
        let node = format!(
            "/v1/nodes/{}",
            self.make("/v1/nodes", json!({"name": "rack"})).await["id"].as_str().unwrap()
        );
        add(("POST", "/v1/nodes"), "/v1/nodes", admin, Some(json!({"name": "shelf"})));
        add(("POST", "/v1/nodes/{id}/rotate"), &format!("{node}/rotate"), admin, None);
        add(("DELETE", "/v1/nodes/{id}"), &node, admin, None);
        let (id, capture) = self.capture().await;
        add(("POST", "/v1/router/replay/import"), "/v1/router/replay/import", admin, Some(capture));
        let old = "/v1/router/replay?until=2001-01-01T00:00:00Z";
        add(("DELETE", "/v1/router/replay"), old, admin, None);
        add(("DELETE", "/v1/router/replay/{id}"), &format!("/v1/router/replay/{id}"), admin, None);
        let target = "/v1/router/config";
        add(("PUT", target), target, admin, Some(self.document()));
        add(
            ("POST", "/v1/router/config/rollback"),
            "/v1/router/config/rollback",
            admin,
            Some(json!({"revision": self.revision})),
        );
        let passwords = json!({"current_password": PASSWORD, "new_password": "battery staple"});
        add(("POST", "/v1/auth/password"), "/v1/auth/password", session, Some(passwords));
        add(("POST", "/v1/auth/logout"), "/v1/auth/logout", session, None);
        changes
    }

    /// A capture of the user's, as exports have it.
    async fn capture(&self) -> (String, Value) {
        let id = self
            .host
            .ask("POST", "/v1/chat/completions", Some(&self.token), Some(&chat_body("auto", false)))
            .await
            .request_id();
        let path = format!("/v1/router/replay/{id}");
        let capture = until("the capture", async || {
            let found = self.host.ask("GET", &path, Some(&self.token), None).await;
            (found.status == 200).then(|| found.json())
        })
        .await;
        (id, capture)
    }

    fn document(&self) -> Value {
        json!({
            "providers": { "b": { "protocol": "openai", "base_url": self.provider.url() } },
            "recipes": { "main": { "rules": [{ "name": "only",
                            "targets": [{ "target": "b/model" }] }] } }, "aliases": {
                "auto": "main"
            },
        })
    }
}

fn check_503(change: &Change, answer: &Answer) {
    match Surface::of(change.route.1) {
        Surface::Agent => envelope::agent(answer, 503, "Service Unavailable"),
        _ => envelope::management(answer, 503, "unavailable"),
    }
    assert_eq!(answer.header("retry-after"), Some("1"), "{:?}", change.route);
    assert!(
        answer.header("set-cookie").is_none() && answer.header("location").is_none(),
        "{:?}",
        change.route
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_is_taken_that_cannot_be_written() {
    let world = World::start().await;
    let changes = world.changes().await;
    let routes: BTreeSet<(&str, &str)> = changes.iter().map(|change| change.route).collect();
    // Those of several gateways need a database that is shared, and a settlement needs a gateway
    // that was killed.
    let elsewhere = ["/v1/gateways/{id}", "/v1/router/usage"];
    let noted = NOTED.iter().filter(|(_, path, _)| !elsewhere.contains(path));
    let noted = noted.map(|(method, path, _)| (*method, *path)).collect();
    assert_eq!(routes, noted, "every change that is noted");
    let before = world.seen().await;
    world.faults.fail_every_write();
    for change in changes.iter().filter(|change| !change.ends) {
        check_503(change, &world.send(change).await);
        assert_eq!(world.seen().await, before, "{:?}", change.route);
    }
    assert_eq!(world.host.ask("GET", "/health", None, None).await.status, 503);
    world.faults.clear();
    assert_eq!(world.seen().await, before);
    // The same requests, when the store is well.
    for change in &changes {
        let answer = world.send(change).await;
        assert!((200..300).contains(&answer.status), "{:?}: {}", change.route, answer.text());
    }
    assert_eq!(world.host.ask("GET", "/v1/auth/me", Some(&world.token), None).await.status, 401);
    world.host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ends_a_credential_ends_it_whatever_the_store_says() {
    let world = World::start().await;
    let mut keys = Vec::new();
    for (path, query, probe, by) in [
        ("/v1/apikeys", "", "/v1/auth/me", Some(ADMIN)),
        ("/v1/router/keys", "", "/v1/models", Some(ADMIN)),
        ("/v1/router/keys", "?descendants=true", "/v1/models", Some(ADMIN)),
    ] {
        let key = world.make(path, json!({})).await;
        keys.push((
            format!("{path}/{}{query}", key["id"].as_str().unwrap()),
            probe,
            by,
            key["key"].as_str().unwrap().to_owned(),
        ));
    }
    world.faults.fail_every_write();
    for (target, probe, by, secret) in &keys {
        assert_eq!(world.host.ask("GET", probe, Some(secret), None).await.status, 200);
        envelope::management(
            &world.host.ask("DELETE", target, *by, None).await,
            503,
            "unavailable",
        );
        assert_eq!(world.host.ask("GET", probe, Some(secret), None).await.status, 401, "{target}");
    }
    let user = format!("/v1/users/{}", world.user);
    let out = world.host.ask("PATCH", &user, Some(ADMIN), Some(r#"{"disabled": true}"#)).await;
    envelope::management(&out, 503, "unavailable");
    assert_eq!(world.host.ask("GET", "/v1/auth/me", Some(&world.token), None).await.status, 401);
    world.faults.clear();
    // It is tried until it is written.
    until("the disabling to be durable", async || {
        let rows = world
            .host
            .ask(
                "GET",
                &format!("/v1/audit?target={}&action=user.disable", world.user),
                Some(ADMIN),
                None,
            )
            .await
            .json();
        (rows["data"].as_array().unwrap().len() == 1).then_some(())
    })
    .await;
    for (target, probe, by, secret) in &keys {
        assert_eq!(world.host.ask("DELETE", target, *by, None).await.status, 204, "said again");
        assert_eq!(world.host.ask("GET", probe, Some(secret), None).await.status, 401);
    }
    world.host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_agent_ends_too_whatever_the_store_says() {
    const CLOUD: &str = "cloud-key-0123456789abcdef0123456789abcdef";
    let (dir, faults) = (tempfile::tempdir().unwrap(), Faults::default());
    let provider = Provider::always(scripted::completion("well")).await;
    let document = in_order(&[("up", &provider.url())], "");
    let extras = Extras { agent_key: Some(CLOUD), ..Extras::default() };
    let host =
        Host::start_with(dir.path(), provider.address(), &document, faults.clone(), extras).await;
    let mut keys = Vec::new();
    for _ in 0..2 {
        let made = host.ask("POST", "/v1/api-keys", Some(CLOUD), Some("{}")).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let (made, part) =
            (made.json(), |made: &Value, name: &str| made[name].as_str().unwrap().to_owned());
        keys.push((format!("/v1/api-keys/{}", part(&made, "id")), part(&made, "key")));
    }
    let probe = async |secret: &str| host.ask("GET", "/v1/agents", Some(secret), None).await.status;
    faults.fail_every_write();
    // By the operator's key, and by itself.
    for ((target, secret), by) in keys.iter().zip([None, Some(())]) {
        assert_eq!(probe(secret).await, 200);
        let by = by.map_or(CLOUD, |()| secret.as_str());
        envelope::agent(
            &host.ask("DELETE", target, Some(by), None).await,
            503,
            "Service Unavailable",
        );
        assert_eq!(probe(secret).await, 401, "{target}");
    }
    faults.clear();
    for (target, secret) in &keys {
        assert_eq!(host.ask("DELETE", target, Some(CLOUD), None).await.status, 204, "said again");
        assert_eq!(probe(secret).await, 401);
    }
    host.stop().await;
}
