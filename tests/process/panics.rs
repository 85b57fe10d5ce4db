//! A panic anywhere in a request: that request is answered in the envelope of its interface, or cut
//! off where its answer had begun; it is counted and logged by its place alone; all others go on,
//! and nothing that the request held stays held.

use std::sync::{Arc, Mutex, Once, OnceLock};

use rerouter::internals::log;
use rerouter::internals::store::{Faults, PanicPoint};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::access::secrets::files;
use crate::process::plugin::{ADMIN, Extras, Host};
use crate::support::client::{Answer, Connection, H2, find, pairs, request};
use crate::support::documents::in_order;
use crate::support::node::{Node, now};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::{envelope, until};

pub const PASSWORD: &str = "panic-password-canary-7d793037a0760186";
const NEW_PASSWORD: &str = "panic-new-password-canary-8f14e45fceea167a";
pub const NODE_KEY: &str = "panic-node-key-canary-c9f0f895fb98ab91";
const PROMPT: &str = "panic-prompt-canary-c4ca4238a0b92382";
/// Behind `${UPSTREAM_API_KEY}` of the routing document.
pub const PROVIDER_KEY: &str = "sk-panic-provider-canary-eccbc87e4b5ce2fe";
/// Behind `${HEADER_API_KEY}`.
pub const HEADER_KEY: &str = "goog-panic-header-canary-1679091c5a880faf";
/// 32 bytes in base64: [`MASTER_BYTES`].
const MASTER_KEY: &str = "cGFuaWMtbWFzdGVyLWNhbmFyeS0wMTIzNDU2Nzg5YWI=";
const MASTER_BYTES: &str = "panic-master-canary-0123456789ab";
pub const CHAT: &str = "/v1/chat/completions";

/// Keeps what is logged, by any gateway of this process, as its own process does at
/// `RUST_LOG=trace`.
struct Diagnostics;

impl ::log::Log for Diagnostics {
    fn enabled(&self, line: &::log::Metadata<'_>) -> bool {
        log::may_be_written(line.target(), line.level())
    }

    fn log(&self, line: &::log::Record<'_>) {
        if self.enabled(line.metadata()) {
            logged().lock().unwrap().push_str(&format!("{} {}\n", line.level(), line.args()));
        }
    }

    fn flush(&self) {}
}

/// All that is logged of panics and failures in this process, as the gateway's own process logs it.
pub fn logged() -> &'static Mutex<String> {
    static LOGGED: OnceLock<Mutex<String>> = OnceLock::new();
    static HOOK: Once = Once::new();
    let logged = LOGGED.get_or_init(Mutex::default);
    HOOK.call_once(|| {
        ::log::set_logger(&Diagnostics).unwrap();
        ::log::set_max_level(::log::LevelFilter::Trace);
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            logged.lock().unwrap().push_str(&format!("{}\n", log::panicked(info)));
            before(info);
        }));
    });
    logged
}

/// Where access lines go.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A gateway in this process that panics on demand, a key of it, and what is kept of what it says.
pub struct World {
    pub dir: tempfile::TempDir,
    pub host: Host,
    pub faults: Faults,
    pub provider: Provider,
    pub key: String,
    pub shown: Vec<String>,
    /// Captures: in these a prompt may be, as it is the client's own to see.
    pub captures: Vec<String>,
    /// What else may not be found.
    pub secrets: Vec<String>,
    /// Requests that panicked.
    pub ids: Vec<String>,
    pub lines: Lines,
}

/// A gateway with what is not to be found in it.
pub fn extras<'a>(lines: &Lines) -> Extras<'a> {
    Extras {
        tls: true,
        access_log: Some(log::AccessLog::to(lines.clone(), 4096).unwrap()),
        master_key: Some(MASTER_KEY),
        variables: &[("UPSTREAM_API_KEY", PROVIDER_KEY), ("HEADER_API_KEY", HEADER_KEY)],
        ..Extras::default()
    }
}

