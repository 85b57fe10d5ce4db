//! Three processes: a second one takes over from the first, and a third from the second, while the
//! first still streams. The first two end when they have done their requests, in whichever order,
//! or are killed.

use std::sync::Arc;

use crate::support::client::{Answer, Connection};
use crate::support::documents::chat_body;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::postgres::{self, Cluster};
use crate::support::until;
use crate::support::upgrading::{CHAT, Load, Slow, answers_last, idle, long_streams, streams_end};

const CANARY: &str = "body-canary";

/// Two aliases, each with a provider of its own, whose streams may last.
fn document(auto: &Slow, other: &Slow) -> String {
    let provider = |name: &str, slow: &Slow| {
        format!(
            "  {name}:\n    protocol: openai\n    base_url: {}\n    api_key: sk-upstream\n    \
             timeouts: {{ connect: 2s, first_byte: 120s, idle: 120s, total: 300s }}\n",
            slow.provider.url()
        )
    };
    let recipe = |name: &str| {
        let targets = format!("[ {{ target: {name}/model }} ]");
        format!("  {name}: {{ rules: [ {{ name: default, targets: {targets} }} ] }}\n")
    };
    format!(
        "providers:\n{}{}recipes:\n{}{}aliases: {{ auto: a, other: b }}\n",
        provider("a", auto),
        provider("b", other),
        recipe("a"),
        recipe("b")
    )
}

/// A request for a stream, with a body that lies in a segment.
fn large(alias: &str) -> String {
    chat_body(alias, true).replacen("Say a word.", &CANARY.repeat(800), 1)
}

fn said(gateway: &Gateway, line: &str) -> usize {
    gateway.log().matches(line).count()
}

/// The captures of these are there with their bodies, for the process that answers now.
async fn are_captured(gateway: &Gateway, ids: &[String]) {
    for id in ids {
        let capture = gateway.capture(id).await;
        assert_eq!(capture["status"], 200, "{capture}");
        let text = capture.to_string();
        assert!(text.contains(CANARY) && text.contains("slowly"), "{text}");
    }
}

