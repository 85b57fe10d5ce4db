//! The report of an evaluation: its figures, and its text for people.

use serde_json::Value;

use super::super::records::text;
use super::super::table::TextTable;
use super::captures::{dollars, number};

/// Captures that found a target before; changes are a share of these.
pub(super) fn routed(report: &Value) -> f64 {
    (number(report, "/evaluated") - number(report, "/unroutable_before")).max(0.0)
}

/// The share of [`routed`] captures that go elsewhere, as `PUT /v1/router/config` computes it for
/// its gate.
pub(super) fn changed_share(report: &Value) -> f64 {
    let changed = number(report, "/changed");
    if changed > 0.0 { (changed / routed(report)).min(1.0) } else { 0.0 }
}

/// The relative increase of the known costs; infinite if nothing cost anything before.
pub(super) fn cost_increase(report: &Value) -> f64 {
    let (before, after) = (number(report, "/cost/before"), number(report, "/cost/after"));
    match after - before {
        more if before > 0.0 => more / before,
        more if more > 0.0 => f64::INFINITY,
        _ => 0.0,
    }
}

/// Why costs are unknown: per target what is missing, and for how many captures.
pub(super) fn unpriced(report: &Value) -> String {
    let targets = report.pointer("/cost/unpriced_targets").and_then(Value::as_array);
    let lines = targets.into_iter().flatten().map(|row| {
        let what = match row.get("lacks").is_some_and(|lacks| lacks == "usage") {
            true => "no usage reported by",
            false => "no price for",
        };
        format!("{what} {} ({})", text(row.get("target")), text(row.get("count")))
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

/// The whole report, for people.
pub(super) fn render(report: &Value) -> String {
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

fn summary(report: &Value) -> String {
    let at = |pointer: &str| text(report.pointer(pointer));
    let baseline = match at("/baseline").as_str() {
        "current" => "the live document",
        _ => "the recorded decisions",
    };
    format!(
        "{} captures decided by {}, compared with {baseline}\n\
         {} changed ({}): {} by another rule, {} by another plan; {} unroutable\n",
        at("/evaluated"),
        at("/revision"),
        at("/changed"),
        percent(changed_share(report)),
        at("/rule_changed"),
        at("/plan_changed"),
        at("/unroutable"),
    )
}

fn listed<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// The targets to which captures would go instead. A change with several reasons has several rows.
fn changes(report: &Value) -> TextTable {
    let mut table = TextTable::new(&["FROM", "TO", "COUNT", "COST", "WHY"]);
    for change in listed(report, "by_change") {
        let [from, to, count] = ["from", "to", "count"].map(|name| text(change.get(name)));
        let mut row =
            [from, to, count, dollars(change.get("cost_delta_usd").and_then(Value::as_f64))];
        let mut reasons: Vec<String> = listed(change, "reasons")
            .map(|reason| format!("{}x {}", text(reason.get("count")), text(reason.get("detail"))))
            .collect();
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

fn shift(report: &Value) -> TextTable {
    let mut table = TextTable::new(&["TARGET", "BEFORE", "AFTER"]);
    for row in listed(report, "shift") {
        table.row(["target", "before", "after"].map(|name| text(row.get(name))));
    }
    table
}

/// The costs, and how much of them is known.
fn costs(report: &Value) -> String {
    let amount = |pointer: &str| dollars(Some(number(report, pointer)));
    let (before, after) = (amount("/cost/before"), amount("/cost/after"));
    let mut out =
        format!("cost {before} before, {after} after ({})\n", more_or_less(cost_increase(report)));
    if number(report, "/cost/estimated/before") + number(report, "/cost/estimated/after") > 0.0 {
        let (before, after) = (amount("/cost/estimated/before"), amount("/cost/estimated/after"));
        out.push_str(&format!(
            "estimated, because providers reported no usage: {before} before, {after} after\n"
        ));
    }
    if number(report, "/cost/unpriced") > 0.0 {
        let count = text(report.pointer("/cost/unpriced"));
        out.push_str(&format!("{count} captures not priced: {}\n", unpriced(report)));
    }
    if number(report, "/cost/skipped") > 0.0 {
        out.push_str(&format!("captures left out cost {}\n", amount("/cost/skipped")));
    }
    out
}

/// The captures that were left out or are inexact.
fn left_out(report: &Value) -> String {
    let at = |pointer: &str| text(report.pointer(pointer));
    let mut out = format!(
        "{} inexact, {} assumed; left out: {} replays, {} shadows, {} undecided, {} of another \
         version, {} redacted\n",
        at("/inexact"),
        at("/assumed"),
        at("/skipped/replays"),
        at("/skipped/shadows"),
        at("/skipped/undecided"),
        at("/skipped/version"),
        at("/skipped/redacted"),
    );
    if number(report, "/unreadable") > 0.0 {
        out.push_str(&format!("{} captures cannot be read: not counted\n", at("/unreadable")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

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
