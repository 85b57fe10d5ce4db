//! The figures of a window, their medians over windows, and the ratios of each pair.

use std::fmt;

use crate::Result;
use crate::load::Ran;
use crate::process::Cpu;

/// What is measured, as the table has it from left to right: requests a second; microseconds of CPU
/// a request of the data-path threads, and of the whole process; microseconds of latency below
/// which 50 % and 99 % of the answers came.
const COLUMNS: [&str; 5] = ["requests/s", "data path µs", "process µs", "p50 µs", "p99 µs"];

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
        let micros = |part| ran.quantile(part).as_nanos() as f64 / 1000.0;
        let values = [
            ran.answered() as f64 / ran.elapsed.as_secs_f64(),
            each(before.data_path, after.data_path),
            each(before.process, after.process),
            micros(0.5),
            micros(0.99),
        ];
        Figures { answered: ran.answered(), values }
    }
}

/// One size of body: pairs of windows.
pub struct Row {
    bytes: usize,
    /// The side that the gateway is beside.
    beside: &'static str,
    /// Requests a second that both sides were held to.
    pub pace: Option<f64>,
    /// Whether that is because the gateway cannot store as fast as it answers.
    pub slowed: bool,
    pairs: Vec<(Figures, Figures)>,
}

impl Row {
    pub fn new(bytes: usize, beside: &'static str) -> Row {
        Row { bytes, beside, pace: None, slowed: false, pairs: Vec::new() }
    }

    pub fn add(&mut self, bare: Figures, gateway: Figures) {
        self.pairs.push((bare, gateway));
    }

    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    fn medians(&self, of: impl Fn(&(Figures, Figures), usize) -> f64) -> [f64; COLUMNS.len()] {
        std::array::from_fn(|column| {
            median(self.pairs.iter().map(|pair| of(pair, column)).collect())
        })
    }

    /// Whether the figures can be true, on a machine of any speed.
    pub fn check(&self) -> Result<()> {
        for (bare, gateway) in &self.pairs {
            for side in [bare, gateway] {
                let [rate, data_path, process, p50, p99] = side.values;
                let sane = side.answered > 0
                    && rate > 0.0
                    && 0.0 < data_path
                    && data_path <= process
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
}

/// The first line of the table.
pub fn heading() -> String {
    let columns: String = COLUMNS.iter().map(|column| format!("{column:>14}")).collect();
    format!("{:>9}  {:<9}{columns}", "body", "")
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |values: [f64; COLUMNS.len()], digits: usize| -> String {
            values.iter().map(|value| format!("{value:>14.digits$}")).collect()
        };
        let value =
            |side: &Figures, column: usize| side.values.get(column).copied().unwrap_or_default();
        writeln!(
            f,
            "{:>7} B  {:<9}{}",
            self.bytes,
            self.beside,
            line(self.medians(|(bare, _), column| value(bare, column)), 1)
        )?;
        writeln!(
            f,
            "{:>9}  {:<9}{}",
            "",
            "rerouter",
            line(self.medians(|(_, gateway), column| value(gateway, column)), 1)
        )?;
        let ratios =
            self.medians(|(bare, gateway), column| value(gateway, column) / value(bare, column));
        writeln!(f, "{:>9}  {:<9}{}", "", "ratio", line(ratios, 2))?;
        let answered: u64 = self.pairs.iter().map(|(_, gateway)| gateway.answered).sum();
        write!(
            f,
            "{:>9}  {} pairs of windows, captures stored = requests answered = {answered}",
            "",
            self.pairs.len()
        )?;
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    if values.len().is_multiple_of(2) {
        (at(middle.wrapping_sub(1)) + at(middle)) / 2.0
    } else {
        at(middle)
    }
}
