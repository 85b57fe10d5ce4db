//! Runs `rerouter replay evaluate` over many captures, as users do: one process is the gateway with
//! the captures in its archive, another is the command line. Measures CPU and memory of both, and
//! compares the counts with those known from filling the archive.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use clap::Args;
use jiff::Timestamp;
use rerouter::internals::archive::Archive;
use rerouter::internals::capture::record::{Bodies, Capture};
use rerouter::internals::config;
use rerouter::internals::dialect::usage::Usage;
use rerouter::internals::id::{Random, UserId};
use rerouter::internals::routing::{Inputs, Routing, decide};
use rerouter::internals::secret::{Keyring, Purpose, SecretBytes};
use rerouter::internals::store::{DataDir, Opening, Store, StoreError, WrappedRootKey};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::prose::Prose;
use crate::{directory, queue};

const ADMIN: &str = "bench-admin-0123456789abcdef0123456789abcdef";
const MASTER: [u8; 32] = [7; 32];
/// Captures per write.
const BATCH: usize = 1_000;
/// Promised captures per second of CPU, by heads and by bodies, and promised memory in bytes.
const PROMISED: (f64, f64, usize) = (25_000.0, 6_000.0, 200 << 20);

#[derive(Args)]
pub struct Load {
    /// Number of captures that are decided by their heads.
    #[arg(long, default_value_t = 1_000_000)]
    pub heads: u64,
    /// Number of captures that are decided by their bodies too.
    #[arg(long, default_value_t = 100_000)]
    pub bodies: u64,
    /// Bytes of both bodies of a capture.
    #[arg(long, default_value_t = 6144)]
    pub bytes: usize,
}

/// The document that was live when the captures were made. Its rules decide by numbers, words and
/// weights. The last rule has several targets.
fn document(words: &str, long: u32) -> String {
    format!(
        "providers: {{ p: {{ protocol: mock }} }}\nmodels:\n  \
         p/a: {{ input_per_mtok: 1.0, output_per_mtok: 2.0 }}\n  \
         p/b: {{ input_per_mtok: 2.0, output_per_mtok: 4.0 }}\nkeywords: {{ code: [{words}] }}\n\
         recipes:\n  main:\n    rules:\n      \
         - {{ name: long, when: 'prompt_tokens > {long}', targets: [ {{ target: p/long }}, \
         {{ target: p/b }} ] }}\n      \
         - {{ name: code, when: \"'code' in keywords && !stream\", \
         targets: [ {{ target: p/code }}, {{ target: p/a }} ] }}\n      \
         - {{ name: tools, when: 'tools > 2', strategy: cheapest, targets: [ {{ target: p/b }}, \
         {{ target: p/a }} ] }}\n      \
         - {{ name: rest, strategy: weighted, targets: [ {{ target: p/a, weight: 9 }}, \
         {{ target: p/b, weight: 1 }}, {{ target: p/c, weight: 1 }} ] }}\n\
         aliases: {{ auto: main }}\n"
    )
}

fn routing(text: &str) -> Routing {
    let server = config::read_server("bench", "", &|_| None).expect("defaults");
    config::read_routing("bench", text, &server, &|_| None, None).expect("a document")
}

/// `prompt_tokens` from which the rule `long` applies, in the live document and in a candidate.
const LONG: (u32, u32) = (3_600, 3_200);

pub async fn measure(load: &Load) {
    let (then, moved, other_words) = (
        document("refactor, lint", LONG.0),
        document("refactor, lint", LONG.1),
        document("refactor, debug", LONG.0),
    );
    run("heads", load.heads, None, (&then, &moved), PROMISED.0).await;
    run(
        "bodies, as the words of a keyword set are others",
        load.bodies,
        Some(load.bytes),
        (&then, &other_words),
        PROMISED.1,
    )
    .await;
}

