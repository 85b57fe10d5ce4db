//! The columns of `rerouter logs`. Lines come one by one, so each column has a fixed width.

use serde_json::Value;

use super::records::short;
use super::replay::{dollars, rule, target};
use super::table::{clean, no_room};
use super::times;

struct LogColumn {
    title: &'static str,
    /// Position from the left.
    place: usize,
    /// Smallest and usual width, in characters.
    least: usize,
    usual: usize,
    /// Chosen width in characters; 0 if the column is left out.
    width: usize,
    value: fn(&Value) -> String,
}

/// The columns that fit on a terminal.
pub(super) struct LogColumns {
    columns: Vec<LogColumn>,
    left_out: Vec<&'static str>,
    /// Whether a cell that does not fit is cut.
    is_cut: bool,
}

/// Blanks between two columns.
const GAP: usize = 2;

/// All columns, the most important first.
fn by_importance() -> [LogColumn; 10] {
    let column = |place, title, [least, usual]: [usize; 2], value| LogColumn {
        title,
        place,
        least,
        usual,
        width: usual,
        value,
    };
    [
        column(0, "TIME", [20, 20], |one| short(one.get("created_at"))),
        column(9, "ID", [30, 30], |one| short(one.get("id"))),
        column(1, "STATUS", [6, 6], |one| short(one.get("status"))),
        column(3, "SERVED BY", [12, 32], |one| target(one.get("served"))),
        column(6, "COST", [10, 10], |one| dollars(one.get("cost_usd").and_then(Value::as_f64))),
        column(4, "RULE", [12, 24], |one| rule(one.get("decision"))),
        column(2, "ASKED FOR", [12, 24], |one| short(one.get("model"))),
        column(5, "TOKENS", [7, 7], |one| short(one.pointer("/usage/total_tokens"))),
        column(7, "MS", [8, 8], |one| short(one.pointer("/latency/total_ms"))),
        column(8, "USER", [12, 30], |one| short(one.get("user"))),
    ]
}

impl LogColumns {
    /// The columns for a terminal of this width, or all columns without a terminal.
    pub(super) fn fitted(terminal: Option<u16>) -> LogColumns {
        let mut columns = Vec::from(by_importance());
        let mut left_out = Vec::new();
        if times::are_brief(terminal)
            && let Some(time) = columns.iter_mut().find(|column| column.place == 0)
        {
            (time.title, time.least, time.usual) = ("TIME (UTC)", 14, 14);
            time.value = |one| times::brief(one.get("created_at"));
        }
        if let Some(width) = terminal {
            let mut room = usize::from(width) + GAP;
            for column in &mut columns {
                let takes = column.least + GAP;
                column.width = if takes <= room || column.place == 0 { column.least } else { 0 };
                if column.width > 0 {
                    room = room.saturating_sub(takes);
                } else {
                    left_out.push(column.title);
                }
            }
            columns.retain(|column| column.width > 0);
            for column in &mut columns {
                let more = room.min(column.usual - column.least);
                column.width += more;
                room -= more;
            }
        }
        columns.sort_by_key(|column| column.place);
        LogColumns { columns, left_out, is_cut: terminal.is_some() }
    }

    pub(super) fn titles(&self) -> String {
        self.join(|column| column.title.to_owned())
    }

    /// A line that names the columns that do not fit; empty if all do.
    pub(super) fn left_out(&self) -> String {
        no_room(&self.left_out)
    }

    pub(super) fn line(&self, summary: &Value) -> String {
        self.join(|column| clean(&(column.value)(summary).replace(['\n', '\t'], " ")))
    }

    fn join(&self, cell: impl Fn(&LogColumn) -> String) -> String {
        let mut line = String::new();
        for column in &self.columns {
            let (mut cell, width) = (cell(column), column.width);
            if self.is_cut && cell.chars().count() > width {
                cell = cell.chars().take(width - 1).chain(['…']).collect();
            }
            let is_number = matches!(column.title, "TOKENS" | "COST" | "MS");
            line.push_str(&match is_number {
                true => format!("{cell:>width$}  "),
                false => format!("{cell:width$}  "),
            });
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_are_as_wide_as_the_terminal() {
        let summary = json!({
            "created_at": "2026-11-22T00:00:00.123456Z", "id": format!("req_{}", "0".repeat(26)),
            "status": 200, "model": "auto\u{1b}[2J", "user": "someone@example.com",
            "served": {"provider": "a-provider", "model": "a-model-with-a-long-name"},
            "decision": {"recipe": "main", "rule": "default"}, "usage": {"total_tokens": 12},
            "latency": {"total_ms": 345}, "cost_usd": 0.000009,
        });
        let whole = LogColumns::fitted(None);
        let line = whole.line(&summary);
        for word in ["a-provider/a-model-with-a-long-name", "main.default", "auto\\u{1b}[2J", "$0"]
        {
            assert!(line.contains(word), "no {word} in {line}");
        }
        assert_eq!(whole.left_out(), "");
        for width in 20..250 {
            let columns = LogColumns::fitted(Some(width));
            for text in [columns.titles(), columns.line(&summary)] {
                assert!(text.chars().count() <= usize::from(width), "{width}: {text}");
            }
            assert_eq!(columns.left_out().is_empty(), width >= 147, "{width}");
        }
        let narrow = LogColumns::fitted(Some(80));
        let titles: Vec<&str> = narrow.columns.iter().map(|column| column.title).collect();
        assert_eq!(titles, ["TIME (UTC)", "STATUS", "SERVED BY", "COST", "ID"]);
        let line = narrow.line(&summary);
        assert!(
            line.starts_with("11-22 00:00:00  200     a-provider/…   $0.000009  req_"),
            "{line}"
        );
        assert!(narrow.left_out().contains("no room for RULE, ASKED FOR"), "{}", narrow.left_out());
        let wider = LogColumns::fitted(Some(100)).line(&summary);
        assert!(wider.contains("  main.default  "), "{wider}");
        // A wider terminal never shows fewer columns.
        let count = |width| LogColumns::fitted(Some(width)).columns.len();
        assert!((60..200).all(|width| count(width) <= count(width + 1)));
    }
}
