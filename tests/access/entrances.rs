//! Authentication on every route: keys in `Authorization`, `x-api-key` and `api-key`, and sessions
//! in cookies. No handler runs for a request that was not authenticated.

use std::collections::BTreeMap;

use http::Method;
use rerouter::internals::api::ROUTES;
use rerouter::internals::auth::signature::{Covered, Signer};
use rerouter::internals::id::Random;
use rerouter::internals::interface::Surface;
use rerouter::internals::store::{Faults, PanicPoint};
use serde_json::{Value, json};

use crate::access::identity::{
    CLOUD_KEY, KEYS, ROWS, check_401, check_refusal, cookie, fill, make, no_longer_good, start,
    without_object,
};
use crate::process::plugin::{ADMIN, Extras, Host};
use crate::support::client::{Answer, Connection, pairs, request};
use crate::support::documents::in_order;
use crate::support::gateway::Gateway;
use crate::support::node::now;
use crate::support::provider::{self as scripted, Provider};

/// Routes that answer without a credential, according to the specification. If AGENT is not
/// enforced, its routes do too.
pub const OPEN: [(&str, &str); 5] = [
    ("GET", "/health"),
    ("GET", "/version"),
    ("GET", "/openapi.json"),
    ("POST", "/v1/auth/register"),
    ("POST", "/v1/auth/login"),
];

/// A connection that is opened again after the gateway has closed it.
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

/// Cookies of ended sessions, and values that are not session cookies.
async fn bad_cookies(gateway: &Gateway, token: &str, key: &str) -> Vec<String> {
    let (ended, disabled) = (cookie(gateway, "ann@example.com").await, {
        gateway.session("dora@example.com").await;
        cookie(gateway, "dora@example.com").await
    });
    let me = gateway.send("GET", "/v1/auth/me", &[("cookie", &disabled)], None).await.json();
    let path = format!("/v1/users/{}", me["id"].as_str().unwrap());
    gateway
        .answers(200, "PATCH", &path, &gateway.admin_key, Some(&json!({"disabled": true})))
        .await;
    assert_eq!(
        gateway.send("POST", "/v1/auth/logout", &[("cookie", &ended)], None).await.status,
        204
    );
    let twice = format!("{ended}; {ended}");
    // A session's token is not valid as its cookie.
    let wrong = [token, key, "nonsense", ""].map(|value| format!("rerouter_session={value}"));
    [vec![ended, disabled, twice], wrong.to_vec()].concat()
}

/// A secret of every kind, by name: for each interface a key that is valid only there, and a secret
/// for each way of being invalid.
async fn secrets(gateway: &mut Gateway, ann: &str) -> BTreeMap<String, String> {
    let mut secrets: BTreeMap<String, String> = BTreeMap::new();
    for (interface, path, _) in KEYS {
        let maker = if interface == "agent" { CLOUD_KEY } else { ann };
        secrets.insert(interface.to_owned(), make(gateway, path, maker).await.secret);
    }
    secrets.extend(no_longer_good(gateway, ann).await);
    let others = [
        ("admin", gateway.admin_key.as_str()),
        ("cloud", CLOUD_KEY),
        ("unknown", "nonsense"),
        ("mistyped", "rtr_AbCdEfGhIjKlMnOpQrStUvWxYz01232piBxf"),
        ("session", ann),
    ];
    secrets.extend(others.map(|(name, value)| (name.to_owned(), value.to_owned())));
    for kind in ["", "revoked ", "rotated ", "expired ", "inactive ", "disabled "] {
        for interface in ["pin", "agent", "router"] {
            let none = kind == "disabled " && interface == "agent";
            assert_eq!(secrets.contains_key(&format!("{kind}{interface}")), !none);
        }
    }
    assert!(secrets.contains_key("disabled session"));
    secrets
}

/// Names of the secrets that are valid in `Authorization` on a surface.
fn own(surface: Surface) -> &'static [&'static str] {
    match surface {
        Surface::Pin | Surface::Console => &["pin", "admin", "session"],
        Surface::NodeCallback => &[],
        Surface::Agent => &["agent", "cloud"],
        Surface::RouterManagement => &["router", "admin", "session"],
        Surface::Messages | Surface::DataPlane => &["router", "session"],
    }
}

/// A request to try: its description, its headers, and whether it is let in.
type Try<'a> = (String, Vec<(&'static str, &'a str)>, bool);

