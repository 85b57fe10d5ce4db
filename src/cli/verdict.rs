//! What a report of an evaluation has to keep to, and what is said of it where CI reads it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::client::Failure;
use super::replay::word;
use crate::evaluate::share;

/// A quotient of two sums may miss a bound that it meets by so much: that is no increase.
const ROUNDING: f64 = 1e-9;

/// The bounds of a gate.
#[derive(Args)]
pub(super) struct Bounds {
    /// Fail when more than this part of the captures that found a target would go elsewhere: 2% or 0.02.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    max_changed: Option<f64>,
    /// Fail when a request that found a target would find none.
    #[arg(long)]
    forbid_unroutable: bool,
    /// Fail when the captures would cost more than this part more: 5% or 0.05.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    max_cost_increase: Option<f64>,
    /// With bounds: do not fail when there are no captures to judge by.
    #[arg(long)]
    allow_empty: bool,
    /// Write the verdicts as JUnit XML, one test case a bound.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// What became of one bound.
#[derive(Debug, PartialEq)]
pub(super) struct Verdict {
    name: &'static str,
    /// Why it is broken, if it is.
    broken: Option<String>,
}

fn share(text: &str) -> Result<f64, String> {
    share::read(text).ok_or_else(|| format!("has to be {}", share::SPELLINGS))
}

fn number(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0)
}

/// The captures that found a target before: of them a change is a part.
fn routed(report: &Value) -> f64 {
    (number(report, "/evaluated") - number(report, "/unroutable_before")).max(0.0)
}

/// Which part of those that found a target before goes elsewhere, as the gate of `PUT /v1/router/config` reckons it.
pub(super) fn changed_share(report: &Value) -> f64 {
    let changed = number(report, "/changed");
    if changed > 0.0 { (changed / routed(report)).min(1.0) } else { 0.0 }
}

/// By how much more the captures would cost, as a part of what they cost before, as far as their
/// costs are known.
pub(super) fn cost_increase(report: &Value) -> f64 {
    let (before, after) = (number(report, "/cost/before"), number(report, "/cost/after"));
    match after - before {
        more if before > 0.0 => more / before,
        more if more > 0.0 => f64::INFINITY,
        _ => 0.0,
    }
}

/// Captures that would go elsewhere at a difference in cost that is not known.
fn unknown_increases(report: &Value) -> f64 {
    let changes = report.get("by_change").and_then(Value::as_array);
    changes.into_iter().flatten().map(|change| number(change, "/unpriced")).sum()
}

/// Why costs are not known: what is missing of which target, and of how many captures.
pub(super) fn unpriced(report: &Value) -> String {
    let targets = report.pointer("/cost/unpriced_targets").and_then(Value::as_array);
    let told = targets.into_iter().flatten().map(|row| {
        let what = if row.get("lacks").is_some_and(|lacks| lacks == "usage") {
            "no usage told by"
        } else {
            "no price of"
        };
        format!("{what} {} ({})", word(row.get("target")), word(row.get("count")))
    });
    told.collect::<Vec<_>>().join(", ")
}

impl Bounds {
    /// Whether there is anything to keep to.
    fn any(&self) -> bool {
        self.max_changed.is_some()
            || self.forbid_unroutable
            || self.max_cost_increase.is_some()
            || self.junit.is_some()
    }

    /// What the report makes of each bound; empty where none is given.
    pub(super) fn judge(&self, report: &Value) -> Vec<Verdict> {
        if !self.any() {
            return Vec::new();
        }
        let (evaluated, changed) = (number(report, "/evaluated"), number(report, "/changed"));
        let mut verdicts = Vec::new();
        let mut add = |name, broken| verdicts.push(Verdict { name, broken });
        let none = evaluated == 0.0;
        add(
            "captures",
            (none && !self.allow_empty).then(|| "there are no captures to judge by".to_owned()),
        );
        if let Some(most) = self.max_changed {
            let (part, routed) = (changed_share(report), routed(report));
            let why = || {
                format!(
                    "{changed} of {routed} captures ({}) would go elsewhere, at most {} may",
                    percent(part),
                    percent(most)
                )
            };
            add("max-changed", (part > most).then(why));
        }
        if self.forbid_unroutable {
            let lost = number(report, "/unroutable");
            add(
                "forbid-unroutable",
                (lost > 0.0).then(|| {
                    format!("{lost} of {evaluated} captures would find no target any more")
                }),
            );
        }
        if let Some(most) = self.max_cost_increase.filter(|_| !none) {
            let (more, unknown) = (cost_increase(report), unknown_increases(report));
            let broken = if more > most + ROUNDING {
                Some(format!(
                    "the captures would cost {} more, at most {} may be",
                    percent(more),
                    percent(most)
                ))
            } else {
                let why = || {
                    format!(
                        "{unknown} captures would go elsewhere at a cost that is not known: {}",
                        unpriced(report)
                    )
                };
                (unknown > 0.0).then(why)
            };
            add("max-cost-increase", broken);
        }
        verdicts
    }

