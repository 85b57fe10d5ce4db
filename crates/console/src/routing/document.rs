//! The document: its text in an editor, what is wrong with it, and its picture.

use http::header::CONTENT_TYPE;
use http::{Method, Request};
use maud::{Markup, html};

use super::graph::{self, HealthTable, RouteGraph};
use super::picture;
use super::traffic::DayTraffic;
use super::workbench::{
    self, Draft, EvaluateOptions, RoutingTab, editor, report_place, tabs, written_file,
};
use crate::answer::file;
use crate::call::{PageCall, record};
use crate::form::Form;
use crate::layout::Tab;
use crate::pieces;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;
use rerouter_records::page::Page;
use rerouter_records::routing::{Config, ConfigSource, Outline, RevisionRecord, Validation};
use rerouter_records::status::ProviderStatus;

/// Most edges in a picture. A document with more is not drawn.
const DRAWN: usize = 1_500;
/// Most pages of the provider list that are read for health, with 100 providers each.
const PROVIDER_PAGES: usize = 10;

/// `GET /console/routing`. With `from`, the text of that revision is in the editor.
pub(crate) async fn show(call: PageCall<'_>) -> ApiResult {
    let live = workbench::live(call).await?;
    let draft = draft(call, &live).await?;
    page(call, &live, &draft, &EvaluateOptions::read(&Form::default()), &html! {}).await
}

/// A draft of the live document, or with `from` of that revision's text. It replaces the live
/// document.
pub(super) async fn draft(call: PageCall<'_>, live: &Config) -> Result<Draft> {
    let text = match call.query("from") {
        Some(revision) => revision_text(call, &revision).await?,
        None => live.document.clone(),
    };
    Ok(Draft { text, base: live.revision.clone(), is_written: false })
}

/// A notice on which revision's text is in the editor, if `from` names one.
pub(super) fn source(call: PageCall<'_>) -> Markup {
    let revision = call.query("from").filter(|_| call.request.method() == Method::GET);
    html! {
        @if let Some(revision) = revision {
            (pieces::notice("info", &html! {
                p { "The text below is that of revision " code { (revision) } "." }
            }))
        }
    }
}

/// The text of a document that is or was live.
pub(super) async fn revision_text(call: PageCall<'_>, revision: &str) -> Result<String> {
    let path = format!("/v1/router/config/revisions/{}", encode(revision));
    Ok(call.read::<RevisionRecord>(&path).await?.document)
}

/// `POST /console/routing/check`: the problems of the text. Without htmx, the whole page with them.
pub(crate) async fn check(call: PageCall<'_>) -> ApiResult {
    let form = call.form()?;
    let draft = Draft::read(&form);
    let (_, messages) = check_text(call, &draft.text).await?;
    if call.is_fragment() {
        return call.fragment(http::StatusCode::OK, messages);
    }
    let live = workbench::live(call).await?;
    page(call, &live, &draft, &EvaluateOptions::read(&form), &messages).await
}

/// Whether the text is a valid document, and its problems and warnings as HTML.
pub(super) async fn check_text(call: PageCall<'_>, document: &str) -> Result<(bool, Markup)> {
    let request = Request::builder()
        .method(Method::POST)
        .uri("/v1/router/config/validate")
        .header(CONTENT_TYPE, "application/yaml")
        .body(document.to_owned().into())
        .map_err(Error::internal)?;
    match call.send(request).await {
        Ok(response) => {
            let Validation { valid, problems, warnings } = record(&response)?;
            Ok((valid, workbench::messages(&problems, &warnings)))
        }
        Err(error) if error.kind() == Kind::InvalidRequest => {
            let says = html! { p { (pieces::badge("bad", "problem")) " " (error.detail()) } };
            Ok((false, says))
        }
        Err(error) => Err(error),
    }
}

/// `POST /console/routing/download`: the text as a file.
pub(crate) async fn download(call: PageCall<'_>) -> ApiResult {
    file("application/yaml", "routing.yaml", Draft::read(&call.form()?).text)
}

