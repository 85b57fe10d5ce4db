//! What many keys cost: a start, memory, and a look-up beside that among a thousand; also where half of them are known by the pepper
//! of an earlier master key. `cargo bench` measures and prints; `cargo test` runs it, tiny, and checks what must hold on a machine
//! of any speed.

// Figures are for people, and a bench that cannot run says so.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fmt;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;
use rerouter::auth::{Auth, Standing, token};
use rerouter::bounds;
use rerouter::id::{KeyId, Random, UserId};
use rerouter::interface::{Interface, Surface};
use rerouter::secret::{Keyring, Secret, SecretBytes};
use rerouter::store::{Actor, KeyRow, KeyStatus, Limits, Store};

/// What many keys cost.
#[derive(Parser)]
#[command(name = "benches/run keys")]
struct Flags {
    /// How many there are.
    #[arg(long, default_value_t = 1_000_000)]
    keys: usize,
    /// Half of them are known by an older pepper, and are looked up beside as many that are not.
    #[arg(long)]
    older_pepper: bool,
    /// Measures on what lies in this directory: a process of its own, whose memory nothing else was in.
    #[arg(long, hide = true)]
    on: Option<PathBuf>,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Keys of one transaction while the store is filled.
const BATCH: usize = 5_000;
/// Secrets that are kept to be looked up.
const SAMPLE: usize = 1_000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--bench") {
        let flags = Flags::parse();
        return match flags.on {
            Some(dir) => println!("{}", start(&dir, flags.keys, flags.older_pepper).await),
            None => measure(flags.keys, flags.older_pepper).await,
        };
    }
    let names: Vec<&String> =
        arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    if names.is_empty() || names.iter().any(|part| "many_keys".contains(part.as_str())) {
        println!("\nrunning 1 test");
        measure(3_000, false).await;
        measure(3_000, true).await;
        println!("test many_keys ... ok\n\ntest result: ok. 1 passed; 0 failed");
    }
}

/// What it took with so many keys.
struct Figures {
    /// A start, each key.
    start: Duration,
    /// Memory, each key.
    bytes: f64,
    /// A look-up by the pepper of now, and by an older one where some are known by that.
    look_up: (Duration, Option<Duration>),
    /// A secret that is nobody's.
    unknown: Duration,
}

impl fmt::Display for Figures {
    /// On one line, for the process that asked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = [Some(self.start), Some(self.look_up.0), self.look_up.1, Some(self.unknown)]
            .map(|took| took.map_or(0, |took| took.as_nanos()));
        let [start, newest, older, unknown] = nanos;
        write!(f, "{FIGURES}{start} {newest} {older} {unknown} {}", self.bytes)
    }
}

impl Figures {
    fn read(line: &str) -> Figures {
        let all: Vec<f64> =
            line.split(' ').map(|number| number.parse().expect("a number")).collect();
        let took = |at: usize| Duration::from_nanos(all[at] as u64);
        let older = Some(took(2)).filter(|took| !took.is_zero());
        Figures { start: took(0), bytes: all[4], look_up: (took(1), older), unknown: took(3) }
    }
}

/// What begins the line of them.
const FIGURES: &str = "figures: ";

async fn measure(keys: usize, older_pepper: bool) {
    let few = figures(1_000, "a thousand", false).await;
    let many = figures(keys, "all", false).await;
    let ratio = |name: &str, a: Duration, b: Duration| {
        println!("{name}: {:.2}", a.as_secs_f64() / b.as_secs_f64().max(1e-9))
    };
    ratio(
        &format!("ratio: a look-up among {keys} to one among a thousand"),
        many.look_up.0,
        few.look_up.0,
    );
    if !older_pepper {
        return;
    }
    let half = figures(keys, "all, half of them by an older pepper", true).await;
    let by_older = half.look_up.1.expect("half of them are");
    ratio("ratio, half by an older pepper to none: a start", half.start, many.start);
    println!(
        "ratio, half by an older pepper to none: memory: {:.2}",
        half.bytes / many.bytes.max(1.0)
    );
    ratio(
        "ratio, half by an older pepper to none: a look-up of the others",
        half.look_up.0,
        many.look_up.0,
    );
    ratio(
        "ratio, half by an older pepper to none: a look-up of that half",
        by_older,
        many.look_up.0,
    );
    ratio(
        "ratio, half by an older pepper to none: a look-up of that half, to one among a thousand",
        by_older,
        few.look_up.0,
    );
    ratio(
        "ratio, half by an older pepper to none: a secret that is nobody's",
        half.unknown,
        many.unknown,
    );
}

