//! The gate of a command line.

use super::*;
use rerouter_records::evaluation::{ChangeRecord, CostRecord, UnpricedTarget};

fn bounds() -> Bounds {
    Bounds {
        max_changed: Some(0.02),
        forbid_unroutable: true,
        max_unroutable: None,
        max_cost_increase: Some(0.05),
        assume_warm: false,
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
        cost_delta_cold_usd: None,
        unpriced,
        reasons: Vec::new(),
        examples: Vec::new(),
    };
    let cost = CostRecord {
        before,
        after,
        after_cold: Some(after),
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
        max_unroutable: None,
        max_cost_increase: None,
        assume_warm: false,
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
    assert_eq!((broken(&bounds(), &report), report.changed_share()), (vec!["max-changed"], 0.04));
    report.unroutable_before = 100;
    let judged = broken(&bounds(), &report);
    assert_eq!((judged, report.changed_share()), (vec!["captures", "max-changed"], 1.0));
}

#[test]
fn the_caches_of_other_targets_count_as_cold_unless_they_are_assumed_to_be_warm() {
    let mut report = report(100, 2, 0, 1.0, 0.91, 0);
    report.cost.after_cold = Some(1.16);
    let why = bounds().judge(&report).pop().and_then(|verdict| verdict.broken).unwrap();
    let told = "the captures would cost 16.00 % more if the caches of other targets are cold, \
                at most 5.00 % is allowed";
    assert_eq!(why, told);
    assert_eq!(broken(&Bounds { assume_warm: true, ..bounds() }, &report), [""; 0]);
    report.cost.after_cold = None;
    assert_eq!(broken(&bounds(), &report), ["max-cost-increase"], "an earlier gateway");
}

#[test]
fn captures_that_find_no_target_any_more_have_a_bound_of_their_own() {
    let bounds = |most| Bounds {
        max_unroutable: Some(most),
        forbid_unroutable: false,
        max_changed: None,
        ..bounds()
    };
    let mut report = report(100, 3, 3, 1.0, 1.0, 0);
    assert_eq!(broken(&bounds(0.03), &report), [""; 0]);
    report.unroutable_before = 50;
    assert_eq!(broken(&bounds(0.03), &report), ["max-unroutable"]);
    // Half of those that find none now found one before.
    (report.unroutable_before, report.routed_before) = (0, Some(50));
    assert_eq!(broken(&bounds(0.03), &report), ["max-unroutable"]);
}