    /// Writes the file that CI reads, if one is asked for. `failure`: why there was no report.
    pub(super) fn write(&self, verdicts: &[Verdict], failure: Option<&str>) -> Result<(), Failure> {
        let Some(path) = &self.junit else { return Ok(()) };
        written(path, &junit(verdicts, failure))
    }
}

fn written(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .map_err(|error| Failure::Wrong(format!("{}: {error}", path.display())))
}

/// A share as people read it.
pub(super) fn percent(share: f64) -> String {
    if share.is_infinite() { "infinitely".to_owned() } else { format!("{:.2} %", share * 100.0) }
}

/// An increase as people read it: what is less is said to be less.
pub(super) fn more_or_less(increase: f64) -> String {
    match increase {
        0.0 => "the same".to_owned(),
        more if more > 0.0 => format!("{} more", percent(more)),
        less => format!("{} less", percent(-less)),
    }
}

impl Verdict {
    /// Whether the report keeps to it.
    pub(super) fn holds(&self) -> bool {
        self.broken.is_none()
    }

    /// A line.
    pub(super) fn line(&self) -> String {
        match &self.broken {
            None => format!("ok      {}\n", self.name),
            Some(why) => format!("BROKEN  {}: {why}\n", self.name),
        }
    }

    /// For machines.
    pub(super) fn json(&self) -> Value {
        json!({ "bound": self.name, "holds": self.holds(), "detail": self.broken })
    }
}

