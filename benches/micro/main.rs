//! Time and allocations of single stages of a request: key look-up, reading a body, the decision,
//! the heads of an attempt, an event of a stream, the offer of a capture. `cargo bench` measures
//! and prints. `cargo test` runs each stage a few times.

// Benches print figures for people, and may panic if they cannot run. No other crate calls them.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    unreachable_pub
)]

mod call;
mod routing;
#[path = "../support/keys.rs"]
mod stored_keys;
mod translation;

use std::alloc::System;
use std::time::{Duration, Instant};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

/// Counts allocations of the system's allocator, which is slower than the gateway's.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Number of values that are made before the clock starts.
const BATCH: u32 = 50;

/// Number and length of the windows in which a stage is measured.
pub struct Bench {
    windows: usize,
    window: Duration,
}

impl Bench {
    fn call(&self, what: &str, mut run: impl FnMut()) {
        self.stage(what, 1, || (), |()| run());
    }

    /// Runs a stage on new values. Each value stands for `calls` calls. Making and dropping the
    /// values is not measured. The time is the median over windows.
    fn stage<T, R>(
        &self,
        what: &str,
        calls: u32,
        mut make: impl FnMut() -> T,
        mut run: impl FnMut(T) -> R,
    ) {
        let mut batch = |count: u32| {
            let values: Vec<T> = (0..count).map(|_| make()).collect();
            let mut kept = Vec::with_capacity(values.len());
            let (region, start) = (Region::new(ALLOCATOR), Instant::now());
            kept.extend(values.into_iter().map(&mut run));
            let (took, change) = (start.elapsed(), region.change());
            let made = change.allocations + change.reallocations;
            (took / (count * calls), made as f64 / f64::from(count * calls))
        };
        batch(1);
        let allocations = batch(BATCH).1;
        let mut means: Vec<Duration> = (0..self.windows)
            .map(|_| {
                let (start, mut means) = (Instant::now(), Vec::new());
                while means.is_empty() || start.elapsed() < self.window {
                    means.push(batch(BATCH).0);
                }
                means.iter().sum::<Duration>() / means.len() as u32
            })
            .collect();
        means.sort();
        let micros = means[means.len() / 2].as_nanos() as f64 / 1e3;
        println!("{what:<48} {micros:>9.2} µs {allocations:>8.2} allocations");
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--bench") {
        return measure(&Bench { windows: 9, window: Duration::from_millis(100) }).await;
    }
    let mut names = arguments.iter().filter(|argument| !argument.starts_with('-')).peekable();
    if names.peek().is_none() || names.any(|part| "stages_of_a_request".contains(part.as_str())) {
        println!("\nrunning 1 test");
        measure(&Bench { windows: 1, window: Duration::ZERO }).await;
        println!("test stages_of_a_request ... ok\n\ntest result: ok. 1 passed; 0 failed");
    }
}

async fn measure(bench: &Bench) {
    call::keys(bench).await;
    routing::measure(bench);
    call::attempt(bench).await;
    call::offer(bench);
    translation::measure(bench);
}
