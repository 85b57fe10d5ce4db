//! The report of an evaluation for people: what would go elsewhere and why, and what it would cost.

use maud::{Markup, html};

use super::flow::{self, NONE, TargetFlows, label_of};
use super::shares::percent;
use crate::pieces::{self, headings};
use rerouter_base::url::encode;
use rerouter_records::evaluation::{ChangeRecord, CostRecord, EvaluationRecord, Lack};

/// Most rows of a table, the largest first.
const ROWS: usize = 100;

pub(super) fn report(report: &EvaluationRecord) -> Markup {
    let flows = TargetFlows::of(report);
    html! {
        (summary(report))
        @if report.evaluated > 0 {
            (cost(&report.cost, report.evaluated))
            h2 { "First choices" }
            p.muted {
                "The first choice is the target that is asked first. If it fails, another one of \
                 the rule may answer: so this is not who answered."
            }
            div.scroll.rt-frame tabindex="0" role="group" aria-label="Flow between targets" {
                (flow::draw(&flows))
            }
            (shift(report))
            (changes(report))
        }
        (doubts(report))
    }
}

fn summary(report: &EvaluationRecord) -> Markup {
    let EvaluationRecord { evaluated, changed, unroutable, newly_routed, .. } = *report;
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
                " requests (" (percent(changed, evaluated)) ") would have another first choice."
            }
        }
        @if newly_routed > 0 {
            (pieces::notice("info", &html! {
                (pieces::count(newly_routed))
                " requests that found no target would find one. What they would cost is not known."
            }))
        }
        @if unroutable > 0 {
            (pieces::notice("bad", &html! {
                (pieces::count(unroutable))
                " requests would find no target: they would get an error."
            }))
        }
    }
}

fn cost(cost: &CostRecord, evaluated: u64) -> Markup {
    let CostRecord { before, after, after_cold, unpriced, estimated, .. } = cost;
    let (before, after, unpriced) = (*before, *after, *unpriced);
    html! {
        h2 { "Cost" }
        dl.rt-stats {
            div.stat { dt { "With the live document" } dd.num { (pieces::money(before)) } }
            div.stat { dt { "With yours" } dd.num { (pieces::money(after)) } }
            div.stat {
                dt { "Difference" }
                dd.num {
                    @if unpriced == 0 { (difference(before, after)) }
                    @else { (partly_known(after - before, unpriced, evaluated)) }
                }
            }
        }
        p.muted {
            "What the first choices cost, by the tokens of the recorded answers. It is not what \
             was paid."
        }
        @if let Some(after_cold) = after_cold.filter(|cold| *cold > after) {
            p {
                "With yours it can cost up to " (pieces::money(after_cold)) " ("
                (difference(before, after_cold)) "): if the prompt caches of the models that \
                requests did not go to are cold."
            }
        }
        @if estimated.before > 0.0 || estimated.after > 0.0 {
            p.muted {
                "Of this, " (pieces::money(estimated.before)) " (live) and "
                (pieces::money(estimated.after)) " (yours) rest on estimated tokens."
            }
        }
        @if cost.unknown_usage > 0 {
            p.muted {
                (pieces::count(cost.unknown_usage)) " requests used something that no price counts."
            }
        }
        @if unpriced > 0 {
            p.muted {
                "The cost of " (pieces::count(unpriced)) " requests is not known: "
                @for (at, row) in cost.unpriced_targets.iter().take(5).enumerate() {
                    @if at > 0 { ", " }
                    code { (row.target) }
                    @match Lack::parse(&row.lacks) {
                        Some(Lack::Usage) => " reported no usage",
                        Some(Lack::Price) => " has no known price",
                        None => { " lacks " (row.lacks) },
                    }
                    " (" (pieces::count(row.count)) ")"
                }
                ". Both sums count them the same."
            }
        }
    }
}

/// A difference in dollars with its sign, and in percent of `before`.
fn difference(before: f64, after: f64) -> String {
    let difference = after - before;
    let shown = signed(difference);
    match before > 0.0 {
        true => {
            format!("{shown} ({}{:.1} %)", sign(difference), (difference / before * 100.0).abs())
        }
        false => shown,
    }
}

/// A difference that is unknown for `unpriced` of `all` requests. A known difference of 0 is not
/// shown, because it says nothing about the others.
fn partly_known(difference: f64, unpriced: u64, all: u64) -> String {
    let unknown = format!("not known for {} of {}", pieces::count(unpriced), pieces::count(all));
    match difference == 0.0 {
        true => unknown,
        false => format!("{}, {unknown}", signed(difference)),
    }
}

fn signed(difference: f64) -> String {
    format!("{}{}", sign(difference), pieces::money(difference.abs()))
}

fn sign(difference: f64) -> &'static str {
    match difference {
        more if more > 0.0 => "+",
        less if less < 0.0 => "−",
        _ => "",
    }
}

fn shift(report: &EvaluationRecord) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label="First choices" {
            table.table {
                thead { tr {
                    (headings(&["First choice"], &["With the live document", "With yours"]))
                } }
                tbody {
                    @for row in report.shift.iter().take(ROWS) { tr {
                        th.mono scope="row" { (label_of(&row.target)) }
                        td.num { (pieces::count(row.before)) }
                        td.num { (pieces::count(row.after)) }
                    } }
                }
            }
        }
        (more(report.shift.len()))
    }
}

