//! Compares all sides with bare Pingora in one run: CPU, throughput, latency, streams and memory.
//! Writes tables and a chart.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use comfy_table::{Table, presets::ASCII_MARKDOWN};

use crate::Result;
use crate::chart;
use crate::figures::{Column, Row, Spread, heading};
use crate::pair::{Kind, Pair};
use crate::process::Memory;
use crate::rivals::Rival;
use crate::streams::{Streamed, Streams};
use crate::upstream::Shape;

/// Number of streams for a side that cannot answer [`Plan::rate`] requests per second.
const FEW_STREAMS: usize = 10;

/// The settings of a comparison.
pub struct Plan {
    pub windows: usize,
    pub window: Duration,
    pub connections: u16,
    pub threads: u16,
    pub bodies: Vec<usize>,
    /// Requests per second at which latencies are measured.
    pub rate: f64,
    /// Streams with frequent events, for CPU use.
    pub busy: Streams,
    /// More streams with rare events, for memory use.
    pub many: Streams,
    pub rivals: Vec<Rival>,
    /// Whether sides run on one processor, and the load and the upstream on another.
    pub pinned: bool,
    /// The path of the chart, if one is written.
    pub chart: Option<PathBuf>,
    /// Whether system calls are counted, and memory is read [`QUIET`] after the load.
    pub thorough: bool,
}

impl Plan {
    pub fn new(windows: usize, window: Duration, connections: u16, threads: u16) -> Plan {
        let shape = |events, millis| Shape { events, gap: Duration::from_millis(millis) };
        Plan {
            windows,
            window,
            connections,
            threads,
            bodies: vec![600, 8 << 10, 100 << 10],
            rate: 500.0,
            busy: Streams { count: 100, shape: shape(100, 20) },
            many: Streams { count: 2_000, shape: shape(10, 1_000) },
            rivals: Vec::new(),
            pinned: false,
            chart: None,
            thorough: false,
        }
    }
}

/// The measurements of one side.
struct Measured {
    name: &'static str,
    /// Whether its data-path threads are known by their names.
    named: bool,
    rows: Vec<Row>,
    /// Requests per second for `added`.
    rate: f64,
    added: Vec<[[f64; 2]; 2]>,
    busy: Vec<[Streamed; 2]>,
    many: Vec<[Streamed; 2]>,
    /// Memory before the load and after all rows, of bare Pingora and of the side.
    idle: [Memory; 2],
    loaded: [Memory; 2],
    /// Memory [`QUIET`] after the last load, if that was waited for.
    after: Option<[Memory; 2]>,
}

/// Time after the last load in which memory may go back.
const QUIET: Duration = Duration::from_secs(120);

/// Measures all sides and prints the results. If a side cannot be measured, prints the reason.
pub fn compare(plan: &Plan) -> Result<()> {
    println!(
        "{} pairs of windows of {:?} a side, {} connections, {} data-path threads; \
         medians (least–most)",
        plan.windows, plan.window, plan.connections, plan.threads
    );
    let mut sides = vec![Kind::Gateway, Kind::NoneKept, Kind::BareIsolated];
    sides.extend(plan.rivals.iter().map(|rival| Kind::Rival(*rival)));
    let (mut all, mut missing, mut own) = (Vec::new(), String::new(), Ok(()));
    for kind in sides {
        match (measure(plan, kind), kind) {
            (Ok(measured), _) => all.push(measured),
            (Err(why), Kind::Rival(rival)) => {
                writeln!(missing, "missing: {}: {why}", rival.name())?
            }
            // The figures of the other sides are still useful.
            (Err(why), _) => own = Err(why),
        }
    }
    println!("\n{}\n\n{}\n{missing}", cpu_table(plan, &all), other_table(plan, &all));
    if let Some(path) = &plan.chart {
        std::fs::write(path, picture(plan, &all))?;
        println!("chart: {}", path.display());
    }
    own
}

