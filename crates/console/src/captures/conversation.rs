//! The conversation of a capture as HTML: messages, tools and their results, and the answer.

use maud::{Markup, html};

use super::address;
use super::text::{BEGINNING, beginning, size};
use super::values::{pretty, visible};
use crate::call::PageCall;
use crate::layout::Tab;
use crate::pieces::{badge, code, count, notice};
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;
use rerouter_records::conversation::{
    ConversationAnswer, ConversationMessage, ConversationPart, ConversationRequest,
    ConversationSource, ConversationTool,
};
use rerouter_records::replay::CaptureRecord;

/// Number of messages shown at a time. The newest come first, and a link loads earlier ones.
const MESSAGES: usize = 20;
/// Most system texts, tools, settings, and parts of a message that are shown.
const PARTS: usize = 50;
/// Most bytes of text shown at once. Each further text has a button that opens it.
const BYTES: usize = 128 << 10;

pub(super) fn conversation(capture: &CaptureRecord) -> Markup {
    let told = capture.conversation.as_ref();
    let mut view = ConversationView { id: capture.base.id.as_str(), left: BYTES };
    html! {
        @match told.and_then(|told| told.request.as_ref()) {
            None => p.muted { "The request's body was not kept." },
            Some(request) => {
                (problem(request.problem.as_deref()))
                (view.head(request))
                (view.messages(&request.messages, usize::MAX))
            }
        }
        @match told.and_then(|told| told.answer.as_ref()) {
            None => p.muted { "No body of an answer was kept." },
            Some(answer) => (view.answer(answer)),
        }
    }
}

/// `GET /console/captures/{id}/messages?until=N`: the messages before message N, counted from 0.
pub(crate) async fn earlier(call: PageCall<'_>) -> ApiResult {
    let id = call.param(0);
    let path = format!("/v1/router/replay/{}?with=conversation", encode(&id));
    let capture: CaptureRecord = call.read(&path).await?;
    let request = capture.conversation.and_then(|told| told.request).unwrap_or_default();
    let until = call.query("until").and_then(|until| until.parse().ok()).unwrap_or(usize::MAX);
    let mut view = ConversationView { id: &id, left: BYTES };
    let shown = view.messages(&request.messages, until);
    let main = html! {
        @if !call.is_fragment() { p { a href=(address(&id, "")) { "Back to the request" } } }
        (shown)
    };
    call.page("Earlier messages", Tab::Captures, main)
}

fn problem(said: Option<&str>) -> Markup {
    html! {
        @if let Some(said) = said { (notice("warn", &html! { p { (visible(said)) } })) }
    }
}

/// Renders the parts of a conversation, within a budget of bytes.
struct ConversationView<'a> {
    id: &'a str,
    /// Bytes that may still be shown.
    left: usize,
}

