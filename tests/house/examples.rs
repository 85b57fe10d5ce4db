//! The documents in `conf/`, unchanged: they have no problems, their comments on defaults are true,
//! and the real binary serves them, with addresses and paths from the environment.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rerouter::internals::config::{Server, load, read_routing, read_server};
use rerouter::internals::interface::Interface;
use serde_json::{Value, json};

use crate::support::client::{self, Connection, H2};
use crate::support::documents::chat_body;
use crate::support::envelope;
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

fn conf() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conf")
}

fn text(name: &str) -> String {
    load(&conf().join(name)).unwrap().text
}

/// Every file below a directory, by its relative path.
fn files(dir: &Path, into: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, into),
            false => {
                into.insert(path.strip_prefix(conf()).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
}

fn credentials(name: &str) -> Option<String> {
    name.ends_with("_API_KEY").then(|| format!("sk-{}", name.to_lowercase()))
}

#[test]
fn the_documents_in_conf_are_taken_as_they_are() {
    let mut found = BTreeSet::new();
    files(&conf(), &mut found);
    // tests/process/prometheus.rs and tests/house/schemas.rs test these.
    found.retain(|name| {
        !["grafana/", "prometheus/", "schema/"].iter().any(|folder| name.starts_with(folder))
    });
    let known =
        ["production/rerouter.yaml", "production/routing.yaml", "rerouter.yaml", "routing.yaml"];
    assert_eq!(
        found.iter().map(String::as_str).collect::<Vec<_>>(),
        known,
        "a document in conf/ that no test runs"
    );
    let server = |name: &str| read_server(name, &text(name), &|_| None).unwrap();
    let (laptop, production) = (server("rerouter.yaml"), server("production/rerouter.yaml"));
    says_its_defaults(&laptop, &read_server("defaults", "", &|_| None).unwrap());
    read_routing("routing.yaml", &text("routing.yaml"), &laptop, &|_| None, None).unwrap();
    let routing = text("production/routing.yaml");
    read_routing("production/routing.yaml", &routing, &production, &credentials, None).unwrap();
    let unset = read_routing("production/routing.yaml", &routing, &production, &|_| None, None)
        .unwrap_err();
    assert_eq!(
        unset.len(),
        3,
        "a production document without its credentials is refused: {unset:?}"
    );

    assert!(
        production.public_https()
            && production.listens_publicly()
            && !production.registration_is_open()
    );
    let serves: Vec<&[Interface]> =
        production.listeners.iter().map(|listener| listener.interfaces.as_slice()).collect();
    assert_eq!(serves, [&[Interface::Router][..], &[Interface::Pin, Interface::Agent]]);
    assert!(
        production.listeners[0].tls.is_some() && production.listeners[1].address.ip().is_loopback()
    );
    assert!(
        laptop.egress.deny.iter().all(|net| production.egress.deny.contains(net)),
        "the default networks stay denied"
    );
}

/// Asserts that the comments on defaults in the laptop's document are true.
fn says_its_defaults(server: &Server, defaults: &Server) {
    assert_eq!(server.listeners[0].address, defaults.listeners[0].address);
    assert_eq!(server.listeners[0].interfaces, defaults.listeners[0].interfaces);
    assert_eq!(
        (server.metrics.address, server.threads, &server.data_dir),
        (defaults.metrics.address, defaults.threads, &defaults.data_dir)
    );
    assert_eq!(
        (server.registration_is_open(), server.access_log.format),
        (defaults.registration_is_open(), defaults.access_log.format)
    );
    assert_eq!(
        (server.session.idle, server.session.absolute),
        (defaults.session.idle, defaults.session.absolute)
    );
    assert_eq!(server.limits.request_body, defaults.limits.request_body);
    assert_eq!(server.limits.header_timeout, defaults.limits.header_timeout);
    assert_eq!(server.limits.body_min_rate, defaults.limits.body_min_rate);
    assert_eq!(server.limits.connections, defaults.limits.connections);
    let share =
        defaults.limits.connections.div_ceil(rerouter::internals::bounds::CONNECTIONS_SHARE);
    assert_eq!(
        (server.limits.connections_per_address, defaults.limits.connections_per_address),
        (Some(share), None)
    );
    let (capture, usual) = (&server.capture, &defaults.capture);
    assert_eq!(
        (capture.enabled, capture.bodies, capture.encrypt),
        (usual.enabled, usual.bodies, usual.encrypt)
    );
    assert_eq!((capture.client_opt_out, capture.max_body), (usual.client_opt_out, usual.max_body));
    assert_eq!(
        (capture.retention.age, capture.retention.size),
        (usual.retention.age, usual.retention.size)
    );
    assert_eq!(
        (&server.routing.env_allow, &server.routing.signal_headers),
        (&defaults.routing.env_allow, &defaults.routing.signal_headers)
    );
    assert_eq!((&server.egress.deny, &server.hosts), (&defaults.egress.deny, &defaults.hosts));
    assert_eq!(
        (&server.public_url, &server.trusted_proxies),
        (&defaults.public_url, &defaults.trusted_proxies)
    );
}

#[tokio::test]
async fn the_laptop_s_documents_serve_a_user_who_registers() {
    let gateway = Setup::new(&text("routing.yaml")).document("conf/rerouter.yaml").start().await;
    let account = json!({"email": "laptop@example.org", "password": "correct horse"}).to_string();
    let json = [("content-type", "application/json")];
    let registered =
        gateway.send("POST", "/v1/auth/register", &json, Some(account.as_bytes())).await;
    assert_eq!(registered.status, 201, "{}", registered.text());
    let login = gateway.send("POST", "/v1/auth/login", &json, Some(account.as_bytes())).await;
    let token = login.json()["token"].as_str().expect("a token").to_owned();
    let made = gateway.manage("POST", "/v1/router/keys", &token, Some(&json!({}))).await.json();
    let key = made["key"].as_str().expect("a key").to_owned();
    let bearer = format!("Bearer {key}");
    for name in ["auto", "best", "gpt-4o-mini", "demo/echo", "demo/large"] {
        let headers = [("authorization", bearer.as_str()), json[0]];
        let answer = gateway
            .send("POST", "/v1/chat/completions", &headers, Some(chat_body(name, false).as_bytes()))
            .await;
        assert_eq!(
            (answer.status, &answer.json()["object"]),
            (200, &json!("chat.completion")),
            "{name}: {}",
            answer.text()
        );
        assert_eq!(answer.header("x-rerouter-provider"), Some("demo"));
    }
    assert!(gateway.dir().join("data/accounts.db").exists());
}

/// The production gateway with these providers, and a connection to its public listener.
async fn production(providers: [&Provider; 3]) -> (Gateway, H2) {
    let [openai, mistral, local] = providers.map(Provider::url);
    let setup = Setup::new(&text("production/routing.yaml"))
        .document("conf/production/rerouter.yaml")
        .tls();
    let setup = setup
        .env("OPENAI_BASE_URL", &openai)
        .env("MISTRAL_BASE_URL", &mistral)
        .env("LOCAL_BASE_URL", &local);
    let setup = ["OPENAI_API_KEY", "MISTRAL_API_KEY", "LOCAL_API_KEY"]
        .iter()
        .fold(setup, |setup, name| setup.env(name, &credentials(name).unwrap()));
    let gateway = setup
        .env("AGENT_CLOUD_API_KEY", "agent-canary-0123456789abcdef0123456789")
        .env("PROXY_NETWORK", "127.0.0.1/32")
        .start()
        .await;
    let client = H2::open(gateway.tls()).await;
    (gateway, client)
}

#[tokio::test]
async fn the_production_documents_serve_every_provider_over_tls() {
    let answers = |name: &'static str| Provider::always(scripted::completion(name));
    let (openai, mistral, local) =
        (answers("openai").await, answers("mistral").await, answers("local").await);
    let (gateway, mut client) = production([&openai, &mistral, &local]).await;
    let admin = format!("Bearer {}", gateway.admin_key);
    let json = ("content-type", "application/json");
    let mut make = async |body: Value| {
        let made = client
            .send(
                "POST",
                "/v1/router/keys",
                &[("authorization", &admin), json],
                body.to_string().as_bytes(),
                false,
            )
            .await;
        assert_eq!(made.status, 201, "{}", made.text());
        format!("Bearer {}", made.json()["key"].as_str().expect("a key"))
    };
    let (key, premium) =
        (make(json!({})).await, make(json!({"labels": {"tier": "premium"}})).await);
    let mut chat = async |key: &str, model: &str, more: &[(&str, &str)]| {
        let headers: Vec<(&str, &str)> =
            [("authorization", key), json].into_iter().chain(more.iter().copied()).collect();
        let answer = client
            .send(
                "POST",
                "/v1/chat/completions",
                &headers,
                chat_body(model, false).as_bytes(),
                false,
            )
            .await;
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
        answer
    };
    let named = [
        (&openai, "openai", "gpt-5-mini"),
        (&mistral, "mistral", "mistral-small-latest"),
        (&local, "local", "qwen3-32b"),
    ];
    for (provider, name, model) in named {
        let answer = chat(&key, &format!("{name}/{model}"), &[]).await;
        assert_eq!(answer.json()["choices"][0]["message"]["content"], name);
        let received = provider.last();
        assert_eq!(received.json()["model"], model);
        let credential = credentials(&format!("{}_API_KEY", name.to_uppercase())).unwrap();
        assert_eq!(received.header("authorization"), Some(format!("Bearer {credential}")));
    }
    assert_eq!(local.last().header("x-served-for").as_deref(), Some("gateway"));
    for alias in ["auto", "gpt-4o-mini"] {
        assert_eq!(chat(&key, alias, &[]).await.header("x-rerouter-recipe"), Some("chat"));
    }
    assert_eq!(chat(&key, "cheap", &[]).await.header("x-rerouter-provider"), Some("local"));
    for (key, more) in [(&premium, &[][..]), (&key, &[("x-tier", "premium")])] {
        let answer = chat(key, "auto", more).await;
        assert_eq!(answer.header("x-rerouter-model"), Some("gpt-5"), "{more:?}");
    }
}

#[tokio::test]
async fn the_production_documents_keep_accounts_and_agents_on_the_private_listener() {
    let silent = Provider::always(Vec::new()).await;
    let (gateway, mut client) = production([&silent, &silent, &silent]).await;
    let admin = format!("Bearer {}", gateway.admin_key);
    let bearer = [("authorization", admin.as_str())];
    for path in ["/v1/apikeys", "/v1/agents", "/openapi.json"] {
        let answer = client.send("GET", path, &bearer, b"", false).await;
        assert!(
            [401, 404].contains(&answer.status),
            "{path} on the public listener: {}",
            answer.text()
        );
    }
    assert_eq!(
        client.send("GET", "/v1/auth/me", &bearer, b"", false).await.json()["role"],
        "admin"
    );
    assert_eq!(gateway.manage("GET", "/v1/apikeys", &gateway.admin_key, None).await.status, 200);
    assert_eq!(
        gateway
            .manage("GET", "/v1/agents", "agent-canary-0123456789abcdef0123456789", None)
            .await
            .status,
        200
    );
    assert_eq!(gateway.send("GET", "/v1/agents", &[], None).await.status, 401, "AGENT is enforced");
    envelope::openai(
        &gateway.send("GET", "/v1/models", &[], None).await,
        401,
        "invalid_request_error",
        Some("invalid_api_key"),
    );
    let account = json!({"email": "a@example.org", "password": "correct horse"}).to_string();
    let json = ("content-type", "application/json");
    envelope::management(
        &gateway.send("POST", "/v1/auth/register", &[json], Some(account.as_bytes())).await,
        403,
        "registration_closed",
    );
    let forwarded =
        gateway.send("GET", "/health", &[("x-forwarded-for", "203.0.113.9")], None).await;
    let line = until("the access line", async || {
        gateway.log().lines().find(|line| line.contains(&forwarded.request_id())).map(str::to_owned)
    })
    .await;
    assert_eq!(
        serde_json::from_str::<Value>(&line).unwrap()["client"],
        "203.0.113.9",
        "a trusted proxy is believed"
    );
    let mut stranger = Connection::try_open(gateway.address()).await.unwrap();
    let refused =
        stranger.exchange(&client::request("GET", "/health", "rebound.example", &[], None)).await;
    envelope::management(&refused, 421, "misdirected_request");
}
