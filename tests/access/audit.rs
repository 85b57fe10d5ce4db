//! The audit: every audited route leaves a row with actor, target, request and address. A call that
//! changes nothing leaves no row. Rows of calls that were answered before a kill survive it.

use std::collections::BTreeSet;

use rerouter::internals::api::NOTED;
use rerouter::internals::store::Faults;
use serde_json::{Value, json};

use crate::process::plugin::{ADMIN, Host};
use crate::support::client::Answer;
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{envelope, until};

const CLOUD_KEY: &str = "agent-cloud-canary-0123456789abcdef";
const JSON: (&str, &str) = ("content-type", "application/json");

async fn rows(gateway: &Gateway, query: &str) -> Vec<Value> {
    let answer = gateway
        .answers(200, "GET", &format!("/v1/audit?limit=100{query}"), &gateway.admin_key, None)
        .await;
    answer.json()["data"].as_array().unwrap().clone()
}

/// A gateway, and the audited calls that the test has made to it.
struct Deeds {
    gateway: Gateway,
    done: BTreeSet<(String, String)>,
}

impl Deeds {
    /// Makes a call that succeeds, and finds its one row in the audit. `expected` has the types of
    /// the row's actor and target. Returns the answer and the row.
    async fn noted(
        &mut self,
        method: &str,
        route: &str,
        sent: (&str, &str, Option<Value>),
        expected: (&str, &str),
    ) -> (Answer, Value) {
        let (target, credential, body) = sent;
        let bearer = format!("Bearer {credential}");
        let mut headers = vec![JSON];
        headers.extend((!credential.is_empty()).then_some(("authorization", bearer.as_str())));
        let text = body.map(|body| body.to_string());
        let answer =
            self.gateway.send(method, target, &headers, text.as_deref().map(str::as_bytes)).await;
        assert!((200..300).contains(&answer.status), "{method} {target}: {}", answer.text());
        let id = answer.request_id();
        let found: Vec<Value> = rows(&self.gateway, "")
            .await
            .into_iter()
            .filter(|row| row["request_id"] == id.as_str())
            .collect();
        assert_eq!(found.len(), 1, "{method} {target} left {found:?}");
        let row = found[0].clone();
        let action = NOTED
            .iter()
            .find(|(noted, path, _)| (*noted, *path) == (method, route))
            .map(|(.., action)| action.as_str());
        assert_eq!(
            (row["action"].as_str(), row["address"].as_str()),
            (action, Some("127.0.0.1")),
            "{method} {route}"
        );
        assert_eq!(
            (row["actor"]["type"].as_str(), row["target"]["type"].as_str()),
            (Some(expected.0), Some(expected.1)),
            "{row}"
        );
        self.done.insert((method.to_owned(), route.to_owned()));
        (answer, row)
    }

    async fn keys(&mut self, path: &str, credential: &str, actor: &str) {
        let (made, row) = self.noted("POST", path, (path, credential, None), (actor, "key")).await;
        let id = made.json()["id"].as_str().unwrap().to_owned();
        assert_eq!(row["target"]["id"], id.as_str());
        let (one, rotate) = (format!("{path}/{{id}}"), format!("{path}/{{id}}/rotate"));
        self.noted(
            "POST",
            &rotate,
            (&format!("{path}/{id}/rotate"), credential, None),
            (actor, "key"),
        )
        .await;
        self.noted(
            "PATCH",
            &one,
            (&format!("{path}/{id}"), credential, Some(json!({"name": "other"}))),
            (actor, "key"),
        )
        .await;
        self.noted("DELETE", &one, (&format!("{path}/{id}"), credential, None), (actor, "key"))
            .await;
        let again = self.gateway.manage("DELETE", &format!("{path}/{id}"), credential, None).await;
        assert_eq!(again.status, 204);
        let of_key: Vec<Value> = rows(&self.gateway, &format!("&target={id}"))
            .await
            .iter()
            .map(|row| row["action"].clone())
            .collect();
        assert_eq!(
            of_key,
            ["key.revoke", "key.update", "key.rotate", "key.create"],
            "the second DELETE changed nothing"
        );
    }
}

async fn start() -> (Gateway, Provider) {
    let provider = Provider::always(scripted::completion("well")).await;
    let setup = Setup::new(
        &in_order(&[("a", &provider.url())], "")
            .replace("${UPSTREAM_API_KEY:-sk-upstream}", "${UPSTREAM_API_KEY}"),
    );
    (
        setup.env("UPSTREAM_API_KEY", "sk").env("AGENT_CLOUD_API_KEY", CLOUD_KEY).start().await,
        provider,
    )
}

