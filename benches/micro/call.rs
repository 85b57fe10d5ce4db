//! Stages around a decision: authentication, heads of the attempt, events of the answer, the
//! capture.

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::http::HttpTask;
use rerouter::internals::capture::queue::CaptureQueue;
use rerouter::internals::capture::record::{Bodies, Capture, Head};
use rerouter::internals::config;
use rerouter::internals::gateway::CallStages;
use rerouter::internals::id::{Random, RequestId, UserId};
use rerouter::internals::interface::Surface;
use rerouter::internals::metrics::Metrics;
use rerouter::internals::secret::Secret;
use rerouter::internals::store::Store;
use rerouter::{Environment, Gateway};

use crate::stored_keys::{auth, fill, now, shown};
use crate::{Bench, routing};

const EVENT: &str = "data: {\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\
    \"created\":1764000000,\"model\":\"fixed\",\"choices\":[{\"index\":0,\
    \"delta\":{\"content\":\" the quick brown fox\"},\"finish_reason\":null}]}\n\n";
/// Events per stream.
const EVENTS: u32 = 100;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// Looks up keys among a thousand.
pub async fn keys(bench: &Bench) {
    let (dir, auth) = (directory(), auth());
    let secrets = fill(dir.path(), 1_000, &auth).await;
    auth.attach(&Store::open(dir.path()).await.expect("a store")).await.expect("the tables");
    let shown = shown(&Secret::new(secrets[7].as_str()));
    bench.call("key look-up", || {
        let found = auth.identify(black_box(&shown), Surface::Agent, false, now());
        assert!(black_box(found).is_ok());
    });
}

/// Builds the heads of an attempt, and counts the events of its answer.
pub async fn attempt(bench: &Bench) {
    let dir = directory();
    let file = dir.path().join("routing.yaml");
    let document = "providers: { p: \
        { protocol: openai, base_url: \"http://127.0.0.1:9/v1\", api_key: sk-bench } }\n\
        recipes: { main: { rules: [ { name: default, targets: [ { target: p/fixed } ] } ] } }\n\
        aliases: { auto: main }\n";
    std::fs::write(&file, document).expect("a document");
    let text = format!(
        "data_dir: {}\nrouting: {{ file: {} }}\n",
        serde_json::json!(dir.path().join("data")),
        serde_json::json!(file)
    );
    let server = config::read_server("bench", &text, &|_| None).expect("a document");
    let gateway = Gateway::prepare(server, Environment::default()).await.expect("a gateway");
    let (inputs, body) = (routing::inputs(10), Bytes::from(routing::body(600)));
    let call = || -> CallStages {
        gateway.call_stages(&inputs, body.clone()).expect("a target for the request")
    };

    let mut head =
        RequestHeader::build("POST", b"/v1/chat/completions", None).expect("a request head");
    let one = call();
    bench.call("head to the provider", || {
        black_box(one.write_request(&mut head)).expect("a head");
    });
    bench.stage(
        "head from the provider",
        1,
        || answer("application/json"),
        |mut head| {
            one.rewrite_answer(&mut head).expect("a head");
            head
        },
    );
    let begun = || {
        let call = call();
        call.observe(HttpTask::Header(Box::new(answer("text/event-stream")), false));
        call
    };
    bench.stage("an event of a stream", EVENTS, begun, |call| {
        for _ in 0..EVENTS {
            let piece = HttpTask::Body(Some(Bytes::from_static(EVENT.as_bytes())), false);
            assert!(call.observe(black_box(piece)), "an event goes on at once");
        }
        call
    });
}

/// Head of an answer, with headers that providers typically send.
fn answer(kind: &str) -> ResponseHeader {
    let mut head = ResponseHeader::build(200, None).expect("an answer head");
    for (name, value) in [
        ("content-type", kind),
        ("date", "Sun, 22 Nov 2026 12:00:00 GMT"),
        ("x-request-id", "req_0123456789abcdef"),
        ("openai-organization", "bench"),
        ("openai-processing-ms", "212"),
        ("x-ratelimit-remaining-requests", "9999"),
        ("set-cookie", "__cf_bm=0123456789abcdef; path=/"),
        ("server", "cloudflare"),
    ] {
        head.insert_header(name, value).expect("a header");
    }
    head
}

/// Offers a capture to a queue with free space.
pub fn offer(bench: &Bench) {
    let (metrics, random) = (Arc::new(Metrics::new().expect("metrics")), Random::seeded(7));
    let body = Bytes::from(routing::body(600));
    let make = || {
        let (now, owner) = (Timestamp::now(), UserId::admin());
        let mut head = Head::new(RequestId::new(now, &random), now, owner, "chat.completions");
        head.inputs = Some(routing::inputs(10));
        // Each call has its own queue, as nothing empties it.
        let (queue, writer) = CaptureQueue::new(metrics.clone());
        let bodies = Bodies { request: body.clone(), response: body.clone() };
        (queue, writer, Capture { head, bodies })
    };
    bench.stage("offer of a capture", 1, make, |(queue, writer, capture)| {
        assert!(queue.offer(black_box(capture)), "there is room");
        (queue, writer)
    });
}
