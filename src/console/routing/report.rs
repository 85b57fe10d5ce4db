//! The report of an evaluation for people: what would go elsewhere and why, and what it would cost.

use maud::{Markup, html};
use serde_json::Value;

use super::fields::{count, dollars, list, percent, text};
use super::flow::{self, NONE, TargetFlows, label_of};
use crate::console::pieces;
use crate::wire::query::encode;

/// Rows of a table: the largest come first.
const ROWS: usize = 100;

pub(super) fn report(report: &Value) -> Markup {
    let flows = TargetFlows::of(report);
    let nothing = Value::Null;
    html! {
        (summary(report))
        @if count(report, "evaluated") > 0 {
            (cost(report.get("cost").unwrap_or(&nothing)))
            h2 { "Requests by target" }
            div.scroll.rt-frame tabindex="0" role="group" aria-label="Flow between targets" {
                (flow::draw(&flows))
            }
            (shift(report))
            (changes(report))
        }
        (doubts(report))
    }
}

fn summary(report: &Value) -> Markup {
    let [evaluated, changed, unroutable] =
        ["evaluated", "changed", "unroutable"].map(|name| count(report, name));
    html! {
        h2 { "What would change" }
        @if evaluated == 0 {
            (pieces::empty(
                "There are no captured requests to decide again.",
                "Send some, or choose older ones.",
            ))
        } @else {
            p.rt-answer {
                strong { (pieces::count(changed)) " of " (pieces::count(evaluated)) }
                " requests (" (percent(changed, evaluated)) ") would go to another target."
            }
        }
        @if unroutable > 0 {
            (pieces::notice("bad", &html! {
                (pieces::count(unroutable))
                " requests would find no target: they would get an error."
            }))
        }
    }
}

fn cost(cost: &Value) -> Markup {
    let (before, after) = (dollars(cost, "before"), dollars(cost, "after"));
    let nothing = Value::Null;
    let estimated = cost.get("estimated").unwrap_or(&nothing);
    let unpriced = count(cost, "unpriced");
    html! {
        h2 { "Cost" }
        dl.rt-stats {
            div.stat { dt { "Before" } dd.num { (pieces::money(before)) } }
            div.stat { dt { "After" } dd.num { (pieces::money(after)) } }
            div.stat { dt { "Difference" } dd.num { (difference(before, after)) } }
        }
        @if dollars(estimated, "before") > 0.0 || dollars(estimated, "after") > 0.0 {
            p.muted {
                "Of this " (pieces::money(dollars(estimated, "before"))) " before and "
                (pieces::money(dollars(estimated, "after"))) " after rest on estimated tokens."
            }
        }
        @if unpriced > 0 {
            p.muted {
                "The cost of " (pieces::count(unpriced)) " requests is not known on one side: "
                @for (at, row) in list(cost, "unpriced_targets").iter().take(5).enumerate() {
                    @if at > 0 { ", " }
                    code { (text(row, "target")) }
                    @if text(row, "lacks") == "usage" { " reported no usage" }
                    @else { " has no known price" }
                    " (" (pieces::count(count(row, "count"))) ")"
                }
                ". They count the same before and after."
            }
        }
    }
}

/// A difference in dollars with its sign, and in percent of what was.
fn difference(before: f64, after: f64) -> String {
    let difference = after - before;
    let sign = match difference {
        more if more > 0.0 => "+",
        less if less < 0.0 => "−",
        _ => "",
    };
    let shown = format!("{sign}{}", pieces::money(difference.abs()));
    match before > 0.0 {
        true => format!("{shown} ({sign}{:.1} %)", (difference / before * 100.0).abs()),
        false => shown,
    }
}

fn shift(report: &Value) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label="Requests by target" {
            table.table {
                thead { tr {
                    th scope="col" { "Target" } th.num scope="col" { "Before" }
                    th.num scope="col" { "After" }
                } }
                tbody {
                    @for row in list(report, "shift").iter().take(ROWS) { tr {
                        th.mono scope="row" { (label_of(text(row, "target"))) }
                        td.num { (pieces::count(count(row, "before"))) }
                        td.num { (pieces::count(count(row, "after"))) }
                    } }
                }
            }
        }
        (more(list(report, "shift").len()))
    }
}

fn changes(report: &Value) -> Markup {
    let changes = list(report, "by_change");
    html! {
        h2 { "Changed requests" }
        @if changes.is_empty() { p { "Each request would go where it goes now." } }
        @else {
            div.scroll tabindex="0" role="group" aria-label="Changed requests" {
                table.table {
                    thead { tr {
                        th scope="col" { "From" } th scope="col" { "To" }
                        th.num scope="col" { "Requests" } th.num scope="col" { "Cost" }
                        th scope="col" { "Why" } th scope="col" { "Look at" }
                    } }
                    tbody { @for change in changes.iter().take(ROWS) { (changed(change)) } }
                }
            }
            (more(changes.len()))
        }
        @let (rules, plans) = (count(report, "rule_changed"), count(report, "plan_changed"));
        p.muted {
            "Another rule would decide " (pieces::count(rules))
            " requests. The order of targets to \
             try would differ for " (pieces::count(plans)) "."
        }
    }
}

