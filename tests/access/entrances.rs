//! The ways in beside `Authorization`: keys in `x-api-key` and `api-key`, sessions in cookies, on
//! every route; and that nothing that answers is entered by anybody who was not let in.

use std::collections::BTreeMap;

use http::Method;
use rerouter::internals::api::ROUTES;
use rerouter::internals::auth::signature::{Covered, Signer};
use rerouter::internals::id::Random;
use rerouter::internals::interface::Surface;
use rerouter::internals::store::{Faults, PanicPoint};
use serde_json::{Value, json};

use crate::access::identity::{
    CLOUD_KEY, KEYS, ROWS, check_401, cookie, fill, make, no_longer_good, start, without_object,
};
use crate::process::plugin::{ADMIN, Extras, Host};
use crate::support::client::{Answer, Connection, request};
use crate::support::documents::in_order;
use crate::support::gateway::Gateway;
use crate::support::node::now;
use crate::support::provider::{self as scripted, Provider};

/// What answers without a credential, by contract; AGENT too, where it is not enforced.
pub const OPEN: [(&str, &str); 5] = [
    ("GET", "/health"),
    ("GET", "/version"),
    ("GET", "/openapi.json"),
    ("POST", "/v1/auth/register"),
    ("POST", "/v1/auth/login"),
];

/// A connection that is opened again when the gateway closed it.
pub struct Line<'a> {
    gateway: &'a Gateway,
    connection: Connection,
}

impl Line<'_> {
    pub async fn open(gateway: &Gateway) -> Line<'_> {
        Line { gateway, connection: gateway.connect().await }
    }

    pub async fn ask(&mut self, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
        let ask = request(method, target, &self.gateway.host(), headers, None);
        match self.connection.try_exchange(&ask).await {
            Some(answer) => answer,
            None => {
                self.connection = self.gateway.connect().await;
                self.connection.exchange(&ask).await
            }
        }
    }
}

/// Cookies of sessions that are over, and what is no cookie of a session.
async fn bad_cookies(gateway: &Gateway, token: &str, key: &str) -> Vec<String> {
    let (ended, disabled) = (cookie(gateway, "ann@example.com").await, {
        gateway.session("dora@example.com").await;
        cookie(gateway, "dora@example.com").await
    });
    let me = gateway.send("GET", "/v1/auth/me", &[("cookie", &disabled)], None).await.json();
    let path = format!("/v1/users/{}", me["id"].as_str().unwrap());
    assert_eq!(
        gateway
            .manage("PATCH", &path, &gateway.admin_key, Some(&json!({"disabled": true})))
            .await
            .status,
        200
    );
    assert_eq!(
        gateway.send("POST", "/v1/auth/logout", &[("cookie", &ended)], None).await.status,
        204
    );
    let twice = format!("{ended}; {ended}");
    // The two secrets of a session are not each other.
    let wrong = [token, key, "nonsense", ""].map(|value| format!("rerouter_session={value}"));
    [vec![ended, disabled, twice], wrong.to_vec()].concat()
}