fn measure(plan: &Plan, kind: Kind) -> Result<Measured> {
    let Plan { connections, threads, window, windows, .. } = *plan;
    let start = || {
        let pair = Pair::start(connections, threads, window, kind)?;
        if plan.pinned { pair.pin().map(|()| pair) } else { Ok(pair) }
    };
    let pair = start()?;
    let memory = |pair: &Pair| [pair.beside.memory(), pair.side.memory()];
    let idle = memory(&pair);
    println!("\n{}", heading());
    let mut rows = Vec::new();
    for bytes in &plan.bodies {
        let row = pair.row(*bytes, windows, None)?;
        row.check()?;
        println!("{row}");
        if plan.thorough {
            let [bare, side] = pair.system_calls(*bytes)?;
            println!("{:>9}  system calls a request: {bare:.1}, {side:.1}", "");
        }
        rows.push(row);
    }
    let loaded = memory(&pair);
    // A side whose figure is asked for; the others would take two minutes each.
    let after = (plan.thorough && matches!(kind, Kind::Gateway)).then(|| {
        std::thread::sleep(QUIET);
        memory(&pair)
    });
    let reached = rows.first().map_or(0.0, |row| row.value(Column::Rate).median);
    let slow = reached < 2.0 * plan.rate;
    let rate = if slow { reached / 4.0 } else { plan.rate };
    let small = plan.bodies.first().copied().unwrap_or(600);
    let added = pair.added(small, windows, rate)?;
    println!("{}", added_lines(rate, &added));
    drop(pair);
    // New processes, as the memory of streams shows only in processes that had none before.
    let pair = start()?;
    let many = if slow { Vec::new() } else { pair.streams(plan.many, windows)? };
    let few = Streams { count: FEW_STREAMS.min(plan.busy.count), ..plan.busy };
    let few = if slow { few } else { plan.busy };
    let busy = pair.streams(few, windows)?;
    for (streams, found) in [(few, &busy), (plan.many, &many)] {
        if !found.is_empty() {
            println!("{}", stream_lines(streams, found));
        }
    }
    let (name, named) = (pair.side.name(), pair.side.data_path.is_some());
    Ok(Measured { name, named, rows, rate, added, busy, many, idle, loaded, after })
}

/// Medians of bare Pingora and of the side. The tables show their ratios.
fn both<T>(found: &[[T; 2]], figure: impl Fn(&T) -> f64) -> String {
    let of =
        |which: usize| Spread::of(found.iter().filter_map(|both| both.get(which)).map(&figure));
    format!("{:.1}, {:.1}", of(0), of(1))
}

fn added_lines(rate: f64, added: &[[[f64; 2]; 2]]) -> String {
    let [p50, p99] = [0, 1]
        .map(|which| both(added, |both: &[f64; 2]| both.get(which).copied().unwrap_or_default()));
    format!("  at {rate:.0} requests/s, µs added to the upstream's own: p50 {p50}; p99 {p99}")
}

fn stream_lines(streams: Streams, found: &[[Streamed; 2]]) -> String {
    format!(
        "  {} streams, an event each {:?}: CPU µs an event {}; µs of transit p50 {}; p99.9 {}; \
         KiB a stream {}",
        streams.count,
        streams.shape.gap,
        both(found, |streamed| streamed.cpu_us),
        both(found, |streamed| streamed.p50_us),
        both(found, |streamed| streamed.p999_us),
        both(found, |streamed| streamed.kib),
    )
}

impl Measured {
    /// The ratio of the side to bare Pingora, in a figure of streams.
    fn of(streams: &[[Streamed; 2]], figure: impl Fn(&Streamed) -> f64) -> Option<Spread> {
        let ratio = |[bare, side]: &[Streamed; 2]| figure(side) / figure(bare);
        (!streams.is_empty()).then(|| Spread::of(streams.iter().map(ratio)))
    }

    fn added(&self, which: usize) -> Spread {
        let at = |both: &[f64; 2]| both.get(which).copied().unwrap_or_default();
        Spread::of(self.added.iter().map(|[bare, side]| at(side) / at(bare)))
    }

