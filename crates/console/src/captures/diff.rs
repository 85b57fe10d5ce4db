//! Differences between two texts, by words or lines.

use std::time::Duration;

use maud::{Markup, html};
use similar::{ChangeTag, TextDiff, TextDiffConfig};

use super::values::visible;

/// Most bytes of each text that are compared.
pub(super) const COMPARED: usize = 64 << 10;
/// Time after which the rest of the texts is compared roughly.
const PATIENCE: Duration = Duration::from_millis(200);

#[derive(Clone, Copy)]
pub(super) enum DiffUnit {
    Words,
    Lines,
}

/// Both texts as one: text only in `a` is in a `del` element, text only in `b` in an `ins` element.
pub(super) fn diff(a: &str, b: &str, unit: DiffUnit) -> Markup {
    let [a, b] = [a, b].map(|text| text.get(..text.floor_char_boundary(COMPARED)).unwrap_or(text));
    let mut config = TextDiffConfig::default();
    config.timeout(PATIENCE);
    let compared: TextDiff<'_, '_, str> = match unit {
        DiffUnit::Words => config.diff_words(a, b),
        DiffUnit::Lines => config.diff_lines(a, b),
    };
    let mut runs: Vec<DiffRun> = vec![DiffRun::default()];
    for change in compared.iter_all_changes() {
        let needs_new = change.tag() != ChangeTag::Equal
            && runs.last().is_none_or(|run| !run.after.is_empty() && !run.is_gap());
        if needs_new {
            runs.push(DiffRun::default());
        }
        let Some(run) = runs.last_mut() else { continue };
        match change.tag() {
            ChangeTag::Equal => run.after.push_str(change.value()),
            tag => {
                run.close_gap();
                let side = if tag == ChangeTag::Delete { &mut run.gone } else { &mut run.new };
                side.push_str(change.value());
            }
        }
    }
    html! {
        div.diff.cap-text {
            @for run in &runs {
                @if !run.gone.is_empty() { del { (visible(&run.gone)) } }
                @if !run.new.is_empty() { ins { (visible(&run.new)) } }
                (visible(&run.after))
            }
        }
    }
}

/// A change, and the equal text after it.
#[derive(Default)]
struct DiffRun {
    gone: String,
    new: String,
    after: String,
}

impl DiffRun {
    /// Whether the change has both sides and only spaces are equal after it. Replaced sentences
    /// read better than single replaced words, so the next change is joined to this one.
    fn is_gap(&self) -> bool {
        self.after.bytes().all(|byte| byte == b' ')
            && !(self.gone.is_empty() || self.new.is_empty())
    }

    /// Moves the equal text to both sides of the change.
    fn close_gap(&mut self) {
        self.gone.push_str(&self.after);
        self.new.push_str(&self.after);
        self.after.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_that_differ_are_marked() {
        assert_eq!(
            diff("a <b> c", "a d c", DiffUnit::Words).into_string(),
            "<div class=\"diff cap-text\">a <del>&lt;b&gt;</del><ins>d</ins> c</div>"
        );
        assert_eq!(
            diff("a b c. e", "x y z. e", DiffUnit::Words).into_string(),
            "<div class=\"diff cap-text\"><del>a b c.</del><ins>x y z.</ins> e</div>"
        );
        assert_eq!(
            diff("x\ny\n", "x\nz\n", DiffUnit::Lines).into_string(),
            "<div class=\"diff cap-text\">x\n<del>y\n</del><ins>z\n</ins></div>"
        );
    }

    #[test]
    fn long_texts_that_have_nothing_in_common_end_in_time() {
        let text = |seed: u64| -> String {
            (0..40_000_u64).map(|n| format!("{} ", (n * n + seed) % 9_973)).collect()
        };
        let began = std::time::Instant::now();
        let html = diff(&text(1), &text(77), DiffUnit::Words).into_string();
        assert!(html.len() > COMPARED);
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    proptest! {
        #[test]
        fn each_side_is_whole(a in "[a-c <&\\n]{0,40}", b in "[a-c <&\\n]{0,40}") {
            let html = diff(&a, &b, DiffUnit::Words).into_string();
            let inner = html.strip_prefix("<div class=\"diff cap-text\">").unwrap();
            let inner = inner.strip_suffix("</div>").unwrap();
            let without = |tag: &str, kept: &str| {
                let mut rest = inner.to_owned();
                while let Some(start) = rest.find(&format!("<{tag}>")) {
                    let end = rest.find(&format!("</{tag}>")).unwrap() + tag.len() + 3;
                    rest.replace_range(start..end, "");
                }
                rest.replace(&format!("<{kept}>"), "").replace(&format!("</{kept}>"), "")
            };
            prop_assert_eq!(without("ins", "del"), html! { (a) }.into_string());
            prop_assert_eq!(without("del", "ins"), html! { (b) }.into_string());
        }
    }
}
