//! The limits of keys and users on pages: as text, as form inputs, and what is left of them.

use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::form::Form;
use super::form_state::{FormState, Input, lines_of, patch_to};
use super::pieces;
use rerouter_base::interface::Interface;
use rerouter_base::money::dollars;
use rerouter_records::key::KeyUsage;
use rerouter_records::{COUNTS, LimitOwner, Limits, Time};

/// The limits that are set, each in a few words.
pub(super) fn summary(limits: &Limits) -> Markup {
    let mut words: Vec<Markup> = Vec::new();
    for (row, most) in COUNTS.iter().zip(limits.counts()) {
        let unit = match row.window {
            Some(_) => row.label().to_lowercase().replace(" a minute", "/min"),
            None => row.span.to_owned(),
        };
        words.extend(most.map(|most| html! { (pieces::count(most)) " " (unit) }));
    }
    if let Some(budget) = &limits.budget {
        words.push(html! { (pieces::money(dollars(budget.nano))) " a " (budget.per.as_str()) });
    }
    words.extend(limits.keys_per_user.map(|most| html! { (pieces::count(most)) " keys" }));
    html! {
        @if words.is_empty() { span .muted { "none" } }
        @for (at, word) in words.iter().enumerate() { @if at > 0 { " · " } (word) }
    }
}

/// The models that may be requested.
pub(super) fn models(limits: &Limits) -> Markup {
    html! {
        @match &limits.models {
            None => span .muted { "all" },
            Some(names) => @for (at, name) in names.iter().enumerate() {
                @if at > 0 { ", " }
                span .mono { (name) }
            },
        }
    }
}

/// The inputs of a form. Keys of PIN and AGENT cannot make inference calls, so only the number of
/// keys is limited.
pub(super) fn inputs(state: &FormState<'_>, before: &Limits, interface: Interface) -> Markup {
    let number = |most: Option<u64>| most.map(|most| most.to_string()).unwrap_or_default();
    let usd = before.budget.map(|budget| dollars(budget.nano).to_string()).unwrap_or_default();
    let per = before.budget.map_or("month", |budget| budget.per.as_str());
    let names = before.models.as_ref().map(|names| names.join("\n")).unwrap_or_default();
    html! {
        fieldset .form {
            legend { "Limits" }
            p .hint { "Empty means no limit." }
            @if interface == Interface::Router {
                div .access-columns {
                    @for (row, most) in COUNTS.iter().zip(before.counts()) {
                        (state.number(&Input {
                            label: &row.label(), name: &format!("limits.{}", row.name),
                            before: &number(most),
                            hint: row.hint,
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
                        label: "Models", name: "limits.models", before: &names,
                        hint: "One name a line; a * at the end matches a prefix. Empty: all.",
                    },
                    3,
                ))
            }
            (state.number(&Input {
                label: "Live keys of one owner", name: "limits.keys_per_user",
                before: &number(before.keys_per_user),
                hint: "It makes no more keys for an owner who has this many.",
            }))
        }
    }
}

/// Reads the limits in a form. Text that is not a number is passed on, so that the API refuses it.
pub(super) fn read(form: &Form) -> Map<String, Value> {
    let text = |name: &str| {
        form.get(&format!("limits.{name}")).map(str::trim).filter(|text| !text.is_empty())
    };
    let mut limits = Map::new();
    for name in COUNTS.iter().map(|row| row.name).chain(["keys_per_user"]) {
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

/// The merge patch that changes the limits to those in a form. Limits without an input stay.
pub(super) fn change(before: &Limits, form: &Form) -> Option<Value> {
    let before = &json!(before);
    let mut wanted = read(form);
    let has_input = |name: &str| match name {
        "budget" => form.get("limits.budget.usd").is_some(),
        name => form.get(&format!("limits.{name}")).is_some(),
    };
    let stay = before.as_object().into_iter().flatten().filter(|(name, _)| !has_input(name));
    wanted.extend(stay.map(|(name, value)| (name.clone(), value.clone())));
    patch_to(before, &wanted)
}

/// What is left of the limits that a key's requests count against.
pub(super) fn remaining(usage: &KeyUsage) -> Markup {
    let counts = COUNTS.iter().zip(usage.counts()).filter_map(|(kind, left)| {
        let left = left?;
        let reserved = Some(left.reserved).filter(|reserved| *reserved > 0);
        Some(row(&Left {
            label: &kind.label(),
            of: left.of,
            amounts: (left.limit as f64, left.remaining as f64),
            shown: (pieces::count(left.remaining), pieces::count(left.limit)),
            per: None,
            reserved: reserved.map(pieces::count),
            resets_at: left.resets_at,
        }))
    });
    let budget = usage.budget.as_ref().map(|left| {
        let reserved = Some(left.reserved_usd).filter(|reserved| *reserved > 0.0);
        row(&Left {
            label: "Budget",
            of: left.of,
            amounts: (left.limit_usd, left.remaining_usd),
            shown: (pieces::money(left.remaining_usd), pieces::money(left.limit_usd)),
            per: Some(left.per.as_str()),
            reserved: reserved.map(pieces::money),
            resets_at: Some(left.resets_at),
        })
    });
    let rows: Vec<Markup> = counts.chain(budget).collect();
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

/// What is left of one limit.
struct Left<'a> {
    label: &'a str,
    of: LimitOwner,
    /// The limit, and how much of it is left, as numbers.
    amounts: (f64, f64),
    /// How much is left, and the limit, as text.
    shown: (String, String),
    per: Option<&'static str>,
    /// The part that requests under way have reserved.
    reserved: Option<String>,
    resets_at: Option<Time>,
}

/// One limit as a row. Its bar shows what is left.
fn row(left: &Left<'_>) -> Markup {
    let (most, rest) = left.amounts;
    html! {
        tr {
            th scope="row" { (left.label) }
            td {
                meter min="0" max=(most) low=(most / 10.0) optimum=(most) value=(rest)
                    aria-label=(format!("{} left", left.label)) {}
            }
            td .num {
                (left.shown.0) " of " (left.shown.1)
                @if let Some(per) = left.per { " a " (per) }
                @if let Some(reserved) = &left.reserved {
                    br; span .muted { (reserved) " reserved by requests under way" }
                }
            }
            td { (left.of.as_str()) }
            td { @if let Some(at) = left.resets_at { (pieces::time(&at.to_string())) } }
        }
    }
}