async fn page(
    call: PageCall<'_>,
    live: &Config,
    draft: &Draft,
    options: &EvaluateOptions,
    messages: &Markup,
) -> ApiResult {
    let drawing = drawing(call, &live.outline).await;
    let main = html! {
        (tabs(RoutingTab::Document))
        (standing(live, draft))
        (source(call))
        (editor(draft, options, messages))
        (report_place(&html! {}))
        (drawing)
    };
    call.page("Routing", Tab::Routing, main)
}

/// The live revision, the file that a change is written to, and warnings about this draft.
fn standing(live: &Config, draft: &Draft) -> Markup {
    html! {
        p {
            "Revision " code { (live.revision) } " is live since "
            (pieces::time(&live.live_since.to_string())) ". "
            @if let Some(file) = written_file(live) {
                "A change is written to " code { (file) } "."
            }
        }
        @if live.source == ConfigSource::BuiltIn {
            (pieces::notice("warn", &html! {
                "The document that is built in is live. It cannot be replaced here: set "
                code { "routing.file" } " or " code { "routing: { store: true }" }
                " in the server document. You can still check, evaluate and download a document."
            }))
        }
        @if draft.base != live.revision {
            (pieces::notice("warn", &html! {
                "You edit revision " code { (draft.base) } ", and another one is live now. Before \
                 yours is applied, you see what changed."
            }))
        }
    }
}

/// The picture of the live document, with the traffic of a day and the health of targets. Data that
/// cannot be read is left out.
async fn drawing(call: PageCall<'_>, outline: &Outline) -> Markup {
    let traffic = DayTraffic::read(call).await.ok();
    let health = health(call).await;
    let graph = graph::graph(outline, traffic.as_ref(), &health);
    let total = traffic.as_ref().map_or(0, |traffic| traffic.total);
    html! {
        section aria-labelledby="picture" {
            h2 #picture { "The live document" }
            (caption(traffic.as_ref(), &graph))
            @if graph.edges.len() > DRAWN {
                (pieces::empty("The document is too large for a picture.", ""))
            } @else {
                div.scroll.rt-frame tabindex="0" role="group" aria-label="Picture" {
                    (picture::draw(&graph, total))
                }
                details {
                    summary { "The same in words" }
                    (picture::in_words(&graph, total))
                }
            }
        }
    }
}

async fn health(call: PageCall<'_>) -> HealthTable {
    let mut table = HealthTable::new();
    let mut after = String::new();
    for _ in 0..PROVIDER_PAGES {
        let path = format!("/v1/router/providers?limit=100{after}");
        let Ok(page) = call.read::<Page<ProviderStatus>>(&path).await else { break };
        table.extend(graph::health(&page.data));
        match page.next {
            Some(next) => after = format!("&after={}", encode(&next)),
            None => break,
        }
    }
    table
}

/// The caption of the picture: which requests its numbers count, and which requests are on no edge.
fn caption(traffic: Option<&DayTraffic>, graph: &RouteGraph) -> Markup {
    let Some(traffic) = traffic.filter(|traffic| traffic.total > 0) else {
        return html! { p.muted { "There are no requests of yesterday or today to show." } };
    };
    let gone = traffic.total.saturating_sub(traffic.direct).saturating_sub(graph.requests(0));
    html! {
        p.muted {
            "Numbers on the edges are shares of the " (pieces::count(traffic.total))
            " requests of " @if traffic.is_today { "today so far" } @else { "yesterday" }
            " (" (traffic.day) ", UTC)."
            @if traffic.direct > 0 {
                " " (pieces::count(traffic.direct)) " asked for a target by its own name."
            }
            @if gone > 0 {
                " " (pieces::count(gone)) " took ways that this document does not have."
            }
            @if traffic.is_partial { " There are more ways than are counted here." }
        }
    }
}
