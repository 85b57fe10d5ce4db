//! Another master key for a store that has one: everything of the time before stays good and moves when it is used, only the
//! right pair is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rerouter::secret::{Keyring, SecretBytes};
use serde_json::{Value, json};

use crate::captures::files;
use crate::support::client::{self, Answer, Connection, find};
use crate::support::documents::{chat_body, provider};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::node::Node;
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

pub const FIRST: &[u8; 32] = b"first-master-canary-0123456789ab";
pub const SECOND: &[u8; 32] = b"other-master-canary-0123456789ab";
pub const THIRD: &[u8; 32] = b"third-master-canary-0123456789ab";
const MASTER_KEY: &str = "REROUTER_MASTER_KEY";
const MASTER_KEY_OLD: &str = "REROUTER_MASTER_KEY_OLD";
pub const CLOUD_KEY: &str = "agent-cloud-canary-0123456789abcdef";
const JSON: (&str, &str) = ("content-type", "application/json");
const PASSWORD: &str = "correct horse";
/// Where each interface shows whether a key is good, and its keys.
const INTERFACES: [(&str, &str); 3] = [
    ("/v1/apikeys", "/v1/auth/me"),
    ("/v1/api-keys", "/v1/agents"),
    ("/v1/router/keys", "/v1/models"),
];

pub fn document(url: &str) -> String {
    format!(
        "providers:\n{}recipes:\n  main:\n    rules: [ {{ name: default, targets: [ {{ target: a/model }} ] }} ]\n  \
         only:\n    rules: [ {{ name: default, targets: [ {{ target: nodes/qwen }} ] }} ]\naliases: {{ auto: main, local: only }}\n",
        provider("a", url, "sk-upstream")
    )
}