/// Every way to present a secret or a cookie to a surface, valid and invalid.
fn tries<'a>(
    surface: Surface,
    secrets: &'a BTreeMap<String, String>,
    bearers: &'a BTreeMap<String, String>,
    good_cookie: &'a str,
    bad_cookies: &'a [String],
) -> Vec<Try<'a>> {
    let (data_plane, good) = (surface.is_data_plane(), ("cookie", good_cookie));
    let mut tries: Vec<Try> = Vec::new();
    for (name, value) in bearers.iter().filter(|(name, _)| !own(surface).contains(&name.as_str())) {
        // A valid cookie does not help an invalid credential. AGENT takes no cookies at all.
        let headers = vec![("authorization", value.as_str()), good];
        tries.push((format!("authorization: {name}"), headers, false));
    }
    let none = if surface == Surface::Agent { vec![good] } else { Vec::new() };
    tries.push(("nothing".to_owned(), none, false));
    for (name, secret) in secrets {
        let is_good = data_plane && ["router", "session"].contains(&name.as_str());
        for header in ["x-api-key", "api-key"] {
            tries.push((format!("{header}: {name}"), vec![(header, secret.as_str())], is_good));
        }
    }
    // Other surfaces ignore both headers, and read the cookie.
    if data_plane {
        tries.push(("a bad key".to_owned(), vec![("api-key", "nonsense"), good], false));
        // The first header that is present decides.
        let first = ("authorization", "Bearer wrong");
        let headers = vec![first, ("x-api-key", secrets["router"].as_str())];
        tries.push(("a bad key before a good one".to_owned(), headers, false));
    }
    for cookie in bad_cookies {
        tries.push((format!("cookie: {cookie}"), vec![("cookie", cookie.as_str())], false));
    }
    tries
}

#[tokio::test]
async fn every_route_refuses_every_stranger_alike() {
    let (mut gateway, a) = start(|setup| setup.env("AGENT_CLOUD_API_KEY", CLOUD_KEY)).await;
    let ann = gateway.session("ann@example.com").await;
    let secrets = secrets(&mut gateway, &ann).await;
    let mut bearers: BTreeMap<String, String> =
        secrets.iter().map(|(name, secret)| (name.clone(), format!("Bearer {secret}"))).collect();
    for (name, value) in
        [("garbage", "nonsense"), ("basic", "Basic dXNlcjpwYXNz"), ("empty", "Bearer")]
    {
        bearers.insert(name.to_owned(), value.to_owned());
    }
    let good_cookie = cookie(&gateway, "ann@example.com").await;
    let bad = bad_cookies(&gateway, &ann, &secrets["router"]).await;
    let mut refusals: BTreeMap<String, String> = BTreeMap::new();
    let mut line = Line::open(&gateway).await;
    let mut let_in = BTreeMap::new();
    for (method, path, object, good) in ROWS {
        let (surface, target) = (Surface::of(path), fill(path, without_object(*object)));
        let is_open = OPEN.contains(&(method, path));
        let key = bearers[own(surface).first().copied().unwrap_or("pin")].as_str();
        let answer = line.ask(method, &target, &[("authorization", key)]).await;
        assert_eq!(answer.status, *good, "{method} {path}: {}", answer.text());
        match *good {
            401 => check_401(surface, &answer),
            400.. => check_refusal(surface, &answer, *good),
            _ => {}
        }
        for given in [("authorization", key), ("x-api-key", &secrets["router"])] {
            let answer = line.ask(method, &target, &[given, given]).await;
            match surface {
                _ if is_open => assert_eq!(answer.status, *good, "{method} {path}: looked at"),
                Surface::NodeCallback => check_401(surface, &answer),
                _ if given.0 == "authorization" || surface.is_data_plane() => {
                    check_refusal(surface, &answer, 400)
                }
                _ => check_401(surface, &answer),
            }
        }
        for (name, headers, is_good) in tries(surface, &secrets, &bearers, &good_cookie, &bad) {
            let answer = line.ask(method, &target, &headers).await;
            if is_open || is_good {
                assert_eq!(answer.status, *good, "{method} {path} with {name}: {}", answer.text());
                *let_in.entry("key").or_insert(0) += u32::from(is_good);
                continue;
            }
            assert_eq!(answer.status, 401, "{method} {path} with {name}: {}", answer.text());
            check_401(surface, &answer);
            let mut body = answer.json();
            body.as_object_mut().unwrap().remove("request_id");
            // Inference has different messages for callers without a credential and for the
            // operator's key.
            let known = match surface.is_data_plane() {
                true if name == "nothing" => "none",
                true if name.ends_with(": admin") => "admin",
                _ => "",
            };
            let first =
                refusals.entry(format!("{surface:?} {known}")).or_insert_with(|| body.to_string());
            assert_eq!(
                *first,
                body.to_string(),
                "{method} {path} with {name}: nothing is to be learnt from a 401"
            );
        }
        if *method == "GET" && !is_open {
            let answer = line.ask(method, &target, &[("cookie", &good_cookie)]).await;
            let expected = if surface == Surface::Agent { 401 } else { *good };
            // A session without the admin role gets the same refusal as a key without it.
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

/// A gateway in this process whose handlers all panic on entry. Status 500 therefore says that a
/// handler was entered.
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

    /// Headers of a request that this gateway's node has signed.
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
        let is_open = OPEN.contains(&(method, path));
        let of_sessions = ["/v1/auth/logout", "/v1/auth/password"].contains(path);
        for (name, secret) in &mined.secrets {
            let bearer = format!("Bearer {secret}");
            let answer = mined.ask(method, &target, &[("authorization", &bearer)]).await;
            let expected = match is_open || own(surface).contains(name) {
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
            let signed = pairs(&signed);
            assert_eq!(mined.ask(method, &target, &signed).await.status, 500, "{method} {path}");
            let twice = mined.ask(method, &target, &signed).await;
            assert_eq!(twice.status, 401, "{method} {path}: a nonce that is spent");
            entered += 1;
        }
    }
    // Unknown paths, and known paths with another method: a stranger cannot tell them apart.
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