fn account(email: &str, password: &str) -> Option<Value> {
    Some(json!({"email": email, "password": password}))
}

#[tokio::test]
async fn every_route_that_is_noted_leaves_its_row() {
    let (gateway, provider) = start().await;
    let admin = gateway.admin_key.clone();
    let mut deeds = Deeds { gateway, done: BTreeSet::new() };
    let ann = account("ann@example.com", "correct horse");
    deeds
        .noted(
            "POST",
            "/v1/auth/register",
            ("/v1/auth/register", "", ann.clone()),
            ("anonymous", "user"),
        )
        .await;
    let (login, row) = deeds
        .noted("POST", "/v1/auth/login", ("/v1/auth/login", "", ann.clone()), ("session", "user"))
        .await;
    assert_eq!(row["target"]["id"], login.json()["user"]["id"]);
    let token = login.json()["token"].as_str().unwrap().to_owned();
    let bob = Some(json!({"email": "bob@example.com", "password": "correct horse"}));
    let (bob, _) =
        deeds.noted("POST", "/v1/users", ("/v1/users", &admin, bob), ("admin_key", "user")).await;
    let path = format!("/v1/users/{}", bob.json()["id"].as_str().unwrap());
    deeds
        .noted(
            "PATCH",
            "/v1/users/{id}",
            (&path, &admin, Some(json!({"name": "Bob"}))),
            ("admin_key", "user"),
        )
        .await;
    deeds.noted("DELETE", "/v1/users/{id}", (&path, &admin, None), ("admin_key", "user")).await;
    deeds.keys("/v1/apikeys", &token, "session").await;
    deeds.keys("/v1/router/keys", &admin, "admin_key").await;
    deeds.keys("/v1/api-keys", CLOUD_KEY, "cloud_key").await;
    let agent = Some(json!({"name": "reviewer", "model": "auto"}));
    deeds
        .noted("POST", "/v1/agents", ("/v1/agents", CLOUD_KEY, agent), ("cloud_key", "agent"))
        .await;
    let trusted = Some(json!({"description": "reviews"}));
    deeds
        .noted(
            "PATCH",
            "/v1/agents/{id}",
            ("/v1/agents/reviewer", CLOUD_KEY, trusted),
            ("cloud_key", "agent"),
        )
        .await;
    deeds
        .noted(
            "DELETE",
            "/v1/agents/{id}",
            ("/v1/agents/reviewer", CLOUD_KEY, None),
            ("cloud_key", "agent"),
        )
        .await;
    let node = Some(json!({"name": "rack-1"}));
    let (node, _) =
        deeds.noted("POST", "/v1/nodes", ("/v1/nodes", &admin, node), ("admin_key", "node")).await;
    let path = format!("/v1/nodes/{}", node.json()["id"].as_str().unwrap());
    deeds
        .noted(
            "POST",
            "/v1/nodes/{id}/rotate",
            (&format!("{path}/rotate"), &admin, None),
            ("admin_key", "node"),
        )
        .await;
    deeds.noted("DELETE", "/v1/nodes/{id}", (&path, &admin, None), ("admin_key", "node")).await;
    let change =
        Some(json!({"current_password": "correct horse", "new_password": "battery staple"}));
    deeds
        .noted(
            "POST",
            "/v1/auth/password",
            ("/v1/auth/password", &token, change),
            ("session", "user"),
        )
        .await;

    let before = deeds.gateway.revision().await;
    let document = json!({
        "providers": {
            "b": {
                "protocol": "openai", "base_url": provider.url(), "api_key": "${UPSTREAM_API_KEY}"
            }
        },
        "recipes": { "main": { "rules": [{ "name": "only",
                        "targets": [{ "target": "b/model" }] }] } }, "aliases": {
            "auto": "main"
        },
    });
    let put = ("/v1/router/config", admin.as_str(), Some(document));
    let (taken, row) = deeds.noted("PUT", "/v1/router/config", put, ("admin_key", "config")).await;
    assert_eq!(row["target"]["id"], taken.json()["revision"]);
    let back = ("/v1/router/config/rollback", admin.as_str(), Some(json!({"revision": before})));
    let (_, row) =
        deeds.noted("POST", "/v1/router/config/rollback", back, ("admin_key", "config")).await;
    assert_eq!(row["target"]["id"], before.as_str());
    let key = deeds.gateway.create_key().await;
    let id = deeds.gateway.chat(&key, chat_body("auto", false).as_bytes()).await.request_id();
    let path = format!("/v1/router/replay/{id}");
    let capture = Some(deeds.gateway.capture(&id).await);
    deeds
        .noted(
            "POST",
            "/v1/router/replay/import",
            ("/v1/router/replay/import", &admin, capture),
            ("admin_key", "request"),
        )
        .await;
    let old = "/v1/router/replay?until=2001-01-01T00:00:00Z";
    let (_, row) = deeds
        .noted("DELETE", "/v1/router/replay", (old, &admin, None), ("admin_key", "captures"))
        .await;
    assert_eq!(row["target"]["id"], "until=2001-01-01T00:00:00Z");
    let (_, row) = deeds
        .noted(
            "DELETE",
            "/v1/router/replay/{id}",
            (&path, &key.secret, None),
            ("api_key", "capture"),
        )
        .await;
    assert_eq!((&row["actor"]["id"], &row["target"]["id"]), (&json!(key.id), &json!(id)));
    deeds
        .noted("POST", "/v1/auth/logout", ("/v1/auth/logout", &token, None), ("session", "session"))
        .await;

    // Those of several gateways need a database that is shared (tests/cluster/gateways.rs), and a
    // settlement needs a gateway that was killed (tests/limits/holds.rs).
    let elsewhere = ["/v1/gateways/{id}", "/v1/router/usage"];
    let noted = NOTED.iter().filter(|(_, path, _)| !elsewhere.contains(path));
    let noted: BTreeSet<(String, String)> =
        noted.map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
    assert_eq!(deeds.done, noted, "the routes of this test against those that are noted");
    let whole = rows(&deeds.gateway, "").await;
    deeds.gateway.kill_9();
    deeds.gateway.start_again().await;
    assert_eq!(rows(&deeds.gateway, "").await, whole);
}

