//! The bounds that make `evaluate` a gate for CI, and the verdict on each.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::report::{changed_share, cost_increase, percent, routed, unpriced};
use rerouter_core::evaluate::share;
use rerouter_records::evaluation::EvaluationRecord;

/// A quotient of two sums may exceed a bound that it meets by this much.
const ROUNDING: f64 = 1e-9;

#[derive(Args)]
pub(super) struct Bounds {
    /// Fail if more than this share of the captures that found a target would go elsewhere, for
    /// example 2% or 0.02.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    max_changed: Option<f64>,
    /// Fail if a request that found a target would find none.
    #[arg(long)]
    forbid_unroutable: bool,
    /// Fail if the cost of the captures would rise by more than this share, for example 5% or 0.05.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    max_cost_increase: Option<f64>,
    /// Pass if there are no captures to judge. Default: fail.
    #[arg(long)]
    allow_empty: bool,
    /// Write the verdicts as JUnit XML, one test case per bound.
    #[arg(long, value_name = "FILE")]
    pub(super) junit: Option<PathBuf>,
}

/// The verdict on one bound.
#[derive(Debug, PartialEq)]
pub(super) struct GateVerdict {
    pub(super) name: &'static str,
    /// Why the bound is broken, if it is.
    pub(super) broken: Option<String>,
}

pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    share::read(text).ok_or_else(|| format!("has to be {}", share::SPELLINGS))
}

/// Captures that would go elsewhere at an unknown difference in cost.
fn unknown_increases(report: &EvaluationRecord) -> u64 {
    report.by_change.iter().map(|change| change.unpriced).sum()
}

impl Bounds {
    fn any(&self) -> bool {
        self.max_changed.is_some()
            || self.forbid_unroutable
            || self.max_cost_increase.is_some()
            || self.junit.is_some()
    }

    /// The verdicts on a report; empty if no bound is given.
    pub(super) fn judge(&self, report: &EvaluationRecord) -> Vec<GateVerdict> {
        if !self.any() {
            return Vec::new();
        }
        let is_empty = report.evaluated == 0;
        let empty = is_empty && !self.allow_empty;
        let mut verdicts = vec![GateVerdict {
            name: "captures",
            broken: empty.then(|| "there are no captures to judge".to_owned()),
        }];
        let mut add = |name, broken| verdicts.push(GateVerdict { name, broken });
        if let Some(most) = self.max_changed {
            add("max-changed", too_many_changed(report, most));
        }
        if self.forbid_unroutable {
            let EvaluationRecord { unroutable: lost, evaluated: all, .. } = report;
            let why = || format!("{lost} of {all} captures would find no target any more");
            add("forbid-unroutable", (*lost > 0).then(why));
        }
        if let Some(most) = self.max_cost_increase.filter(|_| !is_empty) {
            add("max-cost-increase", too_expensive(report, most));
        }
        verdicts
    }
}

fn too_many_changed(report: &EvaluationRecord, most: f64) -> Option<String> {
    let share = changed_share(report);
    (share > most).then(|| {
        format!(
            "{} of {} captures ({}) would go elsewhere, at most {} may",
            report.changed,
            routed(report),
            percent(share),
            percent(most)
        )
    })
}

/// An unknown cost breaks the bound too: it might exceed it.
fn too_expensive(report: &EvaluationRecord, most: f64) -> Option<String> {
    let (increase, unknown) = (cost_increase(report), unknown_increases(report));
    if increase > most + ROUNDING {
        let (increase, most) = (percent(increase), percent(most));
        return Some(format!("the captures would cost {increase} more, at most {most} is allowed"));
    }
    (unknown > 0).then(|| {
        let why = unpriced(report);
        format!("{unknown} captures would go elsewhere at an unknown cost: {why}")
    })
}

impl GateVerdict {
    pub(super) fn holds(&self) -> bool {
        self.broken.is_none()
    }

    /// The line for people.
    pub(super) fn line(&self) -> String {
        match &self.broken {
            None => format!("ok      {}\n", self.name),
            Some(why) => format!("BROKEN  {}: {why}\n", self.name),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({ "bound": self.name, "holds": self.holds(), "detail": self.broken })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rerouter_records::evaluation::{ChangeRecord, CostRecord, UnpricedTarget};

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
    ) -> EvaluationRecord {
        let target = |target: &str, lacks: &str, count| UnpricedTarget {
            target: target.into(),
            lacks: lacks.into(),
            count,
        };
        let change = |unpriced| ChangeRecord {
            from: "p/x".into(),
            to: "p/y".into(),
            count: 1,
            cost_delta_usd: None,
            unpriced,
            reasons: Vec::new(),
            examples: Vec::new(),
        };
        let cost = CostRecord {
            before,
            after,
            unpriced: unpriced + 1,
            unpriced_targets: vec![target("p/x", "price", unpriced), target("p/y", "usage", 1)],
            ..CostRecord::default()
        };
        EvaluationRecord {
            evaluated,
            changed,
            unroutable,
            by_change: vec![change(0), change(unpriced)],
            cost,
            ..EvaluationRecord::default()
        }
    }

    fn broken(bounds: &Bounds, report: &EvaluationRecord) -> Vec<&'static str> {
        bounds
            .judge(report)
            .iter()
            .filter(|verdict| !verdict.holds())
            .map(|verdict| verdict.name)
            .collect()
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
        // What cannot be judged does not pass.
        let unknown = report(100, 1, 0, 1.0, 1.0, 1);
        assert_eq!(broken(&bounds, &unknown), ["max-cost-increase"]);
        let why = bounds.judge(&unknown).pop().and_then(|verdict| verdict.broken).unwrap();
        assert!(
            why.ends_with("an unknown cost: no price for p/x (1), no usage reported by p/y (1)"),
            "{why}"
        );
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
    fn captures_that_found_no_target_before_do_not_dilute_the_share() {
        let mut report = report(100, 2, 0, 1.0, 1.0, 0);
        assert_eq!(broken(&bounds(), &report), [""; 0]);
        report.unroutable_before = 50;
        assert_eq!(
            (broken(&bounds(), &report), changed_share(&report)),
            (vec!["max-changed"], 0.04)
        );
        report.unroutable_before = 100;
        assert_eq!(
            (broken(&bounds(), &report), changed_share(&report)),
            (vec!["max-changed"], 1.0)
        );
    }
}