impl World {
    async fn start(provider: Provider, key: Value) -> World {
        let priced = "models:\n  up/model: { input_per_mtok: 1, output_per_mtok: 1 }\n";
        let document = in_order(&[("up", &provider.url())], priced);
        World::start_on(provider, &document, key).await
    }

    pub async fn start_on(provider: Provider, document: &str, mut key: Value) -> World {
        logged();
        let (dir, faults, lines) =
            (tempfile::tempdir().unwrap(), Faults::default(), Lines::default());
        let host = Host::start_with(
            dir.path(),
            provider.address(),
            document,
            faults.clone(),
            extras(&lines),
        )
        .await;
        if key.get("scopes").is_none() {
            key["scopes"] = json!(["inference", "replay", "keys"]);
        }
        let made = host.ask("POST", "/v1/router/keys", Some(ADMIN), Some(&key.to_string())).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let key = made.json()["key"].as_str().unwrap().to_owned();
        World::of(dir, host, faults, provider, key, lines)
    }

    pub fn of(
        dir: tempfile::TempDir,
        host: Host,
        faults: Faults,
        provider: Provider,
        key: String,
        lines: Lines,
    ) -> World {
        let (shown, captures, secrets, ids) = Default::default();
        World { dir, host, faults, provider, key, shown, captures, secrets, ids, lines }
    }

    /// What is secret from the beginning.
    fn known(key: &str) -> [&str; 10] {
        [
            ADMIN,
            key,
            PASSWORD,
            NEW_PASSWORD,
            NODE_KEY,
            PROMPT,
            PROVIDER_KEY,
            HEADER_KEY,
            MASTER_KEY,
            MASTER_BYTES,
        ]
    }

    /// The next request that comes to a place panics there, and says all that is secret.
    pub fn arm(&self, place: PanicPoint) {
        let secrets = self.secrets.join(" ");
        let known = Self::known(&self.key);
        self.faults.panic_at(place, 1, &format!("{} {secrets}", known.join(" ")));
    }

    /// Keeps the answer to a request that panicked.
    pub fn keep(&mut self, answer: &Answer) {
        self.shown.push(format!("{answer:?}"));
        self.ids.extend(answer.header("x-request-id").map(str::to_owned));
    }

    /// One panic at a place, which says all that is secret, in a request.
    async fn panic_at(
        &mut self,
        place: PanicPoint,
        (method, target): (&str, &str),
        credential: Option<&str>,
        body: Option<&str>,
    ) -> Answer {
        self.arm(place);
        let answer = self.host.ask(method, target, credential, body).await;
        self.keep(&answer);
        answer
    }

    async fn chat(&self, body: &str) -> Answer {
        self.host.ask("POST", CHAT, Some(&self.key), Some(body)).await
    }

    pub async fn metric(&self, name: &str) -> f64 {
        let metrics = self.host.metrics().await;
        let values = metrics
            .lines()
            .filter(|line| line.starts_with(name))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        values.sum()
    }

    pub async fn capture(&self, id: &str) -> Value {
        let path = format!("/v1/router/replay/{id}");
        until("the capture", async || {
            let found = self.host.ask("GET", &path, Some(&self.key), None).await;
            (found.status == 200).then(|| found.json())
        })
        .await
    }

