//! Figures of measured windows: medians over windows, and ratios of pairs.

use std::fmt;
use std::time::Duration;

use crate::Result;
use crate::load::Ran;
use crate::process::Cpu;

/// The columns of the table: requests per second; CPU microseconds per request of the data-path
/// threads, of the capture threads and of the whole process, and the parts of the latter; switches
/// of threads per request; latency in microseconds at the 50 % and 99 % quantiles.
const COLUMNS: [&str; 9] = [
    "requests/s",
    "data path µs",
    "captures µs",
    "process µs",
    "user µs",
    "kernel µs",
    "switches",
    "p50 µs",
    "p99 µs",
];

/// A column of the table.
#[derive(Clone, Copy)]
pub enum Column {
    Rate = 0,
    DataPath,
    Captures,
    Process,
}

/// The figures of one window.
#[derive(Clone, Copy)]
pub struct Figures {
    answered: u64,
    values: [f64; COLUMNS.len()],
}

impl Figures {
    pub fn of(ran: &Ran, before: Cpu, after: Cpu) -> Figures {
        let each =
            |before: u64, after: u64| (after - before) as f64 / 1000.0 / ran.answered() as f64;
        let process = each(before.process, after.process);
        let (user, kernel) = (after.user - before.user, after.kernel - before.kernel);
        let part = |ticks: u64| process * ticks as f64 / (user + kernel).max(1) as f64;
        let micros = |part| quantile(&ran.latencies, part).as_nanos() as f64 / 1000.0;
        let values = [
            ran.answered() as f64 / ran.elapsed.as_secs_f64(),
            each(before.data_path, after.data_path),
            each(before.captures, after.captures),
            process,
            part(user),
            part(kernel),
            (after.switches - before.switches) as f64 / ran.answered() as f64,
            micros(0.5),
            micros(0.99),
        ];
        Figures { answered: ran.answered(), values }
    }

    fn value(&self, column: usize) -> f64 {
        self.values.get(column).copied().unwrap_or_default()
    }
}

/// The quantile `part` of sorted times.
pub fn quantile(sorted: &[Duration], part: f64) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * part).round() as usize).copied().unwrap_or_default()
}

/// Median, minimum and maximum over windows.
#[derive(Clone, Copy)]
pub struct Spread {
    pub median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    pub fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            (at(middle.wrapping_sub(1)) + at(middle)) / 2.0
        } else {
            at(middle)
        };
        Spread { median, least: at(0), most: at(values.len().wrapping_sub(1)) }
    }
}

/// Writes `median (least–most)` with the formatter's precision.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let Spread { median, least, most } = self;
        write!(f, "{median:.digits$} ({least:.digits$}–{most:.digits$})")
    }
}

/// The pairs of windows for one body size.
pub struct Row {
    bytes: usize,
    /// Names of the first and second side.
    sides: [&'static str; 2],
    /// Requests per second, if both sides were held to a rate.
    pub pace: Option<f64>,
    /// Whether that rate was set because the gateway answers faster than it can store.
    pub slowed: bool,
    pairs: Vec<(Figures, Figures)>,
    /// The shares of the machine's time that other processes used, and that the hypervisor took.
    pub others: [f64; 2],
}

/// The share of the machine's time from which a row is marked.
const NEIGHBOURS: f64 = 0.03;

impl Row {
    pub fn new(bytes: usize, sides: [&'static str; 2]) -> Row {
        Row { bytes, sides, pace: None, slowed: false, pairs: Vec::new(), others: [0.0; 2] }
    }

    pub fn add(&mut self, first: Figures, second: Figures) {
        self.pairs.push((first, second));
    }

    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// The second side's figure.
    pub fn value(&self, column: Column) -> Spread {
        Spread::of(self.pairs.iter().map(|(_, second)| second.value(column as usize)))
    }

    /// The ratio of the second side's figure to the first side's.
    pub fn ratio(&self, column: Column) -> Spread {
        let column = column as usize;
        Spread::of(
            self.pairs.iter().map(|(first, second)| second.value(column) / first.value(column)),
        )
    }

    /// Fails if the figures are impossible on any machine.
    pub fn check(&self) -> Result<()> {
        for (first, second) in &self.pairs {
            for side in [first, second] {
                let [rate, data_path, captures, process, .., p50, p99] = side.values;
                let sane = side.answered > 0
                    && rate > 0.0
                    && 0.0 < data_path
                    && data_path + captures <= process
                    && 0.0 < p50
                    && p50 <= p99;
                if !sane {
                    return Err(format!(
                        "figures that cannot be: {:?} of {} answers",
                        side.values, side.answered
                    )
                    .into());
                }
            }
        }
        if self.pairs.is_empty() { Err("no windows".into()) } else { Ok(()) }
    }

    fn medians(&self, of: impl Fn(&(Figures, Figures), usize) -> f64) -> [f64; COLUMNS.len()] {
        std::array::from_fn(|column| {
            Spread::of(self.pairs.iter().map(|pair| of(pair, column))).median
        })
    }
}

/// The head of the table.
pub fn heading() -> String {
    let columns: String = COLUMNS.iter().map(|column| format!("{column:>14}")).collect();
    format!("{:>9}  {:<22}{columns}", "body", "")
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |name: &str, values: [f64; COLUMNS.len()], digits: usize| -> String {
            // A figure that one side lacks, such as that of captures, has no ratio.
            let cell = |value: &f64| match value.is_finite() {
                true if *value < 1.0 => format!("{value:>14.2}"),
                true => format!("{value:>14.digits$}"),
                false => format!("{:>14}", "–"),
            };
            format!("{name:<22}{}", values.iter().map(cell).collect::<String>())
        };
        let [first, second] = self.sides;
        let ratios =
            self.medians(|(first, second), column| second.value(column) / first.value(column));
        let firsts = self.medians(|(figures, _), column| figures.value(column));
        let seconds = self.medians(|(_, figures), column| figures.value(column));
        writeln!(f, "{:>7} B  {}", self.bytes, line(first, firsts, 1))?;
        writeln!(f, "{:>9}  {}", "", line(second, seconds, 1))?;
        writeln!(f, "{:>9}  {}", "", line("ratio", ratios, 2))?;
        let answered: u64 = self.pairs.iter().map(|(_, second)| second.answered).sum();
        write!(
            f,
            "{:>9}  {} pairs of windows, {answered} requests answered; process ÷ {first}: {:.2}",
            "",
            self.pairs.len(),
            self.ratio(Column::Process),
        )?;
        if self.others.iter().any(|share| *share > NEIGHBOURS) {
            let [others, stolen] = self.others.map(|share| share * 100.0);
            write!(
                f,
                "\n{:>9}  NEIGHBOURS WORKED: {others:.0} % of the machine, {stolen:.0} % stolen",
                ""
            )?;
        }
        if let Some(pace) = self.pace {
            write!(
                f,
                "\n{:>9}  both sides held to {pace:.0} requests/s{}",
                "",
                if self.slowed { ": faster, captures were dropped" } else { "" }
            )?;
        }
        Ok(())
    }
}
