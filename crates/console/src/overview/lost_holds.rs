//! What gateways held of budgets when they died, with a form that settles it, for admins.

use maud::{Markup, html};

use crate::call::PageCall;
use crate::form_fields::FieldKind::{Line, Number};
use crate::form_fields::{FormGroup, field, plain};
use crate::pieces::{self, Column};
use rerouter_base::id::UserId;
use rerouter_base::url::encode;
use rerouter_records::page::Page;
use rerouter_records::usage::LostHoldRecord;

pub(super) const FORM: [FormGroup; 1] = [plain(&[
    field("", "subject", Line("text")),
    field("", "period", Line("text")),
    field("Spent", "spent_usd", Number).needed(),
])];

const COLUMNS: [Column<LostHoldRecord>; 6] = [
    Column("Whose", "row", |hold| {
        let is_user = hold.subject.starts_with(UserId::PREFIX);
        let folder = if is_user { "users" } else { "keys" };
        pieces::id_link(&format!("/console/{folder}/{}", encode(&hold.subject)), &hold.subject)
    }),
    Column("Period (UTC)", "", |hold| html! { (hold.period) }),
    Column("Held", "num", |hold| html! { (pieces::money(hold.held_usd)) }),
    Column("Since", "", |hold| pieces::when(hold.held_at)),
    Column("Gateway", "", |hold| html! { (hold.gateway.as_deref().unwrap_or("this one")) }),
    Column("Spent of it, in US dollars", "", |hold| {
        html! {
            form .row method="post" action="/console/lost-holds" {
                input type="hidden" name="subject" value=(hold.subject);
                input type="hidden" name="period" value=(hold.period);
                input name="spent_usd" inputmode="decimal" autocomplete="off" size="8" required
                    aria-label=(format!("Spent of {} in {}", hold.subject, hold.period));
                button type="submit" { "Settle" }
            }
        }
    }),
];

/// The section of the overview; empty if nothing is lost, or the caller may not see it.
pub(super) async fn section(call: &PageCall<'_>) -> Markup {
    let path = "/v1/router/usage/lost";
    if !call.is_admin() || !call.serves(path) {
        return html! {};
    }
    let listed = match call.read::<Page<LostHoldRecord>>(path).await {
        Ok(listed) => listed,
        Err(error) => return pieces::notice("bad", &html! { (error.detail()) }),
    };
    let (holds, has_more) = (by_budget(listed.data), listed.has_more);
    html! {
        @if !holds.is_empty() {
            section aria-labelledby="lost-holds" {
                h2 #lost-holds { "Lost of budgets" }
                p .hint {
                    "Gateways held this when they died. It counts until you say what of it was \
                     spent; the rest is given back, for good."
                    @if has_more { " There are more, also of these budgets: settle some first." }
                }
                (pieces::table_of("Lost of budgets", &COLUMNS, &holds))
            }
        }
    }
}

/// One row for each budget, as what all dead gateways held of it is settled at once.
fn by_budget(holds: Vec<LostHoldRecord>) -> Vec<LostHoldRecord> {
    let mut rows: Vec<LostHoldRecord> = Vec::new();
    for hold in holds {
        let is_same =
            |row: &&mut LostHoldRecord| row.subject == hold.subject && row.period == hold.period;
        match rows.iter_mut().find(is_same) {
            Some(row) => {
                row.held_usd += hold.held_usd;
                let names = [row.gateway.take(), hold.gateway].into_iter().flatten();
                row.gateway = names.reduce(|all, name| format!("{all}, {name}"));
            }
            None => rows.push(hold),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use rerouter_records::usage::LostHoldObject;

    #[test]
    fn a_budget_has_one_row() {
        let hold = |subject: &str, held_usd: f64, gateway: &str| LostHoldRecord {
            object: LostHoldObject::It,
            subject: subject.into(),
            period: "2026-11".into(),
            held_usd,
            held_at: None,
            gateway: Some(gateway.into()),
        };
        let rows = by_budget(vec![hold("a", 0.5, "x"), hold("b", 1.0, "x"), hold("a", 0.25, "y")]);
        let told =
            |row: &LostHoldRecord| format!("{} {} {:?}", row.subject, row.held_usd, row.gateway);
        let told: Vec<String> = rows.iter().map(told).collect();
        assert_eq!(told, ["a 0.75 Some(\"x, y\")", "b 1 Some(\"x\")"]);
    }
}
