//! One capture: what happened, why, what was said, and what to do with it.

use http::header::HOST;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::Value;

use super::conversation::conversation;
use super::curl::curl;
use super::decision::decision;
use super::filters::COMPARE;
use super::list::{marks, tokens};
use super::text::{beginning, body, size};
use super::timeline::timeline;
use super::values::{cost, flag, list, outcome, span, target, text, visible};
use super::{address, compared};
use crate::call::PageCall;
use crate::layout::Tab;
use crate::pieces::{code, confirm_form, copy, id_link, notice, prose, short_id, time};
use rerouter_base::error::Kind;
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;

/// Replays and shadows that are listed.
const COPIES: usize = 20;

/// `GET /console/captures/{id}`: one request.
pub(crate) async fn show(call: PageCall<'_>) -> ApiResult {
    let id = call.param(0);
    let path = format!("/v1/router/replay/{}?with=conversation,explanation", encode(&id));
    let capture = match call.get(&path).await {
        Err(error) if error.kind() == Kind::NotFound => return absent(&call),
        found => found?,
    };
    let id = text(&capture, "/id");
    let copies = async |of: &str| {
        call.get(&format!("/v1/router/replay?{of}={}&limit={COPIES}", encode(id))).await
    };
    let (replays, shadows) = (copies("replay_of").await?, copies("shadow_of").await?);
    let copies = [list(&replays, "/data"), list(&shadows, "/data")].concat();
    let base = base(&call);
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

/// The page of what is not there, or another user's.
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

/// The address of this gateway, as the browser sees it.
fn base(call: &PageCall<'_>) -> String {
    let host = call.request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| call.request.uri().authority().map(|host| host.as_str()));
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-._:[]".contains(letter);
    let host: String = host.unwrap_or("localhost").chars().filter(|c| allowed(*c)).collect();
    let scheme = if call.client().secure { "https" } else { "http" };
    format!("{scheme}://{host}")
}

/// The names of a capture's user and key; empty where the reader may not see them, or they are
/// gone.
struct Names {
    user: String,
    key: String,
}

impl Names {
    async fn read(call: &PageCall<'_>, capture: &Value) -> Names {
        let name = async |path: &str, id: &str, field: &str| {
            let found = call.get(&format!("{path}/{}", encode(id))).await;
            found.map_or_else(|_| String::new(), |found| text(&found, field).to_owned())
        };
        let [user, key] = ["/user", "/key"].map(|of| text(capture, of));
        Names {
            user: match call.is_admin() {
                true => name("/v1/users", user, "/email").await,
                false => String::new(),
            },
            key: match key.is_empty() {
                true => String::new(),
                false => name("/v1/router/keys", key, "/name").await,
            },
        }
    }
}

fn facts(capture: &Value, names: &Names, is_admin: bool) -> Markup {
    let served = target(capture, "/served");
    let error = text(capture, "/error");
    let at = |folder: &str, id: &str| format!("/console/{folder}/{}", encode(id));
    let [agent, user, key, revision] =
        ["/agent", "/user", "/key", "/decision/revision"].map(|of| text(capture, of));
    let ids = [
        ("Id", text(capture, "/id")),
        ("Client's id", text(capture, "/client_request_id")),
        ("Trace", text(capture, "/trace_id")),
    ];
    html! {
        div.card {
            p.row.cap-head {
                (outcome(capture))
                strong { (visible(text(capture, "/model"))) }
                @if let Some(served) = served { "→ " strong { (served) } }
                (marks(capture))
            }
            @if !error.is_empty() { p.error { (prose(&visible(error))) } }
            dl.cap-facts {
                (fact("Time", &time(text(capture, "/created_at"))))
                (fact("Tokens", &html! { (tokens(capture)) }))
                (fact("Cost", &html! { (cost(capture, "/cost_usd")) }))
                (fact("First token", &html! { (span(capture, "/latency/ttft_ms")) }))
                (fact("Total", &html! { (span(capture, "/latency/total_ms")) }))
                (fact("Endpoint", &html! { (text(capture, "/endpoint")) }))
                (fact("User", &html! {
                    @if is_admin { (id_link(&at("users", user), user)) }
                    @else { span.mono { (short_id(user)) } }
                    " " (visible(&names.user))
                }))
                @if !key.is_empty() {
                    (fact("Key", &html! {
                        (id_link(&at("keys", key), key)) " " (visible(&names.key))
                    }))
                }
                @if !revision.is_empty() {
                    (fact("Revision", &html! { span.mono { (revision) } }))
                }
                @if !agent.is_empty() {
                    (fact("Agent", &id_link(&at("agents", agent), agent)))
                }
                @for (name, id) in ids.iter().filter(|(_, id)| !id.is_empty()) {
                    (fact(name, &html! { span.mono { (visible(id)) } " " (copy(id)) }))
                }
            }
        }
    }
}

