//! A change of the master key: everything in the store stays good, and only the right pair of keys
//! is taken.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rerouter::internals::secret::{Keyring, Purpose, SecretBytes};
use serde_json::{Value, json};

use crate::captures::on_disk::files;
use crate::support::client::{Answer, find};
use crate::support::documents::{chat_body, provider};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::node::{Node, next_second};
use crate::support::provider::{self as scripted, Provider};

const FIRST: &[u8; 32] = b"first-master-canary-0123456789ab";
const SECOND: &[u8; 32] = b"other-master-canary-0123456789ab";
const MASTER_KEY: &str = "REROUTER_MASTER_KEY";
const MASTER_KEY_OLD: &str = "REROUTER_MASTER_KEY_OLD";
const CLOUD_KEY: &str = "agent-cloud-canary-0123456789abcdef";
const JSON: (&str, &str) = ("content-type", "application/json");
const PASSWORD: &str = "correct horse";
/// Where each interface shows whether a key is good, and its keys.
const INTERFACES: [(&str, &str); 3] = [
    ("/v1/apikeys", "/v1/auth/me"),
    ("/v1/api-keys", "/v1/agents"),
    ("/v1/router/keys", "/v1/models"),
];

fn document(url: &str) -> String {
    format!(
        "providers:\n{}recipes:\n  main:\n    \
         rules: [ {{ name: default, targets: [ {{ target: a/model }} ] }} ]\n  only:\n    \
         rules: [ {{ name: default, targets: [ {{ target: nodes/qwen }} ] }} ]\n\
         aliases: {{ auto: main, local: only }}\n",
        provider("a", url, "sk-upstream")
    )
}

/// Under the first of these, its pair being the second.
fn give(gateway: &mut Gateway, key: &[u8], old: Option<&[u8]>) {
    gateway.set_env(MASTER_KEY, &STANDARD.encode(key));
    gateway.set_env(MASTER_KEY_OLD, &old.map(|old| STANDARD.encode(old)).unwrap_or_default());
}

async fn start(threads: usize) -> (Gateway, Provider) {
    let upstream = Provider::always(scripted::completion("a word")).await;
    let setup = Setup::new(&document(&upstream.url()))
        .env("AGENT_CLOUD_API_KEY", CLOUD_KEY)
        .threads(threads);
    (setup.env(MASTER_KEY, &STANDARD.encode(FIRST)).start().await, upstream)
}

async fn make(gateway: &Gateway, path: &str, by: &str, body: Value) -> Key {
    gateway.make_key(path, by, &body).await
}

async fn log_in(gateway: &Gateway, email: &str) -> Answer {
    let body = json!({"email": email, "password": PASSWORD}).to_string();
    let login = gateway.send("POST", "/v1/auth/login", &[JSON], Some(body.as_bytes())).await;
    assert_eq!(login.status, 200, "{}", login.text());
    login
}

async fn user(gateway: &Gateway, email: &str) -> String {
    let body = json!({"email": email, "password": PASSWORD});
    let made = gateway.answers(201, "POST", "/v1/users", &gateway.admin_key, Some(&body)).await;
    made.json()["id"].as_str().unwrap().to_owned()
}

async fn status(gateway: &Gateway, path: &str, credential: &str) -> u16 {
    gateway.manage("GET", path, credential, None).await.status
}

/// What the store says by now, while the gateway runs.
fn stored<T: rusqlite::types::FromSql>(gateway: &Gateway, what: &str) -> T {
    let file = rusqlite::Connection::open_with_flags(
        gateway.dir().join("data/accounts.db"),
        rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX,
    );
    let file = file.unwrap();
    file.busy_timeout(Duration::from_secs(10)).unwrap();
    file.query_row(what, [], |row| row.get(0)).unwrap()
}

