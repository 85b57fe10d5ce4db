//! Measures the cost of many keys: a start, memory, and a look-up compared with one among a
//! thousand keys; on PostgreSQL a start and a change. `cargo bench` measures and prints. `cargo
//! test` runs a small version, and checks what must hold at any speed.

// Benches print figures for people, and may panic if they cannot run.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    unreachable_pub
)]

#[path = "../tests/support/postgres.rs"]
#[allow(dead_code, clippy::unwrap_used)] // Tests use the rest.
mod postgres;
#[path = "support/keys.rs"]
mod stored_keys;

use std::fmt;
use std::hint::black_box;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use http::HeaderMap;
use rerouter::internals::auth::{Auth, token};
use rerouter::internals::id::Random;
use rerouter::internals::interface::{Interface, Surface};
use rerouter::internals::secret::Secret;
use rerouter::internals::store::{KeyState, Store};

use stored_keys::{SAMPLE, auth, fill, now, shown};

/// Measures the cost of many keys.
#[derive(Parser)]
#[command(name = "benches/run keys")]
struct Flags {
    /// Number of keys.
    #[arg(long, default_value_t = 1_000_000)]
    keys: usize,
    /// Measures how long a start and a change take, with two gateways on a separate PostgreSQL.
    #[arg(long)]
    postgres: bool,
    /// Measures a store in this directory. A separate process does so, whose memory was not used
    /// before.
    #[arg(long, hide = true)]
    on: Option<PathBuf>,
    /// Set by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--bench") {
        let flags = Flags::parse();
        return match flags.on {
            Some(dir) => println!("{}", start(&dir, flags.keys).await),
            None if flags.postgres => shared(flags.keys, 100).await,
            None => measure(flags.keys).await,
        };
    }
    let names: Vec<&String> =
        arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    if names.is_empty() || names.iter().any(|part| "many_keys".contains(part.as_str())) {
        println!("\nrunning 1 test");
        measure(3_000).await;
        shared(1_000, 3).await;
        println!("test many_keys ... ok\n\ntest result: ok. 1 passed; 0 failed");
    }
}

/// The costs for a number of keys.
struct Figures {
    /// Time of a start per key.
    start: Duration,
    /// Memory per key.
    bytes: f64,
    /// Time of a look-up with a valid secret.
    look_up: Duration,
    /// Time of a look-up with an unknown secret.
    unknown: Duration,
}

impl fmt::Display for Figures {
    /// Writes one line for the parent process.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [start, look_up, unknown] =
            [self.start, self.look_up, self.unknown].map(|took| took.as_nanos());
        write!(f, "{FIGURES}{start} {look_up} {unknown} {}", self.bytes)
    }
}

impl Figures {
    fn read(line: &str) -> Figures {
        let all: Vec<f64> =
            line.split(' ').map(|number| number.parse().expect("a number")).collect();
        let took = |at: usize| Duration::from_nanos(all[at] as u64);
        Figures { start: took(0), bytes: all[3], look_up: took(1), unknown: took(2) }
    }
}

/// Timeout of a start.
const PATIENCE: Duration = Duration::from_secs(300);

/// Prefix of the line of figures.
const FIGURES: &str = "figures: ";

async fn measure(keys: usize) {
    let few = figures(1_000, "a thousand").await;
    let many = figures(keys, "all").await;
    println!(
        "ratio: a look-up among {keys} to one among a thousand: {:.2}",
        many.look_up.as_secs_f64() / few.look_up.as_secs_f64().max(1e-9)
    );
}

/// Fills a store, and lets another process open it and look up the sampled keys. Returns the
/// figures that it prints.
async fn figures(keys: usize, what: &str) -> Figures {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    // The gateway makes the root key, which a store with keys must already have.
    first_answer(dir.path());
    let began = Instant::now();
    let sample = fill(&dir.path().join("data"), keys, &auth()).await;
    std::fs::write(dir.path().join("sample"), sample.join("\n")).expect("a sample");
    println!("{what}: {keys} keys, filled in {:.1} s", began.elapsed().as_secs_f64());
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.arg("--bench").arg("--on").arg(dir.path()).args(["--keys", &keys.to_string()]);
    let said = command.stderr(Stdio::inherit()).output().expect("another process");
    assert!(said.status.success(), "{}", said.status);
    let said = String::from_utf8(said.stdout).expect("text");
    let (told, figures) = said.rsplit_once(FIGURES).expect("figures");
    print!("{told}");
    println!(
        "  the gateway answers its first request {:.2} s after its start",
        first_answer(dir.path()).as_secs_f64()
    );
    Figures::read(figures.trim())
}

