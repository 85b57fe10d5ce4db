//! Text for people: columns that stand below each other, and nothing in them that a terminal would act upon.

use super::terminal::{columns, cut, width};

/// Columns to which a cell is filled up; what follows a longer one stands further to the right.
const CELL: usize = 60;
/// Columns to which a cell is cut where a terminal is narrow.
const LEAST: usize = 12;
/// Blanks between two cells.
const GAP: usize = 2;

/// Rows below a line of titles.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
    worth: Option<Worth>,
}

/// Which columns a narrow terminal shows.
struct Worth {
    /// All of them, that first without which the others say least.
    order: &'static [usize],
    /// So many of them are always there, and whole.
    whole: usize,
}

impl Table {
    /// One without rows.
    pub(super) fn new(titles: &[&str]) -> Table {
        Table { rows: vec![titles.iter().map(|&title| title.to_owned()).collect()], worth: None }
    }

    /// The same: a terminal that has no room for all columns gets those that come first here, the first `whole` of them always.
    pub(super) fn worth(self, order: &'static [usize], whole: usize) -> Table {
        Table { worth: Some(Worth { order, whole }), ..self }
    }

    /// One more row.
    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.iter().map(|cell| clean(&cell.replace(['\n', '\t'], " "))).collect());
    }

    /// Whether there is nothing below the titles.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// It, each line ended: whole, or as wide as the terminal is that it goes to.
    pub(super) fn text(&self) -> String {
        self.within(columns(std::io::stdout()))
    }

    fn within(&self, most: Option<usize>) -> String {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (wide, cell) in widths.iter_mut().zip(row) {
                *wide = (*wide).max(width(cell));
            }
        }
        let given = match most.filter(|most| {
            widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1) > *most
        }) {
            None => widths.iter().copied().map(Some).collect(),
            Some(most) => self.share(&widths, most),
        };
        // On a terminal it fits. Where it goes elsewhere one long cell is not to make every line as
        // long.
        let fill = if most.is_some() { usize::MAX } else { CELL };
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&given).filter_map(|(cell, given)| {
                let (cell, given) = (cut(cell, (*given)?), (*given)?);
                let blanks = given.min(fill).saturating_sub(width(&cell));
                Some(cell + &" ".repeat(blanks))
            });
            text.push_str(cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end());
            text.push('\n');
        }
        let titles = self.rows.first().into_iter().flatten().zip(&given);
        let without: Vec<&str> =
            titles.filter(|(_, given)| given.is_none()).map(|(title, _)| title.as_str()).collect();
        if !without.is_empty() {
            text.push_str(&format!("no room for {}: --json has all\n", without.join(", ")));
        }
        text
    }

    /// How wide each column is where all of them together are too wide; none: it is left out.
    fn share(&self, widths: &[usize], most: usize) -> Vec<Option<usize>> {
        let natural: Vec<usize> = (0..widths.len()).collect();
        let (order, whole) =
            self.worth.as_ref().map_or((natural.as_slice(), 0), |worth| (worth.order, worth.whole));
        let wanted = |column: usize| widths.get(column).copied().unwrap_or_default();
        let (mut given, mut room) = (vec![None; widths.len()], most + GAP);
        for (rank, &column) in order.iter().enumerate() {
            let least = if rank < whole { wanted(column) } else { wanted(column).min(LEAST) };
            let stays = rank < whole || self.worth.is_none() || least + GAP <= room;
            if let Some(given) = given.get_mut(column).filter(|_| stays) {
                *given = Some(least);
                room = room.saturating_sub(least + GAP);
            }
        }
        // What is left goes to those that are cut, the narrowest first.
        while room > 0 {
            let cut = given
                .iter_mut()
                .zip(widths)
                .filter_map(|(given, wanted)| given.as_mut().filter(|given| **given < *wanted));
            let Some(narrowest) = cut.min_by_key(|given| **given) else { break };
            *narrowest += 1;
            room -= 1;
        }
        given
    }
}

/// What came from elsewhere, as it may be shown: what moves the cursor, changes colours or turns the direction of the text
/// is written out.
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
    fn columns_stand_below_each_other_and_terminals_are_left_alone() {
        let mut table = Table::new(&["ID", "TEXT", "END"]);
        assert!(table.is_empty());
        table.row(["a".into(), "é\u{1b}[2J\nb\u{9b}\u{202e}".into(), String::new()]);
        table.row(["long".into(), "x".repeat(80), "1".into()]);
        table.row(["日本".into(), "e\u{301}🚀".into(), "2".into()]);
        let [title, short] = [" ".repeat(58), " ".repeat(59)];
        let expected = format!(
            "ID    TEXT{title}END\na     é\\u{{1b}}[2J b\\u{{9b}}\\u{{202e}}\nlong  {}  1\n日本  e\u{301}🚀{short}2\n",
            "x".repeat(80),
        );
        assert_eq!(
            table.within(None),
            expected,
            "nothing is cut where nobody said how wide it may be"
        );
        let cut = table.within(Some(80));
        assert!(
            cut.lines().all(|line| width(line) <= 80)
                && cut.contains(&format!("long  {}…  1\n", "x".repeat(68))),
            "{cut}"
        );
        assert!(table.within(Some(200)).contains(&"x".repeat(80)), "nor where there is room");
        assert_eq!(clean("a\tb\r\n\u{7}"), "a\tb\\r\n\\u{7}");
    }

    #[test]
    fn a_narrow_terminal_gets_what_is_worth_most_whole() {
        let mut table =
            Table::new(&["TIME", "ID", "STATE", "MODEL", "MS"]).worth(&[1, 0, 4, 3, 2], 2);
        table.row([
            "2026-11-22T00:00:00".into(),
            "req_1".into(),
            "completed".into(),
            "a model with a long name".into(),
            "7".into(),
        ]);
        let wide = table.within(None);
        assert_eq!(table.within(Some(80)), wide);
        let (natural, least) = (width(wide.lines().nth(1).unwrap()), 19 + 5 + 3 * GAP + 2);
        for most in 1..natural + 3 {
            let text = table.within(Some(most));
            let widest = text.lines().take(2).map(width).max().unwrap();
            assert!(widest <= most.max(19 + 5 + GAP), "{most}\n{text}");
            assert!(text.contains("2026-11-22T00:00:00  req_1"), "{text}");
            assert_eq!(
                text.contains("no room for"),
                most < least + LEAST + 9 + GAP,
                "{most}\n{text}"
            );
        }
        assert!(
            table.within(Some(60)).contains("  a model with a l…  7\n"),
            "{}",
            table.within(Some(60))
        );
        assert!(
            table.within(Some(40)).ends_with("no room for STATE, MODEL: --json has all\n"),
            "{}",
            table.within(Some(40))
        );
        // Nothing is left out where nothing is said of worth; what is long shares.
        let mut table = Table::new(&["FIELD", "A", "B"]);
        table.row(["text".into(), "x".repeat(50), "y".repeat(50)]);
        let text = table.within(Some(60));
        assert_eq!(
            text.lines().nth(1).unwrap(),
            format!("text   {}…  {}…", "x".repeat(25), "y".repeat(24)),
            "{text}"
        );
    }
}
