//! The conversation of a capture, readable: messages, tools and their results, and the answer.

use maud::{Markup, html};
use serde_json::Value;

use super::address;
use super::text::{BEGINNING, beginning, said, size};
use super::values::{flag, list, pretty, text, visible, whole};
use crate::call::PageCall;
use crate::layout::Tab;
use crate::pieces::{badge, code, count, notice};
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;

/// Messages that are shown at a time: the newest.
const MESSAGES: usize = 20;
/// Parts of a message, tools, and system texts that are shown.
const PARTS: usize = 50;
/// Bytes of all texts that are shown at a time: each further one is opened by itself.
const BYTES: usize = 128 << 10;

/// The conversation in a capture of the API.
pub(super) fn conversation(capture: &Value) -> Markup {
    let id = text(capture, "/id");
    let told = &capture["conversation"];
    let mut view = ConversationView { id, left: BYTES };
    html! {
        @match told.get("request").filter(|request| !request.is_null()) {
            None => p.muted { "The request's body was not kept." },
            Some(request) => {
                (problem(text(request, "/problem")))
                (view.head(request))
                (view.messages(request, list(request, "/messages").len()))
            }
        }
        @match told.get("answer").filter(|answer| !answer.is_null()) {
            None => p.muted { "No body of an answer was kept." },
            Some(answer) => (view.answer(answer)),
        }
    }
}

/// `GET /console/captures/{id}/messages?until=N`: the messages before that one.
pub(crate) async fn earlier(call: PageCall<'_>) -> ApiResult {
    let id = call.param(0);
    let path = format!("/v1/router/replay/{}?with=conversation", encode(&id));
    let capture = call.get(&path).await?;
    let request = capture.pointer("/conversation/request").unwrap_or(&Value::Null);
    let until = call.query("until").and_then(|until| until.parse().ok()).unwrap_or(usize::MAX);
    let mut view = ConversationView { id: &id, left: BYTES };
    let shown = view.messages(request, until.min(list(request, "/messages").len()));
    if call.is_fragment() {
        return call.page("Messages", Tab::Captures, shown);
    }
    let main = html! {
        p { a href=(address(&id, "")) { "Back to the request" } }
        (shown)
    };
    call.page("Earlier messages", Tab::Captures, main)
}

fn problem(said: &str) -> Markup {
    html! {
        @if !said.is_empty() { (notice("warn", &html! { p { (visible(said)) } })) }
    }
}

/// What is shown of a conversation, within bounds.
struct ConversationView<'a> {
    id: &'a str,
    /// Bytes that may still be shown.
    left: usize,
}

