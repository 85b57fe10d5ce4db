//! Text for people: columns that stand below each other, and nothing in them that a terminal would act upon.

/// Characters of one cell; more is cut.
const CELL: usize = 60;

/// Rows below a line of titles.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// One without rows.
    pub(super) fn new(titles: &[&str]) -> Table {
        Table { rows: vec![titles.iter().map(|&title| title.to_owned()).collect()] }
    }

    /// One more row.
    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.iter().map(|cell| short(cell)).collect());
    }

    /// Whether there is nothing below the titles.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// It, each line ended.
    pub(super) fn text(&self) -> String {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// What came from elsewhere, as it may be shown: what moves the cursor, changes colours or turns the direction of the text
/// is written out.
pub(super) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.extend(c.escape_unicode()),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

fn short(text: &str) -> String {
    let line = clean(&text.replace(['\n', '\t'], " "));
    match line.char_indices().nth(CELL) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other_and_terminals_are_left_alone() {
        let mut table = Table::new(&["ID", "TEXT", "END"]);
        assert!(table.is_empty());
        table.row(["a".into(), "é\u{1b}[2J\nb\u{9b}\u{202e}".into(), String::new()]);
        table.row(["long".into(), "x".repeat(80), "1".into()]);
        let expected =
            format!("ID    TEXT{}END\na     é\\u{{1b}}[2J b\\u{{9b}}\\u{{202e}}\nlong  {}…  1\n", " ".repeat(59), "x".repeat(60));
        assert_eq!(table.text(), expected);
        assert_eq!(clean("a\tb\r\n\u{7}"), "a\tb\\r\n\\u{7}");
    }
}
