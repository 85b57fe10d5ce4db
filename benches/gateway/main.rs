//! Compares the gateway with bare Pingora and other proxies: same load, upstream and number of
//! threads, over loopback, in alternating windows.
//!
//! There are three processes: this one (load generator and upstream), a Pingora proxy that only
//! selects its peer ([`rerouter_bare`]; same crates and profile as the gateway), and the other
//! side. A window counts only if every request was answered and captures stored = requests
//! answered. `cargo bench` measures and prints. `cargo test` runs tiny windows of the same code,
//! and checks the instructions per request against `benches/instructions.txt` ([`guard`]).

// Benches print figures for people, and may panic if they cannot run. No other crate calls them.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods, unreachable_pub)]

mod budgeted;
mod chart;
mod compare;
mod figures;
mod guard;
mod instructions;
mod leased;
mod load;
mod pair;
#[path = "../../tests/support/postgres.rs"]
#[allow(dead_code, clippy::expect_used, clippy::unwrap_used)] // Tests use the rest.
mod postgres;
mod process;
#[path = "../support/prose.rs"]
mod prose;
mod rivals;
mod sides;
mod stalls;
mod streams;
mod translated;
mod upstream;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use compare::Plan;
use pair::{Kind, Pair};
use rivals::Rival;
use streams::Streams;
use upstream::Shape;

