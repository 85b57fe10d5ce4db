//! Three `rerouter node` processes under load. They take turns. A machine that dies, a process that
//! is killed and a node that drains cost no client an answer. All of them come back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rerouter::internals::bounds;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::nodes::enrolment::document;
use crate::support::client::Answer;
use crate::support::documents::chat_body;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::node::Node;
use crate::support::node_process::Process;
use crate::support::provider::{self as scripted, Provider, Received, Step};
use crate::support::{count, free_port, until};

/// Clients that send requests all the time.
const CLIENTS: usize = 6;
/// Time that a server takes for an answer.
const TAKES: Duration = Duration::from_millis(30);

/// Behaviour of a server, which a test can change and observe.
struct Behaviour {
    name: &'static str,
    /// Whether requests that ask for it are held until the gate opens.
    holds: AtomicBool,
    gate: Arc<Notify>,
    chats: AtomicUsize,
    /// When the last request came.
    last: Mutex<Instant>,
    /// Number of held requests, by the index in [`HOW`].
    held: [AtomicUsize; 3],
}

/// Where a request can be held: before its answer, before the first content of its stream, or after
/// that content.
const HOW: [&str; 3] = ["whole", "unbegun", "begun"];

impl Behaviour {
    fn answer(&self, request: &Received) -> Vec<Step> {
        match request.target.as_str() {
            "/v1/models" => {
                return scripted::json_answer(
                    200,
                    &json!({"object": "list", "data": [{"id": "qwen", "max_model_len": 4096}]}),
                );
            }
            "/metrics" => {
                let running = self.held[0].load(Ordering::SeqCst);
                return scripted::answer(
                    200,
                    &[],
                    format!("vllm:num_requests_running{{engine=\"0\"}} {running}.0\n").as_bytes(),
                );
            }
            "/v1/chat/completions" => {}
            _ => return scripted::failure(404, "no such page"),
        }
        self.chats.fetch_add(1, Ordering::SeqCst);
        *self.last.lock().unwrap() = Instant::now();
        let asked = request.json();
        let how = HOW
            .iter()
            .position(|how| asked["user"] == *how)
            .filter(|_| self.holds.load(Ordering::SeqCst));
        if let Some(how) = how {
            self.held[how].fetch_add(1, Ordering::SeqCst);
        }
        let wait = || Step::Wait(Arc::clone(&self.gate));
        let steps = if asked["stream"] == true {
            scripted::stream(self.name)
        } else {
            scripted::completion(self.name)
        };
        // The steps of a stream: head, role, content, end.
        let place = match how {
            None => return [vec![Step::Later(TAKES, Vec::new())], steps].concat(),
            Some(0) => 0,
            Some(how) => how + 1,
        };
        [&steps[..place], &[wait()], &steps[place..]].concat()
    }
}

/// A node with its server and its process.
struct Place {
    node: Node,
    server: Provider,
    does: Arc<Behaviour>,
    process: Process,
}

impl Place {
    async fn new(gateway: &Gateway, name: &'static str) -> Place {
        let does = Arc::new(Behaviour {
            name,
            holds: AtomicBool::new(false),
            gate: Arc::default(),
            chats: AtomicUsize::default(),
            last: Mutex::new(Instant::now()),
            held: Default::default(),
        });
        let behaviour = Arc::clone(&does);
        let server = Provider::start_at(([127, 0, 0, 1], free_port()).into(), move |request, _| {
            behaviour.answer(request)
        })
        .await;
        let node = Node::enrol(gateway, name, json!({})).await;
        let process = Process::start(gateway, &node, &server, &[]);
        Place { node, server, does, process }
    }

    async fn state(&self, gateway: &Gateway) -> Value {
        self.node.shown(gateway).await["state"].clone()
    }

    async fn stands(&self, gateway: &Gateway, state: &str) {
        until(&format!("{} to be {state}", self.does.name), async || {
            (self.state(gateway).await == state).then_some(())
        })
        .await;
    }

    fn chats(&self) -> usize {
        self.does.chats.load(Ordering::SeqCst)
    }

    /// Waits until the server has answered this many more requests.
    async fn serves(&self, more: usize) {
        let before = self.chats();
        until(&format!("{} to serve", self.does.name), async || {
            (self.chats() >= before + more).then_some(())
        })
        .await;
    }

    /// Lets held requests go on.
    fn release(&self) {
        self.does.holds.store(false, Ordering::SeqCst);
        self.does.gate.notify_waiters();
    }

