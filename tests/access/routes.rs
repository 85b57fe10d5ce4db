//! Every route with other methods and other spellings of its path, as strangers and as callers with
//! every scope. Who is refused at the path itself is refused at the other spellings too, learns
//! nothing and changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use rerouter::internals::api::ROUTES;
use rerouter::internals::interface::Surface;
use serde_json::{Value, json};

use crate::access::entrances::{Line, OPEN};
use crate::access::identity::{CLOUD_KEY, KEYS, ROWS, check_401, fill, start, without_object};
use crate::support::client::{Answer, H2};
use crate::support::gateway::Gateway;
use crate::support::until;

/// Methods of the table, methods that browsers and proxies know, and an unknown one.
const METHODS: [&str; 10] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "BREW"];

/// Paths without a route, below those of each surface.
const UNKNOWN: [&str; 11] = [
    "/v1/auth/nothing",
    "/v1/nodes/x/nothing",
    "/v1/router",
    "/v1/router/nothing",
    "/v1/agent/nothing",
    "/v1/agents/a/nothing",
    "/v1/api-keys/a/b",
    "/v1/messages/nothing",
    "/v1/nothing",
    "/v1/audio/speech",
    "/v1/agentsx",
];

/// Keys with every scope, as values of `Authorization`.
async fn everything(gateway: &Gateway) -> BTreeMap<&'static str, String> {
    let mut found = BTreeMap::from([
        ("admin", format!("Bearer {}", gateway.admin_key)),
        ("cloud", format!("Bearer {CLOUD_KEY}")),
    ]);
    for (interface, path, _) in KEYS {
        let (maker, scopes) = match interface {
            "pin" => (gateway.admin_key.as_str(), json!(["user", "admin"])),
            "router" => (
                gateway.admin_key.as_str(),
                json!(["inference", "replay", "keys", "evaluate", "config", "admin"]),
            ),
            _ => (CLOUD_KEY, json!(["agents", "keys"])),
        };
        let made =
            gateway.answers(201, "POST", path, maker, Some(&json!({ "scopes": scopes }))).await;
        found.insert(interface, format!("Bearer {}", made.json()["key"].as_str().unwrap()));
    }
    found
}

/// The key with every scope that is valid on a surface, if there is one, and the keys that are not
/// valid there.
fn callers(
    surface: Surface,
    known: &BTreeMap<&'static str, String>,
) -> (Option<String>, Vec<String>) {
    let own = match surface {
        Surface::Pin => Some("pin"),
        Surface::Agent => Some("agent"),
        Surface::RouterManagement | Surface::Messages | Surface::DataPlane => Some("router"),
        Surface::NodeCallback | Surface::Console => None,
    };
    let both: &[&str] = match surface {
        Surface::Pin | Surface::RouterManagement => &["admin"],
        Surface::Agent => &["cloud"],
        _ => &[],
    };
    let others = known
        .iter()
        .filter(|(name, _)| Some(**name) != own && !both.contains(name))
        .map(|(_, value)| value.clone());
    (own.map(|own| known[own].clone()), others.chain(["Bearer nonsense".to_owned()]).collect())
}

/// Whether a path matches a pattern of a route, segment by segment.
fn fits(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<&str>, Vec<&str>) =
        (pattern.split('/').collect(), path.split('/').collect());
    let one =
        |(want, have): (&&str, &&str)| want == have || want.starts_with('{') && !have.is_empty();
    match pattern.last() {
        Some(last) if last.ends_with("...}") => {
            path.len() >= pattern.len()
                && pattern.iter().zip(&path).all(one)
                && !path.iter().skip(1).any(|segment| segment.is_empty())
        }
        _ => pattern.len() == path.len() && pattern.iter().zip(&path).all(one),
    }
}

/// The methods of the routes that match a path.
fn answered(path: &str) -> BTreeSet<&'static str> {
    ROUTES
        .iter()
        .filter(|route| fits(route.path, path))
        .map(|route| route.method.as_str())
        .collect()
}