fn now() -> Timestamp {
    Timestamp::from_second(1_764_000_000).expect("a time")
}

fn auth(keys: Keyring) -> Auth {
    Auth::new(keys, None, Some(Secret::new("cloud")), Duration::from_secs(1_800))
}

/// The keys of the time before, and of now where there was one.
fn keyrings(older_pepper: bool) -> (Keyring, Keyring) {
    let first = Keyring::from(&SecretBytes::new([1; 32]));
    let now = if older_pepper {
        Keyring::new(&SecretBytes::new([2; 32]), 2, first.retired())
    } else {
        first.clone()
    };
    (first, now)
}

/// Fills a store, has another process start on it and ask who the sampled keys are, and takes down what that says.
async fn figures(keys: usize, what: &str, older_pepper: bool) -> Figures {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let began = Instant::now();
    let (first, newest) = keyrings(older_pepper);
    let samples = fill(&dir.path().join("data"), keys, &[auth(first), auth(newest)]).await;
    for (number, sample) in samples.iter().enumerate() {
        std::fs::write(dir.path().join(number.to_string()), sample.join("\n")).expect("a sample");
    }
    println!("{what}: {keys} keys, filled in {:.1} s", began.elapsed().as_secs_f64());
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .arg("--bench")
        .arg("--on")
        .arg(dir.path())
        .args(["--keys", &keys.to_string()])
        .args(older_pepper.then_some("--older-pepper"));
    let said = command.stderr(Stdio::inherit()).output().expect("another process");
    assert!(said.status.success(), "{}", said.status);
    let said = String::from_utf8(said.stdout).expect("text");
    let (told, figures) = said.rsplit_once(FIGURES).expect("figures");
    print!("{told}");
    Figures::read(figures.trim())
}

/// Starts on it, and asks who they are.
async fn start(dir: &Path, keys: usize, older_pepper: bool) -> Figures {
    let [before, sample] = ["0", "1"].map(|name| {
        let text = std::fs::read_to_string(dir.join(name)).expect("a sample");
        text.lines().map(|secret| shown(&Secret::new(secret))).collect::<Vec<_>>()
    });
    let (_, newest) = keyrings(older_pepper);
    let store = Store::open(&dir.join("data"), b"bench").await.expect("a store");
    let (resident_before, began) = (resident(), Instant::now());
    let auth = auth(newest);
    auth.attach(&store).await.expect("the tables");
    let took = began.elapsed();
    let bytes = resident().saturating_sub(resident_before) as f64 / keys as f64;
    println!(
        "  a start reads them in {:.2} s ({:.1} us a key), and they take {bytes:.0} bytes each",
        took.as_secs_f64(),
        took.as_secs_f64() * 1e6 / keys as f64
    );
    let began = Instant::now();
    assert_eq!(
        auth.count_keys(Interface::Agent, Standing::Active, now()),
        keys,
        "all of them are there"
    );
    println!("  they are counted in {:.1} us", began.elapsed().as_secs_f64() * 1e6);
    // Before any is moved: no key moves but by the store's writer.
    let by_older = older_pepper.then(|| look_up(&auth, &before, true));
    let by_newest = look_up(&auth, if older_pepper { &sample } else { &before }, true);
    let random = Random::seeded(8);
    let nobodys: Vec<HeaderMap> =
        (0..SAMPLE).map(|_| shown(&token::mint("agt", &random))).collect();
    let unknown = look_up(&auth, &nobodys, false);
    let micros = |took: Duration| took.as_secs_f64() * 1e6;
    println!(
        "  a look-up takes {:.2} us, and of a secret that is nobody's {:.2} us",
        micros(by_newest),
        micros(unknown)
    );
    if let Some(by_older) = by_older {
        println!("  one by the older pepper {:.2} us", micros(by_older));
        move_some(&auth, &store, before.len(), keys).await;
    }
    let began = Instant::now();
    auth.sweep_uses(&store).await.expect("a store that takes them");
    println!(
        "  the last use of {} is written in {:.1} ms",
        before.len() + sample.len(),
        began.elapsed().as_secs_f64() * 1e3
    );
    Figures {
        start: took / u32::try_from(keys).unwrap_or(1),
        bytes,
        look_up: (by_newest, by_older),
        unknown,
    }
}