#[tokio::test]
async fn what_an_admin_sees_of_others_is_noted_and_what_it_sees_of_its_own_is_not() {
    let (gateway, _provider) = start().await;
    let token = gateway.session("ann@example.com").await;
    let anns = gateway.make_key("/v1/router/keys", &token, &json!({})).await;
    let own = gateway.create_key().await;
    let mut ids = Vec::new();
    for key in [&anns, &own] {
        let id = gateway.chat(key, chat_body("auto", false).as_bytes()).await.request_id();
        let path = format!("/v1/router/replay/{id}");
        until("the capture", async || {
            (gateway.manage("GET", &path, &key.secret, None).await.status == 200).then_some(())
        })
        .await;
        ids.push(id);
    }
    let seen = async || {
        let captures =
            rows(&gateway, "").await.into_iter().filter(|row| row["target"]["type"] == "capture");
        let shown = captures.map(|row| {
            assert_eq!(row["actor"], json!({"type": "admin_key", "id": "usr_admin"}));
            format!("{} {}", row["action"].as_str().unwrap(), row["target"]["id"].as_str().unwrap())
        });
        shown.collect::<Vec<_>>()
    };
    assert_eq!(seen().await, Vec::<String>::new(), "owners see their own");
    let ask = async |method: &str, path: &str| {
        let answer = gateway
            .manage(method, &format!("/v1/router/replay{path}"), &gateway.admin_key, None)
            .await;
        assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.text());
    };
    let (ann, admin) = (&ids[0], &ids[1]);
    ask("GET", "").await;
    ask("GET", &format!("/{admin}")).await;
    ask("POST", &format!("/{admin}/reroute?dry_run=true")).await;
    ask("GET", &format!("/{ann}")).await;
    ask("GET", &format!("/{admin}/compare/{ann}")).await;
    ask("POST", &format!("/{ann}/reroute?dry_run=true")).await;
    ask("POST", &format!("/{ann}/reroute")).await;
    ask("DELETE", &format!("/{ann}")).await;
    let mut expected =
        ["capture.read", "capture.read", "capture.reroute", "capture.reroute", "capture.delete"]
            .map(|action| format!("{action} {ann}"));
    expected.reverse();
    assert_eq!(seen().await, expected);
}

