//! Limits of keys and users on pages: in words, as inputs of a form, and what is left of them.

use maud::{Markup, html};

use super::form_fields::FieldKind::{Beside, Names, Number};
use super::form_fields::{FormField, FormGroup, field};
use super::pieces::{self, Column};
use rerouter_base::interface::Interface;
use rerouter_base::money::dollars;
use rerouter_records::key::KeyUsage;
use rerouter_records::{COUNTS, LimitOwner, Limits, Time};

/// The limits of a user, and of a ROUTER key.
pub(super) const ROUTER: FormGroup = FormGroup {
    legend: "Limits",
    hint: "Empty means no limit.",
    columns: &COLUMNS,
    fields: &[
        field("Models", "limits.models", Names(3))
            .hint("One name a line; a * at the end matches a prefix. Empty: all."),
        KEYS_PER_USER,
    ],
};
/// One field for each kind of limit, then the budget.
#[allow(clippy::indexing_slicing, reason = "the compiler evaluates it")]
const COLUMNS: [FormField; COUNTS.len() + 2] = {
    let per = Beside(&[("day", "day"), ("month", "month")]);
    let per = field("Budget for a", "limits.budget.per", per).hint("In UTC.").before("month");
    let mut columns = [per; COUNTS.len() + 2];
    let mut at = 0;
    while at < COUNTS.len() {
        let kind = &COUNTS[at];
        columns[at] = field(kind.label, kind.input, Number).hint(kind.hint);
        at += 1;
    }
    columns[at] = field("Budget in US dollars", "limits.budget.usd", Number);
    columns
};
/// Keys of PIN and AGENT cannot make inference calls, so only the number of keys is limited.
const OTHERS: FormGroup = FormGroup { columns: &[], fields: &[KEYS_PER_USER], ..ROUTER };
const KEYS_PER_USER: FormField = field("Live keys of one owner", "limits.keys_per_user", Number)
    .hint("It makes no more keys for an owner who has this many.");

pub(super) fn of(interface: Interface) -> FormGroup {
    match interface {
        Interface::Router => ROUTER,
        Interface::Pin | Interface::Agent => OTHERS,
    }
}

/// The limits that are set, each in a few words.
pub(super) fn summary(limits: &Limits) -> Markup {
    let counts = COUNTS.iter().zip(limits.counts()).filter_map(|(kind, most)| {
        let unit = match kind.window {
            Some(_) => kind.label.to_lowercase().replace(" a minute", "/min"),
            None => kind.span.to_owned(),
        };
        Some(format!("{} {unit}", pieces::count(most?)))
    });
    let budget = limits
        .budget
        .map(|budget| format!("{} a {}", pieces::money(dollars(budget.nano)), budget.per.as_str()));
    let keys = limits.keys_per_user.map(|most| format!("{} keys", pieces::count(most)));
    let words: Vec<String> = counts.chain(budget).chain(keys).collect();
    html! {
        @if words.is_empty() { span .muted { "none" } } @else { (words.join(" · ")) }
    }
}

/// The names that may be asked for.
pub(super) fn models(limits: &Limits) -> Markup {
    match &limits.models {
        None => html! { span .muted { "all" } },
        Some(names) => pieces::names(names),
    }
}

/// What is left of the limits that a key's requests count against.
pub(super) fn remaining(usage: &KeyUsage) -> Markup {
    let counts = COUNTS.iter().zip(usage.counts()).filter_map(|(kind, left)| {
        let left = left?;
        Some(Left {
            label: kind.label,
            of: left.of,
            amounts: (left.limit as f64, left.remaining as f64),
            per: None,
            beside: vec![(left.reserved as f64, "reserved by requests under way")],
            resets_at: left.resets_at,
        })
    });
    let budget = usage.budget.as_ref().map(|left| Left {
        label: "Budget",
        of: left.of,
        amounts: (left.limit_usd, left.remaining_usd),
        per: Some(left.per.as_str()),
        beside: vec![
            (left.reserved_usd, "reserved by requests under way"),
            (left.held_usd, "held by other gateways"),
            (left.lost_usd, "held by gateways that died"),
        ],
        resets_at: Some(left.resets_at),
    });
    let rows: Vec<Left> = counts.chain(budget).collect();
    html! {
        @if rows.is_empty() {
            p .muted { "Nothing limits this key." }
        } @else {
            (pieces::table_of("Remaining limits", &LEFT, &rows))
        }
    }
}

struct Left {
    label: &'static str,
    of: LimitOwner,
    /// The limit, and what is left of it.
    amounts: (f64, f64),
    /// The period of a budget. Its amounts are US dollars.
    per: Option<&'static str>,
    /// Amounts that are neither spent nor left, with the reason.
    beside: Vec<(f64, &'static str)>,
    resets_at: Option<Time>,
}

/// The bar shows what is left.
const LEFT: [Column<Left>; 5] = [
    Column("Limit", "row", |left| html! { (left.label) }),
    Column("Left", "", |left| {
        let (most, rest) = left.amounts;
        html! {
            meter min="0" max=(most) low=(most / 10.0) optimum=(most) value=(rest)
                aria-label=(format!("{} left", left.label)) {}
        }
    }),
    Column("Remaining", "num", |left| {
        let (most, rest) = left.amounts;
        let shown = |amount: f64| match left.per {
            Some(_) => pieces::money(amount),
            None => pieces::count(amount as u64),
        };
        html! {
            (shown(rest)) " of " (shown(most))
            @if let Some(per) = left.per { " a " (per) }
            @for (amount, why) in left.beside.iter().filter(|(amount, _)| *amount > 0.0) {
                br; span .muted { (shown(*amount)) " " (why) }
            }
        }
    }),
    Column("Whose", "", |left| html! { (left.of.as_str()) }),
    Column("Full again", "", |left| pieces::when(left.resets_at)),
];