/// Those that were shown go to the pepper of now, and no others.
async fn move_some(auth: &Auth, store: &Store, shown: usize, keys: usize) {
    let left = |auth: &Auth| usize::try_from(auth.unmoved(now()).keys).unwrap_or(0);
    assert_eq!(left(auth), keys / 2, "half of them are known by the older pepper");
    let began = Instant::now();
    auth.move_due(store).await.expect("a store that takes them");
    println!(
        "  {shown} of the older pepper are moved in {:.1} ms",
        began.elapsed().as_secs_f64() * 1e3
    );
    assert_eq!(left(auth), keys / 2 - shown, "those that were used have moved");
}

/// The middle of nine means of asking who these are.
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

fn shown(secret: &Secret) -> HeaderMap {
    let line = HeaderValue::from_str(&format!("Bearer {}", secret.expose())).expect("a header");
    HeaderMap::from_iter([(header::AUTHORIZATION, line)])
}

/// Keys in turn by the one and by the other; gives some of each.
async fn fill(dir: &Path, keys: usize, by: &[Auth; 2]) -> [Vec<String>; 2] {
    let (store, random) = (Store::open(dir, b"bench").await.expect("a store"), Random::seeded(7));
    let mut samples = [Vec::new(), Vec::new()];
    let mut owner = UserId::new(now(), &random);
    let mut rows = Vec::with_capacity(BATCH);
    for n in 0..keys {
        if n % bounds::KEYS_PER_OWNER == 0 {
            owner = UserId::new(now(), &random);
        }
        let secret = token::mint("agt", &random);
        let sample = &mut samples[n % 2];
        if (n / 2) % (keys / 2 / SAMPLE).max(1) == 0 && sample.len() < SAMPLE {
            sample.push(secret.expose().to_owned());
        }
        rows.push(row(&by[n % 2], &secret, &owner, &random));
        if rows.len() == BATCH || n + 1 == keys {
            store.create_keys(std::mem::take(&mut rows)).await.expect("keys");
        }
    }
    samples
}

fn row(auth: &Auth, secret: &Secret, owner: &UserId, random: &Random) -> KeyRow {
    KeyRow {
        id: KeyId::new(now(), random),
        interface: Interface::Agent,
        name: "a key of the bench".into(),
        redacted: token::redact(secret.expose()),
        digest: auth.digest(secret),
        pepper: auth.pepper(),
        owner: owner.clone(),
        created_by: Actor { kind: "session".into(), id: owner.to_string() },
        parent: None,
        scopes: vec!["agents".into(), "keys".into()],
        labels: BTreeMap::new(),
        limits: Limits::default(),
        status: KeyStatus::Active,
        created_at: now(),
        expires_at: None,
        revoked_at: None,
        rotated_at: None,
        generation: 1,
        previous: None,
        made_open: false,
        maker: Some(owner.clone()),
        last_used_at: None,
        metadata: BTreeMap::from([("team".into(), "bench".into())]).into(),
    }
}

/// Bytes of memory that the process has; 0 where the system does not say.
fn resident() -> usize {
    let said = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    said.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}