    fn cpu(&self) -> Vec<Spread> {
        self.rows.iter().map(|row| row.ratio(Column::Process)).collect()
    }

    /// The ratio of CPU per event in busy streams.
    fn event(&self) -> Option<Spread> {
        Measured::of(&self.busy, |streamed| streamed.cpu_us)
    }
}

fn table(columns: Vec<String>) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(columns);
    table
}

fn cell(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "–".to_owned(), |spread| spread.to_string())
}

fn cpu_table(plan: &Plan, all: &[Measured]) -> Table {
    let mut columns = vec![String::new()];
    columns.extend(plan.bodies.iter().map(|bytes| format!("CPU ÷ bare, {bytes} B")));
    let small = plan.bodies.first().copied().unwrap_or_default();
    columns.extend(
        ["data path µs", "captures µs", "process µs", "requests/s ÷ bare"]
            .map(|what| format!("{what}, {small} B")),
    );
    let mut table = table(columns);
    for side in all {
        let Some(row) = side.rows.first() else { continue };
        let mut cells = vec![side.name.to_owned()];
        cells.extend(side.cpu().iter().map(Spread::to_string));
        for column in [Column::DataPath, Column::Captures] {
            cells.push(if side.named { format!("{:.1}", row.value(column)) } else { cell(None) });
        }
        cells.push(format!("{:.1}", row.value(Column::Process)));
        cells.push(row.ratio(Column::Rate).to_string());
        table.add_row(cells);
    }
    table
}

fn other_table(plan: &Plan, all: &[Measured]) -> Table {
    let mut table = table(
        [
            "",
            "at requests/s",
            "added p50 ÷ bare",
            "added p99 ÷ bare",
            "CPU an SSE event ÷ bare",
            &format!("p99.9 of transit, {} streams, ÷ bare", plan.many.count),
            "KiB a stream above bare",
            "MB at rest",
            "MB at most",
            "MB two minutes later",
        ]
        .map(str::to_owned)
        .to_vec(),
    );
    let megabytes = |bytes: u64| format!("{:.0}", bytes as f64 / 1e6);
    for side in all {
        // Only the first window counts, as later ones reuse memory.
        let first = side.many.first().map(|[bare, side]| format!("{:.0}", side.kib - bare.kib));
        table.add_row([
            side.name.to_owned(),
            format!("{:.0}", side.rate),
            side.added(0).to_string(),
            side.added(1).to_string(),
            cell(side.event()),
            cell(Measured::of(&side.many, |streamed| streamed.p999_us)),
            first.unwrap_or_else(|| "–".to_owned()),
            megabytes(side.idle[1].resident),
            megabytes(side.loaded[1].peak),
            side.after.map_or_else(|| "–".to_owned(), |after| megabytes(after[1].resident)),
        ]);
    }
    if let Some(side) = all.first() {
        let mut cells = vec!["bare Pingora".to_owned(), format!("{:.0}", side.rate)];
        cells.resize(6, "1".to_owned());
        cells.push("0".to_owned());
        cells.extend([side.idle[0].resident, side.loaded[0].peak].map(megabytes));
        cells.extend(side.after.map(|after| megabytes(after[0].resident)));
        table.add_row(cells);
    }
    table
}

fn picture(plan: &Plan, all: &[Measured]) -> String {
    let mut groups: Vec<String> =
        plan.bodies.iter().map(|bytes| format!("request of {bytes} B")).collect();
    groups.push("SSE event".to_owned());
    let mut sides = vec![("bare Pingora", vec![Some(1.0); groups.len()])];
    for side in all {
        let mut values: Vec<Option<f64>> =
            side.cpu().iter().map(|spread| Some(spread.median)).collect();
        values.push(side.event().map(|spread| spread.median));
        sides.push((side.name, values));
    }
    chart::bars("CPU of the whole process, bare Pingora = 1", &groups, &sides)
}
