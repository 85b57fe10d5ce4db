//! Measures two sides in alternating windows over loopback, with the same load and upstream.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::Result;
use crate::figures::{Figures, Row, quantile};
use crate::load::{Load, Ran, chat_bodies};
use crate::process::{Machine, Process};
use crate::rivals::Rival;
use crate::sides::{self, Start};
use crate::streams::{Streamed, Streams};
use crate::upstream::Upstream;

/// Load before each window, so that connections, pools and caches are in their normal state.
const WARM_UP: Duration = Duration::from_millis(300);
/// Requests per second that fill gateways with captures to evaluate.
const FILL: f64 = 2_000.0;
/// Limit on restarts of a row at a lower rate, which happen when the capture queue is full.
const SLOWER: usize = 4;

/// The two sides of a pair.
#[derive(Clone, Copy)]
pub enum Kind {
    /// The gateway beside bare Pingora.
    Gateway,
    /// The gateway without captures beside bare Pingora.
    NoneKept,
    /// Another proxy beside bare Pingora.
    Rival(Rival),
    /// The gateway beside one without captures.
    BesideNoneKept,
    /// A gateway that evaluates all the time, beside one that does not.
    Evaluating,
    /// The gateway beside another binary of it, with or without captures.
    BesideBinary(&'static Path, bool),
    /// The gateway beside itself with threads that share their connections.
    BesideShared(bool),
    /// Bare Pingora with a service a thread, beside the one as it comes.
    BareIsolated,
}

/// Both sides as running processes, which end on drop.
pub struct Pair {
    upstream: Upstream,
    pub beside: Process,
    pub side: Process,
    connections: usize,
    window: Duration,
    evaluating: bool,
}

/// The result of a window of one side.
struct Window {
    figures: Figures,
    /// Whether captures stored = requests answered.
    counts: bool,
    stored_a_second: f64,
}

impl Pair {
    pub fn start(connections: u16, threads: u16, window: Duration, kind: Kind) -> Result<Pair> {
        let upstream = Upstream::start()?;
        let to = upstream.address();
        let binary = sides::timed();
        let gateway =
            |name, captures| sides::gateway(&Start::Plain, name, &binary, to, threads, captures);
        let beside = match kind {
            Kind::BesideNoneKept => gateway("none kept", false)?,
            Kind::Evaluating => gateway("idle", true)?,
            Kind::BesideBinary(other, captures) => {
                sides::gateway(&Start::Plain, "the other binary", other, to, threads, captures)?
            }
            Kind::BesideShared(captures) => {
                let (sizes, more) = ((threads, captures), "isolate_threads: false\n");
                sides::gateway_with(&Start::Plain, "threads shared", &binary, to, sizes, more)?
            }
            _ => sides::bare(&Start::Plain, "bare", to, threads, 1)?,
        };
        let side = match kind {
            Kind::BesideBinary(_, captures) | Kind::BesideShared(captures) => {
                gateway("rerouter", captures)?
            }
            Kind::BareIsolated => {
                sides::bare(&Start::Plain, "bare, a service a thread", to, threads, threads)?
            }
            Kind::NoneKept => gateway("rerouter, no captures", false)?,
            Kind::Rival(rival) => rival.start(to, threads)?,
            _ => gateway("rerouter", true)?,
        };
        let evaluating = matches!(kind, Kind::Evaluating);
        Ok(Pair { upstream, beside, side, connections: connections.into(), window, evaluating })
    }

    /// Both sides run on the second processor, and this process on the first.
    pub fn pin(&self) -> Result<()> {
        let mut first = CpuSet::new();
        first.set(0);
        for task in std::fs::read_dir("/proc/self/task")? {
            let thread = task?.file_name().to_string_lossy().parse().ok();
            sched_setaffinity(thread.and_then(Pid::from_raw), &first)?;
        }
        self.beside.pin(1)?;
        self.side.pin(1)
    }

    /// Fills both gateways with captures to evaluate.
    fn fill(&self, bodies: &[Vec<u8>]) -> Result<()> {
        for process in [&self.beside, &self.side] {
            let (captures, mut load) =
                (process.captures()?, Load::open(process.address(), self.connections)?);
            let ran = load.run(&process.requests(bodies), self.window * 2, Some(FILL))?;
            process.settle(captures, ran.answered())?;
        }
        Ok(())
    }

    /// Runs the load of a window. The evaluating side runs evaluations at the same time.
    fn run(
        &self,
        load: &mut Load,
        process: &Process,
        requests: &[Vec<u8>],
        pace: Option<f64>,
    ) -> Result<Ran> {
        if !self.evaluating || !std::ptr::eq(process, &self.side) {
            return load.run(requests, self.window, pace);
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
            let ran = load.run(requests, self.window, pace);
            done.store(true, Ordering::Release);
            let evaluated = evaluator.join().map_err(|_| "the evaluator broke off")??;
            println!("  {evaluated} captures decided again meanwhile");
            if evaluated == 0 { Err("nothing was evaluated".into()) } else { Ok(ran?) }
        })
    }

