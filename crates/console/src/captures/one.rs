//! One capture: its facts, decision, timeline, conversation and raw bytes, and actions on it.

use http::{Method, StatusCode};
use maud::{Markup, Render, html};
use serde_json::Value;

use super::conversation::conversation;
use super::curl::curl;
use super::decision::decision;
use super::filters::COMPARE;
use super::list::{marks, tokens};
use super::text::{beginning, body, size};
use super::timeline::timeline;
use super::values::{cost, outcome, served, span, visible};
use super::{address, compared};
use crate::call::PageCall;
use crate::layout::Tab;
use crate::pieces::{code, confirm_form, copy, id_link, notice, prose, short_id, time};
use crate::snippets::origin;
use rerouter_base::error::Kind;
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;
use rerouter_records::key::KeyRecord;
use rerouter_records::replay::{CaptureRecord, Replay, ReplayList};
use rerouter_records::user::UserRecord;

/// Most replays, and most shadows, that the page lists.
const COPIES: usize = 20;

/// `GET /console/captures/{id}`: one request.
pub(crate) async fn show(call: PageCall<'_>) -> ApiResult {
    let id = call.param(0);
    let path = format!("/v1/router/replay/{}?with=conversation,explanation", encode(&id));
    let capture: CaptureRecord = match call.read(&path).await {
        Err(error) if error.kind() == Kind::NotFound => return absent(&call),
        found => found?,
    };
    let id = capture.base.id.as_str();
    let mut copies = Vec::new();
    for of in ["replay_of", "shadow_of"] {
        let path = format!("/v1/router/replay?{of}={}&limit={COPIES}", encode(id));
        copies.extend(call.read::<ReplayList>(&path).await?.data);
    }
    let base = origin(&call);
    let names = Names::read(&call, &capture).await;
    let main = html! {
        (facts(&capture, &names, call.is_admin()))
        (actions(&capture, &base))
        (related(&capture, &copies))
        section aria-labelledby="why" {
            h2 #why { "Why it went there" }
            (decision(&capture))
        }
        section aria-labelledby="when" {
            h2 #when { "Timeline" }
            (timeline(&capture))
        }
        section aria-labelledby="said" {
            h2 #said { "Conversation" }
            (conversation(&capture))
        }
        section aria-labelledby="raw" {
            h2 #raw { "As it was sent" }
            (raw(&capture, "request", "Request"))
            (raw(&capture, "response", "Response"))
        }
        section aria-labelledby="delete" {
            h2 #delete { "Delete" }
            div.row {
                (confirm_form(&address(id, "/delete"), "Delete this capture",
                    "It cannot be read again, by anybody."))
                @if !copies.is_empty() {
                    (confirm_form(&address(id, "/delete?replays=true"),
                        "Delete it with its replays and its shadow",
                        "None of them can be read again, by anybody."))
                }
            }
        }
    };
    call.page("Request", Tab::Captures, main)
}

/// The page for a capture that does not exist or belongs to another user.
fn absent(call: &PageCall<'_>) -> ApiResult {
    let main = html! {
        (notice("bad", &html! {
            p { "No such request. Its id may be wrong, or its capture has been deleted." }
        }))
        p { a.button href="/console/captures" { "To the captures" } }
    };
    call.plain_page(StatusCode::NOT_FOUND, "Not Found", &main)
}

/// `POST /console/captures/{id}/delete`.
pub(crate) async fn delete(call: PageCall<'_>) -> ApiResult {
    let copies = call.query("replays").is_some_and(|all| all == "true");
    let path = format!("/v1/router/replay/{}?replays={copies}", encode(&call.param(0)));
    call.call(Method::DELETE, &path, None).await?;
    call.redirect("/console/captures")
}

/// Names of a capture's user and key. A name is empty if the reader may not see it, or the user or
/// key no longer exists.
struct Names {
    user: String,
    key: String,
}

impl Names {
    async fn read(call: &PageCall<'_>, capture: &CaptureRecord) -> Names {
        let user = async {
            let path = format!("/v1/users/{}", encode(capture.base.user.as_str()));
            call.read::<UserRecord>(&path).await.ok()?.email
        };
        let key = async {
            let path = format!("/v1/router/keys/{}", encode(capture.base.key.as_ref()?.as_str()));
            Some(call.read::<KeyRecord>(&path).await.ok()?.name)
        };
        Names {
            user: if call.is_admin() { user.await.unwrap_or_default() } else { String::new() },
            key: key.await.unwrap_or_default(),
        }
    }
}