/// Measures a store in PostgreSQL with durable commits: how long a gateway takes to start, and how
/// long changes by one gateway take while another one follows.
async fn shared(keys: usize, changes: usize) {
    let cluster = postgres::Cluster::start(&["fsync=on"]);
    let url = cluster.database().await;
    let dirs = [(); 3].map(|()| tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")));
    let [source, dirs @ ..] = dirs.map(|dir| dir.expect("a directory"));
    first_answer(source.path());
    let data = source.path().join("data");
    fill(&data, keys, &auth()).await;
    let began = Instant::now();
    let mut migrate = Command::new(env!("CARGO_BIN_EXE_rerouter"));
    migrate.arg("migrate").arg("--data-dir").arg(&data).args(["--to", &url]);
    assert!(migrate.stdout(Stdio::null()).status().expect("a copy").success());
    println!("PostgreSQL: {keys} keys, copied in {:.1} s", began.elapsed().as_secs_f64());
    let store = format!("store: {{ url: \"{url}\" }}\n");
    let gateways: [Running; 2] = dirs.each_ref().map(|dir| {
        let own = dir.path().join("data");
        std::fs::create_dir(&own).expect("a directory");
        std::fs::copy(data.join("master.key"), own.join("master.key")).expect("a key");
        Running::start(dir.path(), &store)
    });
    for gateway in &gateways {
        println!("  a gateway answers {:.2} s after its start", gateway.took.as_secs_f64());
    }
    let (mut made, mut ended) = (Vec::new(), Vec::new());
    for _ in 0..changes {
        let began = Instant::now();
        let key = gateways[0].make_key();
        made.push(began.elapsed());
        let began = Instant::now();
        gateways[0].end_key(&key);
        ended.push(began.elapsed());
    }
    for (what, mut took) in [("POST", made), ("DELETE", ended)] {
        took.sort();
        let at = |part: usize| took[took.len() * part / 100].as_secs_f64() * 1e3;
        println!("  {what} of a key, known to both: p50 {:.1} ms, p99 {:.1} ms", at(50), at(99));
    }
}

/// Starts the gateway on this directory. Returns the time until it answers a request with a
/// credential.
fn first_answer(dir: &Path) -> Duration {
    Running::start(dir, "").took
}

const ADMIN: &str = "bench-admin-0123456789abcdef0123456789abcdef";

/// A gateway that serves requests. It is killed on drop.
struct Running {
    process: Child,
    address: SocketAddr,
    /// Time until it answered.
    took: Duration,
}

impl Running {
    /// Starts a gateway, with these additional lines in its server document.
    fn start(dir: &Path, more: &str) -> Running {
        let [routing, server] = ["routing.yaml", "rerouter.yaml"].map(|name| dir.join(name));
        let document = "providers:\n\
            \x20 up: { protocol: openai, base_url: \"http://127.0.0.1:9/v1\" }\n\
            recipes:\n  main: { rules: [ { name: default, targets: [ { target: up/fixed } ] } ] }\n\
            aliases: { auto: main }\n";
        std::fs::write(&routing, document).expect("a document");
        let (address, metrics) = (free_address(), free_address());
        let text = format!(
            "listeners: [ {{ address: \"{address}\" }} ]\nmetrics: {{ address: \"{metrics}\" }}\n\
             data_dir: {}\nrouting: {{ file: {} }}\n{more}",
            serde_json::json!(dir.join("data")),
            serde_json::json!(routing)
        );
        std::fs::write(&server, text).expect("a document");
        let mut command = Command::new(env!("CARGO_BIN_EXE_rerouter"));
        command.arg("serve").arg("--config").arg(server).stdout(Stdio::null());
        command.env("ADMIN_API_KEY", ADMIN).env("RUST_LOG", "error");
        let began = Instant::now();
        let process = command.spawn().expect("the gateway");
        let mut gateway = Running { process, address, took: Duration::ZERO };
        let page = format!("{}?limit=1", gateway.keys());
        let asked = || ureq::get(&page).header("authorization", format!("Bearer {ADMIN}")).call();
        while asked().is_err() {
            let left = gateway.process.try_wait().expect("its state");
            assert!(left.is_none(), "the gateway left");
            assert!(began.elapsed() < PATIENCE, "the gateway does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        gateway.took = began.elapsed();
        gateway
    }

    fn keys(&self) -> String {
        format!("http://{}/v1/router/keys", self.address)
    }

    /// Makes a key and returns its id.
    fn make_key(&self) -> String {
        let made = ureq::post(self.keys())
            .header("authorization", format!("Bearer {ADMIN}"))
            .header("content-type", "application/json")
            .send("{}")
            .and_then(|mut made| made.body_mut().read_to_string());
        let made: serde_json::Value =
            serde_json::from_str(&made.expect("a key")).expect("a record");
        made["id"].as_str().expect("an id").to_owned()
    }

    fn end_key(&self, id: &str) {
        let page = format!("{}/{id}", self.keys());
        let ended = ureq::delete(page).header("authorization", format!("Bearer {ADMIN}")).call();
        assert_eq!(ended.expect("its end").status(), 204);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.process.kill().expect("the end of the gateway");
        self.process.wait().expect("the end of the gateway");
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address")
}

/// Opens the store and looks up the sampled keys.
async fn start(dir: &Path, keys: usize) -> Figures {
    let sample = std::fs::read_to_string(dir.join("sample")).expect("a sample");
    let sample: Vec<HeaderMap> = sample.lines().map(|secret| shown(&Secret::new(secret))).collect();
    let opening = Instant::now();
    let store = Store::open(&dir.join("data")).await.expect("a store");
    let (resident_before, began) = (resident(), Instant::now());
    let auth = auth();
    auth.attach(&store).await.expect("the tables");
    let took = began.elapsed();
    let bytes = resident().saturating_sub(resident_before) as f64 / keys as f64;
    println!(
        "  a start reads them in {:.2} s ({:.1} us a key), and they take {bytes:.0} bytes each",
        took.as_secs_f64(),
        took.as_secs_f64() * 1e6 / keys as f64
    );
    let first = sample.first().expect("a secret");
    assert!(auth.identify(first, Surface::Agent, false, now()).is_ok());
    println!(
        "  the first is looked up {:.2} s after the store began to open",
        opening.elapsed().as_secs_f64()
    );
    let began = Instant::now();
    assert_eq!(
        auth.count_keys(Interface::Agent, KeyState::Active, now()),
        keys,
        "all of them are there"
    );
    println!("  they are counted in {:.1} us", began.elapsed().as_secs_f64() * 1e6);
    let look_up_time = look_up(&auth, &sample, true);
    let random = Random::seeded(8);
    let nobodys: Vec<HeaderMap> =
        (0..SAMPLE).map(|_| shown(&token::mint("agt", &random))).collect();
    let unknown = look_up(&auth, &nobodys, false);
    let micros = |took: Duration| took.as_secs_f64() * 1e6;
    println!(
        "  a look-up takes {:.2} us, and of a secret that is nobody's {:.2} us",
        micros(look_up_time),
        micros(unknown)
    );
    let began = Instant::now();
    auth.sweep_uses(&store).await.expect("a store that takes them");
    println!(
        "  the last use of {} is written in {:.1} ms",
        sample.len(),
        began.elapsed().as_secs_f64() * 1e3
    );
    Figures {
        start: took / u32::try_from(keys).unwrap_or(1),
        bytes,
        look_up: look_up_time,
        unknown,
    }
}

/// Time of one look-up. It is the median of nine means over the sample.
fn look_up(auth: &Auth, sample: &[HeaderMap], good: bool) -> Duration {
    let mut means = Vec::new();
    for _ in 0..9 {
        let began = Instant::now();
        for headers in sample {
            let found = black_box(auth.identify(black_box(headers), Surface::Agent, false, now()));
            assert_eq!(found.is_ok(), good);
        }
        means.push(began.elapsed() / u32::try_from(sample.len()).unwrap_or(1));
    }
    means.sort();
    means[4]
}

/// Resident memory in bytes; 0 if the system does not report it.
fn resident() -> usize {
    let said = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    said.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}
