//! Memory of the gateway's process while captures cannot be written: it grows by what the queue may
//! hold, and no more.

use std::time::{Duration, Instant};

use rerouter::internals::bounds;
use serde_json::json;

use crate::captures::on_disk::answering;
use crate::support::documents::in_order;
use crate::support::gateway::Gateway;
use crate::support::{PATIENCE, until};

const LARGE: usize = 1 << 20;
/// Concurrent requests.
const AT_ONCE: usize = 4;

/// Memory of the gateway's process, in bytes.
fn memory(gateway: &Gateway) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.process())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// A lock in SQLite makes the thread that writes captures wait, as a disk that hangs would. Only
/// root could make a disk hang.
#[tokio::test]
async fn the_process_grows_by_what_may_wait_and_answers_meanwhile() {
    let provider = answering().await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let key = gateway.create_key().await;
    // Text that cannot be compressed.
    let text: String = (0..LARGE as u64 / 16)
        .map(|at| format!("{:016x}", at.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
        .collect();
    let large = json!({"model": "auto", "messages": [{"role": "user", "content": text}]})
        .to_string()
        .into_bytes();
    // Several requests at once: the writer gives up on the index after seconds, and then loses what
    // it took from the queue.
    let wave = async || {
        let answers =
            futures::future::join_all((0..AT_ONCE).map(|_| gateway.chat(&key, &large))).await;
        assert!(answers.iter().all(|answer| answer.status == 200));
    };
    let queued = async || gateway.metric("rerouter_capture_queue_bytes", &[]).await;
    let counted = async |outcome: &str| {
        gateway.metric("rerouter_captures_total", &[&format!("outcome=\"{outcome}\"")]).await
    };
    let settled = async || {
        let within = Instant::now() + 4 * PATIENCE;
        while queued().await > 0.0 {
            assert!(Instant::now() < within, "what waited is written when the disk goes on");
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
    };
    // The memory that such requests and captures need anyway is allocated before the measurement.
    for _ in 0..4 {
        wave().await;
    }
    settled().await;
    let before = memory(&gateway);
    let index = rusqlite::Connection::open(gateway.dir().join("data/captures.db")).unwrap();
    index.busy_timeout(PATIENCE).unwrap();
    index.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (mut most, mut fullest) = (0, 0.0_f64);
    for _ in 0..8 * bounds::CAPTURE_QUEUE_BYTES / LARGE / AT_ONCE {
        wave().await;
        most = most.max(memory(&gateway));
        fullest = fullest.max(queued().await);
        if counted("dropped_full").await > 0.0 {
            break;
        }
    }
    let limit = bounds::CAPTURE_QUEUE_BYTES;
    assert!(
        fullest <= limit as f64 && fullest > (limit / 2) as f64,
        "it is full of what waits: {fullest}"
    );
    assert!(counted("dropped_full").await > 0.0, "and what comes then is dropped");
    let grown = most.saturating_sub(before);
    assert!((limit / 2..=limit / 2 * 3).contains(&grown), "memory grew by {grown}, of {before}");
    gateway.answers(200, "GET", "/health", "", None).await;
    gateway.answers(200, "GET", "/v1/router/keys", &key.secret, None).await;
    index.execute_batch("ROLLBACK").unwrap();
    settled().await;
    let id = gateway.chat(&key, &large).await.request_id();
    let kept = until("captures to come again", async || {
        let answer =
            gateway.manage("GET", &format!("/v1/router/replay/{id}"), &key.secret, None).await;
        (answer.status == 200).then(|| answer.json())
    });
    assert_eq!(kept.await["replayable"], true);
}
