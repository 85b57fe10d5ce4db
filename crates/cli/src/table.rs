//! Tables for people: aligned columns that fit the terminal. Characters that a terminal would act
//! on are escaped.

use comfy_table::{ColumnConstraint, ContentArrangement, Row, Width, presets};

use super::terminal::{self, TextStyle};

/// Blanks between two columns.
const GAP: u16 = 2;
/// On a narrow terminal, cells are cut down to this width before whole columns are dropped.
const NARROWEST: u16 = 12;
/// Most characters of a cell; `--json` prints longer ones whole.
const CELL_CHARACTERS: usize = 4_000;

/// Rows below a line of titles.
pub(super) struct TextTable {
    titles: Vec<String>,
    rows: Vec<Row>,
    priority: Option<Priority>,
}

/// The columns that a narrow terminal keeps.
struct Priority {
    /// All columns, the most important first.
    order: Vec<usize>,
    /// Number of first columns that are always shown and never cut.
    whole: usize,
}

impl TextTable {
    pub(super) fn new(titles: &[&str]) -> TextTable {
        TextTable::titled(titles.iter().map(|title| (*title).to_owned()).collect())
    }

    pub(super) fn titled(titles: Vec<String>) -> TextTable {
        TextTable { titles, rows: Vec::new(), priority: None }
    }

    /// Lets a narrow terminal drop columns, the last of `order` first. The first `whole` columns
    /// of `order` are always shown in full.
    pub(super) fn with_priority(self, order: &[usize], whole: usize) -> TextTable {
        TextTable { priority: Some(Priority { order: order.to_vec(), whole }), ..self }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().map(|cell| {
            let one_line = cell.replace(['\n', '\t'], " ");
            clean(&one_line.chars().take(CELL_CHARACTERS).collect::<String>())
        });
        let mut row = Row::from(cells.collect::<Vec<_>>());
        row.max_height(1);
        self.rows.push(row);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines of the table, fitted to the terminal if standard output is one.
    pub(super) fn text(&self) -> String {
        let text = self.render(terminal::width());
        match text.split_once('\n') {
            Some((titles, rows)) => {
                format!("{}\n{rows}", terminal::styled(titles, TextStyle::Title))
            }
            None => text,
        }
    }

    fn render(&self, terminal: Option<u16>) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_truncation_indicator("…");
        table.set_header(Row::from(self.titles.clone())).add_rows(self.rows.iter().cloned());
        table.column_iter_mut().for_each(|column| _ = column.set_padding((0, GAP)));
        let mut dropped = Vec::new();
        if let Some(width) = terminal {
            // The gap after the last column is trimmed.
            let width = width.saturating_add(GAP);
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
            if let Some(priority) = &self.priority {
                dropped = priority.fit(&mut table, width);
            }
        }
        let mut text = table.trim_fmt();
        text.push('\n');
        let titles = dropped.iter().filter_map(|at| self.titles.get(*at)).map(String::as_str);
        text.push_str(&no_room(&titles.collect::<Vec<_>>()));
        text
    }
}

impl Priority {
    /// Constrains the columns to a width, and returns those that are dropped.
    fn fit(&self, table: &mut comfy_table::Table, width: u16) -> Vec<usize> {
        let (widths, mut room, mut dropped) =
            (table.column_max_content_widths(), width, Vec::new());
        for (rank, &index) in self.order.iter().enumerate() {
            let (Some(column), Some(&content)) = (table.column_mut(index), widths.get(index))
            else {
                continue;
            };
            let least = GAP + if rank < self.whole { content } else { content.min(NARROWEST) };
            let constraint = if rank < self.whole {
                ColumnConstraint::ContentWidth
            } else if least <= room {
                ColumnConstraint::LowerBoundary(Width::Fixed(least))
            } else {
                dropped.push(index);
                column.set_constraint(ColumnConstraint::Hidden);
                continue;
            };
            column.set_constraint(constraint);
            room = room.saturating_sub(least);
        }
        dropped.sort_unstable();
        dropped
    }
}

/// A line that names the columns that do not fit; empty if all do.
pub(super) fn no_room(titles: &[&str]) -> String {
    match titles.is_empty() {
        true => String::new(),
        false => format!("(no room for {}; --json prints everything)\n", titles.join(", ")),
    }
}

/// Makes foreign text safe to print: escapes characters that move the cursor, change colours or
/// reverse the direction of text.
pub(super) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.extend(c.escape_unicode())
            }
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_control_characters_escaped() {
        let mut table = TextTable::new(&["ID", "TEXT", "END"]);
        assert!(table.is_empty());
        table.row(["a".into(), "é\u{1b}[2J\nb\u{9b}\u{202e}".into(), String::new()]);
        table.row(["long".into(), "x".repeat(80), "1".into()]);
        table.row(["日本".into(), "e\u{301}🚀".into(), "2".into()]);
        let [title, short] = [" ".repeat(78), " ".repeat(79)];
        let expected = format!(
            "ID    TEXT{title}END\na     é\\u{{1b}}[2J b\\u{{9b}}\\u{{202e}}\nlong  {}  1\n\
             日本  e\u{301}🚀{short}2\n",
            "x".repeat(80),
        );
        assert_eq!(table.render(None), expected, "nothing is cut without a terminal");
        assert!(table.render(Some(200)).contains(&"x".repeat(80)), "nor if there is room");
        let cut = table.render(Some(40));
        assert!(cut.lines().all(|line| line.chars().count() <= 40) && cut.contains("x…"), "{cut}");
        assert_eq!(clean("a\tb\r\n\u{7}"), "a\tb\\r\n\\u{7}");
    }

    #[test]
    fn a_narrow_terminal_drops_the_least_important_columns() {
        let mut table = TextTable::new(&["TIME", "ID", "STATE", "MODEL", "MS"])
            .with_priority(&[1, 0, 4, 3, 2], 2);
        let cells = ["2026-11-22T00:00:00", "req_1", "completed", "a-model-with-a-long-name", "7"];
        table.row(cells.map(str::to_owned));
        let wide = table.render(None);
        assert_eq!(table.render(Some(80)), wide);
        for columns in 1..80 {
            let text = table.render(Some(columns));
            let widest = text.lines().take(2).map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= usize::from(columns).max(19 + 5 + 2), "{columns}\n{text}");
            assert!(text.contains("2026-11-22T00:00:00  req_1"), "{text}");
            let least = 19 + 5 + 2 + 12 + 9 + 4 * 2;
            assert_eq!(text.contains("no room for"), columns < least, "{columns}\n{text}");
        }
        assert!(table.render(Some(60)).contains("  7\n"), "{}", table.render(Some(60)));
        let narrow = table.render(Some(40));
        assert!(
            narrow.ends_with("(no room for STATE, MODEL; --json prints everything)\n"),
            "{narrow}"
        );
        // Without priorities, long columns share the room and none is dropped.
        let mut table = TextTable::new(&["FIELD", "A", "B"]);
        table.row(["text".into(), "x".repeat(50), "y".repeat(50)]);
        let text = table.render(Some(60));
        assert!(text.contains("x…  y") && text.trim_end().ends_with("y…"), "{text}");
    }

    #[test]
    fn a_cell_is_bounded() {
        let mut table = TextTable::new(&["A"]);
        table.row(["x".repeat(200_000)]);
        assert_eq!(table.render(None).len(), "A\n\n".len() + CELL_CHARACTERS);
        assert!(table.render(Some(10)).contains("xxxxxxxxx…"));
    }
}
