//! What captures cost. `queue`: so many a second through the queue into segments, in this process:
//! what is dropped, how much of a core it takes and of the disk. `index`: lists, reads, a start and
//! retention with millions of captures. `evaluate`: captures decided again. `cargo bench` measures
//! and prints; `cargo test` runs both, tiny, and checks what must hold on a machine of any speed.

// Figures are for people, and a bench that cannot run says so. Nothing of it is called from
// outside.
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

// As the gateway has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What captures cost.
#[derive(Parser)]
#[command(name = "benches/run")]
struct Flags {
    #[command(subcommand)]
    what: What,
    /// Given by `cargo bench`.
    #[arg(long, hide = true, global = true)]
    bench: bool,
}

#[derive(Subcommand)]
enum What {
    /// Captures through the queue.
    Queue(queue::Load),
    /// Millions of captures in the index.
    Index(index::Load),
    /// Captures decided again.
    Evaluate(evaluate::Load),
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // As other benches do it: `cargo bench` says `--bench`, `cargo test` does not.
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

/// What `cargo test` runs.
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
            // What it promises of time is for runs that are alone on a machine.
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

/// The store there, which fails as it is told.
pub async fn open(dir: &Path) -> (Store, Faults) {
    let faults = Faults::default();
    (Store::open(dir).await.expect("a store").with_faults(faults.clone()), faults)
}