#[tokio::test]
async fn by_other_headers_and_by_cookies_every_route_refuses_every_stranger_alike() {
    let (mut gateway, a) = start(|setup| setup.env("AGENT_CLOUD_API_KEY", CLOUD_KEY)).await;
    let ann = gateway.session("ann@example.com").await;
    let mut secrets: BTreeMap<String, String> = BTreeMap::new();
    for (interface, path, _) in KEYS {
        let maker = if interface == "agent" { CLOUD_KEY } else { ann.as_str() };
        secrets.insert(interface.to_owned(), make(&gateway, path, maker).await.secret);
    }
    let spent = no_longer_good(&mut gateway, &ann).await;
    secrets.extend(
        spent
            .into_iter()
            .map(|(name, value)| (name, value.strip_prefix("Bearer ").unwrap().to_owned())),
    );
    secrets.extend(
        [
            ("admin", gateway.admin_key.as_str()),
            ("cloud", CLOUD_KEY),
            ("garbage", "nonsense"),
            ("session", &ann),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    let good_cookie = cookie(&gateway, "ann@example.com").await;
    let bad = bad_cookies(&gateway, &ann, &secrets["router"]).await;
    let mut refusals: BTreeMap<String, String> = BTreeMap::new();
    let mut line = Line::open(&gateway).await;
    let mut let_in = BTreeMap::new();
    for (method, path, object, good) in
        ROWS.iter().filter(|(method, path, ..)| !OPEN.contains(&(method, path)))
    {
        let (surface, target) = (Surface::of(path), fill(path, without_object(*object)));
        let mut tries: Vec<(String, Vec<(&str, &str)>)> = Vec::new();
        for (name, secret) in &secrets {
            tries.extend(
                ["x-api-key", "api-key"]
                    .map(|header| (format!("{header}: {name}"), vec![(header, secret.as_str())])),
            );
        }
        // A good cookie is no help to a bad key.
        tries.push((
            "a bad key and a good cookie".to_owned(),
            vec![("api-key", "nonsense"), ("cookie", &good_cookie)],
        ));
        tries.extend(
            bad.iter()
                .map(|cookie| (format!("cookie: {cookie}"), vec![("cookie", cookie.as_str())])),
        );
        for (name, headers) in tries {
            let own = name.ends_with(": router") || name.ends_with(": session");
            if surface.is_data_plane() && own {
                let answer = line.ask(method, &target, &headers).await;
                assert_eq!(answer.status, *good, "{method} {path} with {name}: {}", answer.text());
                *let_in.entry("key").or_insert(0) += 1;
                continue;
            }
            // On other surfaces neither header is looked at, and the cookie beside it is.
            if name.starts_with("a bad key") && !surface.is_data_plane() {
                continue;
            }
            let answer = line.ask(method, &target, &headers).await;
            assert_eq!(answer.status, 401, "{method} {path} with {name}: {}", answer.text());
            check_401(surface, &answer);
            let mut body = answer.json();
            body.as_object_mut().unwrap().remove("request_id");
            // Inference tells callers what they know: they sent none, or the operator's.
            let known = match surface.is_data_plane() {
                true if name.starts_with("cookie") => "none",
                true if name.ends_with(": admin") => "admin",
                _ => "",
            };
            let place = format!("{surface:?} {known}");
            let first = refusals.entry(place).or_insert_with(|| body.to_string());
            assert_eq!(
                *first,
                body.to_string(),
                "{method} {path} with {name}: nothing is to be learnt from a 401"
            );
        }
        if *method == "GET" {
            let answer = line.ask(method, &target, &[("cookie", &good_cookie)]).await;
            let expected = if surface == Surface::Agent { 401 } else { *good };
            // A session is told that it is no admin's in the same words as a key is.
            assert_eq!(
                answer.status,
                expected,
                "{method} {path} with a good cookie: {}",
                answer.text()
            );
            *let_in.entry("cookie").or_insert(0) += u32::from(expected != 401);
        }
    }
    assert!(let_in.values().all(|count| *count > 10) && let_in.len() == 2, "{let_in:?}");
    assert_eq!(a.count(), 0, "no provider was asked");
}

/// A gateway in this process, of which everything that answers panics where it is entered: 500 says
/// that it was.
struct Mined {
    host: Host,
    faults: Faults,
    node: (String, String),
    secrets: BTreeMap<&'static str, String>,
}

impl Mined {
    async fn start(dir: &std::path::Path, provider: &Provider) -> Mined {
        let faults = Faults::default();
        let document = in_order(&[("up", &provider.url())], "");
        let host = Host::start_with(
            dir,
            provider.address(),
            &document,
            faults.clone(),
            Extras { agent_key: Some(CLOUD_KEY), ..Extras::default() },
        )
        .await;
        let mut secrets =
            BTreeMap::from([("admin", ADMIN.to_owned()), ("cloud", CLOUD_KEY.to_owned())]);
        for (interface, path, _) in KEYS {
            let maker = if interface == "agent" { CLOUD_KEY } else { ADMIN };
            let scopes = match interface {
                "pin" => json!({"scopes": ["user", "admin"]}),
                "router" => {
                    json!({
                        "scopes": ["inference", "replay", "keys", "evaluate", "config", "admin"]
                    })
                }
                _ => json!({}),
            };
            let made = host.ask("POST", path, Some(maker), Some(&scopes.to_string())).await;
            assert_eq!(made.status, 201, "{}", made.text());
            secrets.insert(interface, made.json()["key"].as_str().unwrap().to_owned());
        }
        let node =
            host.ask("POST", "/v1/nodes", Some(ADMIN), Some(r#"{"name": "rack"}"#)).await.json();
        let node =
            (node["id"].as_str().unwrap().to_owned(), node["secret"].as_str().unwrap().to_owned());
        faults.panic_at(PanicPoint::Entry, u32::MAX, "entered");
        Mined { host, faults, node, secrets }
    }

    async fn ask(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
        let host = self.host.address();
        Connection::try_open(host)
            .await
            .unwrap()
            .exchange(&request(method, target, &host.to_string(), headers, None))
            .await
    }

    /// As the node of this gateway signs.
    fn signed(&self, path: &str) -> Vec<(&'static str, String)> {
        let signer = Signer { key: self.node.1.as_bytes(), node: &self.node.0, generation: 1 };
        let authority = self.host.address().to_string();
        let covered = Covered { method: &Method::POST, authority: &authority, path, query: None };
        signer.sign(&covered, b"", now(), &Random::System).to_vec()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_answers_is_entered_by_anybody_who_was_not_let_in() {
    let (dir, provider) =
        (tempfile::tempdir().unwrap(), Provider::always(scripted::completion("well")).await);
    let mined = Mined::start(dir.path(), &provider).await;
    let open: Vec<(&str, &str)> = ROUTES
        .iter()
        .filter(|route| route.policy.is_open())
        .map(|route| (route.method.as_str(), route.path))
        .collect();
    assert_eq!(open, OPEN, "those that are open by contract");
    let mut entered = 0;
    for (method, path, object, _) in ROWS {
        let (surface, target) = (Surface::of(path), fill(path, without_object(*object)));
        let own: &[&str] = match surface {
            Surface::Pin | Surface::Console => &["pin", "admin"],
            Surface::RouterManagement => &["router", "admin"],
            Surface::Agent => &["agent", "cloud"],
            Surface::Messages | Surface::DataPlane => &["router"],
            Surface::NodeCallback => &[],
        };
        let is_open = OPEN.contains(&(method, path));
        let of_sessions = ["/v1/auth/logout", "/v1/auth/password"].contains(path);
        for (name, secret) in &mined.secrets {
            let bearer = format!("Bearer {secret}");
            let answer = mined.ask(method, &target, &[("authorization", &bearer)]).await;
            let expected = match is_open || own.contains(name) {
                true if of_sessions => 403,
                true => 500,
                false => 401,
            };
            assert_eq!(answer.status, expected, "{method} {path} with {name}: {}", answer.text());
            entered += u32::from(expected == 500);
        }
        let bad: [&[(&str, &str)]; 4] = [
            &[],
            &[("authorization", "Bearer nonsense")],
            &[("x-api-key", "nonsense"), ("cookie", "rerouter_session=nonsense")],
            &[("cookie", "rerouter_session=nonsense")],
        ];
        for headers in bad {
            let answer = mined.ask(method, &target, headers).await;
            assert_eq!(
                answer.status,
                if is_open { 500 } else { 401 },
                "{method} {path} with {headers:?}: {}",
                answer.text()
            );
        }
        if surface == Surface::NodeCallback {
            let signed = mined.signed(path);
            let signed: Vec<(&str, &str)> =
                signed.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert_eq!(mined.ask(method, &target, &signed).await.status, 500, "{method} {path}");
            let twice = mined.ask(method, &target, &signed).await;
            assert_eq!(twice.status, 401, "{method} {path}: a nonce that is spent");
            entered += 1;
        }
    }
    // Unknown paths, known ones by another method: a stranger does not hear that they are.
    for (method, path) in [
        ("GET", "/v1/nothing"),
        ("DELETE", "/v1/chat/completions"),
        ("PUT", "/v1/users"),
        ("GET", "/v1/agent/register"),
    ] {
        assert_eq!(mined.ask(method, path, &[]).await.status, 401, "{method} {path}");
    }
    assert!(entered as usize > ROWS.len(), "the mines are there");
    mined.faults.clear();
    let well: Value = mined.ask("GET", "/health", &[]).await.json();
    assert_eq!((&well["status"], provider.count()), (&json!("ok"), 0));
    mined.host.stop().await;
}
