//! With a store that cannot be read: what has to ask it is a 503 that tells nothing, and what goes
//! by the tables in memory goes on: who somebody is, what they may do, where a request goes, and
//! what is captured of it.

use std::collections::BTreeSet;

use http::Method;
use rerouter::internals::api::ROUTES;
use rerouter::internals::interface::Surface;
use rerouter::internals::store::Faults;
use serde_json::{Value, json};

use crate::process::plugin::{ADMIN, Host};
use crate::support::client::Answer;
use crate::support::documents::{chat_body, in_order};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{envelope, until};

const PASSWORD: &str = "correct horse";
/// What the store says to us, and nobody else is told.
const SECRETS: [&str; 4] = ["on demand", "sqlite", "accounts.db", "captures"];

/// A key that may do what a session may.
const SCOPES: &str = r#"{"scopes":["inference","replay","keys"]}"#;

/// A request, by whom, and what becomes of it: `None` where the store is asked.
struct Ask {
    method: &'static str,
    path: &'static str,
    target: String,
    by: Option<String>,
    body: Option<String>,
    goes_on: Option<u16>,
}

struct World {
    host: Host,
    faults: Faults,
    _dir: tempfile::TempDir,
    _provider: Provider,
    token: String,
    router: String,
}

impl World {
    async fn start() -> World {
        let (dir, faults) = (tempfile::tempdir().unwrap(), Faults::default());
        let provider = Provider::always(scripted::completion("well")).await;
        let document = in_order(&[("up", &provider.url())], "")
            .replace("    api_key: \"${UPSTREAM_API_KEY:-sk-upstream}\"\n", "");
        let host =
            Host::start_failing(dir.path(), provider.address(), &document, faults.clone()).await;
        let account = account("ann@example.com");
        assert_eq!(host.ask("POST", "/v1/auth/register", None, Some(&account)).await.status, 201);
        let token =
            text(&host.ask("POST", "/v1/auth/login", None, Some(&account)).await.json(), "token");
        let router = text(
            &host.ask("POST", "/v1/router/keys", Some(&token), Some(SCOPES)).await.json(),
            "key",
        );
        World { host, faults, _dir: dir, _provider: provider, token, router }
    }

    async fn make(&self, path: &str, by: Option<&str>, body: Value) -> String {
        let made = self.host.ask("POST", path, by, Some(&body.to_string())).await;
        assert_eq!(made.status, 201, "{path}: {}", made.text());
        text(&made.json(), "id")
    }

    /// A request that was captured, by its id.
    async fn capture(&self) -> String {
        let answer = self
            .host
            .ask(
                "POST",
                "/v1/chat/completions",
                Some(&self.router),
                Some(&chat_body("auto", false)),
            )
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let id = answer.request_id();
        self.written(&id).await;
        id
    }

    async fn written(&self, id: &str) {
        let path = format!("/v1/router/replay/{id}");
        let asked = async || {
            (self.host.ask("GET", &path, Some(&self.router), None).await.status == 200)
                .then_some(())
        };
        until("the capture", asked).await;
    }

    /// All that is asked, in an order in which all of it can be.
    async fn asks(&self) -> Vec<Ask> {
        let user =
            text(&self.host.ask("GET", "/v1/auth/me", Some(&self.token), None).await.json(), "id");
        let mut ids = vec![("/v1/users/{id}", user), ("/v1/models/{id...}", "auto".to_owned())];
        for (path, one, by) in [
            ("/v1/apikeys", "/v1/apikeys/{id}", Some(ADMIN)),
            ("/v1/router/keys", "/v1/router/keys/{id}", Some(ADMIN)),
            ("/v1/api-keys", "/v1/api-keys/{id}", None),
        ] {
            ids.push((one, self.make(path, by, json!({})).await));
        }
        ids.push((
            "/v1/agents/{id}",
            self.make("/v1/agents", None, json!({"name": "reviewer", "model": "auto"})).await,
        ));
        ids.push((
            "/v1/nodes/{id}",
            self.make("/v1/nodes", Some(ADMIN), json!({"name": "rack"})).await,
        ));
        let (a, b) = (self.capture().await, self.capture().await);
        ids.push(("/v1/router/replay/{id}", a.clone()));
        let revision = text(&self.host.ask("GET", "/health", None, None).await.json(), "revision");
        let mut asks = Vec::new();
        for path in
            ROUTES.iter().filter(|route| route.method == Method::GET).map(|route| route.path)
        {
            let compared = path.replace("{id}", &a).replace("{other}", &b);
            let compared = compared.replace("{revision}", &revision);
            let one = ids
                .iter()
                .find(|(one, _)| *one == path)
                .map(|(one, id)| one.replace("{id}", id).replace("{id...}", id));
            let by = match Surface::of(path) {
                Surface::Agent => None,
                _ if path.starts_with("/v1/models") => Some(self.router.clone()),
                _ => Some(ADMIN.to_owned()),
            };
            let goes_on = (!READERS.contains(&("GET", path))).then_some(200);
            asks.push(Ask {
                method: "GET",
                path,
                target: one.unwrap_or(compared),
                by,
                body: None,
                goes_on,
            });
        }
        asks.extend(self.others(&a, &b).await);
        asks
    }