async fn run(
    what: &str,
    count: u64,
    bytes: Option<usize>,
    (then, candidate): (&str, &str),
    promised: f64,
) {
    let dir = directory();
    std::fs::write(dir.path().join("routing.yaml"), then).expect("written");
    std::fs::write(dir.path().join("candidate.yaml"), candidate).expect("written");
    let began = Instant::now();
    let changed =
        fill(&dir.path().join("data"), count, bytes, (&routing(then), &routing(candidate))).await;
    println!(
        "{count} captures, decided again by {what}; filled in {:.0} s, \
         and {changed} of them will change",
        began.elapsed().as_secs_f64()
    );
    let mut gateway = Gateway::start(dir.path());
    let (before, began) = (gateway.cpu(), Instant::now());
    let (report, client) = gateway.evaluate(dir.path(), count);
    let (took, used) = (began.elapsed().as_secs_f64(), gateway.cpu() - before);
    let number = |name: &str| report.get(name).and_then(Value::as_u64).unwrap_or(u64::MAX);
    assert_eq!(
        (number("evaluated"), number("changed"), number("inexact")),
        (count, changed, 0),
        "{report}"
    );
    println!(
        "  {:.0}/s a core (promised: {promised:.0}), {:.0}/s on the clock: {took:.1} s, \
         of which the gateway had a core for {used:.1} s",
        count as f64 / used,
        count as f64 / took
    );
    let gateway_peak = peak(gateway.child.id());
    println!(
        "  memory at most: the gateway {} MiB, the command line {} MiB (promised: {} MiB)",
        gateway_peak >> 20,
        client >> 20,
        PROMISED.2 >> 20
    );
    assert!(gateway_peak.max(client) <= PROMISED.2, "more memory than was promised");
}

/// Fills the archive of a data directory as a gateway with that master key does. Returns how many
/// captures change under the candidate.
async fn fill(
    data: &Path,
    count: u64,
    bytes: Option<usize>,
    (then, candidate): (&Routing, &Routing),
) -> u64 {
    std::fs::create_dir(data).expect("a directory");
    let keys = Keyring::generate(&Random::System);
    let wrapped = keys.wrap(&SecretBytes::new(MASTER), &Random::System).expect("a wrapped key");
    let documents = keys.derive(Purpose::Documents, b"");
    let unlock = move |opening: &Opening<'_>| {
        opening.put_root_key(&WrappedRootKey { generation: 1, wrapped })?;
        Ok::<_, StoreError>((documents, ()))
    };
    let dir = DataDir::take(data).expect("the directory");
    let (store, ()) = Store::open_in(dir, unlock).await.expect("a store");
    let archive = Archive::new(store, &keys, Random::System, true);
    let (mut prose, random, mut changed) = (Prose::new(9), Random::seeded(10), 0);
    let begin = Timestamp::now() - Duration::from_micros(count * 50);
    let mut writing: Option<JoinHandle<_>> = None;
    for first in (0..count).step_by(BATCH) {
        let mut batch = Vec::with_capacity(BATCH);
        for number in first..count.min(first + BATCH as u64) {
            let made = capture(
                begin + Duration::from_micros(number * 50),
                bytes,
                then,
                &mut prose,
                &random,
            );
            changed += u64::from(changes(&made, candidate));
            batch.push(made);
        }
        if let Some(writing) = writing.take() {
            let stored: Result<usize, _> = writing.await.expect("joined");
            stored.expect("appended");
        }
        let archive = archive.clone();
        writing = Some(tokio::spawn(async move { archive.append(Arc::new(batch)).await }));
    }
    if let Some(writing) = writing {
        writing.await.expect("joined").expect("appended");
    }
    archive.close().await.expect("closed");
    changed
}

/// The question in the request body, as text.
fn question(capture: &Capture) -> Option<String> {
    let body: Value = serde_json::from_slice(&capture.bodies.request).ok()?;
    Some(body.pointer("/messages/0/content")?.as_str()?.to_owned())
}

fn capture(
    at: Timestamp,
    bytes: Option<usize>,
    then: &Routing,
    prose: &mut Prose,
    random: &Random,
) -> Capture {
    let mut made = queue::capture(at, UserId::admin(), Bodies::default(), random);
    let draw = prose.next();
    let words = ["Please refactor", "Please debug", "Please lint", "Say"];
    let word = words.get(draw as usize % 64).copied().unwrap_or("Tell me");
    if let Some(bytes) = bytes {
        made.bodies = queue::bodies(bytes, word, prose);
    }
    let mut inputs =
        Inputs { seed: random.next_u64(), at, ..made.head.inputs.take().expect("inputs") };
    let request = &mut inputs.request;
    (request.prompt_tokens, request.max_tokens, request.stream) =
        (draw >> 8 & 0xfff, Some(draw >> 20 & 0x7ff), draw >> 32 & 3 == 0);
    (request.messages, request.tools) = (1 + (draw >> 34 & 7), draw >> 37 & 3);
    inputs.principal.user = Some(UserId::admin().into());
    assert!(inputs.complete(then, &[], |_| Some(word.to_owned())));
    let decision = decide(then, &inputs).expect("a decision");
    made.head.usage = Some(Usage {
        prompt_tokens: inputs.request.prompt_tokens,
        completion_tokens: 200,
        total_tokens: inputs.request.prompt_tokens + 200,
        ..Usage::default()
    });
    (made.head.inputs, made.head.decision) = (Some(inputs), Some(Arc::new(decision)));
    made.head.request_captured = bytes.is_some();
    made
}