/// Everything that a request could have changed, as the API shows it.
pub async fn state(gateway: &Gateway) -> Vec<Value> {
    let mut found = vec![json!(gateway.revision().await)];
    for path in [
        "/v1/audit",
        "/v1/users",
        "/v1/nodes",
        "/v1/apikeys",
        "/v1/router/keys",
        "/v1/router/replay",
    ] {
        let mut listed = gateway
            .manage("GET", &format!("{path}?limit=100"), &gateway.admin_key, None)
            .await
            .json();
        assert!(listed["data"].is_array(), "{path}: {listed}");
        // Leaves out when keys were last used.
        for one in listed["data"].as_array_mut().unwrap() {
            one.as_object_mut().unwrap().remove("last_used_at");
        }
        found.push(listed);
    }
    for path in ["/v1/agents", "/v1/api-keys"] {
        let mut listed = gateway.manage("GET", path, CLOUD_KEY, None).await.json();
        for one in listed["data"].as_array_mut().unwrap() {
            one.as_object_mut().unwrap().remove("last_used_at");
        }
        found.push(listed);
    }
    found
}

/// Asserts the 401 of the path's surface. The answer to a HEAD has no body.
fn check_stranger(method: &str, path: &str, answer: &Answer) {
    assert_eq!(answer.status, 401, "{method} {path}: {}", answer.text());
    if method == "HEAD" {
        assert!(
            answer.body.is_empty() && answer.header("www-authenticate").is_some(),
            "{method} {path}: {answer:?}"
        );
    } else {
        check_401(Surface::of(path), answer);
    }
}

#[tokio::test]
async fn every_path_by_every_method_is_refused_to_strangers_and_answers_its_own() {
    let (gateway, a) = start(|setup| setup.env("AGENT_CLOUD_API_KEY", CLOUD_KEY)).await;
    let known = everything(&gateway).await;
    let before = state(&gateway).await;
    let known_paths = ROWS.iter().map(|(_, path, object, _)| fill(path, without_object(*object)));
    let paths: BTreeSet<String> = known_paths.chain(UNKNOWN.map(str::to_owned)).collect();
    let mut line = Line::open(&gateway).await;
    let mut seen = BTreeMap::new();
    for path in &paths {
        let (own, strangers) = callers(Surface::of(path), &known);
        let answered = answered(path);
        for method in METHODS {
            let open =
                OPEN.contains(&(method, path)) || method == "HEAD" && OPEN.contains(&("GET", path));
            if !open {
                for credential in strangers.iter().map(Some).chain([None]) {
                    let headers: Vec<(&str, &str)> =
                        credential.iter().map(|value| ("authorization", value.as_str())).collect();
                    let answer = line.ask(method, path, &headers).await;
                    if path.starts_with("/v1/") {
                        check_stranger(method, path, &answer);
                    } else {
                        assert_eq!(answer.status, 405, "{method} {path}: {}", answer.text());
                    }
                    *seen.entry("strangers").or_insert(0) += 1;
                }
            }
            let Some(own) = &own else { continue };
            if answered.is_empty() {
                let answer = line.ask(method, path, &[("authorization", own)]).await;
                assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text());
                continue;
            }
            let has = answered.contains(method) || method == "HEAD" && answered.contains("GET");
            if !has {
                let answer = line.ask(method, path, &[("authorization", own)]).await;
                assert_eq!(answer.status, 405, "{method} {path}: {}", answer.text());
                let allow: BTreeSet<&str> =
                    answer.header("allow").expect("Allow").split(", ").collect();
                assert_eq!(allow, answered, "{method} {path}");
                *seen.entry("405").or_insert(0) += 1;
            } else if method == "HEAD" {
                let [head, get] = [
                    line.ask("HEAD", path, &[("authorization", own)]).await,
                    line.ask("GET", path, &[("authorization", own)]).await,
                ];
                assert_eq!((head.status, head.body.len()), (get.status, 0), "HEAD {path}");
                *seen.entry("heads").or_insert(0) += 1;
            }
        }
    }
    assert!(
        seen["strangers"] > paths.len() * 25 && seen["405"] > paths.len() * 5 && seen["heads"] > 15,
        "{seen:?}"
    );
    assert_eq!((state(&gateway).await, a.count()), (before, 0));
}

