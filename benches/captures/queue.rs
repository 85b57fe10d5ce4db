//! Sends captures through the queue: generated ones at a low rate and at full load, recorded ones
//! once each, and more than the queue holds while the disk hangs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use rerouter::internals::archive::Archive;
use rerouter::internals::bounds;
use rerouter::internals::capture::queue::CaptureQueue;
use rerouter::internals::capture::record::{Attempt, Bodies, Capture, CaptureState, Head, Served};
use rerouter::internals::id::{Random, RequestId, UserId};
use rerouter::internals::metrics::Metrics;
use rerouter::internals::routing::{
    Candidate, Decision, Inputs, PlanEntry, PrincipalFacts, RequestFacts,
};
use rerouter::internals::secret::SecretBytes;
use rerouter::internals::store::Faults;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::prose::Prose;
use crate::{directory, open, process};

/// The thread that makes captures. In a gateway, requests make them.
const PRODUCER: &str = "producer";
/// Promised size of the segments at the low rate, in percent of the raw bytes, which are heads as
/// JSON and bodies. The size of the index is printed too.
const SHARE: f64 = 40.0;
/// Captures per second at the low rate. At this rate the compression is strongest.
const CALM: u64 = 400;
/// Longest run at the low rate, in seconds.
const CALM_SECONDS: f64 = 10.0;
/// Promised CPU use at up to [`RATE`], in percent of a core.
const CORE: f64 = 50.0;
/// Captures per second at which none may be dropped.
const RATE: u64 = 10_000;

#[derive(Args, Clone, Copy)]
pub struct Load {
    /// Captures per second.
    #[arg(long, default_value_t = 10_000)]
    pub rate: u64,
    /// Bytes of both bodies of a capture.
    #[arg(long, default_value_t = 8192)]
    pub bytes: usize,
    /// Duration in seconds.
    #[arg(long, default_value_t = 60.0)]
    pub seconds: f64,
}

/// Returns the promises that were broken. `core` tells whether CPU use counts. It does not on other
/// machines or in other builds.
pub async fn measure(load: &Load, core: bool) -> Vec<String> {
    let seconds = load.seconds.min(CALM_SECONDS);
    let calm = Load { rate: CALM.min(load.rate), seconds, ..*load };
    let mut broken = generated(&calm, true, core).await;
    broken.extend(generated(load, false, core).await);
    recorded().await;
    stalled(load.bytes).await;
    broken
}

/// A queue with the archive that it writes to.
struct Room {
    queue: CaptureQueue,
    archive: Archive,
    metrics: Arc<Metrics>,
    faults: Faults,
    writing: JoinHandle<()>,
    dir: tempfile::TempDir,
}

impl Room {
    async fn new() -> Room {
        let dir = directory();
        let (store, faults) = open(dir.path()).await;
        let archive = Archive::new(store, &SecretBytes::new([7; 32]), Random::System, true);
        let metrics = Arc::new(Metrics::new().expect("metrics"));
        let (queue, writer) = CaptureQueue::new(metrics.clone());
        let writing = tokio::spawn(writer.run(archive.clone()));
        Room { queue, archive, metrics, faults, writing, dir }
    }

    /// Waits until everything is written and durable, and checks that each capture was counted
    /// once. Returns how many were stored and dropped.
    async fn settle(&self, offered: u64) -> (u64, u64) {
        self.queue.flush().await;
        self.archive.close().await.expect("closed");
        let count = |outcome| self.metrics.captures_so_far(outcome);
        let (stored, full, refused) = (
            count("stored"),
            count("dropped_full"),
            count("dropped_store") + count("dropped_disk_full"),
        );
        println!("  stored {stored}, dropped {full} for a full queue and {refused} by the store");
        assert_eq!(stored + full + refused, offered, "each is counted once");
        (stored, full + refused)
    }

    async fn end(self) {
        drop(self.queue);
        self.writing.await.expect("the writer ends");
    }
}

