//! The list of captures, newest first. New ones appear while the page is open.

use maud::{Markup, html};

use super::filters::{COMPARE, ID, ListFilters};
use super::values::{cost, outcome, reason, served, span, target, visible};
use super::{address, compared};
use crate::call::PageCall;
use crate::layout::Tab;
use crate::pieces::{badge, count, empty, headings, id_link, notice, pager, time};
use rerouter_base::error::Result;
use rerouter_core::api::ApiResult;
use rerouter_records::replay::{Replay, ReplayBase, ReplayList};

/// Captures on a page.
const PAGE: usize = 50;

/// `GET /console/captures`: the list with its filters. For htmx, only the list.
pub(crate) async fn show(call: PageCall<'_>) -> ApiResult {
    let filters = ListFilters::read(&call);
    if let Some(id) = call.query(ID).map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()) {
        return call.redirect(&match filters.get(COMPARE) {
            "" => address(&id, ""),
            compare => compared(compare, &id),
        });
    }
    let found = call.read(&filters.asked(call.app.clock.now(), PAGE)).await;
    if call.is_fragment() {
        return call.page("Captures", Tab::Captures, rows(&filters, &found?));
    }
    let listed = listed(&filters, found)?;
    let compare = filters.get(COMPARE);
    let main = html! {
        @if !compare.is_empty() {
            (notice("info", &html! {
                p {
                    "Choose the request to compare with " (id_link(&address(compare, ""), compare))
                    ". " a href="/console/captures" { "Cancel" }
                }
            }))
        }
        (filters.form(call.is_admin()))
        (listed)
    };
    call.page("Captures", Tab::Captures, main)
}

fn listed(filters: &ListFilters, found: Result<ReplayList>) -> Result<Markup> {
    let found = match found {
        // A filter that the API refuses stays in the form, with the reason.
        Err(error) if error.field().is_some() => {
            return Ok(notice("bad", &html! { p { (error.detail()) } }));
        }
        found => found?,
    };
    // New captures can appear only on the first page. A search of whole captures is too expensive
    // to repeat all the time.
    let is_live = filters.after.is_none() && filters.asks_index();
    Ok(html! {
        @if is_live {
            p.row.cap-live hidden {
                label { input #live type="checkbox" checked; " Live" }
                span.muted { "New requests appear by themselves." }
            }
        }
        // htmx renews the content of this region, not the region, so that the scroll position
        // stays.
        div.scroll tabindex="0" role="region" aria-label="Requests" {
            div #cap-list data-live[is_live] data-quiet
                hx-get=[is_live.then(|| filters.address(None))]
                hx-trigger=[is_live.then_some("renew")] hx-sync="this:drop" {
                (rows(filters, &found))
            }
        }
    })
}

/// The table, and a link to older requests.
fn rows(filters: &ListFilters, found: &ReplayList) -> Markup {
    let next = found.next.as_ref().map(|next| filters.address(Some(next.as_str())));
    let compare = filters.get(COMPARE);
    html! {
        @if found.data.is_empty() {
            @if next.is_some() {
                (empty("None among the requests that were looked at.", "Older ones may follow."))
            } @else if filters.is_empty() {
                (empty("No requests yet.", "Each inference request appears here when it ends."))
                p.row {
                    a.button href="/console/playground" { "Send one in the playground" }
                    a.button href="/console/clients" { "Set up a client" }
                }
            } @else {
                (empty("No request fits these filters.", ""))
            }
        } @else {
            table.table.cap-table {
                thead {
                    tr {
                        (headings(&["Time", "Outcome", "Model → target"],
                            &["Tokens", "Cost", "First token", "Total", "Tries"]))
                        @if !compare.is_empty() { th scope="col" { "Compare" } }
                    }
                }
                tbody { @for entry in &found.data { (row(entry, compare)) } }
            }
        }
        @if let Some(unreadable) = found.unreadable {
            p.error { (count(unreadable as u64)) " damaged captures are left out." }
        }
        (pager(next.as_deref()))
    }
}

/// `compare` is the id of the capture to compare with, or empty.
fn row(Replay { base, decision }: &Replay, compare: &str) -> Markup {
    let (id, served) = (base.id.as_str(), served(base));
    // The first target of the plan, unless it served the request.
    let decided = decision.as_ref().map(|decision| target(&decision.provider, &decision.model));
    let decided = decided.filter(|decided| Some(decided) != served.as_ref());
    html! {
        tr {
            td { a href=(address(id, "")) { (time(&base.created_at.to_string())) } }
            td { (outcome(base)) }
            td.cap-target {
                span { (visible(base.model.as_deref().filter(|m| !m.is_empty()).unwrap_or("–"))) }
                @if let Some(served) = &served { " → " span { (served) } }
                @if let Some(decided) = &decided {
                    @let before = if served.is_some() { " instead of " } else { " → " };
                    span.muted { (before) (decided) }
                }
                @if let Some(decision) = decision {
                    @if let Some(rule) = &decision.rule {
                        " " span.muted { "by " (visible(rule)) }
                    }
                    @for out in &decision.left_out {
                        @let name = target(&out.provider, &out.model);
                        @let why = visible(reason(&out.reason));
                        " " (badge("warn", &format!("without {name}: {why}")))
                    }
                }
                (marks(base))
            }
            td.num { (tokens(base)) }
            td.num { (cost(base.cost_usd)) }
            td.num { (span(base.latency.ttft_ms)) }
            td.num { (span(Some(base.latency.total_ms))) }
            td.num { (base.attempts) }
            @if !compare.is_empty() {
                td { @if id != compare { a href=(compared(compare, id)) { "compare" } } }
            }
        }
    }
}

pub(super) fn marks(base: &ReplayBase) -> Markup {
    let marks = [
        (base.replay_of.is_some(), "replay"),
        (base.shadow_of.is_some(), "shadow"),
        (base.imported, "imported"),
        (base.stream, "streamed"),
    ];
    html! {
        @for (_, mark) in marks.iter().filter(|(is, _)| *is) { " " (badge("info", mark)) }
    }
}

/// Tokens of the prompt and the answer, as `12 + 34`. An `≈` marks an estimate.
pub(super) fn tokens(base: &ReplayBase) -> String {
    let Some(usage) = &base.usage else { return "–".to_owned() };
    let about = if usage.estimated { "≈ " } else { "" };
    format!("{about}{} + {}", count(usage.prompt_tokens), count(usage.completion_tokens))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::captures::fixtures::listed;

    #[test]
    fn a_row_says_which_target_was_left_out() {
        let entry = listed(json!({"decision": {"left_out": [
            {"provider": "north", "model": "<big>", "reason": "cooldown"}]}}));
        let shown = row(&entry, "").into_string();
        assert!(shown.contains("without north/&lt;big&gt;: pause"), "{shown}");
    }
}