/// Under the first of these, its pair being the second.
pub fn give(gateway: &mut Gateway, key: &[u8], old: Option<&[u8]>) {
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

pub async fn make(gateway: &Gateway, path: &str, by: &str, body: Value) -> Key {
    let made = gateway.manage("POST", path, by, Some(&body)).await;
    assert!([200, 201].contains(&made.status), "{}", made.text());
    let made = made.json();
    Key {
        id: made["id"].as_str().unwrap().to_owned(),
        secret: made["key"].as_str().unwrap().to_owned(),
    }
}

pub async fn log_in(gateway: &Gateway, email: &str) -> Answer {
    let body = json!({"email": email, "password": PASSWORD}).to_string();
    let login = gateway.send("POST", "/v1/auth/login", &[JSON], Some(body.as_bytes())).await;
    assert_eq!(login.status, 200, "{}", login.text());
    login
}

pub async fn user(gateway: &Gateway, email: &str) -> String {
    let body = json!({"email": email, "password": PASSWORD});
    let made = gateway.manage("POST", "/v1/users", &gateway.admin_key, Some(&body)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["id"].as_str().unwrap().to_owned()
}

pub async fn status(gateway: &Gateway, path: &str, credential: &str) -> u16 {
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

async fn older(gateway: &Gateway, kind: &str) -> f64 {
    gateway.metric("rerouter_older_pepper_secrets", &[&format!("kind=\"{kind}\"")]).await
}

/// What the time of the first master key left.
struct Scene {
    gateway: Gateway,
    upstream: Provider,
    /// Good keys, with a path that shows it.
    good: Vec<(&'static str, Key)>,
    inactive: Key,
    revoked: Key,
    unused: Key,
    token: String,
    cookie: String,
    node: Node,
    rotated: Node,
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
        let (inactive, revoked, unused) = (another().await, another().await, another().await);
        let off = gateway
            .manage(
                "PATCH",
                &format!("/v1/router/keys/{}", inactive.id),
                &admin,
                Some(&json!({"status": "inactive"})),
            )
            .await;
        assert_eq!(off.status, 200, "{}", off.text());
        assert_eq!(
            gateway
                .manage("DELETE", &format!("/v1/router/keys/{}", revoked.id), &admin, None)
                .await
                .status,
            204
        );
        let node = Node::enrol(&gateway, "rack", json!({})).await;
        let wants = json!({"api_key": "node-key-canary"});
        node.serve(&gateway, &upstream.url(), &["qwen"], wants).await;
        let rotated =
            gateway.manage("POST", &format!("/v1/nodes/{}/rotate", node.id), &admin, None).await;
        let rotated = Node::of(&rotated.json());
        let mut captures = Vec::new();
        for _ in 0..3 {
            let answer = gateway.chat(&good[4].1, chat_body("auto", false).as_bytes()).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let id = answer.request_id();
            captures.push((id.clone(), gateway.capture(&id).await));
        }
        Scene {
            gateway,
            upstream,
            good,
            inactive,
            revoked,
            unused,
            token,
            cookie,
            node,
            rotated,
            captures,
        }
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
async fn everything_of_the_key_before_is_good_under_the_next_and_moves_when_it_is_used() {
    let mut scene = Scene::of_the_first().await;
    // As a crash leaves it: the segment of captures is not closed.
    scene.gateway.kill_9();
    give(&mut scene.gateway, SECOND, Some(FIRST));
    scene.gateway.set_env("RUST_LOG", "trace");
    scene.gateway.start_again().await;
    let gateway = &scene.gateway;
    let admin = gateway.admin_key.clone();
    assert_eq!(
        (older(gateway, "keys").await, older(gateway, "sessions").await),
        (5.0, 1.0),
        "three, one that is off, one not used"
    );
    scene.check_credentials(2).await;
    let rotated = scene.rotated.call(gateway, "deregister", &json!({})).await;
    assert_eq!(rotated.status, 204, "the secret of the next generation: {}", rotated.text());
    scene.check_captures().await;
    let log = gateway.log();
    assert!(
        log.contains("gone over to its master key 2")
            && log.contains("5 keys and 1 sessions are known"),
        "{log}"
    );

    // What was used has moved; by the store, and without anybody waiting for that.
    let moved = "SELECT count(*) FROM keys WHERE pepper = 2 AND previous_pepper = 2";
    until("keys that were used to move", async || {
        (stored::<i64>(gateway, moved) == 3).then_some(())
    })
    .await;
    let sessions = "SELECT count(*) FROM sessions WHERE cookie_pepper <> 2 OR token_pepper <> 2";
    until("sessions to move", async || (stored::<i64>(gateway, sessions) == 0).then_some(())).await;
    let left = format!(
        "SELECT count(*) FROM keys WHERE pepper = 1 AND id IN ('{}', '{}', '{}')",
        scene.inactive.id, scene.revoked.id, scene.unused.id
    );
    assert_eq!(stored::<i64>(gateway, &left), 3);
    assert_eq!((older(gateway, "keys").await, older(gateway, "sessions").await), (2.0, 0.0));
    assert!(
        stored::<Option<Vec<u8>>>(gateway, "SELECT pepper FROM master_keys WHERE number = 1")
            .is_some()
    );

    // Changes reach what has not moved as they reach the rest.
    let one = |key: &Key| format!("/v1/router/keys/{}", key.id);
    let on = gateway
        .manage("PATCH", &one(&scene.inactive), &admin, Some(&json!({"status": "active"})))
        .await;
    assert_eq!(
        (on.status, status(gateway, "/v1/models", &scene.inactive.secret).await),
        (200, 200)
    );
    assert_eq!(gateway.manage("DELETE", &one(&scene.unused), &admin, None).await.status, 204);
    assert_eq!(status(gateway, "/v1/models", &scene.unused.secret).await, 401);
    until("the pepper of before to be forgotten", async || {
        stored::<Option<Vec<u8>>>(gateway, "SELECT pepper FROM master_keys WHERE number = 1")
            .is_none()
            .then_some(())
    })
    .await;
    assert_eq!(older(gateway, "keys").await, 0.0);

    let metrics = gateway.metrics().await;
    scene.gateway.kill_9();
    give(&mut scene.gateway, SECOND, None);
    scene.gateway.start_again().await;
    assert_eq!(
        scene.node.call(&scene.gateway, "heartbeat", &json!({})).await.status,
        401,
        "its next secret was used"
    );
    for (probe, key) in &scene.good {
        assert_eq!(status(&scene.gateway, probe, &key.secret).await, 200);
    }
    assert_eq!(status(&scene.gateway, "/v1/auth/me", &scene.token).await, 200);
    scene.check_captures().await;
    let path = format!("/v1/router/replay/{}", scene.captures[0].0);
    assert_eq!(scene.gateway.manage("DELETE", &path, &admin, None).await.status, 204);
    assert_eq!(status(&scene.gateway, &path, &admin).await, 404);
    no_key_is_anywhere(&scene.gateway, &metrics);
}

/// Made by an admin: their id, a PIN key of theirs and the token of a session.
async fn member(gateway: &Gateway, email: &str) -> (String, Key, String) {
    let id = user(gateway, email).await;
    let token = log_in(gateway, email).await.json()["token"].as_str().unwrap().to_owned();
    (id, make(gateway, "/v1/apikeys", &token, json!({})).await, token)
}

#[tokio::test]
async fn changes_reach_secrets_of_the_time_before_as_they_reach_others() {
    let (mut gateway, _upstream) = start(1).await;
    let admin = gateway.admin_key.clone();
    let (ann, ann_key, ann_token) = member(&gateway, "ann@example.com").await;
    let (_, bob_key, bob_token) = member(&gateway, "bob@example.com").await;
    let another = async || make(&gateway, "/v1/router/keys", &admin, json!({})).await;
    let (graced, replaced, shortened, top) =
        (another().await, another().await, another().await, another().await);
    let child = make(&gateway, "/v1/router/keys", &top.secret, json!({})).await;
    give(&mut gateway, SECOND, Some(FIRST));
    gateway.restart().await;

    let me = async |credential: &str| status(&gateway, "/v1/auth/me", credential).await;
    let disable = async |disabled: bool| {
        let patched = gateway
            .manage(
                "PATCH",
                &format!("/v1/users/{ann}"),
                &admin,
                Some(&json!({"disabled": disabled})),
            )
            .await;
        assert_eq!(patched.status, 200, "{}", patched.text());
    };
    disable(true).await;
    assert_eq!((me(&ann_key.secret).await, me(&ann_token).await), (401, 401));
    disable(false).await;
    assert_eq!(
        (me(&ann_key.secret).await, me(&ann_token).await),
        (200, 401),
        "keys are good again, sessions have ended"
    );
    assert_eq!(gateway.manage("POST", "/v1/auth/logout", &bob_token, None).await.status, 204);
    assert_eq!((me(&bob_token).await, me(&bob_key.secret).await), (401, 200));

    let good = async |key: &Key| status(&gateway, "/v1/models", &key.secret).await;
    let rotate = async |key: &Key, grace: u64| {
        make(
            &gateway,
            &format!("/v1/router/keys/{}/rotate", key.id),
            &admin,
            json!({"grace_period_seconds": grace}),
        )
        .await
    };
    let next = rotate(&graced, 600).await;
    assert_eq!((good(&graced).await, good(&next).await), (200, 200));
    let next = rotate(&replaced, 0).await;
    assert_eq!((good(&replaced).await, good(&next).await), (401, 200));
    let end = jiff::Timestamp::now() + Duration::from_secs(3);
    let body = json!({"expires_at": end.to_string()});
    let patched = gateway
        .manage("PATCH", &format!("/v1/router/keys/{}", shortened.id), &admin, Some(&body))
        .await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    until("the key to expire", async || (good(&shortened).await == 401).then_some(())).await;
    assert!(jiff::Timestamp::now() >= end);
    assert_eq!(good(&child).await, 200);
    let all = format!("/v1/router/keys/{}?descendants=true", top.id);
    assert_eq!(gateway.manage("DELETE", &all, &admin, None).await.status, 204);
    for _ in 0..2 {
        for key in [&top, &child, &replaced, &shortened] {
            assert_eq!(good(key).await, 401);
        }
        assert_eq!(me(&bob_token).await, 401);
    }
    let moved = format!(
        "SELECT count(*) FROM keys WHERE id = '{}' AND pepper = 2 AND previous_pepper = 2",
        graced.id
    );
    until("the secret before to move", async || {
        (stored::<i64>(&gateway, &moved) == 1).then_some(())
    })
    .await;
    assert_eq!(good(&graced).await, 200, "within its grace");
}

/// No master key and nothing that comes of one is in the data directory, the log or metrics.
fn no_key_is_anywhere(gateway: &Gateway, metrics: &str) {
    let mut places: Vec<(String, Vec<u8>)> = files(&gateway.dir().join("data"))
        .into_iter()
        .map(|path| (path.display().to_string(), std::fs::read(path).unwrap()))
        .collect();
    places.extend([
        ("the log".to_owned(), gateway.log().into_bytes()),
        ("metrics".to_owned(), metrics.as_bytes().to_vec()),
    ]);
    assert!(places.iter().any(|(name, bytes)| name.ends_with(".seg") && !bytes.is_empty()));
    for master in [FIRST, SECOND] {
        let keys = Keyring::from(&SecretBytes::new(*master));
        let derived =
            [*keys.pepper().expose(), *keys.nodes().expose(), *keys.captures()[0].1.expose()];
        for secret in derived.into_iter().chain([*master]) {
            let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
            let text = STANDARD.encode(secret);
            for (place, bytes) in &places {
                for shape in [&secret[..], hex.as_bytes(), text.trim_end_matches('=').as_bytes()] {
                    assert!(find(bytes, shape).is_none(), "a key in {place}");
                }
            }
        }
    }
}

#[tokio::test]
async fn only_the_right_pair_is_taken_and_a_wrong_one_changes_nothing() {
    let (mut gateway, _upstream) = start(1).await;
    let admin = gateway.admin_key.clone();
    let key = make(&gateway, "/v1/router/keys", &admin, json!({})).await;
    gateway.kill_9();
    for (now, before, word) in [
        (
            SECOND,
            None,
            "give the one before beside it as REROUTER_MASTER_KEY_OLD or master.key.old",
        ),
        (SECOND, Some(THIRD), "nothing is changed: give the one that it was last started with"),
        (SECOND, Some(SECOND), "nothing is changed"),
    ] {
        give(&mut gateway, now, before.map(|before| &before[..]));
        let told = gateway.try_start_again().await.unwrap_err();
        assert!(told.contains(word), "{told}");
    }
    gateway.set_env(MASTER_KEY_OLD, "short");
    let told = gateway.try_start_again().await.unwrap_err();
    assert!(told.contains("REROUTER_MASTER_KEY_OLD is not 32 bytes in base64"), "{told}");
    give(&mut gateway, FIRST, None);
    gateway.start_again().await;
    assert_eq!(status(&gateway, "/v1/models", &key.secret).await, 200);
    give(&mut gateway, SECOND, Some(FIRST));
    gateway.restart().await;
    assert_eq!(status(&gateway, "/v1/models", &key.secret).await, 200);
    gateway.restart().await;
    assert!(
        gateway.log().contains("REROUTER_MASTER_KEY_OLD is not needed any more"),
        "the pair goes on opening it"
    );
    gateway.kill_9();
    for (now, before) in [(FIRST, None), (FIRST, Some(SECOND))] {
        give(&mut gateway, now, before.map(|before| &before[..]));
        let told = gateway.try_start_again().await.unwrap_err();
        assert!(told.contains("gave this master key up"), "{told}");
    }
    give(&mut gateway, THIRD, Some(SECOND));
    gateway.start_again().await;
    assert_eq!(status(&gateway, "/v1/models", &key.secret).await, 200);
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
    assert!(gateway.log().contains("master.key.old is not needed any more"), "{}", gateway.log());
    std::fs::remove_file(data.join("master.key.old")).unwrap();
    gateway.restart().await;
    assert_eq!(
        (status(&gateway, "/v1/models", &key.secret).await, read("master.key").unwrap()),
        (200, second)
    );
}

/// Asks with one key after another, again and again: each is good whenever the gateway is there.
async fn use_them(
    address: std::net::SocketAddr,
    keys: Arc<Vec<String>>,
    over: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
) {
    while !over.load(Ordering::SeqCst) {
        let Some(mut connection) = Connection::try_open(address).await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        for secret in keys.iter() {
            let bearer = format!("Bearer {secret}");
            let ask = client::request(
                "GET",
                "/v1/models",
                &address.to_string(),
                &[("authorization", &bearer)],
                None,
            );
            let Some(answer) = connection.try_exchange(&ask).await.filter(|answer| answer.whole)
            else {
                break;
            };
            assert_eq!(answer.status, 200, "{}", answer.text());
            answered.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_keys_in_use_notice_nothing_of_a_change() {
    const OWNERS: usize = 10;
    let (mut gateway, _upstream) = start(2).await;
    let admin = gateway.admin_key.clone();
    let mut shares = Vec::new();
    for owner in 0..OWNERS {
        let id = user(&gateway, &format!("user{owner}@example.com")).await;
        let mut keys = Vec::new();
        for _ in 0..100 {
            keys.push(make(&gateway, "/v1/router/keys", &admin, json!({"owner": id})).await.secret);
        }
        shares.push(Arc::new(keys));
    }
    let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = shares
        .iter()
        .map(|keys| {
            tokio::spawn(use_them(
                gateway.address(),
                Arc::clone(keys),
                Arc::clone(&over),
                Arc::clone(&answered),
            ))
        })
        .collect();
    until("answers", async || (answered.load(Ordering::SeqCst) > 100).then_some(())).await;
    give(&mut gateway, SECOND, Some(FIRST));
    gateway.restart().await;
    let before = answered.load(Ordering::SeqCst);
    until("every key to move", async || {
        (stored::<i64>(&gateway, "SELECT count(*) FROM keys WHERE pepper = 2") == 1_000)
            .then_some(())
    })
    .await;
    until("the pepper of before to be forgotten", async || {
        stored::<Option<Vec<u8>>>(&gateway, "SELECT pepper FROM master_keys WHERE number = 1")
            .is_none()
            .then_some(())
    })
    .await;
    let then = answered.load(Ordering::SeqCst);
    assert!(then > before);
    until("answers without another pepper", async || {
        (answered.load(Ordering::SeqCst) > then + 100).then_some(())
    })
    .await;
    over.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.expect("no key was refused");
    }
    assert_eq!(gateway.metric("rerouter_auth_failures_total", &["reason=\"unknown\""]).await, 0.0);
}