#[tokio::test]
async fn what_is_tried_on_captures_of_others_is_noted() {
    let (gateway, provider) = start().await;
    let document = in_order(&[("up", &provider.url())], "")
        .replace("${UPSTREAM_API_KEY:-sk-upstream}", "${UPSTREAM_API_KEY}");
    let noted = async || rows(&gateway, "&action=capture.evaluate").await;
    let scopes = json!({ "scopes": ["replay:all", "evaluate"] });
    let made =
        gateway.manage("POST", "/v1/router/keys", &gateway.admin_key, Some(&scopes)).await.json();
    let evaluate = async |key: &str, body: Value| {
        let answer = gateway.manage("POST", "/v1/router/replay/evaluate", key, Some(&body)).await;
        assert_eq!(answer.status, 200, "{}\n{}", answer.text(), gateway.log());
        answer.json()["revision"].clone()
    };
    evaluate(made["key"].as_str().unwrap(), json!({ "document": &document })).await;
    evaluate(
        &gateway.admin_key,
        json!({ "document": &document, "filter": { "owner": "usr_admin" } }),
    )
    .await;
    evaluate(&gateway.admin_key, json!({})).await;
    assert!(noted().await.is_empty(), "of one's own captures, or by the live document");
    let revision = evaluate(&gateway.admin_key, json!({ "document": &document })).await;
    let row = noted().await.remove(0);
    assert_eq!(row["target"], json!({ "type": "config", "id": revision }));
    assert_eq!(
        (row["request_id"].as_str().map(|id| id.starts_with("req_")), &row["address"]),
        (Some(true), &json!("127.0.0.1")),
        "{row}"
    );
    assert_eq!(row["actor"], json!({ "type": "admin_key", "id": "usr_admin" }));
    let bearer = format!("Bearer {}", gateway.admin_key);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/yaml")];
    let changed = format!("# another\n{document}");
    let put = gateway
        .send(
            "PUT",
            "/v1/router/config?max_changed=0&allow_empty=true",
            &headers,
            Some(changed.as_bytes()),
        )
        .await;
    assert_eq!(put.status, 200, "{}", put.text());
    let rows = noted().await;
    assert_eq!((rows.len(), &rows[0]["target"]["id"]), (2, &put.json()["revision"]));
}