fn changes(report: &EvaluationRecord) -> Markup {
    let changes = &report.by_change;
    html! {
        h2 { "Changed requests" }
        @if changes.is_empty() { p { "Each request would have the first choice that it has now." } }
        @else {
            div.scroll tabindex="0" role="group" aria-label="Changed requests" {
                table.table {
                    thead { tr {
                        (headings(&["From", "To"], &["Requests", "Cost"]))
                        (headings(&["Why", "Look at"], &[]))
                    } }
                    tbody { @for change in changes.iter().take(ROWS) { (changed(change)) } }
                }
            }
            (more(changes.len()))
        }
        p.muted {
            "Another rule would decide " (pieces::count(report.rule_changed))
            " requests. The order of targets to \
             try would differ for " (pieces::count(report.plan_changed)) "."
        }
    }
}

fn changed(change: &ChangeRecord) -> Markup {
    html! {
        tr {
            td.mono { (label_of(&change.from)) }
            td.mono {
                @if change.to == NONE { (pieces::badge("bad", "no target")) }
                @else { (change.to) }
            }
            td.num { (pieces::count(change.count)) }
            td.num {
                @match change.cost_delta_usd {
                    Some(delta) if change.unpriced == 0 => (signed(delta)),
                    Some(delta) => (partly_known(delta, change.unpriced, change.count)),
                    None => "not known",
                }
            }
            td {
                ul.rt-list {
                    @for reason in &change.reasons { li {
                        (pieces::badge("info", &reason.reason)) " " (reason.detail) " "
                        span.muted.num { "(" (pieces::count(reason.count)) ")" }
                    } }
                }
            }
            td {
                @for id in change.examples.iter().map(|id| id.as_str()) {
                    // Opens in a new tab, so that the report and the text stay.
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

/// Reasons why captures are skipped: the API's word, and words for people.
const SKIPPED: [(&str, &str); 6] = [
    ("replays", "replays"),
    ("shadows", "copies for a shadow"),
    ("undecided", "refused before a decision"),
    ("version", "recorded by a version that kept other facts"),
    ("imported", "imported from elsewhere"),
    ("redacted", "without a name that the decision needs, by redaction"),
];

/// Numbers of requests that the report left out or had to make assumptions about.
fn doubts(report: &EvaluationRecord) -> Markup {
    let skipped = |word| report.skipped.get(word).copied().unwrap_or_default();
    let rows = SKIPPED.map(|(word, says)| (skipped(word), format!("{says} (left out)")));
    let others: [(u64, &str); 5] = [
        (report.inexact, "decided without a text that was not kept: another rule may match"),
        (report.assumed, "with targets that did not exist then: these count as healthy and idle"),
        (report.unroutable_before, "without a target under the live document too"),
        (report.refused_by_limits, "refused by a limit of a key or user (left out)"),
        (report.unreadable.unwrap_or_default(), "not readable (left out)"),
    ];
    let others = others.map(|(requests, says)| (requests, says.to_owned()));
    let rows: Vec<(u64, String)> =
        rows.into_iter().chain(others).filter(|(requests, _)| *requests > 0).collect();
    html! {
        @if !rows.is_empty() {
            h2 { "What could not be judged" }
            ul {
                @for (requests, says) in rows { li { (pieces::count(requests)) ": " (says) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::record;

    #[test]
    fn a_report_says_what_changes_and_what_it_does_not_know() {
        let whole = serde_json::to_value(EvaluationRecord::default()).unwrap();
        let found = record(
            whole,
            json!({
                "evaluated": 2000, "changed": 500, "unroutable": 3, "unroutable_before": 0,
                "rule_changed": 7, "plan_changed": 9, "inexact": 4, "assumed": 0,
                "by_change": [{
                    "from": "p/<b>", "to": "none", "count": 500, "cost_delta_usd": -0.5,
                    "unpriced": 0,
                    "reasons": [{ "reason": "rule", "detail": "<script>", "count": 500 }],
                    "examples": ["req_1"],
                }, {
                    "from": "p/<b>", "to": "p/c", "count": 101, "cost_delta_usd": 0.0,
                    "unpriced": 99,
                    "reasons": [], "examples": [],
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
            }),
        );
        let shown = report(&found).into_string();
        for there in [
            "500 of 2\u{2009}000",
            "(25 %)",
            "3 requests would find no target",
            "−$0.5000, not known for 5 of 2\u{2009}000",
            "not known for 99 of 101",
            "href=\"/console/captures/req_1\"",
            "&lt;script&gt;",
            "6: replays (left out)",
            "4: decided without a text",
            "has no known price",
        ] {
            assert!(shown.contains(there), "no {there} in {shown}");
        }
        assert!(!shown.contains("<script") && !shown.contains("<b>") && !shown.contains("<i>"));
    }

    #[test]
    fn a_report_on_nothing_says_so() {
        let shown = report(&EvaluationRecord::default()).into_string();
        assert!(shown.contains("There are no captured requests") && !shown.contains("<svg"));
    }

    #[test]
    fn an_unknown_cost_is_not_a_saving_of_nothing() {
        let same =
            CostRecord { before: 0.3602, after: 0.3602, unpriced: 226, ..CostRecord::default() };
        let shown = cost(&same, 297).into_string();
        assert!(shown.contains("<dd class=\"num\">not known for 226 of 297</dd>"), "{shown}");
        assert!(!shown.contains("0.0 %") && !shown.contains("$0.00"), "{shown}");
    }

    #[test]
    fn differences_have_a_sign() {
        assert_eq!(difference(1.0, 3.0), "+$2.0000 (+200.0 %)");
        assert_eq!(difference(0.0, -0.25), "−$0.2500");
        assert_eq!(difference(1.0, 1.0), "$0.00 (0.0 %)");
    }
}