/// What the time of the first master key left.
struct Scene {
    gateway: Gateway,
    upstream: Provider,
    /// Good keys, with a path that shows it.
    good: Vec<(&'static str, Key)>,
    inactive: Key,
    revoked: Key,
    token: String,
    cookie: String,
    node: Node,
    captures: Vec<(String, Value)>,
}

impl Scene {
    async fn of_the_first() -> Scene {
        let (gateway, upstream) = start(1).await;
        let admin = gateway.admin_key.clone();
        user(&gateway, "ann@example.com").await;
        let login = log_in(&gateway, "ann@example.com").await;
        let token = login.json()["token"].as_str().unwrap().to_owned();
        let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let mut good = Vec::new();
        for ((keys, probe), by) in
            INTERFACES.into_iter().zip([token.as_str(), CLOUD_KEY, admin.as_str()])
        {
            let key = make(&gateway, keys, by, json!({})).await;
            // With a grace: both secrets are good.
            let next = make(
                &gateway,
                &format!("{keys}/{}/rotate", key.id),
                by,
                json!({"grace_period_seconds": 600}),
            )
            .await;
            good.extend([(probe, key), (probe, next)]);
        }
        let another = async || make(&gateway, "/v1/router/keys", &admin, json!({})).await;
        let (inactive, revoked) = (another().await, another().await);
        gateway
            .answers(
                200,
                "PATCH",
                &format!("/v1/router/keys/{}", inactive.id),
                &admin,
                Some(&json!({"status": "inactive"})),
            )
            .await;
        gateway
            .answers(204, "DELETE", &format!("/v1/router/keys/{}", revoked.id), &admin, None)
            .await;
        let node = Node::enrol(&gateway, "rack", json!({})).await;
        let wants = json!({"api_key": "node-key-canary"});
        node.serve(&gateway, &upstream.url(), &["qwen"], wants).await;
        let mut captures = Vec::new();
        for _ in 0..3 {
            let answer = gateway.chat(&good[4].1, chat_body("auto", false).as_bytes()).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let id = answer.request_id();
            captures.push((id.clone(), gateway.capture(&id).await));
        }
        Scene { gateway, upstream, good, inactive, revoked, token, cookie, node, captures }
    }

    /// The root key as the store has it.
    fn wrapped(&self) -> Vec<u8> {
        stored(&self.gateway, "SELECT wrapped FROM root_key")
    }

    /// Keys, sessions, users and nodes are who they were.
    async fn check_credentials(&self, seq: u64) {
        let gateway = &self.gateway;
        for (probe, key) in &self.good {
            assert_eq!(status(gateway, probe, &key.secret).await, 200, "{probe}");
        }
        for key in [&self.inactive, &self.revoked] {
            assert_eq!(status(gateway, "/v1/models", &key.secret).await, 401);
        }
        assert_eq!(status(gateway, "/v1/auth/me", &self.token).await, 200);
        assert_eq!(
            gateway.send("GET", "/v1/auth/me", &[("cookie", &self.cookie)], None).await.status,
            200
        );
        log_in(gateway, "ann@example.com").await;
        next_second().await;
        self.node.beat(gateway, seq, "ready", 0).await;
        let served = gateway.chat(&self.good[4].1, chat_body("local", false).as_bytes()).await;
        assert_eq!(
            (served.status, served.header("x-rerouter-provider")),
            (200, Some("nodes")),
            "{}",
            served.text()
        );
        assert_eq!(
            self.upstream.last().header("authorization").as_deref(),
            Some("Bearer node-key-canary")
        );
    }

