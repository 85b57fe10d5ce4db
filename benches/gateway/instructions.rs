//! Instructions and allocations per request, counted by callgrind. These figures hardly vary with
//! the machine or its load.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::load::{CHAT, Load, chat_bodies};
use crate::process::Process;
use crate::sides::{self, Start};
use crate::upstream::Upstream;
use crate::{Flags, Result};

/// Functions that identify the kind of a thread, as only that kind calls them. The first match
/// counts.
const KINDS: [(&str, Kind); 2] =
    [("pingora_proxy::", Kind::DataPath), ("ZSTD_compress", Kind::Captures)];
/// Functions by which Rust code allocates, on all sides. Calls between them belong to the
/// allocator.
const ALLOCATES: [&str; 5] =
    ["_rjem_malloc", "_rjem_mallocx", "_rjem_calloc", "_rjem_realloc", "_rjem_rallocx"];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    DataPath,
    Captures,
    Other,
}

/// Cost of a request in the threads of one kind.
#[derive(Clone, Copy, Default)]
pub struct Tally {
    pub instructions: u64,
    pub allocations: u64,
}

/// Cost of a request by kind of thread.
pub struct Counts(BTreeMap<Kind, Tally>);

impl Counts {
    pub fn of(&self, kind: Kind) -> Tally {
        self.0.get(&kind).copied().unwrap_or_default()
    }

    fn total(&self) -> u64 {
        self.0.values().map(|tally| tally.instructions).sum()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [data_path, captures, other] =
            [Kind::DataPath, Kind::Captures, Kind::Other].map(|kind| self.of(kind));
        write!(
            f,
            "{:>10} {:>12} {:>10} {:>10} {:>10}",
            data_path.instructions,
            data_path.allocations,
            captures.instructions,
            other.instructions,
            self.total()
        )
    }
}

/// Prints a table with a row for each body size and side.
pub fn measure(flags: &Flags, requests: u64) -> Result<()> {
    println!("instructions a request, over {requests} requests on one connection");
    println!(
        "{:>8} {:<24} {:>10} {:>12} {:>10} {:>10} {:>10}",
        "body", "side", "data path", "allocations", "captures", "other", "process"
    );
    let upstream = Upstream::start()?;
    for bytes in &flags.bodies {
        let bodies = chat_bodies(*bytes as usize);
        let count = |name: &str, process: &dyn Fn(&Start) -> Result<Process>| {
            let counts = count(&Asked::chat(&bodies), requests, process)?;
            println!("{bytes:>8} {name:<24} {counts}");
            Ok::<Counts, Box<dyn std::error::Error>>(counts)
        };
        let to = upstream.address();
        let bare = count("bare Pingora", &|start| sides::bare(start, "bare", to, 1, 1))?;
        let own = PathBuf::from(env!("CARGO_BIN_EXE_rerouter"));
        let gateway = |binary: &Path, captures| {
            let binary = binary.to_owned();
            move |start: &Start| sides::gateway(start, "rerouter", &binary, to, 1, captures)
        };
        count("without captures", &gateway(&own, false))?;
        let all = count("rerouter", &gateway(&own, true))?;
        let ratio = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        println!(
            "{bytes:>8} {:<24} {:>10.3} {:>45.3}",
            "rerouter ÷ bare",
            ratio(all.of(Kind::DataPath).instructions, bare.of(Kind::DataPath).instructions),
            ratio(all.total(), bare.total()),
        );
        if let Some(binary) = &flags.beside {
            let other = count("the other binary", &gateway(binary, true))?;
            println!(
                "{bytes:>8} {:<24} {:>10.3} {:>45.3}",
                "rerouter ÷ other binary",
                ratio(all.of(Kind::DataPath).instructions, other.of(Kind::DataPath).instructions),
                ratio(all.total(), other.total()),
            );
        }
    }
    Ok(())
}

