//! Why a request went where it went, and what would have changed that.

use maud::{Markup, html};
use serde_json::Value;

use super::values::{flag, list, pretty, reason, target, text, visible, whole};
use crate::pieces::{badge, code, table};

/// The explanation in a capture of the API.
pub(super) fn decision(capture: &Value) -> Markup {
    let Some(told) = capture.get("explanation").filter(|told| !told.is_null()) else {
        return html! {
            p {
                "No target was chosen: the request was refused. The message at the top says why; \
                 where it names targets, it has the reason why each was left out."
            }
        };
    };
    html! {
        p { (sentence(capture)) }
        @if !flag(told, "/document") {
            p.muted {
                "The document of this decision (revision "
                code { (text(capture, "/decision/revision")) }
                ") is not known any more, or a part of the inputs was redacted. So only what the \
                 capture itself holds is shown."
            }
        }
        h3 { "Targets" }
        p.muted { (visible(text(told, "/order"))) }
        (targets(list(told, "/targets"), whole(capture, "/status").unwrap_or(0)))
        @if !list(told, "/rules").is_empty() {
            h3 { "Rules" }
            (rule_table(list(told, "/rules")))
        }
        @if !list(told, "/otherwise").is_empty() {
            h3 { "What would have changed it" }
            ul.cap-otherwise {
                @for one in list(told, "/otherwise") { li { (visible(text(one, "/detail"))) } }
            }
        }
        details {
            summary { "What the decision looked at" }
            (code(&visible(&pretty(&capture["inputs"].to_string()))))
        }
    }
}

/// The decision in one sentence.
fn sentence(capture: &Value) -> Markup {
    let (alias, rule) = (text(capture, "/decision/alias"), text(capture, "/decision/rule"));
    let recipe = text(capture, "/decision/recipe");
    let decided = target(capture, "/decision").unwrap_or_default();
    let served = target(capture, "/decision/served");
    html! {
        @if rule.is_empty() {
            "The request named its target."
        } @else {
            @if !alias.is_empty() { "Alias " strong { (visible(alias)) } " leads to recipe " }
            @else { "Recipe " }
            strong { (visible(recipe)) } ", where rule " strong { (visible(rule)) } " matched."
        }
        " First choice: " strong { (decided) } (passed_over(capture, &decided)) ". "
        @match served {
            Some(served) if served == decided => "It answered.",
            Some(served) => { "Answered by: " strong { (served) } "." }
            None => "Nobody answered.",
        }
    }
}

/// The targets that stand before the first choice in the document and were left out.
fn passed_over(capture: &Value, decided: &str) -> Markup {
    let candidates = list(capture, "/decision/candidates");
    let name = |candidate| target(candidate, "").unwrap_or_default();
    let before = candidates.iter().take_while(|candidate| name(candidate) != decided);
    let left_out: Vec<&Value> = before.filter(|one| !flag(one, "/eligible")).collect();
    // Another strategy may have taken the first choice anyway.
    let is_why = text(capture, "/decision/strategy") == "priority";
    html! {
        @for (at, one) in left_out.iter().enumerate() {
            @if at > 0 { ", " } @else if is_why { ", because left out: " } @else { "; left out: " }
            strong { (name(one)) } " (" (visible(reason(text(one, "/reason")))) ")"
        }
    }
}

/// `status` is that of the answer.
fn targets(targets: &[Value], status: u64) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Targets" {
            table.table {
                thead {
                    tr {
                        th.num scope="col" { "Place" }
                        th scope="col" { "Target" }
                        th scope="col" { "Outcome" }
                        th scope="col" { "Why" }
                    }
                }
                tbody {
                    @for target in targets {
                        tr {
                            td.num {
                                @match whole(target, "/place") {
                                    Some(place) => (place),
                                    None => "–",
                                }
                            }
                            th scope="row" { (visible(text(target, "/target"))) }
                            td { (target_outcome(text(target, "/outcome"), status)) }
                            td {
                                (visible(text(target, "/detail")))
                                @if !text(target, "/measure").is_empty() {
                                    " " span.muted { (visible(text(target, "/measure"))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn target_outcome(outcome: &str, status: u64) -> Markup {
    match outcome {
        "answered" if status >= 400 => badge("warn", "answered with an error"),
        "answered" => badge("ok", "answered"),
        "failed" => badge("bad", "failed"),
        "left_out" => badge("warn", "left out"),
        _ => badge("", "not asked"),
    }
}

fn rule_table(rules: &[Value]) -> Markup {
    let headings = ["Rule", "Condition", "Here", "Leads to"];
    table("Rules", &headings, &html! { @for rule in rules { (rule_row(rule)) } })
}

fn rule_row(rule: &Value) -> Markup {
    let signals = rule.get("signals").and_then(Value::as_object);
    let error = text(rule, "/error");
    html! {
        tr {
            th scope="row" { (visible(text(rule, "/rule"))) }
            td {
                @match text(rule, "/when") {
                    "" => span.muted { "always" },
                    when => code { (visible(when)) },
                }
                @for (name, value) in signals.into_iter().flatten() {
                    div.muted {
                        (name) ": " (visible(value.as_str().filter(|value| !value.is_empty())
                            .unwrap_or("none")))
                    }
                }
            }
            td {
                @if flag(rule, "/taken") { (badge("ok", "decided")) }
                @else if flag(rule, "/matches") { (badge("", "matches too, comes later")) }
                @else if !error.is_empty() {
                    (badge("warn", "could not be evaluated")) " " (visible(error))
                }
                @else { (badge("", "does not match")) }
            }
            td { (visible(text(rule, "/target"))) }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decided(strategy: &str) -> Value {
        json!({"decision": {
            "provider": "south", "model": "medium", "recipe": "main", "rule": "code",
            "strategy": strategy, "served": {"provider": "south", "model": "medium"},
            "candidates": [
                {"provider": "north", "model": "<big>", "eligible": false, "reason": "cooldown"},
                {"provider": "south", "model": "medium", "eligible": true, "reason": null},
                {"provider": "west", "model": "late", "eligible": false, "reason": "breaker_open"},
            ],
        }})
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
