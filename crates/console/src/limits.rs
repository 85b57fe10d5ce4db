//! Limits of keys and users on pages: in words, as inputs of a form, and what remains of them.

use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::form::Form;
use super::form_state::{FormState, Input, lines_of, patch_to};
use super::pieces;
use rerouter_base::interface::Interface;

const COUNTS: [(&str, &str, &str); 3] = [
    ("rpm", "Requests a minute", ""),
    ("tpm", "Tokens a minute", "Of prompts and answers."),
    ("concurrency", "Requests at once", ""),
];

/// The limits that are set, in a few words each.
pub(super) fn summary(limits: &Value) -> Markup {
    let count = |name: &str| limits.get(name).and_then(Value::as_u64);
    let mut words: Vec<Markup> = Vec::new();
    for (name, unit) in [("rpm", "requests/min"), ("tpm", "tokens/min"), ("concurrency", "at once")]
    {
        words.extend(count(name).map(|most| html! { (pieces::count(most)) " " (unit) }));
    }
    if let Some((usd, per)) = budget(limits) {
        words.push(html! { (pieces::money(usd)) " a " (per) });
    }
    words.extend(count("keys_per_user").map(|most| html! { (pieces::count(most)) " keys" }));
    html! {
        @if words.is_empty() { span .muted { "none" } }
        @for (at, word) in words.iter().enumerate() { @if at > 0 { " · " } (word) }
    }
}

/// The names that may be asked for.
pub(super) fn models(limits: &Value) -> Markup {
    let names = limits.get("models").and_then(Value::as_array);
    html! {
        @match names {
            None => span .muted { "all" },
            Some(names) => @for (at, name) in names.iter().enumerate() {
                @if at > 0 { ", " }
                span .mono { (name.as_str().unwrap_or_default()) }
            },
        }
    }
}

fn budget(limits: &Value) -> Option<(f64, &str)> {
    let budget = limits.get("budget")?;
    Some((budget.get("usd")?.as_f64()?, budget.get("per")?.as_str()?))
}

/// The inputs of a form. Keys of PIN and AGENT make no inference: only the count of keys holds.
pub(super) fn inputs(state: &FormState<'_>, before: &Value, interface: Interface) -> Markup {
    let number = |name: &str| match before.get(name) {
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let (usd, per) = budget(before).unwrap_or((0.0, "month"));
    let usd = if usd > 0.0 { usd.to_string() } else { String::new() };
    let names: Vec<&str> = before
        .get("models")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    html! {
        fieldset .form {
            legend { "Limits" }
            p .hint { "Empty means no limit." }
            @if interface == Interface::Router {
                div .access-columns {
                    @for (name, label, hint) in COUNTS {
                        (state.number(&Input {
                            label, name: &format!("limits.{name}"), before: &number(name), hint,
                        }))
                    }
                    (state.number(&Input {
                        label: "Budget in US dollars", name: "limits.budget.usd", before: &usd,
                        hint: "",
                    }))
                    (state.choice(
                        &Input {
                            label: "Budget for a", name: "limits.budget.per", before: per,
                            hint: "In UTC.",
                        },
                        &[("day", "day"), ("month", "month")],
                    ))
                }
                (state.lines(
                    &Input {
                        label: "Models", name: "limits.models", before: &names.join("\n"),
                        hint: "One name a line; a * at the end matches a prefix. Empty: all.",
                    },
                    3,
                ))
            }
            (state.number(&Input {
                label: "Live keys of one owner", name: "limits.keys_per_user",
                before: &number("keys_per_user"),
                hint: "It makes no more keys for an owner who has this many.",
            }))
        }
    }
}

/// The limits that a form sets. What is no number goes to the API as it is, which says so.
pub(super) fn read(form: &Form) -> Map<String, Value> {
    let text = |name: &str| {
        form.get(&format!("limits.{name}")).map(str::trim).filter(|text| !text.is_empty())
    };
    let mut limits = Map::new();
    for name in ["rpm", "tpm", "concurrency", "keys_per_user"] {
        let value = text(name).map(|text| text.parse::<u64>().map_or(json!(text), Value::from));
        limits.extend(value.map(|value| (name.to_owned(), value)));
    }
    if let Some(usd) = text("budget.usd") {
        let usd = usd.parse::<f64>().map_or(json!(usd), Value::from);
        limits.insert("budget".to_owned(), json!({"usd": usd, "per": text("budget.per")}));
    }
    if let Some(names) = text("models") {
        limits.insert("models".to_owned(), json!(lines_of(names)));
    }
    limits
}

/// The merge patch that makes a form's limits of those before; limits without an input stay.
pub(super) fn change(before: &Value, form: &Form) -> Option<Value> {
    let mut wanted = read(form);
    let has_input = |name: &str| match name {
        "budget" => form.get("limits.budget.usd").is_some(),
        name => form.get(&format!("limits.{name}")).is_some(),
    };
    let stay = before.as_object().into_iter().flatten().filter(|(name, _)| !has_input(name));
    wanted.extend(stay.map(|(name, value)| (name.clone(), value.clone())));
    patch_to(before, &wanted)
}

/// What remains of the limits that a key draws on: `usage` of the key's record.
pub(super) fn remaining(usage: &Value) -> Markup {
    let of = |name: &str| usage.get(name).filter(|left| !left.is_null());
    let rows: Vec<Markup> = [
        of("requests").map(|left| row("Requests this minute", left, false)),
        of("tokens").map(|left| row("Tokens this minute", left, false)),
        of("concurrency").map(|left| row("Requests at once", left, false)),
        of("budget").map(|left| row("Budget", left, true)),
    ]
    .into_iter()
    .flatten()
    .collect();
    html! {
        @if rows.is_empty() {
            p .muted { "Nothing limits this key." }
        } @else {
            div .scroll tabindex="0" role="region" aria-label="Remaining limits" {
                table .table {
                    thead { tr {
                        th scope="col" { "Limit" } th scope="col" { "Left" }
                        th scope="col" .num { "Remaining" } th scope="col" { "Whose" }
                        th scope="col" { "Full again" }
                    } }
                    tbody { @for row in &rows { (row) } }
                }
            }
        }
    }
}

/// One limit: the bar shows what is left.
fn row(label: &str, left: &Value, is_money: bool) -> Markup {
    let end = if is_money { "_usd" } else { "" };
    let number = |name: &str| left.get(format!("{name}{end}")).and_then(Value::as_f64);
    let (most, rest) = (number("limit").unwrap_or(0.0), number("remaining").unwrap_or(0.0));
    let shown = |amount: f64| match is_money {
        true => pieces::money(amount),
        // Counts are far below 2^53.
        false => pieces::count(amount as u64),
    };
    let reserved = number("reserved").filter(|reserved| *reserved > 0.0);
    html! {
        tr {
            th scope="row" { (label) }
            td {
                meter min="0" max=(most) low=(most / 10.0) optimum=(most) value=(rest)
                    aria-label=(format!("{label} left")) {}
            }
            td .num {
                (shown(rest)) " of " (shown(most))
                @if let Some(per) = left.get("per").and_then(Value::as_str) { " a " (per) }
                @if let Some(reserved) = reserved {
                    br; span .muted { (shown(reserved)) " reserved by requests under way" }
                }
            }
            td { (left.get("of").and_then(Value::as_str).unwrap_or_default()) }
            td {
                @if let Some(at) = left.get("resets_at").and_then(Value::as_str) {
                    (pieces::time(at))
                }
            }
        }
    }
}
