//! The report of an evaluation: its figures, and its text for people.

use super::super::table::TextTable;
use super::captures::dollars;
use rerouter_records::evaluation::{Baseline, ChangeRecord, CostSides, EvaluationRecord, Lack};

/// The relative increase of the known costs to `after`; infinite if nothing cost anything before.
pub(super) fn cost_increase(report: &EvaluationRecord, after: f64) -> f64 {
    let before = report.cost.before;
    match after - before {
        more if before > 0.0 => more / before,
        more if more > 0.0 => f64::INFINITY,
        _ => 0.0,
    }
}

/// Why costs are unknown: per target what is missing, and for how many captures.
pub(super) fn unpriced(report: &EvaluationRecord) -> String {
    let lines = report.cost.unpriced_targets.iter().map(|row| {
        let what = match Lack::parse(&row.lacks) {
            Some(Lack::Usage) => "no usage reported by",
            _ => "no price for",
        };
        format!("{what} {} ({})", row.target, row.count)
    });
    lines.collect::<Vec<_>>().join(", ")
}

pub(super) fn percent(share: f64) -> String {
    if share.is_infinite() { "infinitely".to_owned() } else { format!("{:.2} %", share * 100.0) }
}

fn more_or_less(increase: f64) -> String {
    match increase {
        0.0 => "the same".to_owned(),
        more if more > 0.0 => format!("{} more", percent(more)),
        less => format!("{} less", percent(-less)),
    }
}

pub(super) fn render(report: &EvaluationRecord) -> String {
    let mut out = summary(report);
    for table in [changes(report), shift(report)] {
        if !table.is_empty() {
            out.push('\n');
            out.push_str(&table.text());
        }
    }
    out.push('\n');
    out.push_str(&costs(report));
    out.push_str(&left_out(report));
    out
}

fn summary(report: &EvaluationRecord) -> String {
    let EvaluationRecord { evaluated, changed, rule_changed, plan_changed, unroutable, .. } =
        report;
    let newly_routed = report.newly_routed;
    let baseline = match report.baseline.as_deref().and_then(Baseline::parse) {
        Some(Baseline::Current) => "the live document",
        _ => "the recorded decisions",
    };
    format!(
        "{evaluated} captures decided by {}, compared with {baseline}\n\
         {changed} changed ({}): {rule_changed} by another rule, {plan_changed} by another plan; \
         {unroutable} unroutable\n\
         {newly_routed} that found no target before find one: what they cost is unknown\n",
        report.revision.as_deref().unwrap_or("-"),
        percent(report.changed_share()),
    )
}

/// Where captures go instead. A change with several reasons has a row for each.
fn changes(report: &EvaluationRecord) -> TextTable {
    let mut table = TextTable::new(&["FROM", "TO", "COUNT", "COST", "WHY"]);
    for ChangeRecord { from, to, count, cost_delta_usd, reasons, .. } in &report.by_change {
        let mut row = [from.clone(), to.clone(), count.to_string(), dollars(*cost_delta_usd)];
        let mut reasons: Vec<String> =
            reasons.iter().map(|reason| format!("{}x {}", reason.count, reason.detail)).collect();
        if reasons.is_empty() {
            reasons.push(String::new());
        }
        for reason in reasons {
            let [from, to, count, cost] = std::mem::take(&mut row);
            table.row([from, to, count, cost, reason]);
        }
    }
    table
}

fn shift(report: &EvaluationRecord) -> TextTable {
    let mut table = TextTable::new(&["TARGET", "BEFORE", "AFTER"]);
    for row in &report.shift {
        table.row([row.target.clone(), row.before.to_string(), row.after.to_string()]);
    }
    table
}

fn costs(report: &EvaluationRecord) -> String {
    let cost = &report.cost;
    let sides = |before: f64, after: f64| {
        format!("{} before, {} after", dollars(Some(before)), dollars(Some(after)))
    };
    let increase = |after| more_or_less(cost_increase(report, after));
    let told = sides(cost.before, cost.after);
    let mut out = format!("cost {told} ({})\n", increase(cost.after));
    if let Some(cold) = cost.after_cold.filter(|cold| *cold > cost.after) {
        out.push_str(&format!(
            "up to {} ({}) if the caches of targets that requests did not go to are cold\n",
            dollars(Some(cold)),
            increase(cold)
        ));
    }
    let CostSides { before, after } = cost.estimated;
    if before + after > 0.0 {
        let told = sides(before, after);
        out.push_str(&format!("estimated, because providers reported no usage: {told}\n"));
    }
    if cost.unknown_usage > 0 {
        let count = cost.unknown_usage;
        out.push_str(&format!("{count} captures used something that no price counts\n"));
    }
    if cost.unpriced > 0 {
        let count = cost.unpriced;
        out.push_str(&format!("{count} captures not priced: {}\n", unpriced(report)));
    }
    if cost.skipped > 0.0 {
        out.push_str(&format!("captures left out cost {}\n", dollars(Some(cost.skipped))));
    }
    out
}

/// Captures that say less, or nothing.
fn left_out(report: &EvaluationRecord) -> String {
    let EvaluationRecord { inexact, assumed, refused_by_limits, skipped, .. } = report;
    let [replays, shadows, undecided, version, redacted] =
        ["replays", "shadows", "undecided", "version", "redacted"]
            .map(|why| skipped.get(why).copied().unwrap_or_default());
    let mut out = format!(
        "{inexact} inexact, {assumed} assumed; left out: {replays} replays, {shadows} shadows, \
         {undecided} undecided, {refused_by_limits} refused by limits, \
         {version} of another version, {redacted} redacted\n"
    );
    if let Some(count) = report.unreadable.filter(|count| *count > 0) {
        out.push_str(&format!("{count} captures cannot be read: not counted\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_a_later_gateway_is_read() {
        let mut told = serde_json::to_value(EvaluationRecord::default()).unwrap();
        told["news"] = true.into();
        told["cost"]["unpriced_targets"] =
            serde_json::json!([{ "target": "p/x", "lacks": "a_new_word", "count": 2, "more": 1 }]);
        let report: EvaluationRecord = serde_json::from_value(told).unwrap();
        assert_eq!(unpriced(&report), "no price for p/x (2)");
    }

    #[test]
    fn a_decrease_is_not_a_negative_increase() {
        for (increase, text) in [
            (0.0, "the same"),
            (0.25, "25.00 % more"),
            (-0.003, "0.30 % less"),
            (f64::INFINITY, "infinitely more"),
        ] {
            assert_eq!(more_or_less(increase), text);
        }
    }
}