fn junit(verdicts: &[Verdict], failure: Option<&str>) -> String {
    let broken = verdicts.iter().filter(|verdict| !verdict.holds()).count();
    let (tests, errors) =
        (verdicts.len() + usize::from(failure.is_some()), usize::from(failure.is_some()));
    let counts = format!("tests=\"{tests}\" failures=\"{broken}\" errors=\"{errors}\"");
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite name=\"rerouter replay evaluate\" {counts}>\n"
    );
    // Writing to a string cannot fail.
    for Verdict { name, broken } in verdicts {
        let _ = match broken {
            None => {
                writeln!(text, "    <testcase classname=\"rerouter.evaluate\" name=\"{name}\"/>")
            }
            Some(why) => writeln!(
                text,
                "    <testcase classname=\"rerouter.evaluate\" name=\"{name}\"><failure message=\"{}\"/></testcase>",
                escaped(why)
            ),
        };
    }
    if let Some(why) = failure {
        let _ = writeln!(
            text,
            "    <testcase classname=\"rerouter.evaluate\" name=\"evaluate\"><error message=\"{}\"/></testcase>",
            escaped(why)
        );
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

/// Text in an attribute: XML 1.0 has no way to write most control characters.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' | '\r' => out.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds() -> Bounds {
        Bounds {
            max_changed: Some(0.02),
            forbid_unroutable: true,
            max_cost_increase: Some(0.05),
            allow_empty: false,
            junit: None,
        }
    }

    /// `unpriced`: how many of those that changed have no known difference in cost.
    fn report(
        evaluated: u64,
        changed: u64,
        unroutable: u64,
        before: f64,
        after: f64,
        unpriced: u64,
    ) -> Value {
        let targets = json!([{ "target": "p/x", "lacks": "price", "count": unpriced }, { "target": "p/y", "lacks": "usage", "count": 1 }]);
        let cost = json!({ "before": before, "after": after, "unpriced": unpriced + 1, "unpriced_targets": targets });
        let changes = json!([{ "unpriced": 0 }, { "unpriced": unpriced }]);
        json!({ "evaluated": evaluated, "changed": changed, "unroutable": unroutable, "by_change": changes, "cost": cost })
    }

    fn broken(bounds: &Bounds, report: &Value) -> Vec<&'static str> {
        bounds
            .judge(report)
            .iter()
            .filter(|verdict| !verdict.holds())
            .map(|verdict| verdict.name)
            .collect()
    }

    #[test]
    fn what_is_less_is_not_said_to_be_more() {
        for (increase, text) in [
            (0.0, "the same"),
            (0.25, "25.00 % more"),
            (-0.003, "0.30 % less"),
            (f64::INFINITY, "infinitely more"),
        ] {
            assert_eq!(more_or_less(increase), text);
        }
    }

    #[test]
    fn each_bound_holds_up_to_its_edge_and_no_further() {
        let bounds = bounds();
        assert_eq!(broken(&bounds, &report(100, 2, 0, 1.0, 1.05, 0)), [""; 0]);
        assert_eq!(broken(&bounds, &report(100, 3, 0, 1.0, 1.0, 0)), ["max-changed"]);
        assert_eq!(broken(&bounds, &report(100, 1, 1, 1.0, 0.5, 0)), ["forbid-unroutable"]);
        assert_eq!(broken(&bounds, &report(100, 0, 0, 1.0, 1.06, 0)), ["max-cost-increase"]);
        assert_eq!(broken(&bounds, &report(100, 0, 0, 0.0, 0.1, 0)), ["max-cost-increase"]);
        assert_eq!(broken(&bounds, &report(100, 0, 0, 0.0, 0.0, 0)), [""; 0]);
        // What cannot be judged does not pass in silence.
        let unknown = report(100, 1, 0, 1.0, 1.0, 1);
        assert_eq!(broken(&bounds, &unknown), ["max-cost-increase"]);
        let why = bounds.judge(&unknown).pop().and_then(|verdict| verdict.broken).unwrap();
        assert!(why.ends_with("not known: no price of p/x (1), no usage told by p/y (1)"), "{why}");
        assert_eq!(broken(&bounds, &report(0, 0, 0, 0.0, 0.0, 0)), ["captures"]);
        assert_eq!(
            broken(&Bounds { allow_empty: true, ..bounds }, &report(0, 0, 0, 0.0, 0.0, 0)),
            [""; 0]
        );
        let none = Bounds {
            max_changed: None,
            forbid_unroutable: false,
            max_cost_increase: None,
            allow_empty: false,
            junit: None,
        };
        assert_eq!(none.judge(&report(0, 0, 0, 0.0, 0.0, 0)), []);
    }

    #[test]
    fn what_nobody_could_serve_before_makes_no_change_smaller() {
        let mut report = report(100, 2, 0, 1.0, 1.0, 0);
        assert_eq!(broken(&bounds(), &report), [""; 0]);
        report["unroutable_before"] = json!(50);
        assert_eq!(
            (broken(&bounds(), &report), changed_share(&report)),
            (vec!["max-changed"], 0.04)
        );
        report["unroutable_before"] = json!(100);
        assert_eq!(
            (broken(&bounds(), &report), changed_share(&report)),
            (vec!["max-changed"], 1.0)
        );
    }

    #[test]
    fn junit_counts_and_escapes() {
        let verdicts = [
            Verdict { name: "captures", broken: None },
            Verdict { name: "max-changed", broken: Some("3 > 2 & \"so\"\u{1b}<".into()) },
        ];
        let text = junit(&verdicts, None);
        assert!(text.contains("<testsuite name=\"rerouter replay evaluate\" tests=\"2\" failures=\"1\" errors=\"0\">"), "{text}");
        assert!(text.contains("name=\"captures\"/>"), "{text}");
        assert!(
            text.contains("<failure message=\"3 &gt; 2 &amp; &quot;so&quot;\u{fffd}&lt;\"/>"),
            "{text}"
        );
        let text = junit(&[], Some("no gateway"));
        assert!(
            text.contains("tests=\"1\" failures=\"0\" errors=\"1\"")
                && text.contains("<error message=\"no gateway\"/>"),
            "{text}"
        );
    }
}
