//! Revisions: which documents were live, who made them live, how they differ, and rollback.

use std::collections::BTreeMap;

use http::Method;
use maud::{Markup, html};
use serde_json::json;

use super::apply::applied;
use super::diff;
use super::document::revision_text;
use super::workbench::{RoutingTab, live, tabs};
use crate::audit::actor_name;
use crate::call::{PageCall, record, request};
use crate::layout::Tab;
use crate::pieces;
use rerouter_base::error::Error;
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;
use rerouter_records::Time;
use rerouter_records::audit::AuditEvent;
use rerouter_records::error::ManagementError;
use rerouter_records::page::Page;
use rerouter_records::routing::ListedRevision;

/// Longest time from the beginning of a change until its document is live. A change may wait for
/// the gate.
const CHANGE_SECONDS: i64 = 600;

const HEADINGS: [&str; 7] = ["From", "To", "Revision", "Went live", "First made", "By", "Actions"];

/// `GET /console/routing/revisions`. With `a` and `b`, it redirects to their difference.
pub(crate) async fn show(call: PageCall<'_>) -> ApiResult {
    if let (Some(a), Some(b)) = (call.query("a"), call.query("b")) {
        return call.redirect(&compare_path(&a, &b));
    }
    let (api, here) = ("/v1/router/config/revisions", "/console/routing/revisions");
    let (rows, next) = call.list(api, here, &[]).await?;
    let authors = Authors::read(call, &rows).await;
    let live = live(call).await?.revision;
    let main = html! {
        (tabs(RoutingTab::Revisions))
        p.muted {
            "A revision stands for what a document says. Two texts that differ only in comments \
             have the same revision, and the later text is kept."
        }
        // Forms cannot nest, and each row has a form for its rollback. The radio buttons name this
        // one by id.
        form #rt-compare method="get" action="/console/routing/revisions" {}
        div.scroll tabindex="0" role="group" aria-label="Revisions" {
            table.table {
                thead { tr { (pieces::headings(&HEADINGS, &[])) } }
                tbody {
                    @for (at, row) in rows.iter().enumerate() { (listed(row, at, &authors, &live)) }
                }
            }
        }
        p { button form="rt-compare" { "Compare the two" } }
        (pieces::pager(next.as_deref()))
    };
    call.page("Revisions", Tab::Routing, main)
}

fn compare_path(a: &str, b: &str) -> String {
    format!("/console/routing/revisions/{}/{}", encode(a), encode(b))
}

fn listed(row: &ListedRevision, at: usize, authors: &Authors, live: &str) -> Markup {
    let revision = row.revision.as_str();
    // The newest two are preselected, which shows the last change.
    let choice = |name: &str, label: &str, chosen: bool| {
        html! {
            input type="radio" name=(name) value=(revision) form="rt-compare" checked[chosen]
                aria-label=(format!("{label} {revision}"));
        }
    };
    html! {
        tr {
            td { (choice("a", "From", at == 1)) }
            td { (choice("b", "To", at == 0)) }
            td.mono {
                (revision) " " @if row.live { (pieces::badge("ok", "live")) }
            }
            td { (pieces::time(&row.live_at.to_string())) }
            td { (pieces::time(&row.created_at.to_string())) }
            td { (authors.author_of(row)) }
            td {
                @if !row.live {
                    a href=(format!("/console/routing?from={}", encode(revision))) { "Edit" } " "
                    a href=(compare_path(live, revision)) { "Compare with live" } " "
                    (pieces::confirm_form(
                        &format!("/console/routing/revisions/{}/rollback", encode(revision)),
                        "Roll back",
                        "This text becomes live at once. No requests are decided again first.",
                    ))
                }
            }
        }
    }
}