fn changed(change: &Value) -> Markup {
    let (from, to) = (text(change, "from"), text(change, "to"));
    html! {
        tr {
            td.mono { (label_of(from)) }
            td.mono {
                @if to == NONE { (pieces::badge("bad", "no target")) } @else { (to) }
            }
            td.num { (pieces::count(count(change, "count"))) }
            td.num {
                @match change.get("cost_delta_usd").and_then(Value::as_f64) {
                    Some(delta) => (difference(0.0, delta)),
                    None => "not known",
                }
            }
            td {
                ul.rt-list {
                    @for reason in list(change, "reasons") { li {
                        (pieces::badge("info", text(reason, "reason"))) " "
                        (text(reason, "detail")) " "
                        span.muted.num { "(" (pieces::count(count(reason, "count"))) ")" }
                    } }
                }
            }
            td {
                @for id in list(change, "examples").iter().filter_map(Value::as_str) {
                    // In a tab of its own: the report and the text stay.
                    a.mono href=(format!("/console/captures/{}", encode(id))) title=(id)
                        target="_blank" { (pieces::short_id(id)) } " "
                }
            }
        }
    }
}

fn more(rows: usize) -> Markup {
    html! {
        @if rows > ROWS {
            p.muted { "There are " (rows - ROWS) " more rows, with fewer requests each." }
        }
    }
}

/// Why captures are skipped, by the words of the API.
const SKIPPED: [(&str, &str); 6] = [
    ("replays", "are replays"),
    ("shadows", "are copies for a shadow"),
    ("undecided", "were refused before a decision"),
    ("version", "were recorded by a version that kept other facts"),
    ("imported", "were imported from elsewhere"),
    ("redacted", "lost a name that the decision needs to redaction"),
];

/// What the report does not know.
fn doubts(report: &Value) -> Markup {
    let nothing = Value::Null;
    let skipped = report.get("skipped").unwrap_or(&nothing);
    let rows = SKIPPED.map(|(word, says)| (count(skipped, word), format!("{says}: left out")));
    let others = [
        ("inexact", "were decided without a text that was not kept: another rule may match"),
        ("assumed", "could reach targets that did not exist then: these count as healthy and idle"),
        ("unroutable_before", "find no target under the live document either"),
        ("unreadable", "could not be read: left out"),
    ];
    let rows: Vec<(u64, String)> = rows
        .into_iter()
        .chain(others.map(|(name, says)| (count(report, name), says.to_owned())))
        .filter(|(requests, _)| *requests > 0)
        .collect();
    html! {
        @if !rows.is_empty() {
            h2 { "What could not be judged" }
            ul {
                @for (requests, says) in rows { li { (pieces::count(requests)) " " (says) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_says_what_changes_and_what_it_does_not_know() {
        let shown = report(&json!({
            "evaluated": 2000, "changed": 500, "unroutable": 3, "unroutable_before": 0,
            "rule_changed": 7, "plan_changed": 9, "inexact": 4, "assumed": 0,
            "by_change": [{
                "from": "p/<b>", "to": "none", "count": 500, "cost_delta_usd": -0.5,
                "reasons": [{ "reason": "rule", "detail": "<script>", "count": 500 }],
                "examples": ["req_1"],
            }],
            "shift": [
                { "target": "p/<b>", "before": 2000, "after": 1500 },
                { "target": "none", "before": 0, "after": 500 },
            ],
            "cost": {
                "before": 2.0, "after": 1.5, "estimated": { "before": 0.0, "after": 0.0 },
                "skipped": 0.0, "unpriced": 5,
                "unpriced_targets": [{ "target": "p/<i>", "lacks": "price", "count": 5 }],
            },
            "skipped": { "replays": 6, "shadows": 0 },
        }))
        .into_string();
        for there in [
            "500 of 2\u{2009}000",
            "(25 %)",
            "3 requests would find no target",
            "−$0.5000 (−25.0 %)",
            "href=\"/console/captures/req_1\"",
            "&lt;script&gt;",
            "6 are replays: left out",
            "4 were decided without a text",
            "has no known price",
        ] {
            assert!(shown.contains(there), "no {there} in {shown}");
        }
        assert!(!shown.contains("<script") && !shown.contains("<b>") && !shown.contains("<i>"));
    }

    #[test]
    fn a_report_on_nothing_says_so() {
        let shown = report(&Value::Null).into_string();
        assert!(shown.contains("There are no captured requests") && !shown.contains("<svg"));
    }

    #[test]
    fn differences_have_a_sign() {
        assert_eq!(difference(1.0, 3.0), "+$2.0000 (+200.0 %)");
        assert_eq!(difference(0.0, -0.25), "−$0.2500");
        assert_eq!(difference(1.0, 1.0), "$0.00 (0.0 %)");
    }
}