/// A capture of an answered chat completion, with inputs, a decision and an attempt, as real ones
/// have.
pub fn capture(at: Timestamp, owner: UserId, bodies: Bodies, random: &Random) -> Capture {
    let mut head = Head::new(RequestId::new(at, random), at, owner, "chat.completions");
    let request = RequestFacts {
        endpoint: "chat.completions".into(),
        model: "auto".into(),
        name: "auto".into(),
        ..RequestFacts::default()
    };
    let seed = random.next_u64();
    head.inputs = Some(Inputs {
        version: Inputs::VERSION,
        at,
        request,
        keywords: Default::default(),
        texts: Default::default(),
        principal: PrincipalFacts::default(),
        seed,
        health: Default::default(),
    });
    let targets = [("openai", "gpt-5"), ("anthropic", "claude-opus-5")]
        .map(|(provider, model)| (provider.into(), model.into()));
    head.decision = Some(Arc::new(Decision {
        provider: "openai".into(),
        model: "gpt-5".into(),
        recipe: "balanced".into(),
        rule: Some("default".into()),
        strategy: "priority".into(),
        alias: Some("auto".into()),
        revision: "9f2c41d07a1b".into(),
        seed,
        propensity: 1.0,
        plan: targets.clone().map(|(provider, model)| PlanEntry { provider, model }).to_vec(),
        candidates: targets
            .map(|(provider, model)| Candidate { provider, model, eligible: true, reason: None })
            .to_vec(),
        trace: Vec::new(),
    }));
    let took = 200 + seed % 4000;
    head.attempts = vec![Attempt {
        provider: "openai".into(),
        model: "gpt-5".into(),
        node: None,
        status: Some(200),
        error: None,
        duration_ms: took,
    }];
    head.served = Some(Served { provider: "openai".into(), model: "gpt-5".into(), node: None });
    head.request_headers = vec![
        ("content-type".into(), "application/json".into()),
        ("user-agent".into(), "OpenAI/Python 2.8.0".into()),
    ];
    head.response_headers = vec![
        ("content-type".into(), "application/json".into()),
        ("x-request-id".into(), format!("{seed:016x}")),
    ];
    (head.state, head.status, head.request_captured) = (CaptureState::Completed, 200, true);
    (head.routing_us, head.total_ms) = (3 + seed % 9, took);
    Capture { head, bodies }
}

/// Bodies of `bytes` bytes in total. The question starts with `begin`, and the answer is three
/// times as long.
pub fn bodies(bytes: usize, begin: &str, prose: &mut Prose) -> Bodies {
    let (ask, said) = (
        r#"{"model":"auto","messages":[{"role":"user","content":""#,
        r#"{"choices":[{"message":{"role":"assistant","content":""#,
    );
    let words = bytes.saturating_sub(ask.len() + said.len() + begin.len() + 9);
    let (question, answer) = (prose.text(words / 4), prose.text(words - words / 4));
    // The vectors have no spare capacity, which no limit would count.
    Bodies {
        request: [ask, begin, &question, "\"}]}"].concat().into(),
        response: [said, &answer, "\"}}]}"].concat().into(),
    }
}

/// The uncompressed size of a capture's bodies, and of its bodies and head.
fn raw(capture: &Capture) -> (u64, u64) {
    let bodies = (capture.bodies.request.len() + capture.bodies.response.len()) as u64;
    (bodies, bodies + serde_json::to_vec(&capture.head).map_or(0, |head| head.len() as u64))
}

/// Prints the use of the disk. Returns the size of the segments in percent of the raw bytes.
fn share(dir: &Path, bodies: u64, all: u64) -> f64 {
    let (segments, index, _) = process::disk(dir);
    let of = |part: u64, whole: u64| part as f64 / whole.max(1) as f64 * 100.0;
    println!(
        "  disk: {all} raw bytes, {bodies} of them bodies; segments {segments}: {:.1} % of raw, \
         {:.1} % of the bodies alone; the index {index}: {:.1} % of raw; both {:.1} %",
        of(segments, all),
        of(segments, bodies),
        of(index, all),
        of(segments + index, all)
    );
    of(segments, all)
}

