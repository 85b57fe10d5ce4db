//! The gateway beside bare Pingora: same crates, same profile, same threads, over loopback, in
//! alternating windows.
//!
//! Three processes: this one (load generator and upstream), the gateway's binary, and a Pingora
//! proxy that only picks its peer ([`bare`]). A window counts only if every request was answered
//! and captures stored = requests answered. `cargo bench` measures and prints; `cargo test` runs
//! one tiny window of the same code and checks that it is sane.

// Figures are for people, and a bench that cannot run says so. Nothing of it is called from
// outside.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods, unreachable_pub)]

mod bare;
mod figures;
mod instructions;
mod load;
mod process;
mod upstream;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;

use figures::{Figures, Row};
use load::Load;
use process::{Process, Start};
use upstream::Upstream;

// As in the gateway's binary, so that both sides allocate alike.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Before each window, so that connections, pools and caches are what they are in long service.
const WARM_UP: Duration = Duration::from_millis(300);
/// Requests a second that give gateways what they are to evaluate.
const FILL: f64 = 2_000.0;
/// Times that a body's windows are begun again, slower, because the capture queue was full.
const SLOWER: usize = 4;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The gateway beside bare Pingora, in alternating windows.
#[derive(Parser)]
#[command(name = "benches/run gateway")]
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
    #[arg(long, value_delimiter = ',', default_values_t = [600, 8 << 10, 100 << 10], value_parser = clap::value_parser!(u32).range(128..=8 << 20))]
    bodies: Vec<u32>,
    /// Requests a second of both sides; else as many as are answered.
    #[arg(long)]
    pace: Option<f64>,
    /// The other side is the gateway without captures instead of bare Pingora.
    #[arg(long)]
    without_captures: bool,
    /// Both sides are gateways, and one of them evaluates its captures all the while.
    #[arg(long, conflicts_with = "without_captures")]
    evaluating: bool,
    /// Counts instructions under callgrind instead of timing.
    #[arg(long)]
    instructions: bool,
    /// Requests of each side whose instructions are counted.
    #[arg(long, default_value_t = 1000, requires = "instructions",
          value_parser = clap::value_parser!(u64).range(10..=100_000))]
    requests: u64,
    /// Another gateway's binary, whose instructions are counted beside.
    #[arg(long, requires = "instructions")]
    beside: Option<PathBuf>,
    /// Given by `cargo bench`.
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
        Some(bare::ROLE) => bare::serve(arguments.get(1..).unwrap_or_default()),
        // As other benches do it: `cargo bench` says `--bench`, `cargo test` does not.
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

/// What the gateway is beside.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    /// Pingora alone.
    Bare,
    /// A gateway without captures.
    WithoutCaptures,
    /// A gateway that does nothing else, while the other one evaluates.
    Idle,
}

/// Both sides, ready to be asked; they end with the value.
struct Bench {
    upstream: Upstream,
    /// What the gateway is beside.
    beside: Process,
    gateway: Process,
    connections: usize,
    window: Duration,
    evaluating: bool,
}

/// A window of one side.
struct Window {
    figures: Figures,
    /// Whether captures stored = requests answered.
    counts: bool,
    stored_a_second: f64,
}

impl Bench {
    fn start(connections: u16, threads: u16, window: Duration, beside: Beside) -> Result<Bench> {
        let upstream = Upstream::start()?;
        let evaluating = beside == Beside::Idle;
        let to = upstream.address();
        let binary = Path::new(env!("CARGO_BIN_EXE_rerouter"));
        let gateway = |captures| Process::gateway(&Start::Plain, binary, to, threads, captures);
        let beside = match beside {
            Beside::Bare => Process::bare(&Start::Plain, to, threads)?,
            Beside::WithoutCaptures => gateway(false)?.called("none kept"),
            Beside::Idle => gateway(true)?.called("idle"),
        };
        let gateway = gateway(true)?;
        Ok(Bench { upstream, beside, gateway, connections: connections.into(), window, evaluating })
    }

    /// Gives both gateways something to evaluate.
    fn fill(&self, body: &[u8]) -> Result<()> {
        for process in [&self.beside, &self.gateway] {
            let (captures, mut load) =
                (process.captures()?, Load::open(process.address(), self.connections)?);
            let ran = load.run(&process.request(body), self.window * 2, Some(FILL))?;
            process.settle(captures, ran.answered())?;
        }
        Ok(())
    }

