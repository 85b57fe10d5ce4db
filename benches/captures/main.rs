//! Measures the cost of captures. `queue` sends captures at a given rate through the queue into
//! segments, in this process, and measures drops, CPU and disk. `index` measures lists, reads, a
//! start and retention with millions of captures. `evaluate` decides captures again. `cargo bench`
//! measures and prints. `cargo test` runs all three on a small scale, and checks what must hold at
//! any speed.

// Benches print figures for people, and may panic if they cannot run. No other crate calls them.
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    unreachable_pub
)]

mod evaluate;
mod index;
mod process;
#[path = "../support/prose.rs"]
mod prose;
mod queue;

use std::path::Path;

use clap::{Parser, Subcommand};
use rerouter::internals::store::{Faults, Store};
use tempfile::TempDir;

// The gateway's own allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Measures the cost of captures.
#[derive(Parser)]
#[command(name = "benches/run")]
struct Flags {
    #[command(subcommand)]
    what: What,
    /// Set by `cargo bench`.
    #[arg(long, hide = true, global = true)]
    bench: bool,
}

#[derive(Subcommand)]
enum What {
    /// Sends captures through the queue.
    Queue(queue::Load),
    /// Measures an index of millions of captures.
    Index(index::Load),
    /// Decides captures again.
    Evaluate(evaluate::Load),
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo bench` passes `--bench`, and `cargo test` does not.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return try_small(&arguments).await;
    }
    match Flags::parse().what {
        What::Queue(load) => kept(&queue::measure(&load, true).await),
        What::Index(load) => kept(&index::measure(&load).await),
        What::Evaluate(load) => evaluate::measure(&load).await,
    }
}

fn kept(broken: &[String]) {
    assert!(broken.is_empty(), "promises not kept: {}", broken.join("; "));
}

/// Runs small versions, for `cargo test`.
async fn try_small(arguments: &[String]) {
    const NAMES: [&str; 3] =
        ["captures_through_the_queue", "captures_in_the_index", "captures_decided_again"];
    let names: Vec<&String> =
        arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let chosen =
        |name: &str| names.is_empty() || names.iter().any(|part| name.contains(part.as_str()));
    for name in NAMES.into_iter().filter(|name| chosen(name)) {
        println!("\nrunning 1 test");
        match name {
            "captures_through_the_queue" => kept(
                &queue::measure(&queue::Load { rate: 1_000, bytes: 6144, seconds: 1.0 }, false)
                    .await,
            ),
            // Promises about time hold only if nothing else runs on the machine.
            "captures_in_the_index" => {
                drop(index::measure(&index::Load { heads: 6_000, days: 3 }).await)
            }
            _ => {
                evaluate::measure(&evaluate::Load { heads: 3_000, bodies: 300, bytes: 6144 }).await
            }
        }
        println!("test {name} ... ok\n\ntest result: ok. 1 passed; 0 failed");
    }
}

/// A directory on the disk that is measured.
pub fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// Opens the store there. Its writes fail as `Faults` demand.
pub async fn open(dir: &Path) -> (Store, Faults) {
    let faults = Faults::default();
    (Store::open(dir).await.expect("a store").with_faults(faults.clone()), faults)
}
