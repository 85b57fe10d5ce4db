//! What captures cost: so many a second through the queue into segments, in this process, and what is dropped of them, how
//! much of a core the writer takes, how much of the disk, and how full the queue was.
//! `--rate R --bytes B --seconds S`; without any, as in `./test`, half a second of little.

// Figures are for people, and a bench that cannot run says so.
#![expect(clippy::expect_used, clippy::print_stdout)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rerouter::capture::index::Archive;
use rerouter::capture::queue::CaptureQueue;
use rerouter::capture::record::{Bodies, Capture, Head, State};
use rerouter::id::{Random, RequestId, UserId};
use rerouter::metrics::Metrics;
use rerouter::secret::SecretBytes;
use rerouter::store::Store;

const WORDS: &[&str] = &[
    "the", "gateway", "answers", "request", "and", "token", "of", "a", "model", "in", "latency", "when", "provider", "stream", "which",
    "decision", "under", "load", "with", "capture", "is", "written", "to", "segment", "block", "once", "more", "than", "before", "it",
];

struct Load {
    rate: u64,
    bytes: usize,
    seconds: f64,
}

fn load() -> Load {
    let mut load = Load { rate: 200, bytes: 6144, seconds: 0.5 };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse::<f64>().ok()).expect("a number");
        match name.as_str() {
            "--rate" => load.rate = number() as u64,
            "--bytes" => load.bytes = number() as usize,
            "--seconds" => load.seconds = number(),
            // What `cargo bench` and `cargo test` add.
            _ => {}
        }
    }
    load
}

/// A text of so many bytes that compresses as prose does.
fn text(bytes: usize, random: &Random) -> String {
    let mut out = String::with_capacity(bytes + 32);
    while out.len() < bytes {
        let number = random.next_u64();
        for shift in 0..4 {
            out.push_str(WORDS.get((number >> (shift * 8)) as usize % WORDS.len()).unwrap_or(&"a"));
            out.push(' ');
        }
        out.push_str(&format!("{:x} ", number >> 44));
    }
    out.truncate(bytes);
    out
}

fn capture(text: &str, random: &Random) -> Capture {
    let at = Timestamp::now();
    let mut head = Head::new(RequestId::new(at, random), at, UserId::admin(), "chat.completions");
    (head.state, head.status, head.request_captured) = (State::Completed, 200, true);
    let (question, answer) = text.split_at(text.len() / 4);
    let request = format!(r#"{{"model":"auto","messages":[{{"role":"user","content":"{question}"}}]}}"#).into();
    let response = format!(r#"{{"choices":[{{"message":{{"role":"assistant","content":"{answer}"}}}}]}}"#).into();
    Capture { head, bodies: Bodies { request, response } }
}

/// What this process's threads of that name took of a core, and how long they waited for one, in seconds.
fn cpu(name: &str) -> (f64, f64) {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc").filter_map(|task| Some(task.ok()?.path()));
    let named = tasks.filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == name));
    named.fold((0.0, 0.0), |(used, waited), task| {
        let times = std::fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        let mut times = times.split_whitespace().filter_map(|nanos| Some(nanos.parse::<f64>().ok()? / 1e9));
        (used + times.next().unwrap_or(0.0), waited + times.next().unwrap_or(0.0))
    })
}

fn disk(dir: &Path) -> (u64, u64) {
    let size = |path: &Path| -> u64 {
        let entries = std::fs::read_dir(path).expect("the directory").filter_map(|entry| entry.ok()?.metadata().ok());
        entries.filter(std::fs::Metadata::is_file).map(|data| data.len()).sum()
    };
    (size(&dir.join("captures")), size(dir))
}

#[tokio::main]
async fn main() {
    let load = load();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let store = Store::open(dir.path(), b"bench").await.expect("a store");
    let archive = Archive::new(store, &SecretBytes::new([7; 32]), Random::System, true);
    let metrics = Arc::new(Metrics::new().expect("metrics"));
    let (queue, writer) = CaptureQueue::new(metrics.clone());
    let writing = tokio::spawn(writer.run(archive.clone()));
    let random = Random::System;
    let texts: Vec<String> = (0..512).map(|_| text(load.bytes, &random)).collect();
    let total = (load.rate as f64 * load.seconds) as u64;
    let (peak, raw) = (Arc::new(AtomicUsize::new(0)), texts.first().map_or(0, |text| capture(text, &random).bodies.request.len() * 4));
    let before = cpu("store-captures");
    let produce = {
        let (queue, metrics, peak, rate) = (queue.clone(), metrics.clone(), peak.clone(), load.rate.max(1));
        move || {
            let (start, mut offering) = (Instant::now(), Duration::ZERO);
            for number in 0..total {
                let due = Duration::from_nanos(number * 1_000_000_000 / rate);
                while start.elapsed() < due {
                    std::thread::park_timeout(due.saturating_sub(start.elapsed()).min(Duration::from_millis(1)));
                }
                let made = capture(texts.get(number as usize % texts.len()).map_or("", String::as_str), &random);
                let from = Instant::now();
                queue.offer(made);
                offering += from.elapsed();
                if number % 64 == 0 {
                    peak.fetch_max(metrics.capture_queue_bytes_now(), Ordering::Relaxed);
                }
            }
            (start.elapsed(), offering)
        }
    };
    let (took, offering) = tokio::task::spawn_blocking(produce).await.expect("a producer");
    queue.flush().await;
    let settled = Instant::now();
    archive.close().await.expect("closed");
    let after = cpu("store-captures");
    let (used, waited) = (after.0 - before.0, after.1 - before.1);
    let (segments, index) = disk(dir.path());
    let count = |outcome| metrics.captures_so_far(outcome);
    let (stored, full, refused) = (count("stored"), count("dropped_full"), count("dropped_store") + count("dropped_disk_full"));
    println!("offered {total} captures of about {raw} bytes in {:.1} s ({:.0}/s)", took.as_secs_f64(), total as f64 / took.as_secs_f64());
    println!("stored {stored}, dropped {full} for a full queue and {refused} by the store");
    println!(
        "writer: {:.0} % of a core, {:.1} us a capture; it waited {waited:.1} s for a core that others had; offer: {:.2} us",
        used / took.as_secs_f64() * 100.0,
        used / stored.max(1) as f64 * 1e6,
        offering.as_secs_f64() / total.max(1) as f64 * 1e6
    );
    println!(
        "disk: {segments} bytes of segments ({:.0} % of the bodies), {index} of the index; closed in {:.1} s",
        segments as f64 / (raw as f64 * stored.max(1) as f64) * 100.0,
        settled.elapsed().as_secs_f64()
    );
    println!("queue: {} bytes at most", peak.load(Ordering::Relaxed));
    assert_eq!(stored + full + refused, total, "each is counted once");
    drop(queue);
    writing.await.expect("the writer ends");
}