impl ConversationView<'_> {
    /// What stands before the messages: settings, system text, tools.
    fn head(&mut self, request: &Value) -> Markup {
        let settings = request.get("settings").and_then(Value::as_object);
        let tools = list(request, "/tools");
        let system = list(request, "/system");
        html! {
            @if let Some(settings) = settings.filter(|settings| !settings.is_empty()) {
                p.cap-settings {
                    @for (name, value) in settings.iter().take(PARTS) {
                        code { (visible(name)) ": " (visible(&value.to_string())) } " "
                    }
                }
            }
            @if !system.is_empty() {
                details.cap-message.cap-system {
                    summary { "System" }
                    @for (at, text) in system.iter().enumerate().take(PARTS) {
                        (self.long(&format!("/system/{at}"), text.as_str().unwrap_or_default()))
                    }
                }
            }
            @if !tools.is_empty() {
                details.cap-message {
                    summary { (tools.len()) @if tools.len() == 1 { " tool" } @else { " tools" } }
                    @for tool in tools.iter().take(PARTS) { (tool_shown(tool)) }
                    @if tools.len() > PARTS {
                        p.muted { (tools.len() - PARTS) " more are in the request's body." }
                    }
                }
            }
            (unshown(list(request, "/unshown")))
        }
    }

    /// The messages up to this one, the newest of them, and the way to those before.
    fn messages(&mut self, request: &Value, until: usize) -> Markup {
        let from = until.saturating_sub(MESSAGES);
        let before = address(self.id, &format!("/messages?until={from}"));
        html! {
            @if from > 0 {
                a.button.cap-earlier href=(before) hx-get=(before) hx-swap="outerHTML" {
                    "Show earlier messages (" (from) ")"
                }
            }
            @for at in from..until {
                @let message = request.get("messages").and_then(|all| all.get(at));
                @let message = message.unwrap_or(&Value::Null);
                @let role = text(message, "/role");
                section class=(format!("cap-message cap-{role}"))
                    aria-label=(format!("Message {} of {role}", at + 1)) {
                    p.cap-role { (role) }
                    (self.parts(list(message, "/content"), &format!("/messages/{at}/content")))
                }
            }
        }
    }

    fn answer(&mut self, answer: &Value) -> Markup {
        let stop = text(answer, "/stop").replace('_', " ");
        html! {
            section.cap-message.cap-assistant.cap-answer aria-label="Answer" {
                p.cap-role {
                    "answer"
                    @if !stop.is_empty() && stop != "end" {
                        " " (badge("info", &format!("stopped: {stop}")))
                    }
                }
                (self.parts(list(answer, "/content"), "answer:/content"))
                (problem(text(answer, "/problem")))
            }
            (unshown(list(answer, "/unshown")))
        }
    }

    fn parts(&mut self, parts: &[Value], place: &str) -> Markup {
        html! {
            @for (at, part) in parts.iter().enumerate().take(PARTS) {
                (self.part(part, &format!("{place}/{at}")))
            }
            @if parts.len() > PARTS {
                p.muted { (parts.len() - PARTS) " more parts are in the body." }
            }
        }
    }

    fn part(&mut self, part: &Value, place: &str) -> Markup {
        let (kind, name) = (text(part, "/type"), visible(text(part, "/name")));
        let shown = said(part).unwrap_or_default();
        match kind {
            "text" => self.long(place, shown),
            "refusal" => html! { p.cap-kind { "refusal" } (self.long(place, shown)) },
            "thinking" => html! {
                details.cap-thinking {
                    summary { "Thinking" @if shown.is_empty() { " (hidden by the provider)" } }
                    (self.long(place, shown))
                }
            },
            "tool_call" => html! {
                div.cap-tool {
                    p.cap-kind {
                        "calls " strong { (name) } " " code { (visible(text(part, "/id"))) }
                    }
                    @if shown.len() <= BEGINNING { (code(&visible(&pretty(shown)))) }
                    @else { (self.long(place, shown)) }
                }
            },
            "tool_result" => html! {
                div.cap-tool {
                    p.cap-kind {
                        "result of " code { (visible(text(part, "/id"))) }
                        @if flag(part, "/is_error") { " " (badge("bad", "error")) }
                    }
                    (self.parts(list(part, "/content"), &format!("{place}/content")))
                }
            },
            "tokens" => {
                html! { p.cap-note { (count(whole(part, "/count").unwrap_or(0))) " tokens" } }
            }
            "vectors" => html! {
                p.cap-note {
                    (count(whole(part, "/count").unwrap_or(0))) " vectors of "
                    (count(whole(part, "/numbers").unwrap_or(0))) " numbers"
                }
            },
            kind => self.file(kind, part, place),
        }
    }

    /// An image, file or audio: what it is, never itself.
    fn file(&mut self, kind: &str, part: &Value, place: &str) -> Markup {
        let bytes = whole(part, "/bytes").and_then(|bytes| usize::try_from(bytes).ok());
        let facts = ["/name", "/media_type", "/url"].map(|fact| {
            let fact = text(part, fact);
            fact.get(..fact.floor_char_boundary(300)).unwrap_or_default()
        });
        html! {
            p.cap-note {
                (badge("", &visible(kind)))
                @for fact in facts.iter().filter(|fact| !fact.is_empty()) {
                    " " span.mono { (visible(fact)) }
                }
                @if let Some(bytes) = bytes { " " (size(bytes)) }
            }
            @if let Some(text) = said(part) { (self.long(place, text)) }
        }
    }

    /// A text of any length.
    fn long(&mut self, place: &str, text: &str) -> Markup {
        let Some(left) = self.left.checked_sub(text.len().min(BEGINNING)) else {
            let href = address(self.id, &format!("/text?part={}", encode(place)));
            return html! {
                pre.cap-text {
                    a.cap-more.button href=(href) hx-get=(href) hx-swap="outerHTML" {
                        "Show (" (size(text.len())) ")"
                    }
                }
            };
        };
        self.left = left;
        beginning(self.id, place, text)
    }
}

fn tool_shown(tool: &Value) -> Markup {
    let cut = |text: &str| {
        let end = text.floor_char_boundary(BEGINNING);
        let mark = if end < text.len() { "…" } else { "" };
        format!("{}{mark}", visible(text.get(..end).unwrap_or_default()))
    };
    let parameters = tool.get("parameters").filter(|parameters| !parameters.is_null());
    html! {
        h4 { (visible(text(tool, "/name"))) }
        @if !text(tool, "/description").is_empty() { p { (cut(text(tool, "/description"))) } }
        @if let Some(parameters) = parameters { (code(&cut(&pretty(&parameters.to_string())))) }
    }
}

fn unshown(names: &[Value]) -> Markup {
    let names: Vec<_> = names.iter().filter_map(Value::as_str).map(visible).collect();
    html! {
        @if !names.is_empty() {
            p.muted { "Only in the body below: " (names.join(", ")) "." }
        }
    }
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
