//! What many keys cost: a start, memory, and a look-up beside that among a thousand. `cargo bench` measures and prints;
//! `cargo test` runs it, tiny, and checks what must hold on a machine of any speed.

// Figures are for people, and a bench that cannot run says so.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Parser;
use http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;
use rerouter::auth::{Auth, Standing, token};
use rerouter::bounds;
use rerouter::id::{KeyId, Random, UserId};
use rerouter::interface::{Interface, Surface};
use rerouter::secret::{Secret, SecretBytes};
use rerouter::store::{Actor, KeyRow, KeyStatus, Limits, Store};

/// What many keys cost.
#[derive(Parser)]
#[command(name = "benches/run keys")]
struct Flags {
    /// How many there are.
    #[arg(long, default_value_t = 1_000_000)]
    keys: usize,
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
        return measure(Flags::parse().keys).await;
    }
    let names: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    if names.is_empty() || names.iter().any(|part| "many_keys".contains(part.as_str())) {
        println!("\nrunning 1 test");
        measure(3_000).await;
        println!("test many_keys ... ok\n\ntest result: ok. 1 passed; 0 failed");
    }
}

async fn measure(keys: usize) {
    let few = look_up(1_000, "a thousand").await;
    let many = look_up(keys, "all").await;
    println!("a look-up among {keys}: {:.2} of one among a thousand", many.as_secs_f64() / few.as_secs_f64().max(1e-9));
}

fn now() -> Timestamp {
    Timestamp::from_second(1_764_000_000).expect("a time")
}

fn auth() -> Auth {
    Auth::new(&SecretBytes::new([1; 32]), None, Some(Secret::new("cloud")), Duration::from_secs(1_800))
}

/// Fills a store, starts on it, and asks who the sampled keys are; gives what that took each.
async fn look_up(keys: usize, what: &str) -> Duration {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let began = Instant::now();
    let sample = fill(dir.path(), keys).await;
    println!("{what}: {keys} keys, filled in {:.1} s", began.elapsed().as_secs_f64());
    let store = Store::open(dir.path(), b"bench").await.expect("a store");
    let (before, began) = (resident(), Instant::now());
    let auth = auth();
    auth.attach(&store).await.expect("the tables");
    let took = began.elapsed();
    let bytes = resident().saturating_sub(before) as f64 / keys as f64;
    println!(
        "  a start reads them in {:.2} s ({:.1} us a key), and they take {bytes:.0} bytes each",
        took.as_secs_f64(),
        took.as_secs_f64() * 1e6 / keys as f64
    );
    let began = Instant::now();
    assert_eq!(auth.count_keys(Interface::Agent, Standing::Active, now()), keys, "all of them are there");
    println!("  they are counted in {:.1} us", began.elapsed().as_secs_f64() * 1e6);
    let mut means = Vec::new();
    for _ in 0..9 {
        let began = Instant::now();
        for headers in &sample {
            black_box(auth.identify(black_box(headers), Surface::Agent, false, now())).expect("a key");
        }
        means.push(began.elapsed() / u32::try_from(sample.len()).unwrap_or(1));
    }
    means.sort();
    let began = Instant::now();
    auth.sweep_uses(&store).await.expect("a store that takes them");
    println!(
        "  a look-up takes {:.2} us; the last use of {} is written in {:.1} ms",
        means[4].as_secs_f64() * 1e6,
        sample.len(),
        began.elapsed().as_secs_f64() * 1e3
    );
    means[4]
}

async fn fill(dir: &Path, keys: usize) -> Vec<HeaderMap> {
    let (store, auth, random) = (Store::open(dir, b"bench").await.expect("a store"), auth(), Random::seeded(7));
    let mut sample = Vec::new();
    let mut owner = UserId::new(now(), &random);
    let mut rows = Vec::with_capacity(BATCH);
    for n in 0..keys {
        if n % bounds::KEYS_PER_OWNER == 0 {
            owner = UserId::new(now(), &random);
        }
        let secret = token::mint("agt", &random);
        if n % (keys / SAMPLE).max(1) == 0 && sample.len() < SAMPLE {
            let line = HeaderValue::from_str(&format!("Bearer {}", secret.expose())).expect("a header");
            sample.push(HeaderMap::from_iter([(header::AUTHORIZATION, line)]));
        }
        rows.push(row(&auth, &secret, &owner, &random));
        if rows.len() == BATCH || n + 1 == keys {
            store.create_keys(std::mem::take(&mut rows)).await.expect("keys");
        }
    }
    sample
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