#[tokio::test]
async fn admins_only_read_it_and_ask_it_well() {
    let (gateway, _provider) = start().await;
    let send = async |path: &str, email: &str, password: &str| {
        gateway
            .send(
                "POST",
                path,
                &[JSON],
                account(email, password).map(|body| body.to_string()).as_deref().map(str::as_bytes),
            )
            .await
    };
    send("/v1/auth/register", "ann@example.com", "correct horse").await;
    let login = send("/v1/auth/login", "ann@example.com", "correct horse").await.json();
    let token = login["token"].as_str().unwrap();
    envelope::management(&gateway.manage("GET", "/v1/audit", token, None).await, 403, "forbidden");
    // Password guesses: ten for Ann, refused or throttled, and some for an unknown user.
    for _ in 0..14 {
        send("/v1/auth/login", "ann@example.com", "wrong").await;
        send("/v1/auth/login", "nobody@example.com", "wrong").await;
    }
    let ann = login["user"]["id"].as_str().unwrap();
    let refused = async |target: &str| {
        rows(&gateway, &format!("&action=session.refused&target={target}")).await.len()
    };
    until("the rows of the refusals", async || {
        (refused(ann).await == 9 && refused("unknown").await == 10).then_some(())
    })
    .await;
    for query in [
        "what=1",
        "limit=0",
        "limit=101",
        "after=aud_1",
        "after=aud_00000000000000000000000000",
        "since=yesterday",
        "action=key.creat",
    ] {
        let answer =
            gateway.manage("GET", &format!("/v1/audit?{query}"), &gateway.admin_key, None).await;
        envelope::management(&answer, 400, "invalid_request");
        assert_eq!(answer.json()["field"].as_str(), query.split('=').next(), "{query}");
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = gateway
            .manage("GET", &format!("/v1/audit?limit=5{after}"), &gateway.admin_key, None)
            .await
            .json();
        seen.extend(page["data"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, rows(&gateway, "").await);
    let since = seen[3]["at"].as_str().unwrap();
    assert!(
        rows(&gateway, &format!("&since={since}"))
            .await
            .iter()
            .all(|row| row["at"].as_str().unwrap() >= since)
    );
    assert!(
        rows(&gateway, &format!("&until={since}"))
            .await
            .iter()
            .all(|row| row["at"].as_str().unwrap() < since)
    );
    let log_ins = rows(&gateway, &format!("&target={ann}&action=session.create")).await;
    let by_session =
        rows(&gateway, &format!("&actor={}", log_ins[0]["actor"]["id"].as_str().unwrap())).await;
    assert_eq!(by_session, log_ins);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_noted_is_not_shown_and_not_done() {
    let dir = tempfile::tempdir().unwrap();
    let (provider, faults) =
        (Provider::always(scripted::completion("well")).await, Faults::default());
    let host = Host::start_failing(
        dir.path(),
        provider.address(),
        &in_order(&[("up", &provider.url())], ""),
        faults.clone(),
    )
    .await;
    let ann = account("ann@example.com", "correct horse").unwrap().to_string();
    assert_eq!(host.ask("POST", "/v1/auth/register", None, Some(&ann)).await.status, 201);
    let token = host.ask("POST", "/v1/auth/login", None, Some(&ann)).await.json()["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let id = host
        .ask("POST", "/v1/chat/completions", Some(&token), Some(&chat_body("auto", false)))
        .await
        .request_id();
    let path = format!("/v1/router/replay/{id}");
    until("the capture", async || {
        (host.ask("GET", &path, Some(&token), None).await.status == 200).then_some(())
    })
    .await;
    let asked = [
        ("GET", path.clone()),
        ("GET", format!("{path}/compare/{id}")),
        ("POST", format!("{path}/reroute")),
        ("DELETE", path.clone()),
    ];
    faults.fail_every_write();
    for (method, path) in &asked {
        envelope::management(&host.ask(method, path, Some(ADMIN), None).await, 503, "unavailable");
    }
    assert_eq!(
        host.ask("GET", &path, Some(&token), None).await.status,
        200,
        "to its owner it is shown, and it is there"
    );
    assert_eq!(provider.count(), 1, "nothing was run again");
    faults.clear();
    for (method, path) in &asked {
        let answer = host.ask(method, path, Some(ADMIN), None).await;
        assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.text());
    }
    assert_eq!(host.ask("GET", &path, Some(&token), None).await.status, 404);
    host.stop().await;
}

#[tokio::test]
async fn rows_leave_by_number_and_by_age_the_oldest_first() {
    let provider = Provider::always(scripted::completion("well")).await;
    let document = in_order(&[("a", &provider.url())], "");
    let mut gateway =
        Setup::new(&document).server("audit: { retention: { rows: 100 } }").start().await;
    for name in ["one", "two"] {
        gateway.manage("POST", "/v1/nodes", &gateway.admin_key, Some(&json!({"name": name}))).await;
    }
    for n in 0..60 {
        let body = json!({"name": format!("agent-{n}"), "model": "auto"}).to_string();
        assert_eq!(
            gateway.send("POST", "/v1/agents", &[JSON], Some(body.as_bytes())).await.status,
            201
        );
        assert_eq!(
            gateway.send("DELETE", &format!("/v1/agents/agent-{n}"), &[], None).await.status,
            204
        );
    }
    gateway.restart().await;
    let whole = async |gateway: &Gateway| {
        let rows =
            gateway.manage("GET", "/v1/audit?limit=100", &gateway.admin_key, None).await.json();
        (rows["data"].as_array().unwrap().clone(), rows["has_more"].clone())
    };
    let (rows, more) = until("the sweep of the start", async || {
        Some(whole(&gateway).await).filter(|(_, more)| *more == false)
    })
    .await;
    assert_eq!((rows.len(), more), (100, json!(false)));
    let kept: Vec<&str> = rows.iter().map(|row| row["action"].as_str().unwrap()).collect();
    let expected = ["agent.delete", "agent.create"].repeat(50);
    assert_eq!(kept, expected, "the newest hundred");
    let file = gateway.dir().join("rerouter.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("rows: 100", "age: 1s")).unwrap();
    let newest: jiff::Timestamp = rows[0]["at"].as_str().unwrap().parse().unwrap();
    until("a second", async || {
        (jiff::Timestamp::now() > newest + std::time::Duration::from_secs(1)).then_some(())
    })
    .await;
    gateway.restart().await;
    until("all of them to be too old", async || whole(&gateway).await.0.is_empty().then_some(()))
        .await;
}