    async fn start_again(&mut self, gateway: &Gateway, server: bool) {
        if server {
            let behaviour = Arc::clone(&self.does);
            self.server = Provider::start_at(self.server.address(), move |request, _| {
                behaviour.answer(request)
            })
            .await;
        }
        let begun = Instant::now();
        self.process = Process::start(gateway, &self.node, &self.server, &[]);
        self.stands(gateway, "ready").await;
        self.serves(1).await;
        assert!(
            begun.elapsed() < bounds::NODE_HEARTBEAT,
            "{} is back after {:?}",
            self.does.name,
            begun.elapsed()
        );
    }
}

/// The content of a good answer, or an error with what is wrong.
fn said(answer: &Answer, stream: bool) -> Result<String, String> {
    let wrong = || Err(format!("{} {} {}", answer.status, answer.whole, answer.text()));
    if answer.status != 200 || !answer.whole {
        return wrong();
    }
    if !stream {
        return Ok(answer.json()["choices"][0]["message"]["content"]
            .as_str()
            .unwrap_or_default()
            .to_owned());
    }
    let names = ["one", "two", "three"];
    match names.into_iter().find(|name| answer.text() == scripted::stream_body(name)) {
        Some(name) => Ok(name.to_owned()),
        None => wrong(),
    }
}

/// Sends requests until told to end. Returns the number of answers.
async fn client(gateway: &Gateway, key: &Key, ended: &AtomicBool) -> usize {
    let mut answers = 0;
    while !ended.load(Ordering::SeqCst) {
        let stream = answers % 2 == 1;
        let answer = gateway.chat(key, chat_body("local", stream).as_bytes()).await;
        let good = said(&answer, stream);
        assert!(good.is_ok(), "answer {answers}: {good:?}");
        answers += 1;
    }
    answers
}

/// Sends a chat that asks to be held at this point.
async fn held(gateway: &Gateway, key: &Key, how: &str) -> Answer {
    let body =
        chat_body("local", how != "whole").replacen('{', &format!("{{\"user\":\"{how}\","), 1);
    gateway.chat(key, body.as_bytes()).await
}

#[tokio::test]
async fn three_nodes_under_load_one_dies_one_is_killed_one_drains_and_no_client_sees_it() {
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let gateway = Setup::new(&document(&other.url())).start().await;
    let key = gateway.create_key().await;
    let mut places = [
        Place::new(&gateway, "one").await,
        Place::new(&gateway, "two").await,
        Place::new(&gateway, "three").await,
    ];
    for place in &places {
        place.stands(&gateway, "ready").await;
    }
    let mut turns = Vec::new();
    for _ in 0..9 {
        turns.push(
            said(&gateway.chat(&key, chat_body("local", false).as_bytes()).await, false).unwrap(),
        );
    }
    assert!(
        turns
            .windows(3)
            .all(|three| three[0] != three[1] && three[1] != three[2] && three[2] != three[0]),
        "in turn: {turns:?}"
    );
    let ended = AtomicBool::new(false);
    let clients = futures::future::join_all((0..CLIENTS).map(|_| client(&gateway, &key, &ended)));
    let rounds = count("REROUTER_ROUNDS", 1).min(20);
    let scene = async {
        for _ in 0..rounds {
            for place in &places {
                place.serves(10).await;
            }
            one_dies_and_one_is_killed(&gateway, &key, &mut places).await;
            one_drains(&gateway, &key, &mut places[1]).await;
        }
        ended.store(true, Ordering::SeqCst);
    };
    let (answers, ()) = tokio::join!(clients, scene);
    assert!(
        answers.iter().sum::<usize>() > 200 * usize::try_from(rounds).unwrap()
            && other.count() == 0,
        "{answers:?}"
    );
}