    /// Measures one window of one side.
    fn window(&self, process: &Process, bodies: &[Vec<u8>], pace: Option<f64>) -> Result<Window> {
        let requests = process.requests(bodies);
        let mut load = Load::open(process.address(), self.connections)?;
        let captures = process.captures()?;
        let warmed = load.run(&requests, WARM_UP.min(self.window), pace)?;
        process.settle(captures, warmed.answered())?;
        let (reached, captures, before) =
            (self.upstream.answered(), process.captures()?, process.cpu()?);
        let ran = self.run(&mut load, process, &requests, pace)?;
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
        let counts = !process.captures || (settled.stored, settled.dropped) == (ran.answered(), 0);
        Ok(Window { figures: Figures::of(&ran, before, after), counts, stored_a_second })
    }

    fn new_row(&self, bytes: usize) -> Row {
        Row::new(bytes, [self.beside.name(), self.side.name()])
    }

    /// Measures alternating windows for one body size.
    pub fn row(&self, bytes: usize, windows: usize, pace: Option<f64>) -> Result<Row> {
        let bodies = chat_bodies(bytes);
        if self.evaluating {
            self.fill(&bodies)?;
        }
        let mut row = self.new_row(bytes);
        row.pace = pace;
        let (mut slower, before) = (0, Machine::now([&self.beside, &self.side])?);
        while row.pairs() < windows {
            let beside_first = row.pairs().is_multiple_of(2);
            let sides =
                if beside_first { [&self.beside, &self.side] } else { [&self.side, &self.beside] };
            let mut measured = Vec::new();
            for side in sides {
                let window = self.window(side, &bodies, row.pace)?;
                if window.counts {
                    measured.push(window.figures);
                    continue;
                }
                // More captures were made than can be stored, so both sides start again at a lower
                // rate.
                slower += 1;
                if slower > SLOWER {
                    return Err(format!(
                        "captures are dropped at {bytes} B however slowly requests come"
                    )
                    .into());
                }
                row = self.new_row(bytes);
                row.slowed = true;
                row.pace = Some(window.stored_a_second * 0.8);
                break;
            }
            if let [first, second] = measured[..] {
                if beside_first { row.add(first, second) } else { row.add(second, first) }
            }
        }
        row.others = Machine::now([&self.beside, &self.side])?.others_since(&before);
        Ok(row)
    }

    /// System calls a request of both sides, at full load.
    pub fn system_calls(&self, bytes: usize) -> Result<[f64; 2]> {
        let bodies = chat_bodies(bytes);
        let of = |process: &Process| -> Result<f64> {
            let mut load = Load::open(process.address(), self.connections)?;
            let requests = process.requests(&bodies);
            std::thread::scope(|scope| {
                let counting = scope.spawn(|| {
                    std::thread::sleep(self.window / 4);
                    process.system_calls(self.window / 2).map_err(|why| why.to_string())
                });
                let ran = load.run(&requests, self.window, None)?;
                let counted = counting.join().map_err(|_| "perf could not be run")??;
                Ok(counted * ran.elapsed.as_secs_f64() / ran.answered() as f64)
            })
        };
        Ok([of(&self.beside)?, of(&self.side)?])
    }

    /// Microseconds that both sides add to an answer at this pace. The upstream's own latency in
    /// the same round is subtracted. Each round has p50 and p99 of the first side, then of the
    /// second.
    pub fn added(&self, bytes: usize, rounds: usize, pace: f64) -> Result<Vec<[[f64; 2]; 2]>> {
        let bodies = chat_bodies(bytes);
        let run = |address, process: &Process, time| -> Result<[f64; 2]> {
            let mut load = Load::open(address, self.connections)?;
            let captures = process.captures()?;
            let requests = process.requests(&bodies);
            let warmed = load.run(&requests, WARM_UP.min(time), Some(pace))?;
            let ran = load.run(&requests, time, Some(pace))?;
            if address == process.address() {
                let all = warmed.answered() + ran.answered();
                let settled = process.settle(captures, all)?;
                if process.captures && (settled.stored, settled.dropped) != (all, 0) {
                    return Err(format!("{} captures of {all} requests", settled.stored).into());
                }
            }
            Ok([0.5, 0.99].map(|part| quantile(&ran.latencies, part).as_nanos() as f64 / 1e3))
        };
        let mut found = Vec::new();
        for round in 0..rounds {
            let direct = run(self.upstream.address(), &self.beside, self.window)?;
            let of = |process: &Process| -> Result<[f64; 2]> {
                let all = run(process.address(), process, self.window)?;
                Ok([all[0] - direct[0], all[1] - direct[1]])
            };
            found.push(alternate(round, || of(&self.beside), || of(&self.side))?);
        }
        Ok(found)
    }

    /// Measures streams of both sides in alternating windows.
    pub fn streams(&self, streams: Streams, rounds: usize) -> Result<Vec<[Streamed; 2]>> {
        // A window with a failed stream is repeated once, as a comparison takes half an hour.
        let of = |process: &Process| {
            streams.run(&self.upstream, process).or_else(|why| {
                println!("  once more, as streams of {} failed: {why}", process.name());
                streams.run(&self.upstream, process)
            })
        };
        (0..rounds).map(|round| alternate(round, || of(&self.beside), || of(&self.side))).collect()
    }
}

/// Runs both, in an order that alternates by round.
fn alternate<T>(
    round: usize,
    first: impl Fn() -> Result<T>,
    second: impl Fn() -> Result<T>,
) -> Result<[T; 2]> {
    if round.is_multiple_of(2) {
        let value = first()?;
        Ok([value, second()?])
    } else {
        let value = second()?;
        Ok([first()?, value])
    }
}