/// Whether another target comes first under the candidate, as `decide` finds with the question's
/// text.
fn changes(made: &Capture, candidate: &Routing) -> bool {
    let (Some(inputs), Some(decision)) = (&made.head.inputs, &made.head.decision) else {
        return false;
    };
    let mut inputs = inputs.clone();
    inputs.complete(candidate, &[], |_| question(made));
    let after = decide(candidate, &inputs).expect("a decision");
    (&after.provider, &after.model) != (&decision.provider, &decision.model)
}

/// A process of the gateway. It is killed on drop.
struct Gateway {
    child: Child,
    address: SocketAddr,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Killing a process that has ended fails.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

impl Gateway {
    fn start(dir: &Path) -> Gateway {
        let [address, metrics] = [0, 0]
            .map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"))
            .map(|held| held.local_addr().expect("its address"));
        let text = format!(
            "listeners: [ {{ address: {address} }} ]\nmetrics: {{ address: {metrics} }}\n\
             data_dir: {}\nrouting: {{ file: {} }}\n\
             capture: {{ retention: {{ age: 30d, size: 100GiB }} }}\n",
            dir.join("data").display(),
            dir.join("routing.yaml").display()
        );
        std::fs::write(dir.join("rerouter.yaml"), text).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_rerouter"));
        command
            .arg("serve")
            .arg("--config")
            .arg(dir.join("rerouter.yaml"))
            .env_clear()
            .env("ADMIN_API_KEY", ADMIN)
            .env("RUST_LOG", "warn");
        command
            .env("REROUTER_MASTER_KEY", base64::engine::general_purpose::STANDARD.encode(MASTER));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("started");
        let mut gateway = Gateway { child, address };
        let begun = Instant::now();
        while !gateway.is_well() {
            assert!(
                gateway.child.try_wait().expect("waited").is_none(),
                "the gateway left instead of serving"
            );
            assert!(begun.elapsed() < Duration::from_secs(60), "the gateway does not serve");
            std::thread::sleep(Duration::from_millis(20));
        }
        gateway
    }

    fn is_well(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(self.address) else { return false };
        let request =
            format!("GET /health HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address);
        let mut answer = String::new();
        stream.write_all(request.as_bytes()).is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.starts_with("HTTP/1.1 200")
    }

    /// The report, and the peak memory of the command line in bytes.
    fn evaluate(&mut self, dir: &Path, count: u64) -> (Value, usize) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rerouter"));
        command
            .args(["replay", "evaluate", "--json", "--limit", &count.to_string(), "--document"])
            .arg(dir.join("candidate.yaml"));
        command
            .env_clear()
            .env("REROUTER_URL", format!("http://{}", self.address))
            .env("REROUTER_API_KEY", ADMIN);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("started");
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        // The report is written at the end, and the process waits while its pipe is read.
        let waits = out.fill_buf().map(|begun| !begun.is_empty());
        assert!(waits.expect("read"), "it ended without a report");
        let memory = peak(child.id());
        let mut text = String::new();
        out.read_to_string(&mut text).expect("text");
        assert!(child.wait().expect("waited").success(), "{text}");
        (serde_json::from_str(&text).expect("JSON"), memory)
    }

    /// CPU seconds of the gateway, including threads that have ended.
    fn cpu(&self) -> f64 {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("/proc");
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        // utime and stime, in ticks of 10 ms (proc_pid_stat(5)).
        fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|ticks| ticks.parse::<f64>().ok())
            .sum::<f64>()
            / 100.0
    }
}

/// Peak memory of a process in bytes; 0 if it has ended.
fn peak(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap_or(0) << 10
}