fn fact(name: &str, value: &Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

/// Buttons; those that ask the gateway again need the script.
fn actions(capture: &Value, base: &str) -> Markup {
    let id = text(capture, "/id");
    let reroute = format!("/v1/router/replay/{}/reroute", encode(id));
    let refusal = match text(capture, "/not_replayable") {
        "not_captured" => "The request's body was not kept, so it cannot run again.",
        "truncated" => "The request's body was cut off, so it cannot run again.",
        "redacted" => "The request was redacted, so it cannot run again.",
        _ => "",
    };
    let then = address(id, "/compare/");
    html! {
        div.row.cap-actions {
            @if flag(capture, "/replayable") {
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
        @if flag(capture, "/replayable") {
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

/// The original, the replays and the shadow, each with the way to compare.
fn related(capture: &Value, copies: &[Value]) -> Markup {
    let id = text(capture, "/id");
    let originals = [("replay of", "/replay_of"), ("shadow of", "/shadow_of")];
    let originals = originals.map(|(what, pointer)| (what, text(capture, pointer)));
    let compare = |a: &str, b: &str| html! { a href=(compared(a, b)) { "compare" } };
    html! {
        @for (what, original) in originals.iter().filter(|(_, original)| !original.is_empty()) {
            (notice("info", &html! {
                p {
                    "This is a " (what) " " (id_link(&address(original, ""), original)) ": "
                    (compare(original, id))
                }
            }))
        }
        @if !copies.is_empty() {
            section aria-labelledby="copies" {
                h2 #copies { "Replays and shadow" }
                ul {
                    @for copy in copies {
                        @let own = text(copy, "/id");
                        li {
                            (id_link(&address(own, ""), own)) " "
                            (time(text(copy, "/created_at"))) " "
                            (target(copy, "/served").unwrap_or_default()) " "
                            (outcome(copy)) (marks(copy)) " " (cost(copy, "/cost_usd")) " "
                            (compare(id, own))
                        }
                    }
                }
            }
        }
    }
}

/// One side as bytes: headers and body.
fn raw(capture: &Value, side: &str, title: &str) -> Markup {
    let id = text(capture, "/id");
    let headers = capture.pointer(&format!("/{side}/headers")).and_then(Value::as_object);
    let lines: Vec<String> = headers
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("{name}: {}", value.as_str().unwrap_or_default()))
        .collect();
    let body = body(capture, side);
    let is_text = text_kept(capture, side);
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
                    @if flag(capture, &format!("/{side}/truncated")) {
                        p.muted { "It was cut off when it was captured." }
                    }
                    p { a href=(address(id, &format!("/raw/{side}"))) download { "Download" } }
                    (beginning(id, side, &String::from_utf8_lossy(body)))
                }
            }
        }
    }
}

fn text_kept(capture: &Value, side: &str) -> bool {
    capture.pointer(&format!("/{side}/body")).is_some_and(Value::is_string)
}
