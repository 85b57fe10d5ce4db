//! What a ROUTER key can reach. A new key can only infer. A key with `replay` or `keys` reaches
//! what it and its descendants made.

use std::collections::BTreeSet;

use futures::future::join_all;
use rerouter::internals::api::{Policy, ROUTES};
use rerouter::internals::interface::Surface;
use serde_json::{Value, json};

use crate::access::identity::{CLOUD_KEY, fill};
use crate::captures::on_disk::{answering, body};
use crate::support::client::Answer;
use crate::support::command;
use crate::support::documents::in_order;
use crate::support::envelope;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::Provider;

const KEYS: &str = "/v1/router/keys";
const REPLAY: &str = "/v1/router/replay";
const PRICED: &str = "models:\n  a/model: { input_per_mtok: 1, output_per_mtok: 1 }\n";

async fn start() -> (Gateway, Provider) {
    let provider = answering().await;
    let document = in_order(&[("a", &provider.url())], PRICED);
    let gateway = Setup::new(&document).env("AGENT_CLOUD_API_KEY", CLOUD_KEY).start().await;
    (gateway, provider)
}

/// Runs `rerouter` as a client of the gateway, with this key.
async fn rerouter(gateway: &Gateway, key: &str, arguments: &[&str]) -> command::Ran {
    let url = format!("http://{}", gateway.host());
    let environment = [("REROUTER_URL", url.as_str()), ("REROUTER_API_KEY", key)];
    command::run(gateway.dir(), arguments, &environment).await
}