    /// Stops it, and looks for what is secret wherever it might be.
    pub async fn end(mut self) {
        self.shown.push(self.host.metrics().await);
        let told = |id: &String| self.lines.text().lines().any(|line| line.contains(id));
        until("a line of each request that panicked", async || {
            self.ids.iter().all(told).then_some(())
        })
        .await;
        self.host.stop().await;
        self.shown.push(self.lines.text());
        let logged = logged().lock().unwrap().clone();
        assert!(logged.contains("panic at ") && logged.contains("faults.rs:"), "{logged}");
        self.shown.push(logged);
        let mut stored = Vec::new();
        files(self.dir.path(), &mut stored);
        stored.extend(
            self.shown.iter().map(|text| ("what was shown".to_owned(), text.clone().into_bytes())),
        );
        stored.extend(
            self.captures.iter().map(|text| ("a capture".to_owned(), text.clone().into_bytes())),
        );
        for canary in
            Self::known(&self.key).into_iter().chain(self.secrets.iter().map(String::as_str))
        {
            for (place, bytes) in
                stored.iter().filter(|(place, _)| canary != PROMPT || place != "a capture")
            {
                assert!(find(bytes, canary.as_bytes()).is_none(), "{canary} in {place}");
            }
        }
    }
}

pub fn prompt(stream: bool) -> String {
    json!({"model": "auto", "stream": stream, "max_tokens": 8,
            "messages": [{"role": "user", "content": PROMPT}]})
    .to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_management_call_tells_nothing_and_changes_nothing() {
    let mut world =
        World::start(Provider::always(scripted::completion("well")).await, json!({})).await;
    let key = world.key.clone();
    let account_of = |number: u32| {
        let email = format!("canary-{number}@example.com");
        json!({ "email": email, "password": PASSWORD }).to_string()
    };
    // In the store: what was being written is not, and the next is. The panic may meet another
    // write, as of the sweep at the start.
    let (mut account, mut answer) = (String::new(), None);
    for number in 0..20 {
        account = account_of(number);
        let register = ("POST", "/v1/auth/register");
        let told = world.panic_at(PanicPoint::Commit, register, None, Some(&account)).await;
        let is_met = told.status != 201;
        answer = Some(told);
        if is_met {
            break;
        }
    }
    envelope::management(&answer.unwrap(), 503, "unavailable");
    for status in [201, 409] {
        let answer = world.host.ask("POST", "/v1/auth/register", None, Some(&account)).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    let calls: [(&str, &str, Option<&str>, Option<&str>); 5] = [
        ("POST", "/v1/auth/register", None, Some(&account)),
        ("POST", "/v1/router/keys", Some(ADMIN), Some("{}")),
        ("GET", "/v1/router/keys", Some(&key), None),
        ("PUT", "/v1/router/config", Some(ADMIN), Some("{}")),
        ("POST", "/v1/router/replay/evaluate", Some(&key), Some("{}")),
    ];
    let mut panics = world.metric("rerouter_panics_total").await;
    for (method, target, credential, body) in calls {
        let answer = world.panic_at(PanicPoint::Entry, (method, target), credential, body).await;
        envelope::management(&answer, 500, "internal");
        panics += 1.0;
    }
    let agents = world.panic_at(PanicPoint::Entry, ("GET", "/v1/agents"), None, None).await;
    envelope::agent(&agents, 500, "Internal Server Error");
    assert_eq!(world.metric("rerouter_panics_total").await, panics + 1.0);
    let listed = world.host.ask("GET", "/v1/router/keys", Some(ADMIN), None).await.json();
    assert_eq!(
        listed["data"].as_array().unwrap().len(),
        1,
        "none of those that panicked made a key"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_with_a_new_password_or_a_node_s_key_at_hand_tells_neither() {
    let mut world =
        World::start(Provider::always(scripted::completion("well")).await, json!({})).await;
    let account = json!({"email": "canary@example.com", "password": PASSWORD}).to_string();
    assert_eq!(world.host.ask("POST", "/v1/auth/register", None, Some(&account)).await.status, 201);
    let login = world.host.ask("POST", "/v1/auth/login", None, Some(&account)).await.json();
    let token = login["token"].as_str().unwrap().to_owned();
    let change = json!({"current_password": PASSWORD, "new_password": NEW_PASSWORD}).to_string();
    for (place, status, word) in
        [(PanicPoint::Entry, 500, "internal"), (PanicPoint::Commit, 503, "unavailable")]
    {
        let answer =
            world.panic_at(place, ("POST", "/v1/auth/password"), Some(&token), Some(&change)).await;
        envelope::management(&answer, status, word);
    }
    assert_eq!(
        world.host.ask("POST", "/v1/auth/login", None, Some(&account)).await.status,
        200,
        "the password is what it was"
    );
    let node =
        world.host.ask("POST", "/v1/nodes", Some(ADMIN), Some(r#"{"name": "rack"}"#)).await.json();
    let node = Node::of(&node);
    let body = json!({"version": "1", "endpoint": world.provider.url(), "models": [{"id": "qwen"}],
            "api_key": NODE_KEY})
    .to_string();
    let (path, host) = ("/v1/agent/register", world.host.address());
    let signed = node.sign_for(&host.to_string(), path, body.as_bytes(), now());
    let signed = pairs(&signed);
    world.faults.panic_at(PanicPoint::Entry, 1, &format!("{} {NODE_KEY}", node.secret));
    let answer = Connection::try_open(host)
        .await
        .unwrap()
        .exchange(&request("POST", path, &host.to_string(), &signed, Some(body.as_bytes())))
        .await;
    envelope::management(&answer, 500, "internal");
    world.keep(&answer);
    world.shown.push(
        world.host.ask("GET", &format!("/v1/nodes/{}", node.id), Some(ADMIN), None).await.text(),
    );
    world.secrets.push(node.secret);
    world.end().await;
}

/// A provider that was asked may bill, and nobody was told how much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_after_a_provider_was_asked_costs_the_reserve() {
    let limits = json!({
        "scopes": ["inference", "replay"], "limits": {"budget": {"usd": 0.001, "per": "month"}}
    });
    let mut world =
        World::start(Provider::always(scripted::completion("well")).await, limits).await;
    let key = world.key.clone();
    let remaining = async |world: &World| {
        let answer = world.chat(&prompt(false)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let left: f64 = answer.header("x-ratelimit-remaining-budget").unwrap().parse().unwrap();
        (left * 1e6).round()
    };
    // Millionths of a dollar. An answer costs ten.
    let reserve = 1_000.0 - remaining(&world).await;
    let asked = Some(prompt(false));
    let answer =
        world.panic_at(PanicPoint::Head, ("POST", CHAT), Some(&key), asked.as_deref()).await;
    envelope::openai(&answer, 500, "server_error", Some("internal"));
    let capture = world.capture(&answer.request_id()).await;
    assert_eq!((&capture["state"], &capture["status"]), (&json!("failed"), &json!(500)));
    assert_eq!(capture["decision"]["attempts"][0]["error"], "internal");
    assert_eq!(remaining(&world).await, 1_000.0 - 10.0 - 2.0 * reserve);
    world.end().await;
}

/// With one place at once and a budget of some eight requests: what is not given back is missed at
/// the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_on_the_way_to_a_provider_is_a_500_and_gives_back_what_it_held() {
    let limits = json!({
        "scopes": ["inference", "replay"],
        "limits": {"concurrency": 1, "budget": {"usd": 0.0002, "per": "month"}}
    });
    let mut world =
        World::start(Provider::always(scripted::completion("well")).await, limits).await;
    let key = world.key.clone();
    let responses = json!({"model": "auto", "input": PROMPT, "max_output_tokens": 8}).to_string();
    let good = async |world: &World| {
        until("an answer", async || {
            Some(world.chat(&prompt(false)).await).filter(|answer| answer.status != 429)
        })
        .await
    };
    assert_eq!(good(&world).await.status, 200);
    let mut panics = 0.0;
    for place in [PanicPoint::Entry, PanicPoint::Decision, PanicPoint::Attempt].repeat(3) {
        for (target, body) in
            [(CHAT, prompt(false)), (CHAT, prompt(true)), ("/v1/responses", responses.clone())]
        {
            let answer = world.panic_at(place, ("POST", target), Some(&key), Some(&body)).await;
            envelope::openai(&answer, 500, "server_error", Some("internal"));
            panics += 1.0;
            if place == PanicPoint::Attempt {
                let capture = world.capture(&answer.request_id()).await;
                assert_eq!(
                    (&capture["state"], &capture["status"]),
                    (&json!("failed"), &json!(500)),
                    "{place:?}"
                );
                assert_eq!(capture["decision"]["attempts"][0]["error"], "internal");
            }
        }
    }
    for place in [PanicPoint::Entry, PanicPoint::Decision] {
        let answer =
            world.panic_at(place, ("POST", "/v1/messages"), Some(&key), Some(&prompt(false))).await;
        envelope::anthropic(&answer, 500, "api_error");
        panics += 1.0;
    }
    assert_eq!(world.metric("rerouter_panics_total").await, panics);
    assert_eq!(world.metric("rerouter_inflight{").await, 0.0);
    let good = good(&world).await;
    assert_eq!(good.status, 200, "{}", good.text());
    assert_eq!(world.capture(&good.request_id()).await["state"], "completed");
    let codes = world.host.metrics().await;
    let line = codes
        .lines()
        .find(|line| {
            line.contains("code=\"500\"") && line.contains("route=\"/v1/chat/completions\"")
        })
        .unwrap();
    assert!(line.ends_with(" 18"), "{line}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_stream_cuts_that_stream_and_no_other() {
    let gate = Arc::new(Notify::new());
    let waits = Step::Wait(Arc::clone(&gate));
    let first = [scripted::role_event(), scripted::content_event("one")].concat().into_bytes();
    let script = vec![
        scripted::stream_head(),
        Step::Chunk(first),
        waits,
        Step::Chunk(scripted::last_events().into_bytes()),
        Step::Chunk(vec![]),
    ];
    let mut world = World::start(Provider::always(script).await, json!({})).await;
    let bearer = format!("Bearer {}", world.key);
    let (host, body) = (world.host.address().to_string(), prompt(true));
    let ask = request(
        "POST",
        CHAT,
        &host,
        &[("authorization", &bearer), ("content-type", "application/json")],
        Some(body.as_bytes()),
    );
    let begin = async || {
        let mut connection = Connection::try_open(world.host.address()).await.unwrap();
        connection.send(&ask).await;
        let head = connection.head().await.unwrap();
        assert_eq!(head.status, 200);
        let piece = String::from_utf8(connection.piece().await.unwrap()).unwrap();
        (connection, head.request_id(), piece)
    };
    let (mut cut, cut_id, _) = begin().await;
    let (mut other, other_id, piece) = begin().await;
    assert_eq!(world.metric("rerouter_inflight{").await, 2.0);
    world.faults.panic_at(PanicPoint::Content, 1, &format!("{ADMIN} {PASSWORD} {PROMPT}"));
    // Waiters are told in their order.
    gate.notify_one();
    let (pieces, whole) = cut.pieces().await;
    let said: Vec<u8> = pieces.into_iter().flat_map(|(_, piece)| piece).collect();
    assert!(
        !whole && find(&said, b"[DONE]").is_none() && find(&said, b"error").is_none(),
        "cut, and nobody takes it for whole"
    );
    assert!(cut.is_closed().await);
    gate.notify_one();
    let (pieces, whole) = other.pieces().await;
    let rest: Vec<u8> = pieces.into_iter().flat_map(|(_, piece)| piece).collect();
    assert!(
        whole && piece.contains("one") && find(&rest, b"[DONE]").is_some(),
        "the other goes on to its end"
    );
    for (id, state, error) in
        [(cut_id, "failed", json!("internal")), (other_id, "completed", Value::Null)]
    {
        let capture = world.capture(&id).await;
        assert_eq!(
            (&capture["state"], &capture["decision"]["attempts"][0]["error"]),
            (&json!(state), &error),
            "{capture}"
        );
        world.shown.push(capture["decision"].to_string());
    }
    assert_eq!(
        (world.metric("rerouter_inflight{").await, world.metric("rerouter_panics_total").await),
        (0.0, 1.0)
    );
    assert_eq!(world.provider.count(), 2);
    world.end().await;
}

/// What is done beside requests goes on: without it no budget would have another part to spend.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_beside_requests_ends_a_round_and_not_those_to_come() {
    let limits = json!({"limits": {"budget": {"usd": 0.0002, "per": "month"}}});
    let mut world =
        World::start(Provider::always(scripted::completion("well")).await, limits).await;
    world.faults.panic_at(PanicPoint::Usage, 2, &format!("{ADMIN} {PASSWORD} {PROMPT}"));
    let counted = async || world.metric("rerouter_panics_total").await;
    let good = async || {
        until("an answer", async || {
            Some(world.chat(&prompt(false)).await).filter(|answer| answer.status != 429)
        })
        .await
    };
    assert_eq!(good().await.status, 200, "after its hold was written");
    until("two rounds to panic", async || (counted().await == 2.0).then_some(())).await;
    for _ in 0..6 {
        assert_eq!(good().await.status, 200);
    }
    assert_eq!(counted().await, 2.0);
    let usage = async || {
        world
            .host
            .ask("GET", "/v1/router/usage?group_by=model", Some(&world.key), None)
            .await
            .json()
    };
    let used = until("the usage to be written", async || {
        usage().await["data"].as_array().filter(|rows| !rows.is_empty()).cloned()
    })
    .await;
    world.shown.push(json!(used).to_string());
    world.end().await;
}

/// The live request waits at its provider while its copy panics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_shadow_is_the_end_of_the_shadow_alone() {
    let gate = Arc::new(Notify::new());
    let waits = Step::Wait(Arc::clone(&gate));
    let up =
        Provider::start(move |_, _| [vec![waits.clone()], scripted::completion("well")].concat())
            .await;
    let dark = Provider::always(scripted::completion("dark")).await;
    let shadowed = "    shadow: { target: dark/model, percent: 100 }\naliases:";
    let document = in_order(&[("up", &up.url()), ("dark", &dark.url())], "")
        .replace(", { target: dark/model }", "");
    let mut world = World::start_on(up, &document.replace("aliases:", shadowed), json!({})).await;
    world.faults.panic_at(PanicPoint::Head, 1, &format!("{ADMIN} {PASSWORD} {PROMPT}"));
    let panics = async {
        until("the copy to panic", async || {
            (world.metric("rerouter_panics_total").await == 1.0).then_some(())
        })
        .await;
        gate.notify_one();
    };
    let live = prompt(false);
    let (answer, ()) = tokio::join!(world.chat(&live), panics);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(world.capture(&answer.request_id()).await["state"], "completed");
    assert_eq!(world.metric("rerouter_shadows_total{outcome=\"failed\"}").await, 1.0);
    let shadows = until("the capture of the copy", async || {
        let listed = world
            .host
            .ask("GET", "/v1/router/replay?shadow=true", Some(&world.key), None)
            .await
            .json();
        listed["data"].as_array().filter(|data| !data.is_empty()).cloned()
    })
    .await;
    assert_eq!((shadows.len(), &shadows[0]["state"], dark.count()), (1, &json!("failed"), 1));
    assert_eq!(world.metric("rerouter_inflight{").await, 0.0);
    world.shown.push(json!(shadows).to_string());
    world.end().await;
}

/// The streams of one connection are requests of their own, and so are their panics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_one_stream_of_http2_leaves_the_connection_to_the_others() {
    let gate = Arc::new(Notify::new());
    let waits = Step::Wait(Arc::clone(&gate));
    let provider = Provider::start(move |request, _| {
        if !String::from_utf8_lossy(&request.body).contains("\"stream\":true") {
            return scripted::completion("well");
        }
        let first = [scripted::role_event(), scripted::content_event("one")].concat().into_bytes();
        let last = Step::Chunk(scripted::last_events().into_bytes());
        vec![scripted::stream_head(), Step::Chunk(first), waits.clone(), last, Step::Chunk(vec![])]
    })
    .await;
    let mut world = World::start(provider, json!({})).await;
    let connection = H2::open(world.host.tls()).await;
    let bearer = format!("Bearer {}", world.key);
    let ask = |stream: bool| {
        let (mut connection, bearer) = (connection.clone(), bearer.clone());
        async move {
            let headers =
                [("authorization", bearer.as_str()), ("content-type", "application/json")];
            connection.send("POST", CHAT, &headers, prompt(stream).as_bytes(), false).await
        }
    };
    for place in [PanicPoint::Entry, PanicPoint::Decision, PanicPoint::Attempt, PanicPoint::Head] {
        world.arm(place);
        let answer = ask(false).await;
        envelope::openai(&answer, 500, "server_error", Some("internal"));
        world.keep(&answer);
        assert_eq!(ask(false).await.status, 200, "{place:?}: on the same connection");
    }
    let (cut, other) = (tokio::spawn(ask(true)), tokio::spawn(ask(true)));
    until("both to be under way", async || {
        (world.metric("rerouter_inflight{").await == 2.0).then_some(())
    })
    .await;
    world.faults.panic_at(PanicPoint::Content, 1, &format!("{ADMIN} {PASSWORD} {PROMPT}"));
    gate.notify_one();
    until("one of them to end", async || {
        (world.metric("rerouter_inflight{").await == 1.0).then_some(())
    })
    .await;
    gate.notify_one();
    let ends = [cut.await.unwrap(), other.await.unwrap()]
        .map(|answer| (answer.status, answer.whole, answer.text().contains("[DONE]")));
    assert!(
        ends.contains(&(200, false, false)) && ends.contains(&(200, true, true)),
        "one is reset, the other whole: {ends:?}"
    );
    assert_eq!(ask(false).await.status, 200, "and the connection lives on");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_reroute_is_a_500_and_may_be_asked_for_again() {
    let mut world =
        World::start(Provider::always(scripted::completion("well")).await, json!({})).await;
    let key = world.key.clone();
    let id = world.chat(&prompt(false)).await.request_id();
    world.capture(&id).await;
    let path = format!("/v1/router/replay/{id}/reroute");
    let bearer = format!("Bearer {key}");
    let named = [("authorization", bearer.as_str()), ("idempotency-key", "one")];
    let again = request("POST", &path, &world.host.address().to_string(), &named, None);
    for place in [PanicPoint::Entry, PanicPoint::Decision, PanicPoint::Attempt, PanicPoint::Head] {
        world.arm(place);
        // The `Idempotency-Key` is free soon.
        let answer = until("the call to run", async || {
            let mut connection = Connection::try_open(world.host.address()).await.unwrap();
            let answer = connection.exchange(&again).await;
            (answer.status != 409).then_some(answer)
        })
        .await;
        envelope::management(&answer, 500, "internal");
        world.keep(&answer);
        if matches!(place, PanicPoint::Attempt | PanicPoint::Head) {
            let capture = world.capture(&answer.request_id()).await;
            assert_eq!((&capture["state"], &capture["replay_of"]), (&json!("failed"), &json!(id)));
        }
    }
    let good = until("the call to run", async || {
        let mut connection = Connection::try_open(world.host.address()).await.unwrap();
        let answer = connection.exchange(&again).await;
        (answer.status != 409).then_some(answer)
    })
    .await;
    assert_eq!(good.status, 200, "what failed is not told again: {}", good.text());
    assert_eq!(
        (world.metric("rerouter_inflight{").await, world.metric("rerouter_panics_total").await),
        (0.0, 4.0)
    );
    world.end().await;
}