/// Sends generated captures. `calm` checks the promise on disk use, and `judged` the one on CPU
/// use.
async fn generated(load: &Load, calm: bool, judged: bool) -> Vec<String> {
    let room = Room::new().await;
    let total = (load.rate as f64 * load.seconds) as u64;
    let (peak, bodies_bytes, all_bytes) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    println!(
        "generated, nothing of it twice: {total} captures of {} bytes at {}/s",
        load.bytes, load.rate
    );
    let before = process::cpu_but(PRODUCER);
    let start = Instant::now();
    let produce = {
        let (queue, metrics, rate, bytes) =
            (room.queue.clone(), room.metrics.clone(), load.rate.max(1), load.bytes);
        let (peak, bodies_bytes, all_bytes) =
            (peak.clone(), bodies_bytes.clone(), all_bytes.clone());
        move || {
            let (mut prose, random, mut offering) =
                (Prose::new(1), Random::seeded(2), Duration::ZERO);
            for number in 0..total {
                let due = Duration::from_nanos(number * 1_000_000_000 / rate);
                while start.elapsed() < due {
                    std::thread::park_timeout(
                        due.saturating_sub(start.elapsed()).min(Duration::from_millis(1)),
                    );
                }
                let made = capture(
                    Timestamp::now(),
                    UserId::admin(),
                    bodies(bytes, "", &mut prose),
                    &random,
                );
                let sizes = if number % 64 == 0 { Some(raw(&made)) } else { None };
                let from = Instant::now();
                queue.offer(made);
                offering += from.elapsed();
                if let Some((bodies, all)) = sizes {
                    bodies_bytes.fetch_add(bodies, Ordering::Relaxed);
                    all_bytes.fetch_add(all, Ordering::Relaxed);
                    peak.fetch_max(metrics.capture_queue_bytes_now(), Ordering::Relaxed);
                }
            }
            (start.elapsed(), offering)
        }
    };
    let producer =
        std::thread::Builder::new().name(PRODUCER.into()).spawn(produce).expect("a thread");
    let (took, offering) = tokio::task::spawn_blocking(move || producer.join())
        .await
        .expect("joined")
        .expect("a producer");
    let settling = Instant::now();
    let (stored, dropped) = room.settle(total).await;
    let after = process::cpu_but(PRODUCER);
    let (used, waited) = (after.0 - before.0, after.1 - before.1);
    let core = used / took.as_secs_f64() * 100.0;
    println!(
        "  {:.1} s ({:.0}/s); all threads but the one that makes them: {core:.0} % of a core \
         (promised: {CORE:.0}), {:.1} us a capture; \
         they waited {waited:.1} s for a core that others had; offer: {:.2} us; closed in {:.1} s",
        took.as_secs_f64(),
        total as f64 / took.as_secs_f64(),
        used / stored.max(1) as f64 * 1e6,
        offering.as_secs_f64() / total.max(1) as f64 * 1e6,
        settling.elapsed().as_secs_f64()
    );
    println!(
        "  queue: {} bytes at most, of {}",
        peak.load(Ordering::Relaxed),
        bounds::CAPTURE_QUEUE_BYTES
    );
    // Sizes were measured for one in 64 captures.
    let whole =
        |sampled: &AtomicU64| sampled.load(Ordering::Relaxed) * stored / total.div_ceil(64).max(1);
    let share = share(room.dir.path(), whole(&bodies_bytes), whole(&all_bytes));
    println!("  promised when calm: {SHARE:.0} % of raw");
    room.end().await;
    let kept = [
        (share <= SHARE || !calm, format!("{share:.1} % of raw bytes on the disk, not {SHARE:.0}")),
        (
            core <= CORE || load.rate > RATE || !judged,
            format!("{core:.0} % of a core, not {CORE:.0}"),
        ),
        (
            dropped == 0 || load.rate > RATE,
            format!("{dropped} captures dropped at {}/s", load.rate),
        ),
    ];
    kept.into_iter().filter(|(kept, _)| !kept).map(|(_, broken)| broken).collect()
}

async fn recorded() {
    let room = Room::new().await;
    let (mut offered, mut sizes) = (0, (0, 0));
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for kind in ["chat", "embeddings", "messages", "responses"] {
        let lines = std::fs::read_to_string(data.join(format!("recorded_{kind}.jsonl")))
            .expect("recorded exchanges");
        for line in lines.lines() {
            let exchange: Value = serde_json::from_str(line).expect("an exchange");
            let part = |name: &str| exchange.get(name).cloned().unwrap_or_default();
            let response = part("response").as_str().unwrap_or_default().to_owned().into();
            let made = capture(
                Timestamp::now(),
                UserId::admin(),
                Bodies { request: part("request").to_string().into(), response },
                &Random::System,
            );
            let (bodies, all) = raw(&made);
            sizes = (sizes.0 + bodies, sizes.1 + all);
            room.queue.offer(made);
            offered += 1;
        }
    }
    println!("recorded exchanges, each once: {offered}");
    let (stored, _) = room.settle(offered).await;
    assert_eq!(stored, offered);
    let _told = share(room.dir.path(), sizes.0, sizes.1);
    room.end().await;
}

/// Offers four times as many captures as the queue may hold, while nothing is written. Memory must
/// not grow by more than one and a half times the queue's limit.
async fn stalled(bytes: usize) {
    let room = Room::new().await;
    let (mut prose, random, mut peak) = (Prose::new(3), Random::seeded(4), 0);
    room.faults.stall_appends();
    let before = process::memory();
    let offered = (4 * bounds::CAPTURE_QUEUE_BYTES / bytes) as u64;
    let mut taken = 0;
    for _ in 0..offered {
        let made =
            capture(Timestamp::now(), UserId::admin(), bodies(bytes, "", &mut prose), &random);
        taken += u64::from(room.queue.offer(made));
        peak = peak.max(room.metrics.capture_queue_bytes_now());
    }
    let grown = process::memory().saturating_sub(before);
    println!(
        "while the disk hangs: {offered} offered, {taken} taken, \
         {peak} bytes in the queue at most, of {}; memory grew by {grown}",
        bounds::CAPTURE_QUEUE_BYTES
    );
    assert!(peak <= bounds::CAPTURE_QUEUE_BYTES && taken < offered);
    assert!(grown <= bounds::CAPTURE_QUEUE_BYTES / 2 * 3, "memory grew by {grown}");
    room.faults.clear();
    let (stored, _) = room.settle(offered).await;
    assert_eq!(stored, taken, "what was taken is stored when the disk goes on");
    room.end().await;
}
