//! Instructions a request, counted by callgrind: figures that hardly vary, on any machine and under
//! any load.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::load::{Load, chat_body};
use crate::process::{Process, Start};
use crate::upstream::Upstream;
use crate::{Flags, Result};

/// Before the counted ones, so that pools and caches are filled.
const WARM_UP: u64 = 200;
/// Names of functions that only threads of one kind call, in the order in which they are looked
/// for.
const KINDS: [(&str, Kind); 2] =
    [("pingora_proxy::", Kind::DataPath), ("ZSTD_compress", Kind::Captures)];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    DataPath,
    Captures,
    Other,
}

/// Instructions a request, by kind of thread.
struct Counts(BTreeMap<Kind, u64>);

impl Counts {
    fn of(&self, kind: Kind) -> u64 {
        self.0.get(&kind).copied().unwrap_or(0)
    }

    fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [data_path, captures, other] =
            [Kind::DataPath, Kind::Captures, Kind::Other].map(|kind| self.of(kind));
        write!(f, "{data_path:>10} {captures:>10} {other:>10} {:>10}", self.total())
    }
}

/// A table: each size of body, each side.
pub fn measure(flags: &Flags, requests: u64) -> Result<()> {
    println!("instructions a request, over {requests} requests on one connection");
    println!(
        "{:>8} {:<24} {:>10} {:>10} {:>10} {:>10}",
        "body", "side", "data path", "captures", "other", "process"
    );
    let upstream = Upstream::start()?;
    for bytes in &flags.bodies {
        let body = chat_body(*bytes as usize);
        let count = |name: &str, process: &dyn Fn(&Start) -> Result<Process>| {
            let counts = count(&body, requests, process)?;
            println!("{bytes:>8} {name:<24} {counts}");
            Ok::<Counts, Box<dyn std::error::Error>>(counts)
        };
        let to = upstream.address();
        let bare = count("bare Pingora", &|start| Process::bare(start, to, 1))?;
        let own = PathBuf::from(env!("CARGO_BIN_EXE_rerouter"));
        let gateway = |binary: &Path, captures| {
            let binary = binary.to_owned();
            move |start: &Start| Process::gateway(start, &binary, to, 1, captures)
        };
        count("without captures", &gateway(&own, false))?;
        let all = count("rerouter", &gateway(&own, true))?;
        let ratio = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        println!(
            "{bytes:>8} {:<24} {:>10.3} {:>32.3}",
            "rerouter ÷ bare",
            ratio(all.of(Kind::DataPath), bare.of(Kind::DataPath)),
            ratio(all.total(), bare.total()),
        );
        if let Some(binary) = &flags.beside {
            let other = count("the other binary", &gateway(binary, true))?;
            println!(
                "{bytes:>8} {:<24} {:>10.3} {:>32.3}",
                "rerouter ÷ other binary",
                ratio(all.of(Kind::DataPath), other.of(Kind::DataPath)),
                ratio(all.total(), other.total()),
            );
        }
    }
    Ok(())
}

fn count(
    body: &[u8],
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
    let request = process.request(body);
    let mut load = Load::open(process.address(), 1)?;
    let mut run = |requests| {
        let captures = process.captures()?;
        load.repeat(&request, requests)?;
        process.settle(captures, requests)
    };
    run(WARM_UP)?;
    control(&process, "--zero")?;
    run(requests)?;
    control(&process, "--dump")?;
    drop(process);
    let mut counts = BTreeMap::new();
    for file in std::fs::read_dir(dir.path())? {
        let text = String::from_utf8_lossy(&std::fs::read(file?.path())?).into_owned();
        let summary = text.lines().find_map(|line| {
            line.strip_prefix("totals: ").or_else(|| line.strip_prefix("summary: "))
        });
        let Some(instructions) = summary.and_then(|count| count.trim().parse::<u64>().ok()) else {
            continue;
        };
        let kind = KINDS.iter().find(|(name, _)| text.contains(name)).map(|(_, kind)| *kind);
        *counts.entry(kind.unwrap_or(Kind::Other)).or_insert(0) += instructions / requests;
    }
    if !counts.contains_key(&Kind::DataPath) {
        return Err("no data path among the threads: are there symbols in the binary?".into());
    }
    Ok(Counts(counts))
}

fn control(process: &Process, what: &str) -> Result<()> {
    let done =
        Command::new("callgrind_control").arg(what).arg(process.id().to_string()).output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("callgrind_control {what}: {}", String::from_utf8_lossy(&done.stderr)).into())
}