/// `GET /console/routing/revisions/{a}/{b}`.
pub(crate) async fn compare(call: PageCall<'_>) -> ApiResult {
    let (a, b) = (call.param(0), call.param(1));
    let (before, after) = (revision_text(call, &a).await?, revision_text(call, &b).await?);
    let diff = diff::compare(before, after).await?;
    let main = html! {
        (tabs(RoutingTab::Revisions))
        p {
            "From " code { (a) } " to " code { (b) } ". "
            a href=(compare_path(&b, &a)) { "The other way round" }
        }
        @if diff.is_empty() { p { "The texts are the same." } }
        @else { (diff.show("Difference between the revisions")) }
        p.row {
            a.button href=(format!("/console/routing?from={}", encode(&a))) { "Edit " (a) }
            a.button href=(format!("/console/routing?from={}", encode(&b))) { "Edit " (b) }
            a.button href=(format!("/console/routing/evaluate?from={}", encode(&b))) {
                "What would " (b) " change?"
            }
        }
    };
    call.page("Two revisions", Tab::Routing, main)
}

/// `POST /console/routing/revisions/{revision}/rollback`.
pub(crate) async fn rollback(call: PageCall<'_>) -> ApiResult {
    let body = json!({ "revision": call.param(0) });
    let path = "/v1/router/config/rollback";
    let response = call.send(request(Method::POST, path, Some(&body))?).await?;
    if response.status().is_success() {
        return applied(call, &record(&response)?);
    }
    // A document that was live may be invalid now, for example because a variable is gone.
    Err(Error::invalid("revision", record::<ManagementError>(&response)?.detail))
}

/// Who made each revision live, according to the newest audit event about it.
#[derive(Default)]
struct Authors {
    changes: BTreeMap<String, AuditEvent>,
    /// Names of actors by id.
    names: BTreeMap<String, String>,
}

impl Authors {
    /// Reads the audit. A caller who may not read it gets no authors.
    async fn read(call: PageCall<'_>, rows: &[ListedRevision]) -> Authors {
        let mut authors = Authors::default();
        for ListedRevision { revision, .. } in rows {
            let Some(change) = change(call, revision).await else { continue };
            let actor = &change.actor.id;
            if !authors.names.contains_key(actor) {
                authors.names.insert(actor.clone(), actor_name(call, actor).await);
            }
            authors.changes.insert(revision.clone(), change);
        }
        authors
    }

    fn author_of(&self, row: &ListedRevision) -> Markup {
        let change = self.changes.get(&row.revision);
        let change = change.filter(|change| is_of(change.at, row.live_at));
        let Some(change) = change else { return html! { span.muted { "a file, or a start" } } };
        let actor = &change.actor.id;
        html! {
            (self.names.get(actor).unwrap_or(actor))
            @if change.action == "config.rollback" { " " (pieces::badge("", "rollback")) }
        }
    }
}

/// The newest change that made this revision live.
async fn change(call: PageCall<'_>, revision: &str) -> Option<AuditEvent> {
    let mut newest: Option<AuditEvent> = None;
    for action in ["config.put", "config.rollback"] {
        let path = format!("/v1/audit?limit=1&action={action}&target={}", encode(revision));
        let found: Page<AuditEvent> = call.read(&path).await.ok()?;
        let found = found.data.into_iter().next();
        newest = newest.into_iter().chain(found).max_by_key(|event| event.at);
    }
    newest
}

/// Whether a change that began at `began` can have made the document live at `live`.
fn is_of(Time(began): Time, Time(live): Time) -> bool {
    (-1..CHANGE_SECONDS).contains(&(live.as_second() - began.as_second()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_made_what_is_live_since_shortly_after_it() {
        let time = |text| Time::parse(text).unwrap();
        let began = time("2026-11-21T10:00:00.000000Z");
        for (live_at, is) in [
            ("2026-11-21T10:00:00.500000Z", true),
            ("2026-11-21T10:01:00.000000Z", true),
            ("2026-11-21T10:30:00.000000Z", false),
            ("2026-11-21T09:59:00.000000Z", false),
        ] {
            assert_eq!(is_of(began, time(live_at)), is, "{live_at}");
        }
    }
}
