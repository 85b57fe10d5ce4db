//! What a report of an evaluation has to keep to, and what is said of it where CI reads it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::client::Failure;

/// Sums of many small costs differ by so much in the order of their summing: that is no increase.
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

/// `2%` or `0.02`.
fn share(text: &str) -> Result<f64, String> {
    let (number, parts) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = number.trim().parse::<f64>().ok().map(|number| number / parts);
    share.filter(|share| share.is_finite() && *share >= 0.0).ok_or_else(|| "has to be a share like 2% or 0.02".to_owned())
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

/// By how much more the captures would cost, as a part of what they cost before; `None` where no cost is known.
pub(super) fn cost_increase(report: &Value) -> Option<f64> {
    let (before, after) = (number(report, "/cost/before"), number(report, "/cost/after"));
    if number(report, "/cost/unpriced") >= number(report, "/evaluated") {
        return None;
    }
    Some(if before > 0.0 {
        (after - before) / before
    } else if after > 0.0 {
        f64::INFINITY
    } else {
        0.0
    })
}

impl Bounds {
    /// Whether there is anything to keep to.
    fn any(&self) -> bool {
        self.max_changed.is_some() || self.forbid_unroutable || self.max_cost_increase.is_some() || self.junit.is_some()
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
        add("captures", (none && !self.allow_empty).then(|| "there are no captures to judge by".to_owned()));
        if let Some(most) = self.max_changed {
            let (part, routed) = (changed_share(report), routed(report));
            let why = || format!("{changed} of {routed} captures ({}) would go elsewhere, at most {} may", percent(part), percent(most));
            add("max-changed", (part > most).then(why));
        }
        if self.forbid_unroutable {
            let lost = number(report, "/unroutable");
            add("forbid-unroutable", (lost > 0.0).then(|| format!("{lost} of {evaluated} captures would find no target any more")));
        }
        if let Some(most) = self.max_cost_increase.filter(|_| !none) {
            let broken = match cost_increase(report) {
                None => Some("what the captures cost is not known: no target of theirs has a price".to_owned()),
                Some(more) if more > most + ROUNDING => {
                    Some(format!("the captures would cost {} more, at most {} may be", percent(more), percent(most)))
                }
                Some(_) => None,
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
    std::fs::write(path, text).map_err(|error| Failure::Wrong(format!("{}: {error}", path.display())))
}

/// A share as people read it.
pub(super) fn percent(share: f64) -> String {
    if share.is_infinite() { "infinitely".to_owned() } else { format!("{:.2} %", share * 100.0) }
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
    let (tests, errors) = (verdicts.len() + usize::from(failure.is_some()), usize::from(failure.is_some()));
    let counts = format!("tests=\"{tests}\" failures=\"{broken}\" errors=\"{errors}\"");
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite name=\"rerouter replay evaluate\" {counts}>\n"
    );
    // Writing to a string cannot fail.
    for Verdict { name, broken } in verdicts {
        let _ = match broken {
            None => writeln!(text, "    <testcase classname=\"rerouter.evaluate\" name=\"{name}\"/>"),
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
        Bounds { max_changed: Some(0.02), forbid_unroutable: true, max_cost_increase: Some(0.05), allow_empty: false, junit: None }
    }

    fn report(evaluated: u64, changed: u64, unroutable: u64, before: f64, after: f64, unpriced: u64) -> Value {
        let cost = json!({ "before": before, "after": after, "unpriced": unpriced });
        json!({ "evaluated": evaluated, "changed": changed, "unroutable": unroutable, "cost": cost })
    }

    fn broken(bounds: &Bounds, report: &Value) -> Vec<&'static str> {
        bounds.judge(report).iter().filter(|verdict| !verdict.holds()).map(|verdict| verdict.name).collect()
    }

    #[test]
    fn shares_are_percents_or_parts() {
        for (text, expected) in [("2%", 0.02), ("0.02", 0.02), ("0", 0.0), ("150 %", 1.5), ("0.5%", 0.005)] {
            assert_eq!(share(text), Ok(expected), "{text}");
        }
        for bad in ["", "%", "-1%", "NaN", "inf", "two"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_bound_holds_up_to_its_edge_and_no_further() {
        let bounds = bounds();
        assert_eq!(broken(&bounds, &report(100, 2, 0, 1.0, 1.05, 0)), [""; 0]);
        assert_eq!(broken(&bounds, &report(100, 3, 0, 1.0, 1.0, 0)), ["max-changed"]);
        assert_eq!(broken(&bounds, &report(100, 1, 1, 1.0, 0.5, 99)), ["forbid-unroutable"]);
        assert_eq!(broken(&bounds, &report(100, 0, 0, 1.0, 1.06, 0)), ["max-cost-increase"]);
        assert_eq!(broken(&bounds, &report(100, 0, 0, 0.0, 0.1, 0)), ["max-cost-increase"]);
        assert_eq!(broken(&bounds, &report(100, 0, 0, 0.0, 0.0, 0)), [""; 0]);
        // What cannot be judged does not pass in silence.
        assert_eq!(broken(&bounds, &report(100, 0, 0, 0.0, 0.0, 100)), ["max-cost-increase"]);
        assert_eq!(broken(&bounds, &report(0, 0, 0, 0.0, 0.0, 0)), ["captures"]);
        assert_eq!(broken(&Bounds { allow_empty: true, ..bounds }, &report(0, 0, 0, 0.0, 0.0, 0)), [""; 0]);
        let none = Bounds { max_changed: None, forbid_unroutable: false, max_cost_increase: None, allow_empty: false, junit: None };
        assert_eq!(none.judge(&report(0, 0, 0, 0.0, 0.0, 0)), []);
    }

    #[test]
    fn what_nobody_could_serve_before_makes_no_change_smaller() {
        let mut report = report(100, 2, 0, 1.0, 1.0, 0);
        assert_eq!(broken(&bounds(), &report), [""; 0]);
        report["unroutable_before"] = json!(50);
        assert_eq!((broken(&bounds(), &report), changed_share(&report)), (vec!["max-changed"], 0.04));
        report["unroutable_before"] = json!(100);
        assert_eq!((broken(&bounds(), &report), changed_share(&report)), (vec!["max-changed"], 1.0));
    }

    #[test]
    fn junit_counts_and_escapes() {
        let verdicts =
            [Verdict { name: "captures", broken: None }, Verdict { name: "max-changed", broken: Some("3 > 2 & \"so\"\u{1b}<".into()) }];
        let text = junit(&verdicts, None);
        assert!(text.contains("<testsuite name=\"rerouter replay evaluate\" tests=\"2\" failures=\"1\" errors=\"0\">"), "{text}");
        assert!(text.contains("name=\"captures\"/>"), "{text}");
        assert!(text.contains("<failure message=\"3 &gt; 2 &amp; &quot;so&quot;\u{fffd}&lt;\"/>"), "{text}");
        let text = junit(&[], Some("no gateway"));
        assert!(text.contains("tests=\"1\" failures=\"0\" errors=\"1\"") && text.contains("<error message=\"no gateway\"/>"), "{text}");
    }
}