    /// Captures are what they were, and are decided as they were.
    async fn check_captures(&self) {
        for (id, before) in &self.captures {
            assert_eq!(self.gateway.capture(id).await, *before);
        }
        let admin = &self.gateway.admin_key;
        let again = self
            .gateway
            .manage(
                "POST",
                "/v1/router/replay/evaluate",
                admin,
                Some(&json!({"health": "recorded"})),
            )
            .await;
        let report = again.json();
        assert_eq!(again.status, 200, "{report}");
        assert!(report["evaluated"].as_u64() >= Some(3) && report["changed"] == 0, "{report}");
    }
}

#[tokio::test]
async fn everything_from_under_the_previous_master_key_is_good_under_the_next() {
    let mut scene = Scene::of_the_first().await;
    let before = scene.wrapped();
    // As a crash leaves it: the segment of captures is not closed.
    scene.gateway.kill_9();
    give(&mut scene.gateway, SECOND, Some(FIRST));
    scene.gateway.set_env("RUST_LOG", "trace");
    scene.gateway.start_again().await;
    let admin = scene.gateway.admin_key.clone();
    assert_ne!(scene.wrapped(), before);
    scene.check_credentials(2).await;
    scene.check_captures().await;
    let log = scene.gateway.log();
    assert!(log.contains("the master key was changed"), "{log}");
    let path = "/v1/audit?action=master_key.change";
    let rows = scene.gateway.manage("GET", path, &admin, None).await.json();
    assert_eq!(rows["data"].as_array().unwrap().len(), 1, "one change, one row: {rows}");
    assert_eq!(rows["data"][0]["target"], json!({"type": "master_key", "id": "2"}));
    let metrics = scene.gateway.metrics().await;
    scene.gateway.restart().await;
    let log = scene.gateway.log();
    assert!(
        log.contains("REROUTER_MASTER_KEY_OLD is no longer needed"),
        "the pair opens it: {log}"
    );

    // Killed, it needs the new master key alone.
    scene.gateway.kill_9();
    give(&mut scene.gateway, SECOND, None);
    scene.gateway.start_again().await;
    scene.check_credentials(3).await;
    scene.check_captures().await;
    let path = format!("/v1/router/replay/{}", scene.captures[0].0);
    scene.gateway.answers(204, "DELETE", &path, &admin, None).await;
    assert_eq!(status(&scene.gateway, &path, &admin).await, 404);
    no_key_is_anywhere(&scene, &metrics);
}

/// No master key and nothing that derives from the root key is in the data directory, the log or
/// metrics.
fn no_key_is_anywhere(scene: &Scene, metrics: &str) {
    let gateway = &scene.gateway;
    let mut places: Vec<(String, Vec<u8>)> = files(&gateway.dir().join("data"))
        .into_iter()
        .map(|path| (path.display().to_string(), std::fs::read(path).unwrap()))
        .collect();
    places.extend([
        ("the log".to_owned(), gateway.log().into_bytes()),
        ("metrics".to_owned(), metrics.as_bytes().to_vec()),
    ]);
    assert!(places.iter().any(|(name, bytes)| name.ends_with(".seg") && !bytes.is_empty()));
    let wrapped = scene.wrapped();
    assert!(places.iter().any(|(_, bytes)| find(bytes, &wrapped).is_some()), "the search works");
    let [first, second] = [FIRST, SECOND].map(|key| SecretBytes::new(*key));
    assert!(Keyring::from_wrapped(&first, &wrapped).is_none());
    let keys = Keyring::from_wrapped(&second, &wrapped).unwrap();
    let derived = [Purpose::Digests, Purpose::Nodes, Purpose::Captures, Purpose::Documents]
        .map(|purpose| *keys.derive(purpose, b"").expose());
    for secret in derived.into_iter().chain([*FIRST, *SECOND]) {
        let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = STANDARD.encode(secret);
        for (place, bytes) in &places {
            for shape in [&secret[..], hex.as_bytes(), text.trim_end_matches('=').as_bytes()] {
                assert!(find(bytes, shape).is_none(), "a key in {place}");
            }
        }
    }
}

#[tokio::test]
async fn a_file_that_is_put_aside_is_followed_by_one_that_is_made() {
    let upstream = Provider::always(scripted::completion("a word")).await;
    let mut gateway = Gateway::start(&document(&upstream.url())).await;
    let key = gateway.create_key().await;
    let data = gateway.dir().join("data");
    let read = |name: &str| std::fs::read_to_string(data.join(name)).ok();
    let first = read("master.key").unwrap();
    std::fs::rename(data.join("master.key"), data.join("master.key.old")).unwrap();
    gateway.restart().await;
    let second = read("master.key").unwrap();
    assert_ne!(first, second);
    assert_eq!(status(&gateway, "/v1/models", &key.secret).await, 200);
    gateway.restart().await;
    assert!(gateway.log().contains("master.key.old is no longer needed"), "{}", gateway.log());
    std::fs::remove_file(data.join("master.key.old")).unwrap();
    gateway.restart().await;
    assert_eq!(
        (status(&gateway, "/v1/models", &key.secret).await, read("master.key").unwrap()),
        (200, second)
    );
}