// The gateway's own allocator, so that both sides allocate alike.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The gateway beside bare Pingora, in alternating windows.
#[derive(Parser)]
#[command(name = "benches/run gateway", args_override_self = true)]
struct Flags {
    /// Windows of each side for each size of body; the figures are medians over them.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..100))]
    windows: u16,
    /// Length of a window.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Connections that each send one request after another.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=512))]
    connections: u16,
    /// Data-path threads of either side.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Bytes of the request bodies.
    #[arg(long, value_delimiter = ',', default_values_t = [600, 8 << 10, 100 << 10],
            value_parser = clap::value_parser!(u32).range(128..=8 << 20))]
    bodies: Vec<u32>,
    /// Requests a second of both sides; else as many as are answered.
    #[arg(long)]
    pace: Option<f64>,
    /// The other side is the gateway without captures instead of bare Pingora. With `--beside` or
    /// `--shared`, neither side keeps captures.
    #[arg(long)]
    without_captures: bool,
    /// The other side is the gateway with threads that share their connections.
    #[arg(long, conflicts_with_all = ["evaluating", "beside"])]
    shared: bool,
    /// Both sides run on one processor, and the load and the upstream on another.
    #[arg(long)]
    pinned: bool,
    /// Both sides are gateways, and one of them evaluates its captures all the while.
    #[arg(long, conflicts_with = "without_captures")]
    evaluating: bool,
    /// Measures all sides in one run: CPU, throughput, latency, streams and memory.
    #[arg(long)]
    compare: bool,
    /// The other proxies of a comparison.
    #[arg(long, requires = "compare", value_enum, value_delimiter = ',', num_args = 0..)]
    rivals: Option<Vec<Rival>>,
    /// Streams that are open at once, with an event a second.
    #[arg(long, requires = "compare", default_value_t = 2_000,
          value_parser = clap::value_parser!(u16).range(1..=4_000))]
    streams: u16,
    /// Where the chart of a comparison goes.
    #[arg(long, requires = "compare")]
    chart: Option<PathBuf>,
    /// Counts answers that come late for no reason, among so many requests.
    #[arg(long)]
    stalls: Option<u64>,
    /// Counts instructions under callgrind instead of timing.
    #[arg(long)]
    instructions: bool,
    /// Counts what a translated request takes, beside one that is passed on.
    #[arg(long, requires = "instructions")]
    translated: bool,
    /// Counts what a gateway with a lease takes, on a separate PostgreSQL, beside one without.
    #[arg(long, requires = "instructions", conflicts_with = "translated")]
    leased: bool,
    /// Counts what a request of a key with a budget takes, beside one without.
    #[arg(long, requires = "instructions", conflicts_with_all = ["translated", "leased"])]
    budgeted: bool,
    /// Requests of each side whose instructions are counted.
    #[arg(long, default_value_t = 1000, requires = "instructions",
          value_parser = clap::value_parser!(u64).range(10..=100_000))]
    requests: u64,
    /// Another gateway's binary, which is the other side.
    #[arg(long, conflicts_with_all = ["evaluating", "compare"])]
    beside: Option<PathBuf>,
    /// Set by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.1..=60.0).contains(seconds))
        .ok_or_else(|| "0.1 to 60".to_owned())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some(rerouter_bare::ROLE) => rerouter_bare::serve(arguments.get(1..).unwrap_or_default()),
        Some(guard::WRITE) => guard::write(),
        // `cargo bench` passes `--bench`, and `cargo test` does not.
        _ if arguments.iter().any(|argument| argument == "--bench") => measure(&Flags::parse()),
        _ => try_small(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn measure(flags: &Flags) -> Result<()> {
    if flags.translated {
        return translated::measure(flags, flags.requests);
    }
    if flags.leased {
        return leased::measure(flags, flags.requests);
    }
    if flags.budgeted {
        return budgeted::measure(flags, flags.requests);
    }
    if flags.instructions {
        return instructions::measure(flags, flags.requests);
    }
    if let Some(requests) = flags.stalls {
        let captures = !flags.without_captures;
        let sizes = (flags.threads, captures);
        return stalls::measure(requests, flags.connections, sizes, flags.beside.as_deref());
    }
    let window = Duration::from_secs_f64(flags.seconds);
    let windows = usize::from(flags.windows);
    if flags.compare {
        let mut plan = Plan::new(windows, window, flags.connections, flags.threads);
        plan.bodies = flags.bodies.iter().map(|bytes| *bytes as usize).collect();
        plan.rate = flags.pace.unwrap_or(plan.rate);
        plan.many.count = flags.streams.into();
        plan.rivals = flags.rivals.clone().unwrap_or_else(|| Rival::value_variants().to_vec());
        plan.chart = flags.chart.clone();
        plan.pinned = flags.pinned;
        plan.thorough = true;
        return compare::compare(&plan);
    }
    let captures = !flags.without_captures;
    let kind = match (&flags.beside, flags.evaluating) {
        (Some(other), _) => Kind::BesideBinary(Box::leak(other.clone().into()), captures),
        _ if flags.shared => Kind::BesideShared(captures),
        (_, true) => Kind::Evaluating,
        _ if captures => Kind::Gateway,
        _ => Kind::BesideNoneKept,
    };
    let pair = Pair::start(flags.connections, flags.threads, window, kind)?;
    if flags.pinned {
        pair.pin()?;
    }
    println!(
        "{windows} windows of {} s, {} connections, {} data-path thread(s) a side; medians, \
         and the median of each pair's ratio",
        flags.seconds, flags.connections, flags.threads
    );
    println!("{}", figures::heading());
    for bytes in &flags.bodies {
        println!("{}", pair.row(*bytes as usize, windows, flags.pace)?);
    }
    Ok(())
}

/// Runs the tests for `cargo test`: tiny windows, whose figures must be plausible, and the guard of
/// instructions.
fn try_small(arguments: &[String]) -> Result<()> {
    type Test = fn() -> Result<()>;
    const TESTS: [(&str, Test); 3] = [
        ("the_gateway_beside_bare_pingora", try_compare),
        ("an_evaluating_gateway_beside_an_idle_one", try_evaluating),
        ("instructions_of_a_request_are_what_they_were", guard::check),
    ];
    let names: Vec<&String> =
        arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let chosen =
        |name: &str| names.is_empty() || names.iter().any(|part| name.contains(part.as_str()));
    for (name, test) in TESTS.iter().filter(|(name, _)| chosen(name)) {
        println!("\nrunning 1 test");
        test().map_err(|why| format!("test {name} ... FAILED: {why}"))?;
        println!("test {name} ... ok\n\ntest result: ok. 1 passed; 0 failed");
    }
    Ok(())
}

fn try_compare() -> Result<()> {
    chart::check()?;
    let shape = Shape { events: 5, gap: Duration::from_millis(20) };
    let streams = Streams { count: 8, shape };
    let mut plan = Plan::new(1, Duration::from_millis(300), 4, 1);
    (plan.bodies, plan.rate) = (vec![600], 100.0);
    (plan.busy, plan.many) = (streams, streams);
    compare::compare(&plan)
}

fn try_evaluating() -> Result<()> {
    let pair = Pair::start(4, 1, Duration::from_millis(300), Kind::Evaluating)?;
    println!("{}", pair.row(600, 1, Some(200.0))?);
    Ok(())
}