/// The first node dies with its server. The third loses only its `rerouter node` process.
async fn one_dies_and_one_is_killed(gateway: &Gateway, key: &Key, places: &mut [Place; 3]) {
    let [one, two, three] = places;
    let holds = |on: bool| one.does.holds.store(on, Ordering::SeqCst);
    holds(true);
    let streams =
        futures::future::join_all((0..24).map(|number| held(gateway, key, HOW[1 + number % 2])));
    let events = async {
        let held = |how: usize| one.does.held[how].load(Ordering::SeqCst);
        until("streams of both kinds to be there", async || {
            (held(1) > 0 && held(2) > 0).then_some(())
        })
        .await;
        let died = Instant::now();
        three.process.kill_9();
        one.process.kill_9();
        one.server.kill().await;
        died
    };
    let (streams, died) = tokio::join!(streams, events);
    one.release();
    let begun = one.does.held[2].load(Ordering::SeqCst);
    let whole = streams.iter().filter(|answer| said(answer, true).is_ok()).count();
    assert_eq!(whole, streams.len() - begun, "whoever had nothing yet was served by another");
    for cut in streams.iter().filter(|answer| said(answer, true).is_err()) {
        let text = cut.text();
        assert!(cut.status == 200 && cut.whole && !text.contains("[DONE]"), "{text}");
        let last = text.trim_end().rsplit("\n\n").next().unwrap().strip_prefix("data: ").unwrap();
        let last: Value = serde_json::from_str(last).unwrap();
        assert!(
            text.starts_with(&scripted::role_event()) && last["error"]["type"] == "server_error",
            "{text}"
        );
    }
    one.does.held.iter().for_each(|held| held.store(0, Ordering::SeqCst));

    // The third server still works, and is asked as long as its lease lasts. Meanwhile the second
    // one serves.
    let patience = bounds::NODE_LEASE + Duration::from_secs(5);
    while three.state(gateway).await == "ready" || one.state(gateway).await == "ready" {
        assert!(died.elapsed() < patience, "ready {:?} after their end", died.elapsed());
        two.serves(1).await;
    }
    assert_eq!(
        (one.state(gateway).await, three.state(gateway).await),
        (json!("unreachable"), json!("unreachable"))
    );
    two.serves(20).await;
    let last = three.does.last.lock().unwrap().duration_since(died);
    let [least, most] = [
        bounds::NODE_LEASE - bounds::NODE_HEARTBEAT - Duration::from_secs(3),
        bounds::NODE_LEASE + Duration::from_secs(1),
    ];
    assert!(last > least && last < most, "asked until {last:?} after its end");
    let before = three.chats();
    two.serves(20).await;
    assert_eq!(three.chats(), before);
    one.start_again(gateway, true).await;
    three.start_again(gateway, false).await;
}

/// A node that leaves gets no new requests, and finishes those that it has.
async fn one_drains(gateway: &Gateway, key: &Key, place: &mut Place) {
    place.does.holds.store(true, Ordering::SeqCst);
    let holding = futures::future::join_all((0..9).map(|_| held(gateway, key, HOW[0])));
    let does = Arc::clone(&place.does);
    let events = async {
        until("one to be held", async || (does.held[0].load(Ordering::SeqCst) > 0).then_some(()))
            .await;
        place.process.tell();
        place.stands(gateway, "draining").await;
        let shown = async |name: &str| place.node.shown(gateway).await[name].clone();
        until("all others to be answered", async || {
            (shown("inflight").await == does.held[0].load(Ordering::SeqCst)).then_some(())
        })
        .await;
        let before = place.chats();
        // It keeps reporting that it drains while it has requests.
        for _ in 0..2 {
            let lease = shown("lease_expires_at").await;
            until("it to say so again", async || {
                (shown("lease_expires_at").await != lease).then_some(())
            })
            .await;
        }
        assert!(place.process.runs() && place.state(gateway).await == "draining");
        assert_eq!(place.chats(), before, "nothing new arrives");
        does.held[0].store(0, Ordering::SeqCst);
        place.release();
        assert_eq!(place.process.left().await, Some(0));
        assert_eq!((place.state(gateway).await, place.chats()), (json!("gone"), before));
    };
    let (answers, ()) = tokio::join!(holding, events);
    for answer in &answers {
        assert!(said(answer, false).is_ok(), "{}", answer.text());
    }
    place.start_again(gateway, false).await;
}

#[tokio::test]
async fn told_twice_a_node_leaves_at_once() {
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let gateway = Setup::new(&document(&other.url())).start().await;
    let mut place = Place::new(&gateway, "one").await;
    place.stands(&gateway, "ready").await;
    place.does.held[0].store(1, Ordering::SeqCst);
    place.process.tell();
    place.stands(&gateway, "draining").await;
    assert!(place.process.runs(), "it waits for what runs there");
    place.process.tell();
    assert_eq!(
        (place.process.left().await, place.state(&gateway).await),
        (Some(1), json!("draining"))
    );
}
