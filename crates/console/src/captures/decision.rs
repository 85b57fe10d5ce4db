//! Why a request went to its target, and what would have changed that.

use maud::{Markup, html};

use super::values::{pretty, reason, target, visible};
use crate::pieces::{badge, code, headings, table};
use rerouter_records::explanation::{ExplainedRule, ExplainedTarget};
use rerouter_records::replay::{CaptureRecord, DecisionRecord};

pub(super) fn decision(capture: &CaptureRecord) -> Markup {
    let (Some(Some(told)), Some(decided)) = (&capture.explanation, &capture.decision) else {
        return html! {
            p {
                "No target was chosen: the request was refused. The message at the top says why; \
                 where it names targets, it has the reason why each was left out."
            }
        };
    };
    let inputs = serde_json::to_string(&capture.inputs).unwrap_or_default();
    html! {
        p { (sentence(decided)) }
        @if !told.document {
            p.muted {
                "The document of this decision (revision "
                code { (decided.decision.revision) }
                ") is not known any more, or a part of the inputs was redacted. So only what the \
                 capture itself holds is shown."
            }
        }
        h3 { "Targets" }
        p.muted { (visible(&told.order)) }
        (targets(&told.targets, capture.base.status))
        @if let Some(rules) = told.rules.as_deref().filter(|rules| !rules.is_empty()) {
            h3 { "Rules" }
            (table("Rules", "", &headings(&["Rule", "Condition", "Here", "Leads to"], &[]),
                &html! { @for rule in rules { (rule_row(rule)) } }))
        }
        @if !told.otherwise.is_empty() {
            h3 { "What would have changed it" }
            ul.cap-otherwise {
                @for one in &told.otherwise { li { (visible(&one.detail)) } }
            }
        }
        details {
            summary { "What the decision looked at" }
            (code(&visible(&pretty(&inputs))))
        }
    }
}

fn sentence(record: &DecisionRecord) -> Markup {
    let decision = &record.decision;
    let first = target(&decision.provider, &decision.model);
    let served = record.served.as_ref().map(|served| target(&served.provider, &served.model));
    html! {
        @if let Some(rule) = &decision.rule {
            @if let Some(alias) = &decision.alias {
                "Alias " strong { (visible(alias)) } " leads to recipe "
            } @else { "Recipe " }
            strong { (visible(&decision.recipe)) } ", where rule " strong { (visible(rule)) }
            " matched."
        } @else {
            "The request named its target."
        }
        " First choice: " strong { (first) } (passed_over(record, &first)) ". "
        @match served {
            Some(served) if served == first => "It answered.",
            Some(served) => { "Answered by: " strong { (served) } "." }
            None => "Nobody answered.",
        }
    }
}

/// The targets before the first choice in the document that were left out, each with the reason.
fn passed_over(DecisionRecord { decision, .. }: &DecisionRecord, first: &str) -> Markup {
    let candidates = decision.candidates.iter();
    let named = candidates.map(|one| (target(&one.provider, &one.model), one));
    let before = named.take_while(|(name, _)| name != first);
    // With another strategy, the first choice may have won without these exclusions.
    let is_why = decision.strategy == "priority";
    html! {
        @for (at, (name, one)) in before.filter(|(_, one)| !one.eligible).enumerate() {
            @if at > 0 { ", " } @else if is_why { ", because left out: " } @else { "; left out: " }
            strong { (name) } " (" (visible(reason(one.reason.as_deref().unwrap_or_default()))) ")"
        }
    }
}

/// `status` is the HTTP status of the answer.
fn targets(targets: &[ExplainedTarget], status: u16) -> Markup {
    let titles = html! {
        th.num scope="col" { "Place" }
        (headings(&["Target", "Outcome", "Why"], &[]))
    };
    let rows = html! {
        @for target in targets {
            tr {
                td.num {
                    @match target.place {
                        Some(place) => (place),
                        None => "–",
                    }
                }
                th scope="row" { (visible(&target.target)) }
                td { (target_outcome(&target.outcome, status)) }
                td {
                    (visible(&target.detail))
                    @if let Some(measure) = &target.measure {
                        " " span.muted { (visible(measure)) }
                    }
                }
            }
        }
    };
    table("Targets", "", &titles, &rows)
}

fn target_outcome(outcome: &str, status: u16) -> Markup {
    match outcome {
        "answered" if status >= 400 => badge("warn", "answered with an error"),
        "answered" => badge("ok", "answered"),
        "failed" => badge("bad", "failed"),
        "left_out" => badge("warn", "left out"),
        _ => badge("", "not asked"),
    }
}

fn rule_row(rule: &ExplainedRule) -> Markup {
    html! {
        tr {
            th scope="row" { (visible(&rule.rule)) }
            td {
                @match &rule.when {
                    None => span.muted { "always" },
                    Some(when) => code { (visible(when)) },
                }
                @for (name, value) in &rule.signals {
                    div.muted {
                        (name) ": " (visible(if value.is_empty() { "none" } else { value }))
                    }
                }
            }
            td {
                @if rule.taken { (badge("ok", "decided")) }
                @else if rule.matches { (badge("", "matches too, comes later")) }
                @else if let Some(error) = &rule.error {
                    (badge("warn", "could not be evaluated")) " " (visible(error))
                }
                @else { (badge("", "does not match")) }
            }
            td { (visible(rule.target.as_deref().unwrap_or_default())) }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::captures::fixtures;

    fn decided(strategy: &str) -> DecisionRecord {
        let capture = fixtures::record(json!({"decision": {
            "provider": "south", "model": "medium", "recipe": "main", "rule": "code",
            "strategy": strategy, "served": {"provider": "south", "model": "medium"},
            "candidates": [
                {"provider": "north", "model": "<big>", "eligible": false, "reason": "cooldown"},
                {"provider": "south", "model": "medium", "eligible": true, "reason": null},
                {"provider": "west", "model": "late", "eligible": false, "reason": "breaker_open"},
            ],
        }}));
        capture.decision.unwrap()
    }

    #[test]
    fn a_target_that_was_passed_over_is_the_reason() {
        let shown = sentence(&decided("priority")).into_string();
        let because = "<strong>south/medium</strong>, because left out: \
                       <strong>north/&lt;big&gt;</strong> (pause). It answered.";
        assert!(shown.contains(because), "{shown}");
        let shown = sentence(&decided("cheapest")).into_string();
        assert!(shown.contains("; left out: ") && !shown.contains("because"), "{shown}");
    }

    #[test]
    fn an_answer_with_an_error_does_not_look_good() {
        for (status, kind) in [(200, "badge-ok"), (400, "badge-warn")] {
            let shown = target_outcome("answered", status).into_string();
            assert!(shown.contains(kind), "{status}: {shown}");
        }
    }
}
