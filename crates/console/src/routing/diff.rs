//! Differences between two documents by line, and by word within changed lines.

use std::time::{Duration, Instant};

use maud::{Markup, html};
use similar::{ChangeTag, TextDiff};

use rerouter_base::blocking::blocking;
use rerouter_base::error::Result;

/// Unchanged lines around each change.
const CONTEXT: usize = 3;
/// Most lines that are shown. Nobody reads more.
const LINES: usize = 2_000;
/// Time to search for the smallest difference. After it, a larger one is used.
const PATIENCE: Duration = Duration::from_millis(200);

#[derive(Debug, PartialEq)]
pub(super) struct DiffLine {
    /// `-`, `+`, or a space for an unchanged line.
    pub(super) sign: char,
    /// Line numbers before and after the change, from 1.
    pub(super) numbers: (Option<usize>, Option<usize>),
    /// Parts of the line in order, each with whether it differs.
    pub(super) parts: Vec<(bool, String)>,
}

/// Unchanged lines between its groups are left out.
#[derive(Debug, Default, PartialEq)]
pub(super) struct DocumentDiff {
    pub(super) groups: Vec<Vec<DiffLine>>,
    /// Whether lines beyond [`LINES`] were left out.
    pub(super) is_cut: bool,
}

/// Compares two documents, on a thread that may block. Whitespace at the end of a document does not
/// count.
pub(super) async fn compare(before: String, after: String) -> Result<DocumentDiff> {
    Ok(blocking(move || difference(&before, &after)).await?)
}

fn difference(before: &str, after: &str) -> DocumentDiff {
    let [before, after] = [before, after].map(|text| format!("{}\n", text.trim_end()));
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(&before, &after);
    let words_until = Instant::now().checked_add(PATIENCE);
    let (mut found, mut lines) = (DocumentDiff::default(), 0);
    for group in diff.grouped_ops(CONTEXT) {
        let mut shown = Vec::new();
        for change in group.iter().flat_map(|op| diff.iter_inline_changes_deadline(op, words_until))
        {
            if lines == LINES {
                found.is_cut = true;
                break;
            }
            lines += 1;
            let part = |(differs, text): (bool, std::borrow::Cow<'_, str>)| {
                (differs, text.trim_end_matches(['\r', '\n']).to_owned())
            };
            shown.push(DiffLine {
                sign: match change.tag() {
                    ChangeTag::Delete => '-',
                    ChangeTag::Insert => '+',
                    ChangeTag::Equal => ' ',
                },
                numbers: (
                    change.old_index().map(|index| index + 1),
                    change.new_index().map(|index| index + 1),
                ),
                parts: change.iter_strings_lossy().map(part).collect(),
            });
        }
        found.groups.push(shown);
        if found.is_cut {
            break;
        }
    }
    found
}

impl DocumentDiff {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// `label` says what is compared with what.
    pub(super) fn show(&self, label: &str) -> Markup {
        html! {
            div.scroll.rt-diff tabindex="0" role="group" aria-label=(label) {
                @for (at, group) in self.groups.iter().enumerate() {
                    @if at > 0 { div.rt-gap aria-hidden="true" { "⋯" } }
                    @for line in group { (show_line(line)) }
                }
                @if self.is_cut {
                    p.muted { "There are more lines. Compare the rest with " code {
                        "rerouter config diff" } "." }
                }
            }
        }
    }
}

fn show_line(line: &DiffLine) -> Markup {
    let number = |number: Option<usize>| number.map(|at| at.to_string()).unwrap_or_default();
    let text = html! {
        span.rt-number aria-hidden="true" { (number(line.numbers.0)) }
        span.rt-number aria-hidden="true" { (number(line.numbers.1)) }
        span.rt-sign { (line.sign) }
        span.rt-text {
            @for (differs, text) in &line.parts {
                @if *differs { mark { (text) } } @else { (text) }
            }
        }
    };
    html! {
        @match line.sign {
            '-' => del.rt-line { (text) },
            '+' => ins.rt-line { (text) },
            _ => div.rt-line { (text) },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn side(diff: &DocumentDiff, without: char) -> Vec<String> {
        let lines = diff.groups.iter().flatten().filter(|line| line.sign != without);
        lines.map(|line| line.parts.iter().map(|(_, text)| text.as_str()).collect()).collect()
    }

    #[test]
    fn the_words_that_differ_are_marked() {
        let diff = difference("a: 1\ntarget: p/one\nb: 2", "a: 1\ntarget: p/two\nb: 2\n");
        let signs: String = diff.groups[0].iter().map(|line| line.sign).collect();
        assert_eq!(signs, " -+ ");
        assert_eq!(diff.groups[0][1].numbers, (Some(2), None));
        let marked = |line: &DiffLine| {
            let marked = line.parts.iter().filter(|(differs, _)| *differs);
            marked.map(|(_, text)| text.as_str()).collect::<String>()
        };
        assert!(marked(&diff.groups[0][1]).contains("one"), "{diff:?}");
        assert!(marked(&diff.groups[0][2]).contains("two"), "{diff:?}");
        assert!(!marked(&diff.groups[0][2]).contains("target"), "{diff:?}");
        assert!(difference("a\nb", "a\nb\n\n").is_empty());
        let hostile = difference("x", "<script>alert(1)</script>").show("<b>");
        assert!(!hostile.into_string().contains("<script"));
    }

    #[test]
    fn a_long_difference_is_cut() {
        let many: String = (0..3_000).map(|line| format!("{line}\n")).collect();
        let diff = difference("", &many);
        assert!(diff.is_cut && diff.groups[0].len() == LINES);
    }

    proptest! {
        #[test]
        fn both_sides_are_whole_in_a_small_difference(
            before in "([a-c]{1,3}\n){1,6}", after in "([a-c]{1,3}\n){1,6}",
        ) {
            let diff = difference(&before, &after);
            prop_assert_eq!(diff.is_empty(), before == after);
            // So few lines are never cut. Unchanged lines far from every change are only left out
            // at an end.
            for (text, without) in [(&before, '+'), (&after, '-')] {
                let lines: Vec<&str> = text.lines().collect();
                let shown = side(&diff, without);
                prop_assert!(
                    lines.join("\n").contains(&shown.join("\n")), "{:?} in {:?}", shown, lines
                );
            }
        }
    }
}