/// The requests whose instructions are counted.
pub struct Asked<'a> {
    pub path: &'static str,
    pub bodies: &'a [Vec<u8>],
    /// Number of requests that are sent first, so that pools and caches are filled.
    pub warm_up: u64,
}

impl<'a> Asked<'a> {
    /// Chat completions that are not streamed.
    pub fn chat(bodies: &'a [Vec<u8>]) -> Self {
        Asked { path: CHAT, bodies, warm_up: 200 }
    }
}

/// Counts the cost of `requests` requests in a process that `process` starts.
pub fn count(
    asked: &Asked<'_>,
    requests: u64,
    process: &dyn Fn(&Start) -> Result<Process>,
) -> Result<Counts> {
    let dir = tempfile::Builder::new().prefix("rerouter-callgrind-").tempdir()?;
    let out = dir.path().join("counts");
    let start = Start::Under(
        "valgrind",
        vec![
            "--tool=callgrind".into(),
            "--separate-threads=yes".into(),
            "--quiet".into(),
            format!("--callgrind-out-file={}", out.display()),
        ],
    );
    let process = process(&start)?;
    let all = process.requests_to(asked.path, asked.bodies);
    let mut load = Load::open(process.address(), 1)?;
    let mut run = |requests| {
        let captures = process.captures()?;
        load.repeat(&all, requests)?;
        process.settle(captures, requests)
    };
    run(asked.warm_up)?;
    control(&process, "--zero")?;
    run(requests)?;
    control(&process, "--dump")?;
    drop(process);
    let mut counts = BTreeMap::<Kind, Tally>::new();
    for file in std::fs::read_dir(dir.path())? {
        let text = String::from_utf8_lossy(&std::fs::read(file?.path())?).into_owned();
        let Some((kind, whole)) = read(&text) else { continue };
        let tally = counts.entry(kind).or_default();
        tally.instructions += whole.instructions;
        tally.allocations += whole.allocations;
    }
    for tally in counts.values_mut() {
        tally.instructions /= requests;
        tally.allocations = (tally.allocations + requests / 2) / requests;
    }
    match counts.get(&Kind::DataPath) {
        Some(tally) if tally.allocations > 0 => Ok(Counts(counts)),
        Some(_) => Err("nothing was allocated by the names that are known".into()),
        None => Err("no data path among the threads: are there symbols in the binary?".into()),
    }
}

/// Reads callgrind's output for one thread: its kind and its totals.
fn read(text: &str) -> Option<(Kind, Tally)> {
    let summary = |line: &str| {
        let count = line.strip_prefix("totals: ").or_else(|| line.strip_prefix("summary: "))?;
        count.trim().parse().ok()
    };
    let instructions = text.lines().find_map(summary)?;
    let kind = KINDS.iter().find(|(name, _)| text.contains(name)).map(|(_, kind)| *kind);
    // A function's name is written only with the first use of its number: `fn=(12) name`, then
    // `fn=(12)`.
    let mut names = BTreeMap::new();
    let (mut caller, mut callee, mut allocations) = ("", "", 0);
    for line in text.lines() {
        let Some((what, rest)) = line.split_once('=') else { continue };
        if what == "calls" && ALLOCATES.contains(&callee) && !is_allocator(caller) {
            allocations += rest.split(' ').next()?.parse::<u64>().ok()?;
        }
        let side = match what {
            "fn" => &mut caller,
            "cfn" => &mut callee,
            _ => continue,
        };
        let (number, name) = rest.split_once(' ').unwrap_or((rest, ""));
        if !name.is_empty() {
            names.insert(number, name);
        }
        *side = names.get(number).copied().unwrap_or_default();
    }
    Some((kind.unwrap_or(Kind::Other), Tally { instructions, allocations }))
}

fn is_allocator(name: &str) -> bool {
    name.starts_with("_rjem_")
}

fn control(process: &Process, what: &str) -> Result<()> {
    let done =
        Command::new("callgrind_control").arg(what).arg(process.id().to_string()).output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("callgrind_control {what}: {}", String::from_utf8_lossy(&done.stderr)).into())
}