/// Other spellings of a path, which a proxy or a provider might read as the same path.
fn spellings(path: &str) -> Vec<String> {
    let at = path.rfind('/').unwrap();
    let (front, last) = path.split_at(at);
    let last = &last[1..];
    let first = path.split('/').nth(if path.starts_with("/v1/") { 2 } else { 1 }).unwrap();
    let encoded = |text: &str| format!("%{:02x}{}", text.as_bytes()[0], &text[1..]);
    let mut all = vec![
        format!("{path}/"),
        format!("{path}//"),
        format!("/{path}"),
        format!("{front}//{last}"),
        format!("{front}/./{last}"),
        format!("{front}/x/../{last}"),
        format!("{front}/x/%2e%2e/{last}"),
        format!("{front}%2f{last}"),
        format!("{front}\\{last}"),
        format!("{path}%00"),
        format!("{path};x=1"),
        format!("{path}%3f"),
        format!("{path}%20"),
        format!("{path}."),
        path.replacen(first, &encoded(first), 1),
        path.replacen(first, &first.to_uppercase(), 1),
        // An open route, and from there back to a protected one.
        format!("/v1/auth/login/..{path}"),
        format!("/health/..{path}"),
        format!("/v1/agents/../..{path}"),
    ];
    if path.starts_with("/v1/") {
        all.extend([
            path.replacen("/v1/", "/v1//", 1),
            path.replacen("/v1/", "/V1/", 1),
            path.replacen("/v1/", "/%76%31/", 1),
        ]);
    }
    all
}

#[tokio::test]
async fn no_other_spelling_of_a_path_lets_anybody_in() {
    let (gateway, a) = start(|setup| setup.env("AGENT_CLOUD_API_KEY", CLOUD_KEY)).await;
    let known = everything(&gateway).await;
    let before = state(&gateway).await;
    let mut line = Line::open(&gateway).await;
    let mut seen: BTreeMap<u16, u32> = BTreeMap::new();
    for (method, path, object, _) in ROWS {
        let path = fill(path, without_object(*object));
        let (own, _) = callers(Surface::of(&path), &known);
        for spelling in spellings(&path) {
            let stranger = line.ask(method, &spelling, &[]).await;
            match stranger.status {
                // Paths that are not in normal form are refused before anything else.
                400 => {}
                401 => check_401(Surface::of(&spelling), &stranger),
                404 => assert!(
                    !spelling.starts_with("/v1/"),
                    "{method} {spelling}: {}",
                    stranger.text()
                ),
                other => panic!("{method} {spelling}: {other} {}", stranger.text()),
            }
            *seen.entry(stranger.status).or_default() += 1;
            for credential in [own.as_deref(), Some(known["admin"].as_str())].into_iter().flatten()
            {
                let answer = line.ask(method, &spelling, &[("authorization", credential)]).await;
                assert!(
                    matches!(answer.status, 400 | 401 | 404 | 405),
                    "{method} {spelling}: {} {}",
                    answer.status,
                    answer.text()
                );
            }
        }
        if OPEN.contains(&(method, &path)) {
            continue;
        }
        // The query does not count as the path. A target may start with the gateway's own authority
        // (RFC 9112 section 3.2.2).
        let host = gateway.host();
        for target in [
            format!("{path}?x=/health"),
            format!("{path}?/v1/auth/login"),
            format!("http://{host}{path}"),
        ] {
            let answer = line.ask(method, &target, &[]).await;
            check_stranger(method, &path, &answer);
        }
        // With another authority, the target and `Host` disagree.
        let answer = line.ask(method, &format!("http://evil.example{path}"), &[]).await;
        assert_eq!(answer.status, 400, "{method} {path}: {}", answer.text());
    }
    assert!(
        [400, 401, 404].iter().all(|status| seen.get(status).is_some_and(|count| *count > 100)),
        "{seen:?}"
    );
    assert_eq!((state(&gateway).await, a.count()), (before, 0));
}

#[tokio::test]
async fn over_http2_every_route_refuses_strangers_and_takes_its_own() {
    let (gateway, a) = start(|setup| setup.tls().env("AGENT_CLOUD_API_KEY", CLOUD_KEY)).await;
    let known = everything(&gateway).await;
    let mut connection = until("a connection", async || H2::try_open(gateway.tls()).await).await;
    for (method, path, object, good) in ROWS {
        let target = fill(path, without_object(*object));
        let (own, strangers) = callers(Surface::of(path), &known);
        let is_open = OPEN.contains(&(method, path));
        for credential in strangers.iter().map(Some).chain([None]) {
            let headers: Vec<(&str, &str)> =
                credential.iter().map(|value| ("authorization", value.as_str())).collect();
            let answer = connection.send(method, &target, &headers, b"", false).await;
            match is_open {
                true => assert_eq!(answer.status, *good, "{method} {path}: {}", answer.text()),
                false => check_stranger(method, path, &answer),
            }
        }
        if let Some(own) = own {
            let answer = connection
                .send(method, &target, &[("authorization", own.as_str())], b"", false)
                .await;
            assert!(
                answer.status != 401 && answer.status < 500,
                "{method} {path}: {}",
                answer.text()
            );
        }
    }
    assert_eq!(a.count(), 0);
}