#[tokio::test]
async fn the_key_of_getting_started_infers_and_nothing_else() {
    let (gateway, provider) = start().await;
    let create = ["keys", "create", "laptop", "--budget", "1/day", "--json"];
    let made = rerouter(&gateway, &gateway.admin_key, &create).await.well();
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(made["scopes"], json!(["inference"]));
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let key = Key { id: text("id"), secret: text("key") };
    let answer = gateway.chat(&key, &body(1)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let capture = answer.request_id();
    let before = gateway.capture(&capture).await;
    let (mut refused, mut commands) = (0, BTreeSet::new());
    for route in ROUTES.iter() {
        let (surface, method) = (Surface::of(route.path), route.method.as_str());
        // The paths name this key and its own capture, so that no refusal is a 404.
        let own = if route.path.starts_with(REPLAY) { &capture } else { &key.id };
        let path = fill(route.path, own);
        let answer = gateway.manage(method, &path, &key.secret, None).await;
        let told = format!("{method} {path}: {} {}", answer.status, answer.text());
        match (surface, route.policy) {
            (_, policy) if policy.is_open() => {
                assert!(matches!(answer.status, 200 | 400), "{told}");
            }
            (Surface::Pin | Surface::Agent | Surface::NodeCallback, _) => {
                assert_eq!(answer.status, 401, "{told}");
            }
            (_, Policy::Scope("inference")) => {
                assert!(matches!(answer.status, 200 | 400 | 404), "{told}");
            }
            (Surface::RouterManagement, Policy::Scope(scope)) => {
                envelope::management(&answer, 403, "insufficient_scope");
                let command =
                    format!("rerouter keys create NAME --scope inference --scope {scope}");
                assert!(answer.text().contains(&format!("lacks the scope `{scope}`")), "{told}");
                assert!(answer.text().contains(&command), "{told}");
                commands.insert(command);
                refused += 1;
            }
            _ => panic!("a route of another kind: {told}"),
        }
    }
    assert!(refused > 20, "{refused} were refused");
    // The commands in the refusals create such a key.
    for command in &commands {
        let arguments: Vec<&str> = command.split(' ').skip(1).chain(["--json"]).collect();
        let made = rerouter(&gateway, &gateway.admin_key, &arguments).await.well();
        let made: Value = serde_json::from_str(&made).unwrap();
        assert_eq!(made["scopes"].as_array().unwrap().len(), 2, "{command}: {made}");
    }
    // What the key may do works. What was refused has changed nothing.
    gateway.answers(200, "GET", "/v1/models", &key.secret, None).await;
    assert_eq!(gateway.chat(&key, &body(2)).await.status, 200);
    assert_eq!(provider.count(), 2);
    assert_eq!(gateway.capture(&capture).await, before);
}

#[tokio::test]
async fn a_key_without_inference_is_told_so_in_the_envelope_of_each_dialect() {
    let (gateway, provider) = start().await;
    let wanted = json!({ "scopes": ["replay"] });
    let key = gateway.make_key(KEYS, &gateway.admin_key, &wanted).await;
    let chat = gateway.chat(&key, &body(1)).await;
    envelope::openai(&chat, 403, "permission_error", Some("insufficient_scope"));
    let messages = gateway.manage("POST", "/v1/messages", &key.secret, None).await;
    envelope::anthropic(&messages, 403, "permission_error");
    for answer in [chat, messages] {
        let told = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(told.contains("lacks the scope `inference`"), "{told}");
        assert!(told.contains("create NAME --scope replay --scope inference`"), "{told}");
    }
    assert_eq!(provider.count(), 0);
}

/// Keys of one owner: `mine` with a `child`, an unrelated `other`, and `all`, which reaches
/// everything of the owner. There is a capture of each of the first three.
struct Lines {
    gateway: Gateway,
    provider: Provider,
    mine: Key,
    child: Key,
    other: Key,
    all: Key,
    captures: [String; 3],
}

async fn lines() -> Lines {
    let (gateway, provider) = start().await;
    let admin = gateway.admin_key.as_str();
    let usual = json!({ "scopes": ["inference", "replay", "keys"] });
    let mine = gateway.make_key(KEYS, admin, &usual).await;
    let child = json!({ "scopes": ["inference", "replay"] });
    let child = gateway.make_key(KEYS, &mine.secret, &child).await;
    let other = gateway.make_key(KEYS, admin, &usual).await;
    let all = json!({ "scopes": ["inference", "replay:all", "keys"] });
    let all = gateway.make_key(KEYS, admin, &all).await;
    let mut captures = Vec::new();
    for (key, number) in [(&mine, 111_111), (&child, 222_222), (&other, 333_333)] {
        let answer = gateway.chat(key, &body(number)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        gateway.capture(&answer.request_id()).await;
        captures.push(answer.request_id());
    }
    let captures = captures.try_into().unwrap();
    Lines { gateway, provider, mine, child, other, all, captures }
}

impl Lines {
    async fn ask(&self, method: &str, path: &str, key: &Key) -> Answer {
        self.gateway.manage(method, path, &key.secret, None).await
    }

    /// The ids of a list, read page by page.
    async fn listed(&self, key: &Key, path: &str) -> Vec<String> {
        let (mut ids, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.ask("GET", &format!("{path}limit=1{after}"), key).await.json();
            let data = page["data"].as_array().unwrap_or_else(|| panic!("{path}: {page}"));
            ids.extend(data.iter().map(|one| one["id"].as_str().unwrap().to_owned()));
            assert_eq!(page["has_more"], json!(!page["next"].is_null()));
            let Some(next) = page["next"].as_str() else { return ids };
            after = format!("&after={next}");
        }
    }

    async fn seen(&self, key: &Key) -> BTreeSet<String> {
        self.listed(key, &format!("{REPLAY}?")).await.into_iter().collect()
    }

    /// Asserts that every call on this capture gets the same 404 as for an id that does not exist.
    async fn is_absent(&self, key: &Key, id: &str) {
        let [own, ..] = &self.captures;
        let unknown = "req_00000000000000000000000000";
        let calls = [
            ("GET", "{id}".to_owned()),
            ("GET", "{id}?with=conversation,explanation".to_owned()),
            ("GET", format!("{{id}}/compare/{own}")),
            ("GET", format!("{own}/compare/{{id}}")),
            ("POST", "{id}/reroute".to_owned()),
            ("POST", "{id}/reroute?dry_run=true".to_owned()),
            ("DELETE", "{id}".to_owned()),
            ("DELETE", "{id}?replays=true".to_owned()),
        ];
        // All calls run concurrently: with a shared store, each waits for a capture that may still
        // arrive.
        join_all(calls.map(async |(method, path)| {
            let path = |id: &str| format!("{REPLAY}/{}", path.replace("{id}", id));
            let answer = self.ask(method, &path(id), key).await;
            let nothing = self.ask(method, &path(unknown), key).await;
            assert_eq!(answer.status, 404, "{method} {}: {}", path(id), answer.text());
            assert_eq!(answer.json(), nothing.json(), "{method} {}", path(id));
        }))
        .await;
    }
}

#[tokio::test]
async fn a_key_reaches_the_captures_of_its_line_and_none_of_another() {
    let mut lines = lines().await;
    let [mine, child, other] = lines.captures.clone();
    let ids = |ids: &[&String]| ids.iter().map(|id| (*id).clone()).collect::<BTreeSet<_>>();
    assert_eq!(lines.seen(&lines.mine).await, ids(&[&mine, &child]));
    assert_eq!(lines.seen(&lines.child).await, ids(&[&child]));
    assert_eq!(lines.seen(&lines.other).await, ids(&[&other]));
    assert_eq!(lines.seen(&lines.all).await, ids(&[&mine, &child, &other]));
    lines.is_absent(&lines.mine, &other).await;
    lines.is_absent(&lines.child, &mine).await;
    for query in ["owner=usr_admin&", "stream=false&", "replay=false&", "status=200&"] {
        let listed = lines.listed(&lines.mine, &format!("{REPLAY}?{query}")).await;
        assert_eq!(listed, [child.clone(), mine.clone()], "{query}");
    }
    let by_key = format!("{REPLAY}?key={}&", lines.other.id);
    assert!(lines.listed(&lines.mine, &by_key).await.is_empty());

    // Evaluations and usage.
    for (key, evaluated) in [(&lines.mine, 2), (&lines.child, 1), (&lines.all, 3)] {
        let path = format!("{REPLAY}/evaluate");
        let report = lines.ask("POST", &path, key).await.json();
        assert_eq!(report["evaluated"], evaluated, "{report}");
        let filter = json!({ "filter": { "key": lines.other.id } });
        let report = lines.gateway.manage("POST", &path, &key.secret, Some(&filter)).await.json();
        assert_eq!(report["evaluated"], u8::from(evaluated == 3), "{report}");
        assert!(evaluated == 3 || !report.to_string().contains(&other), "{report}");
        let used = lines.ask("GET", "/v1/router/usage", key).await.json();
        assert_eq!(used["data"][0]["requests"], evaluated, "{used}");
        for interval in ["1d", "1h", "5m"] {
            let path = format!("/v1/router/usage?group_by=key&interval={interval}&order=requests");
            let used = lines.ask("GET", &path, key).await.json();
            assert_eq!(used["data"].as_array().unwrap().len(), evaluated, "{used}");
            let only = lines.ask("GET", &format!("{path}&key={}", lines.other.id), key).await;
            let found = only.json()["data"].as_array().unwrap().len();
            assert_eq!(found, usize::from(evaluated == 3), "{}", only.text());
        }
    }

    // The command line. The console takes sessions only.
    let export = ["replay", "export"];
    let exported = rerouter(&lines.gateway, &lines.mine.secret, &export).await.well();
    assert_eq!(exported.lines().count(), 2, "{exported}");
    assert!(!exported.contains("canary-333333"), "{exported}");
    for page in [format!("/console/captures/{mine}"), "/console/captures".to_owned()] {
        for header in ["authorization", "cookie"] {
            let value = match header {
                "cookie" => format!("rerouter_session={}", lines.mine.secret),
                _ => format!("Bearer {}", lines.mine.secret),
            };
            let answer = lines.gateway.send("GET", &page, &[(header, &value)], None).await;
            assert_eq!(answer.status, 303, "{page}: {}", answer.text());
            assert!(answer.header("location").unwrap().starts_with("/console/sign-in"));
        }
    }

    // A replay belongs to the line of its original, and its caller pays for it.
    let path = format!("{REPLAY}/{other}/reroute");
    let answer = lines.ask("POST", &path, &lines.all).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let replay = answer.json()["new_id"].as_str().unwrap().to_owned();
    lines.gateway.capture(&replay).await;
    assert_eq!(lines.seen(&lines.other).await, ids(&[&other, &replay]));
    lines.is_absent(&lines.mine, &replay).await;
    let used = lines.ask("GET", "/v1/router/usage", &lines.other).await.json();
    assert_eq!(used["data"][0]["replays"]["requests"], 0, "{used}");
    assert_eq!(lines.provider.count(), 4, "nothing else was run again");

    // Lines stay the same after a restart, and after their keys have ended.
    lines.gateway.restart().await;
    let path = format!("{KEYS}/{}", lines.child.id);
    assert_eq!(lines.ask("DELETE", &path, &lines.mine).await.status, 204);
    assert_eq!(lines.seen(&lines.mine).await, ids(&[&mine, &child]));
    let path = format!("{REPLAY}/{child}");
    assert_eq!(lines.ask("DELETE", &path, &lines.mine).await.status, 204);
    assert_eq!(lines.seen(&lines.mine).await, ids(&[&mine]));
    assert_eq!(lines.seen(&lines.all).await, ids(&[&mine, &other, &replay]));
}

#[tokio::test]
async fn a_key_reaches_the_keys_of_its_line_and_ends_none_that_may_do_more() {
    let lines = lines().await;
    let ids = |keys: &[&Key]| keys.iter().map(|key| key.id.clone()).collect::<BTreeSet<_>>();
    let listed = async |key: &Key| {
        lines.listed(key, &format!("{KEYS}?")).await.into_iter().collect::<BTreeSet<_>>()
    };
    assert_eq!(listed(&lines.mine).await, ids(&[&lines.mine, &lines.child]));
    let every = ids(&[&lines.mine, &lines.child, &lines.other, &lines.all]);
    assert_eq!(listed(&lines.all).await, every);
    let own = |key: &Key| format!("{KEYS}/{}", key.id);
    let unknown = format!("{KEYS}/key_00000000000000000000000000");
    let name = json!({ "name": "taken" });
    for (method, rest, body) in [
        ("GET", "", None),
        ("PATCH", "", Some(&name)),
        ("POST", "/rotate", None),
        ("DELETE", "", None),
        ("DELETE", "?descendants=true", None),
    ] {
        let secret = &lines.mine.secret;
        let path = format!("{}{rest}", own(&lines.other));
        let answer = lines.gateway.manage(method, &path, secret, body).await;
        assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text());
        let path = format!("{unknown}{rest}");
        assert_eq!(answer.json(), lines.gateway.manage(method, &path, secret, body).await.json());
    }
    // A key that reaches everything of the owner may not end or rotate a key with more rights.
    let gate = json!({ "scopes": ["replay:all", "evaluate"] });
    let gate = lines.gateway.make_key(KEYS, &lines.gateway.admin_key, &gate).await;
    let off = json!({ "status": "inactive" });
    let soon = json!({ "expires_at": "2099-01-01T00:00:00Z" });
    for (method, rest, body) in [
        ("DELETE", "", None),
        ("DELETE", "?descendants=true", None),
        ("POST", "/rotate", None),
        ("PATCH", "", Some(&off)),
        ("PATCH", "", Some(&soon)),
    ] {
        let path = format!("{}{rest}", own(&gate));
        let answer = lines.gateway.manage(method, &path, &lines.all.secret, body).await;
        envelope::management(&answer, 403, "forbidden");
        assert!(answer.text().contains("more rights than yours"), "{}", answer.text());
    }
    assert_eq!(lines.ask("GET", REPLAY, &gate).await.status, 200);
    assert_eq!(lines.ask("DELETE", &own(&lines.other), &lines.all).await.status, 204);
    assert_eq!(lines.ask("DELETE", &own(&lines.mine), &lines.mine).await.status, 204);
    // A key without the default scopes must name the scopes of a new key.
    let bare = json!({ "scopes": ["keys"] });
    let bare = lines.gateway.make_key(KEYS, &lines.gateway.admin_key, &bare).await;
    let more = json!({ "scopes": ["replay"] });
    let more = lines.gateway.manage("POST", KEYS, &bare.secret, Some(&more)).await;
    envelope::management(&more, 403, "forbidden");
    assert!(more.text().contains("Your key lacks the scope replay"), "{}", more.text());
    let unnamed = lines.gateway.manage("POST", KEYS, &bare.secret, Some(&name)).await;
    envelope::management(&unnamed, 400, "invalid_request");
    assert_eq!(unnamed.json()["field"], "scopes", "{}", unnamed.text());
}