    /// The same of what is no GET: what asks the store first, and what is the reason to have a
    /// gateway at all.
    async fn others(&self, a: &str, b: &str) -> Vec<Ask> {
        let revision = text(&self.host.ask("GET", "/health", None, None).await.json(), "revision");
        let (chat, account) = (chat_body("auto", false), |email: &str| Some(account(email)));
        let mut asks = Vec::new();
        let mut add = |path: &'static str,
                       target: &str,
                       by: Option<&str>,
                       body: Option<String>,
                       goes_on: Option<u16>| {
            asks.push(Ask {
                method: "POST",
                path,
                target: target.to_owned(),
                by: by.map(str::to_owned),
                body,
                goes_on,
            });
        };
        let (admin, router) = (Some(ADMIN), Some(self.router.as_str()));
        let config = "/v1/router/config/rollback";
        add(
            "/v1/router/replay/{id}/reroute",
            &format!("/v1/router/replay/{a}/reroute"),
            router,
            None,
            None,
        );
        add(
            "/v1/router/replay/evaluate",
            "/v1/router/replay/evaluate",
            router,
            Some("{}".into()),
            None,
        );
        add(config, config, admin, Some(json!({"revision": revision}).to_string()), None);
        for path in ["/v1/chat/completions", "/v1/router/decide"] {
            add(path, path, router, Some(chat.clone()), Some(200));
        }
        add("/v1/auth/register", "/v1/auth/register", None, account("new@example.com"), Some(201));
        add("/v1/auth/login", "/v1/auth/login", None, account("ann@example.com"), Some(200));
        add("/v1/router/keys", "/v1/router/keys", admin, Some("{}".into()), Some(201));
        let (method, path) = ("DELETE", "/v1/router/replay/{id}");
        let target = format!("/v1/router/replay/{b}");
        asks.push(Ask {
            method,
            path,
            target,
            by: router.map(str::to_owned),
            body: None,
            goes_on: None,
        });
        asks
    }

    async fn send(&self, ask: &Ask) -> Answer {
        self.host.ask(ask.method, &ask.target, ask.by.as_deref(), ask.body.as_deref()).await
    }
}

/// The routes that cannot answer by what is in memory.
const READERS: [(&str, &str); 12] = [
    ("GET", "/v1/audit"),
    ("GET", "/v1/router/replay"),
    ("GET", "/v1/router/replay/{id}"),
    ("GET", "/v1/router/replay/{id}/compare/{other}"),
    ("GET", "/v1/router/config/revisions"),
    ("GET", "/v1/router/config/revisions/{revision}"),
    ("GET", "/v1/router/usage"),
    ("GET", "/v1/router/usage/lost"),
    ("POST", "/v1/router/replay/{id}/reroute"),
    ("POST", "/v1/router/replay/evaluate"),
    ("POST", "/v1/router/config/rollback"),
    ("DELETE", "/v1/router/replay/{id}"),
];

fn account(email: &str) -> String {
    json!({"email": email, "password": PASSWORD}).to_string()
}

fn text(record: &Value, name: &str) -> String {
    record[name].as_str().unwrap_or_else(|| panic!("no {name} in {record}")).to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_to_be_read_is_refused_and_all_else_goes_on() {
    let world = World::start().await;
    let asks = world.asks().await;
    let refused: BTreeSet<(&str, &str)> =
        asks.iter().filter(|ask| ask.goes_on.is_none()).map(|ask| (ask.method, ask.path)).collect();
    assert_eq!(refused, READERS.into_iter().collect(), "each of those that read is asked");
    world.faults.fail_every_read();
    let mut captured = Vec::new();
    for ask in &asks {
        let answer = world.send(ask).await;
        match ask.goes_on {
            Some(status) => assert_eq!(
                answer.status,
                status,
                "{} {}: {}",
                ask.method,
                ask.target,
                answer.text()
            ),
            None => {
                envelope::management(&answer, 503, "unavailable");
                let told = answer.text().to_lowercase();
                assert!(SECRETS.iter().all(|secret| !told.contains(secret)), "{told}");
                assert!(
                    answer.header("etag").is_none() && answer.header("set-cookie").is_none(),
                    "{}",
                    ask.target
                );
            }
        }
        if ask.path == "/v1/chat/completions" {
            captured.push(answer.request_id());
        }
    }
    // Nobody is let in by it, and nobody finds out by it what is there.
    assert_eq!(world.host.ask("GET", "/v1/audit", Some(&world.token), None).await.status, 403);
    assert_eq!(world.host.ask("GET", "/v1/audit", None, None).await.status, 401);
    let guess = world
        .host
        .ask("GET", "/v1/router/replay/req_00000000000000000000000000", Some(&world.router), None)
        .await;
    envelope::management(&guess, 503, "unavailable");
    world.faults.clear();
    for id in &captured {
        world.written(id).await;
    }
    for ask in &asks {
        if matches!(ask.path, "/v1/auth/register" | "/v1/auth/login") {
            continue;
        }
        let answer = world.send(ask).await;
        assert!(
            (200..300).contains(&answer.status),
            "{} {}: {}",
            ask.method,
            ask.target,
            answer.text()
        );
    }
    world.host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_that_cannot_look_lets_nothing_through() {
    let world = World::start().await;
    world.capture().await;
    let before = world.host.ask("GET", "/v1/router/config", Some(ADMIN), None).await;
    let document = json!({
        "providers": { "b": { "protocol": "mock" } },
        "recipes": { "main": { "rules": [{ "name": "only",
                        "targets": [{ "target": "b/model" }] }] } }, "aliases": {
            "auto": "main"
        },
    })
    .to_string();
    world.faults.fail_every_read();
    let put = world
        .host
        .ask(
            "PUT",
            "/v1/router/config?max_changed=1&allow_empty=true",
            Some(ADMIN),
            Some(&document),
        )
        .await;
    envelope::management(&put, 503, "unavailable");
    assert_eq!(
        world.host.ask("GET", "/v1/router/config", Some(ADMIN), None).await.text(),
        before.text()
    );
    // Without a gate nothing has to be looked at.
    let put = world.host.ask("PUT", "/v1/router/config", Some(ADMIN), Some(&document)).await;
    assert_eq!(put.status, 200, "{}", put.text());
    world.faults.clear();
    world.host.stop().await;
}