fn facts(capture: &CaptureRecord, names: &Names, is_admin: bool) -> Markup {
    let base = &capture.base;
    let at = |folder: &str, id: &str| format!("/console/{folder}/{}", encode(id));
    let user = base.user.as_str();
    let ids = [
        ("Id", base.id.as_str()),
        ("Client's id", capture.client_request_id.as_deref().unwrap_or_default()),
        ("Trace", capture.trace_id.as_deref().unwrap_or_default()),
    ];
    html! {
        div.card {
            p.row.cap-head {
                (outcome(base))
                strong { (visible(base.model.as_deref().unwrap_or_default())) }
                @if let Some(served) = served(base) { "→ " strong { (served) } }
                (marks(base))
            }
            @if let Some(error) = &capture.error { p.error { (prose(&visible(error))) } }
            dl.cap-facts {
                (fact("Time", &time(&base.created_at.to_string())))
                (fact("Tokens", &tokens(base)))
                (fact("Cost", &cost(base.cost_usd)))
                (fact("First token", &span(base.latency.ttft_ms)))
                (fact("Total", &span(Some(base.latency.total_ms))))
                (fact("Endpoint", &base.endpoint))
                (fact("User", &html! {
                    @if is_admin { (id_link(&at("users", user), user)) }
                    @else { span.mono { (short_id(user)) } }
                    " " (visible(&names.user))
                }))
                @if let Some(key) = base.key.as_ref().map(|key| key.as_str()) {
                    (fact("Key", &html! {
                        (id_link(&at("keys", key), key)) " " (visible(&names.key))
                    }))
                }
                @if let Some(decided) = &capture.decision {
                    (fact("Revision", &html! { span.mono { (decided.decision.revision) } }))
                }
                @if let Some(agent) = &base.agent {
                    (fact("Agent", &id_link(&at("agents", agent), agent)))
                }
                @for (name, id) in ids.iter().filter(|(_, id)| !id.is_empty()) {
                    (fact(name, &html! { span.mono { (visible(id)) } " " (copy(id)) }))
                }
            }
        }
    }
}

fn fact(name: &str, value: &impl Render) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

/// Buttons. Those that run the request again need the script.
fn actions(capture: &CaptureRecord, base: &str) -> Markup {
    let (id, is_replayable) = (capture.base.id.as_str(), capture.base.replayable);
    let reroute = format!("/v1/router/replay/{}/reroute", encode(id));
    let refusal = match capture.base.not_replayable.as_deref().unwrap_or_default() {
        "not_captured" => "The request's body was not kept, so it cannot run again.",
        "truncated" => "The request's body was cut off, so it cannot run again.",
        "redacted" => "The request was redacted, so it cannot run again.",
        _ => "",
    };
    let then = address(id, "/compare/");
    html! {
        div.row.cap-actions {
            @if is_replayable {
                button.primary type="button" hidden data-reroute=(reroute) data-then=(then) {
                    "Reroute"
                }
                button type="button" hidden data-reroute=(reroute) data-dry="true" { "Dry run" }
            } @else {
                span.muted { (refusal) }
            }
            a.button href=(format!("/console/captures?{COMPARE}={}", encode(id))) {
                "Compare with…"
            }
            (labelled_copy("Copy the link", &format!("{base}{}", address(id, ""))))
            @if let Some(command) = curl(capture, base) {
                (labelled_copy("Copy as curl", &command))
            }
        }
        @if is_replayable {
            p.hint {
                "Reroute sends the request again under the live document, which costs what the \
                 provider charges. A dry run only decides."
            }
        }
        div #reroute-result aria-live="polite" {}
    }
}

fn labelled_copy(label: &str, text: &str) -> Markup {
    html! { button.copy type="button" data-copy=(text) hidden { (label) } }
}

/// The original, the replays and the shadow, each with a link to compare them.
fn related(capture: &CaptureRecord, copies: &[Replay]) -> Markup {
    let base = &capture.base;
    let originals = [("replay of", &base.replay_of), ("shadow of", &base.shadow_of)];
    let link = |id: &str| id_link(&address(id, ""), id);
    let compare = |a: &str, b: &str| html! { a href=(compared(a, b)) { "compare" } };
    html! {
        @for (what, original) in originals {
            @if let Some(original) = original.as_ref().map(|id| id.as_str()) {
                (notice("info", &html! {
                    p {
                        "This is a " (what) " " (link(original)) ": "
                        (compare(original, base.id.as_str()))
                    }
                }))
            }
        }
        @if !copies.is_empty() {
            section aria-labelledby="copies" {
                h2 #copies { "Replays and shadow" }
                ul {
                    @for Replay { base: copy, .. } in copies {
                        li {
                            (link(copy.id.as_str())) " " (time(&copy.created_at.to_string())) " "
                            (served(copy).unwrap_or_default()) " "
                            (outcome(copy)) (marks(copy)) " " (cost(copy.cost_usd)) " "
                            (compare(base.id.as_str(), copy.id.as_str()))
                        }
                    }
                }
            }
        }
    }
}

/// `side` is `request` or `response`.
fn raw(capture: &CaptureRecord, side: &str, title: &str) -> Markup {
    let CaptureRecord { base, request, response, .. } = capture;
    let (headers, is_text, is_cut) = match side {
        "request" => (&request.headers, request.body.is_some(), request.truncated),
        _ => (&response.headers, response.body.is_some(), response.truncated),
    };
    let line = |(name, value): (&String, &Value)| {
        format!("{name}: {}", value.as_str().unwrap_or_default())
    };
    let lines: Vec<String> = headers.iter().map(line).collect();
    let (id, body) = (base.id.as_str(), body(capture, side));
    html! {
        details.cap-raw {
            summary {
                (title)
                @if let Some(body) = &body { " (" (size(body.len())) ")" }
            }
            @if !lines.is_empty() { h3 { "Headers" } (code(&visible(&lines.join("\n")))) }
            @match &body {
                None => p.muted { "No body was kept." },
                Some(body) => {
                    h3 { "Body" }
                    @if !is_text {
                        p.muted { "These bytes are no text, or were put together from a stream." }
                    }
                    @if is_cut {
                        p.muted { "It was cut off when it was captured." }
                    }
                    p { a href=(address(id, &format!("/raw/{side}"))) download { "Download" } }
                    (beginning(id, side, &String::from_utf8_lossy(body)))
                }
            }
        }
    }
}