async fn three_processes(setup: impl FnOnce(Setup) -> Setup, first_is_done_first: bool) {
    let (of_first, of_second) = (Slow::start().await, Slow::start().await);
    let setup = setup(Setup::new(&document(&of_first, &of_second)).tls().threads(2));
    let mut gateway = setup.start().await;
    let key = Arc::new(gateway.create_key().await);
    let load = Load::on(&gateway);
    let clients = load.start(&key, gateway.tls());
    let first_streams = long_streams(&gateway, &key, &of_first, &large("auto")).await;
    gateway.upgrade().await;
    // From here on the first one takes no connections.
    until("the first drain", async || (said(&gateway, "draining: ") == 1).then_some(())).await;
    let second_streams = long_streams(&gateway, &key, &of_second, &large("other")).await;
    let doomed = load.site.make_key().await;
    let connections = idle(&load.site, &key).await;
    gateway.upgrade().await;
    answers_last(&load.site, connections, &doomed).await;
    until("the second drain", async || (said(&gateway, "draining: ") == 2).then_some(())).await;
    assert_eq!(gateway.predecessors(), 2);

    let all_end = async |slow: &Slow, streams: Vec<tokio::task::JoinHandle<Answer>>| {
        let ids = streams_end(slow, streams).await;
        are_captured(&gateway, &ids).await;
        ids
    };
    let mut ids;
    if first_is_done_first {
        ids = all_end(&of_first, first_streams).await;
        until("the first end", async || (said(&gateway, "has ended") == 1).then_some(())).await;
        // Its connection closes before it ends. The second has its streams.
        let gone = || std::future::ready((gateway.predecessors() == 1).then_some(()));
        until("the first to be gone", gone).await;
        ids.extend(streams_end(&of_second, second_streams).await);
    } else {
        ids = all_end(&of_second, second_streams).await;
        until("the second to end", async || (said(&gateway, "drained") == 1).then_some(())).await;
        let key = load.site.make_key().await;
        for _ in 0..20 {
            assert_eq!(load.site.send(&load.site.chat(&key)).await.status, 200);
        }
        let gone = || std::future::ready((gateway.predecessors() == 1).then_some(()));
        until("the second to be gone", gone).await;
        assert_eq!(said(&gateway, "has ended"), 0, "the third knows of the first");
        ids.extend(streams_end(&of_first, first_streams).await);
    }
    gateway.predecessors_end().await;
    let answered = load.end(clients).await;
    assert!(answered.len() > 100, "{}", answered.len());
    are_captured(&gateway, &ids).await;
    for id in answered.iter().rev().step_by(7).take(50) {
        assert_eq!(gateway.capture(id).await["status"], 200);
    }
    // None of their segments is one that a start does not know.
    gateway.restart().await;
    are_captured(&gateway, &ids).await;
    assert_eq!(said(&gateway, "that the index does not list"), 0, "{}", gateway.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_process_takes_over_while_the_first_still_streams() {
    three_processes(|setup| setup, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_while_the_second_does_so_longer_than_the_first() {
    three_processes(|setup| setup, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_with_postgresql() {
    for first_is_done_first in [false, true] {
        let url = Cluster::shared().database().await;
        let store = format!("store: {{ url: '{url}' }}");
        three_processes(|setup| setup.server(&store), first_is_done_first).await;
    }
}

const LEASE: &str = "4s";

/// A stream whose client goes on with the connection whatever becomes of the process.
async fn stream(load: &Load, key: &Key, slow: &Slow, alias: &str) -> Connection {
    let body = large(alias);
    let request = load.site.request("POST", CHAT, &key.secret, Some(body.as_bytes()));
    let mut connection = Connection::try_open(load.site.address).await.expect("it accepts");
    connection.send(&request).await;
    slow.all_begun(1).await;
    connection
}

/// How often each process has renewed its lease, the oldest process first.
async fn renewals(url: &str) -> Vec<u64> {
    let rows = postgres::run(url, "SELECT renewals FROM gateways ORDER BY process").await;
    rows.into_iter().map(|row| row.parse().unwrap()).collect()
}

/// Waits until the oldest process has renewed its lease so many times more.
async fn oldest_renews(url: &str, times: u64) {
    let before = renewals(url).await[0];
    until("the oldest process to renew its lease", async || {
        (renewals(url).await[0] >= before + times).then_some(())
    })
    .await;
}

/// The second of three processes is killed. The third one knows that the first one goes on.
async fn the_second_is_killed(store: Option<&str>) {
    let (of_first, of_second) = (Slow::start().await, Slow::start().await);
    let mut setup = Setup::new(&document(&of_first, &of_second)).tls().threads(2);
    if let Some(url) = store {
        setup = setup.server(&format!("store: {{ url: '{url}', lease: {LEASE} }}"));
    }
    let mut gateway = setup.start().await;
    let key = Arc::new(gateway.create_key().await);
    let load = Load::on(&gateway);
    let first_streams = long_streams(&gateway, &key, &of_first, &large("auto")).await;
    gateway.upgrade().await;
    until("the first drain", async || (said(&gateway, "draining: ") == 1).then_some(())).await;
    let _second_stream = stream(&load, &key, &of_second, "other").await;
    gateway.upgrade().await;
    until("the second drain", async || (said(&gateway, "draining: ") == 2).then_some(())).await;
    gateway.kill_9_predecessor();
    // Not before: it may have taken a connection just before its drain.
    let clients = load.ask(&key);
    match store {
        // Longer than the third one needs to see it.
        Some(url) => oldest_renews(url, 6).await,
        None => {
            for _ in 0..20 {
                assert_eq!(load.site.send(&load.site.chat(&key)).await.status, 200);
            }
        }
    }
    assert_eq!(said(&gateway, "has ended"), 0, "{}", gateway.log());
    assert_eq!(gateway.predecessors(), 1);
    let ids = streams_end(&of_first, first_streams).await;
    gateway.predecessors_end().await;
    until("the end of all", async || (said(&gateway, "has ended") == 1).then_some(())).await;
    assert!(!load.end(clients).await.is_empty());
    are_captured(&gateway, &ids).await;
    gateway.restart().await;
    are_captured(&gateway, &ids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_is_killed_while_the_first_still_streams() {
    the_second_is_killed(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_is_killed_with_postgresql() {
    let url = Cluster::shared().database().await;
    the_second_is_killed(Some(&url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_is_killed_when_it_has_just_renewed_its_lease() {
    for _ in 0..3 {
        let url = Cluster::shared().database().await;
        let slow = Slow::start().await;
        let setup = Setup::new(&document(&slow, &slow)).threads(2);
        let store = format!("store: {{ url: '{url}', lease: {LEASE} }}");
        let mut gateway = setup.server(&store).start().await;
        let key = Arc::new(gateway.create_key().await);
        let load = Load::on(&gateway);
        let _stream = stream(&load, &key, &slow, "auto").await;
        gateway.upgrade().await;
        until("the drain", async || (said(&gateway, "draining: ") == 1).then_some(())).await;
        oldest_renews(&url, 2).await;
        gateway.kill_9_predecessor();
        let clients = load.ask(&key);
        until("its row to go", async || (renewals(&url).await.len() == 1).then_some(())).await;
        load.end(clients).await;
        gateway.stop().await;
    }
}
