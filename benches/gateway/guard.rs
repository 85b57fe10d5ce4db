//! Checks the instructions per request. Their ratio to bare Pingora's must agree with
//! `benches/instructions.txt`. The check uses the profile of the tests, whose binaries exist
//! already. Other profiles have other ratios.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::instructions::{Asked, Counts, Kind, count};
use crate::load::chat_bodies;
use crate::sides::{self, Start};
use crate::upstream::Upstream;

/// The argument with which this binary writes the file.
pub const WRITE: &str = "--write-ratios";

/// Allowed relative difference of a ratio. Repeated counts of the same binary differ by less than a
/// fifth of this.
const TOLERANCE: f64 = 0.05;
/// Allowed relative difference for capture threads. It is larger, as the size of a batch of
/// captures depends on the machine's load. Repeated counts of the same binary differ by up to 0.05.
const CAPTURES_TOLERANCE: f64 = 0.15;
const CAPTURES: &str = "instructions of captures";
const REQUESTS: u64 = 150;
const BODIES: [usize; 2] = [600, 8 << 10];
const HEAD: &str = "\
# What a request takes, over what it takes of bare Pingora's data path, in the profile of the tests.
# A test allows 5 % more or less, of captures 15 %. After a change that is meant: benches/run guard
";

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.txt")
}

/// Measures all ratios, by name.
fn measure() -> Result<BTreeMap<String, f64>> {
    let upstream = Upstream::start()?;
    let to = upstream.address();
    let binary = Path::new(env!("CARGO_BIN_EXE_rerouter"));
    let mut ratios = BTreeMap::new();
    for bytes in BODIES {
        let bodies = chat_bodies(bytes);
        let asked = Asked::chat(&bodies);
        let bare = count(&asked, REQUESTS, &|start: &Start| sides::bare(start, "bare", to, 1, 1))?;
        let gateway = count(&asked, REQUESTS, &|start: &Start| {
            sides::gateway(start, "rerouter", binary, to, 1, true)
        })?;
        println!("{bytes:>8} bare Pingora {bare}\n{bytes:>8} rerouter     {gateway}");
        let unit = bare.of(Kind::DataPath);
        let mut add = |what: &str, part: u64, whole: u64| {
            ratios.insert(format!("{bytes:>4} B: {what}"), part as f64 / whole.max(1) as f64);
        };
        let of = |counts: &Counts, kind| counts.of(kind).instructions;
        let data_path = gateway.of(Kind::DataPath);
        add("instructions of the data path", data_path.instructions, unit.instructions);
        add("allocations of the data path", data_path.allocations, unit.allocations);
        add(CAPTURES, of(&gateway, Kind::Captures), unit.instructions);
    }
    Ok(ratios)
}

/// Measures all ratios, and writes the file.
pub fn write() -> Result<()> {
    let mut text = HEAD.to_owned();
    for (name, ratio) in measure()? {
        writeln!(text, "{name}: {ratio:.3}")?;
    }
    std::fs::write(file(), &text)?;
    print!("{text}");
    Ok(())
}

fn committed() -> Result<BTreeMap<String, f64>> {
    let text = std::fs::read_to_string(file())?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, ratio) =
                line.rsplit_once(": ").ok_or_else(|| format!("no ratio: {line}"))?;
            Ok((name.to_owned(), ratio.parse()?))
        })
        .collect()
}

/// Measures all ratios, and fails if one differs from the committed file.
pub fn check() -> Result<()> {
    let (committed, found) = (committed()?, measure()?);
    if !committed.keys().eq(found.keys()) {
        return Err("benches/instructions.txt has other lines: run benches/run guard".into());
    }
    let mut other = String::new();
    for (name, (found, committed)) in
        found.iter().map(|(name, found)| (name, (found, committed.get(name).unwrap_or(found))))
    {
        println!("{name}: {found:.3} × bare Pingora, committed {committed:.3}");
        let tolerance = if name.ends_with(CAPTURES) { CAPTURES_TOLERANCE } else { TOLERANCE };
        if (found / committed - 1.0).abs() > tolerance {
            let way = if found > committed { "more" } else { "less" };
            writeln!(other, "  {name}: {found:.3} × bare Pingora, {way} than {committed:.3}")?;
        }
    }
    if other.is_empty() {
        return Ok(());
    }
    Err(format!(
        "\n{other}If that is meant, run `benches/run guard` and commit benches/instructions.txt. \
         If not, docs/internals/figures.md says how to find what takes more."
    )
    .into())
}