    /// The load of a window; with it, on one side, evaluations one after another.
    fn run(
        &self,
        load: &mut Load,
        process: &Process,
        request: &[u8],
        pace: Option<f64>,
    ) -> Result<load::Ran> {
        if !self.evaluating || !std::ptr::eq(process, &self.gateway) {
            return load.run(request, self.window, pace);
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let evaluator = scope.spawn(|| {
                let mut evaluated = 0;
                while !done.load(Ordering::Acquire) {
                    evaluated += process.evaluate().map_err(|why| why.to_string())?;
                }
                Ok::<u64, String>(evaluated)
            });
            let ran = load.run(request, self.window, pace);
            done.store(true, Ordering::Release);
            let evaluated = evaluator.join().map_err(|_| "the evaluator broke off")??;
            println!("  {evaluated} captures decided again meanwhile");
            if evaluated == 0 { Err("nothing was evaluated".into()) } else { Ok(ran?) }
        })
    }

    /// One window of one side.
    fn window(&self, process: &Process, body: &[u8], pace: Option<f64>) -> Result<Window> {
        let request = process.request(body);
        let mut load = Load::open(process.address(), self.connections)?;
        let captures = process.captures()?;
        let warmed = load.run(&request, WARM_UP.min(self.window), pace)?;
        process.settle(captures, warmed.answered())?;
        let (reached, captures, before) =
            (self.upstream.answered(), process.captures()?, process.cpu()?);
        let ran = self.run(&mut load, process, &request, pace)?;
        let settled = process.settle(captures, ran.answered())?;
        let after = process.cpu()?;
        let reached = self.upstream.answered() - reached;
        if reached != ran.answered() {
            return Err(format!(
                "{} requests were answered, but {reached} reached the upstream",
                ran.answered()
            )
            .into());
        }
        let stored_a_second = settled.stored as f64 / (ran.elapsed + settled.took).as_secs_f64();
        let counts = !process.captures_requests()
            || (settled.stored, settled.dropped) == (ran.answered(), 0);
        Ok(Window { figures: Figures::of(&ran, before, after), counts, stored_a_second })
    }

    /// Alternating windows at one size of body.
    fn row(&self, bytes: usize, windows: usize, pace: Option<f64>) -> Result<Row> {
        let body = load::chat_body(bytes);
        if self.evaluating {
            self.fill(&body)?;
        }
        let mut row = Row::new(bytes, self.beside.name());
        row.pace = pace;
        let mut slower = 0;
        while row.pairs() < windows {
            let beside_first = row.pairs().is_multiple_of(2);
            let sides = if beside_first {
                [&self.beside, &self.gateway]
            } else {
                [&self.gateway, &self.beside]
            };
            let mut measured = Vec::new();
            for side in sides {
                let window = self.window(side, &body, row.pace)?;
                if window.counts {
                    measured.push(window.figures);
                    continue;
                }
                // More than can be stored was asked for: both sides begin again with what can be.
                slower += 1;
                if slower > SLOWER {
                    return Err(format!(
                        "captures are dropped at {bytes} B however slowly requests come"
                    )
                    .into());
                }
                row = Row::new(bytes, self.beside.name());
                row.slowed = true;
                row.pace = Some(window.stored_a_second * 0.8);
                break;
            }
            if let [first, second] = measured[..] {
                if beside_first { row.add(first, second) } else { row.add(second, first) }
            }
        }
        Ok(row)
    }
}

fn measure(flags: &Flags) -> Result<()> {
    if flags.instructions {
        return instructions::measure(flags, flags.requests);
    }
    let window = Duration::from_secs_f64(flags.seconds);
    let beside = match (flags.without_captures, flags.evaluating) {
        (true, _) => Beside::WithoutCaptures,
        (_, true) => Beside::Idle,
        _ => Beside::Bare,
    };
    let bench = Bench::start(flags.connections, flags.threads, window, beside)?;
    println!(
        "{} windows of {} s, {} connections, {} data-path thread(s) a side; medians, and the median of each pair's ratio",
        flags.windows, flags.seconds, flags.connections, flags.threads
    );
    println!("{}", figures::heading());
    for bytes in &flags.bodies {
        println!("{}", bench.row(*bytes as usize, flags.windows.into(), flags.pace)?);
    }
    Ok(())
}

/// What `cargo test` runs: one tiny window, whose figures must be sane.
fn try_small(arguments: &[String]) -> Result<()> {
    const NAME: &str = "the_gateway_beside_bare_pingora";
    let mut names = arguments.iter().filter(|argument| !argument.starts_with('-')).peekable();
    if names.peek().is_some() && !names.any(|name| NAME.contains(name.as_str())) {
        return Ok(());
    }
    println!("\nrunning 1 test");
    let bench = Bench::start(4, 1, Duration::from_millis(300), Beside::Bare)?;
    let row = bench.row(600, 1, None)?;
    println!("{}\n{row}", figures::heading());
    row.check()?;
    let bench = Bench::start(4, 1, Duration::from_millis(300), Beside::Idle)?;
    println!("{}", bench.row(600, 1, Some(200.0))?);
    println!("test {NAME} ... ok\n\ntest result: ok. 1 passed; 0 failed");
    Ok(())
}