impl ConversationView<'_> {
    /// The settings, system texts and tools, which come before the messages.
    fn head(&mut self, request: &ConversationRequest) -> Markup {
        let ConversationRequest { system, tools, settings, unshown, .. } = request;
        html! {
            @if !settings.is_empty() {
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
                        (self.long(&format!("/system/{at}"), text))
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
            (only_in_body(unshown))
        }
    }

    /// The newest messages before message `until`, and a link to earlier ones.
    fn messages(&mut self, messages: &[ConversationMessage], until: usize) -> Markup {
        let until = until.min(messages.len());
        let from = until.saturating_sub(MESSAGES);
        let before = address(self.id, &format!("/messages?until={from}"));
        html! {
            @if from > 0 {
                a.button.cap-earlier href=(before) hx-get=(before) hx-swap="outerHTML" {
                    "Show earlier messages (" (from) ")"
                }
            }
            @for (at, message) in messages.iter().enumerate().take(until).skip(from) {
                @let role = &message.role;
                section class=(format!("cap-message cap-{role}"))
                    aria-label=(format!("Message {} of {role}", at + 1)) {
                    p.cap-role { (role) }
                    (self.parts(&message.content, &format!("/messages/{at}/content")))
                }
            }
        }
    }

    fn answer(&mut self, answer: &ConversationAnswer) -> Markup {
        let stop = answer.stop.as_deref().filter(|stop| *stop != "end");
        html! {
            section.cap-message.cap-assistant.cap-answer aria-label="Answer" {
                p.cap-role {
                    "answer"
                    @if let Some(stop) = stop {
                        " " (badge("info", &format!("stopped: {}", stop.replace('_', " "))))
                    }
                }
                (self.parts(&answer.content, "answer:/content"))
                (problem(answer.problem.as_deref()))
            }
            (only_in_body(&answer.unshown))
        }
    }

    fn parts(&mut self, parts: &[ConversationPart], place: &str) -> Markup {
        html! {
            @for (at, part) in parts.iter().enumerate().take(PARTS) {
                (self.part(part, &format!("{place}/{at}")))
            }
            @if parts.len() > PARTS {
                p.muted { (parts.len() - PARTS) " more parts are in the body." }
            }
        }
    }

    fn part(&mut self, part: &ConversationPart, place: &str) -> Markup {
        match part {
            ConversationPart::Text { text } => self.long(place, text),
            ConversationPart::Refusal { text } => {
                html! { p.cap-kind { "refusal" } (self.long(place, text)) }
            }
            ConversationPart::Thinking { text } => html! {
                details.cap-thinking {
                    summary { "Thinking" @if text.is_empty() { " (hidden by the provider)" } }
                    (self.long(place, text))
                }
            },
            ConversationPart::Image(source) => self.file("image", source, place),
            ConversationPart::File(source) => self.file("file", source, place),
            ConversationPart::Audio { media_type, bytes } => {
                let (media_type, bytes) = (Some(media_type.clone()), Some(*bytes));
                let source = ConversationSource { media_type, bytes, ..Default::default() };
                self.file("audio", &source, place)
            }
            ConversationPart::ToolCall { id, name, arguments } => html! {
                div.cap-tool {
                    p.cap-kind {
                        "calls " strong { (visible(name)) } " " code { (visible(id)) }
                    }
                    @if arguments.len() <= BEGINNING { (code(&visible(&pretty(arguments)))) }
                    @else { (self.long(place, arguments)) }
                }
            },
            ConversationPart::ToolResult { id, is_error, content } => html! {
                div.cap-tool {
                    p.cap-kind {
                        "result of " code { (visible(id)) }
                        @if *is_error { " " (badge("bad", "error")) }
                    }
                    (self.parts(content, &format!("{place}/content")))
                }
            },
            ConversationPart::Tokens { count: tokens } => {
                html! { p.cap-note { (count(*tokens)) " tokens" } }
            }
            ConversationPart::Vectors { count: vectors, numbers } => html! {
                p.cap-note {
                    (count(*vectors as u64)) " vectors of " (count(*numbers as u64)) " numbers"
                }
            },
        }
    }

    /// An image, file or audio: its name, media type and URL, never its content.
    fn file(&mut self, kind: &str, source: &ConversationSource, place: &str) -> Markup {
        let facts = [&source.name.clone().flatten(), &source.media_type, &source.url];
        html! {
            p.cap-note {
                (badge("", kind))
                @for fact in facts.into_iter().flatten().filter(|fact| !fact.is_empty()) {
                    @let shown = fact.get(..fact.floor_char_boundary(300)).unwrap_or_default();
                    " " span.mono { (visible(shown)) }
                }
                @if let Some(bytes) = source.bytes { " " (size(bytes)) }
            }
            @if let Some(text) = &source.text { (self.long(place, text)) }
        }
    }

    /// The beginning of a text, or a button that opens the text if the budget of bytes is spent.
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

fn tool_shown(tool: &ConversationTool) -> Markup {
    let cut = |text: &str| {
        let end = text.floor_char_boundary(BEGINNING);
        let mark = if end < text.len() { "…" } else { "" };
        format!("{}{mark}", visible(text.get(..end).unwrap_or_default()))
    };
    html! {
        h4 { (visible(&tool.name)) }
        @if let Some(said) = tool.description.as_ref().filter(|said| !said.is_empty()) {
            p { (cut(said)) }
        }
        @if let Some(parameters) = &tool.parameters { (code(&cut(&pretty(parameters.get())))) }
    }
}

fn only_in_body(names: &[String]) -> Markup {
    let names: Vec<_> = names.iter().map(|name| visible(name)).collect();
    html! {
        @if !names.is_empty() {
            p.muted { "Only in the body below: " (names.join(", ")) "." }
        }
    }
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
