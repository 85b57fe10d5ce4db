//! A capture as a conversation for people to read: one record format for every dialect.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::record::{Capture, Head};
use rerouter_dialect::Dialect;
use rerouter_dialect::embeddings::recorded::{EmbeddingInput, inputs, vectors};
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::feature::Feature;
use rerouter_dialect::messages;
use rerouter_dialect::neutral::answer::StopReason;
use rerouter_dialect::neutral::failure;
use rerouter_dialect::neutral::part::{Base64, Part, Source};
use rerouter_dialect::neutral::request::{Request, Speaker, Tool, Turn};
use rerouter_dialect::recorded_answer::read_recorded;
use rerouter_dialect::request_translation::read_request;
use rerouter_records::conversation::{
    Conversation, ConversationAnswer, ConversationMessage, ConversationPart, ConversationRequest,
    ConversationSource, ConversationTool,
};

/// Longest value of a setting that is shown, in bytes.
const SETTING_BYTES: usize = 120;
/// Members of requests that are part of the conversation, never settings.
const TEXTS: [&str; 4] = ["input", "instructions", "prompt", "system"];
/// Features of requests for which the neutral form has no place.
const UNSHOWN: [Feature; 9] = [
    Feature::ProviderFiles,
    Feature::OtherContent,
    Feature::ServerToolHistory,
    Feature::Functions,
    Feature::StoredState,
    Feature::Compaction,
    Feature::ServerTools,
    Feature::Citations,
    Feature::McpTerms,
];

impl Capture {
    /// Request and answer as a conversation. `problem` names the parts of a body that cannot be
    /// read.
    pub fn conversation(&self) -> Conversation {
        let (head, bodies) = (&self.head, &self.bodies);
        let endpoint = Endpoint::named(&head.endpoint).unwrap_or_default();
        let kept = head.request_captured;
        let request =
            (kept && !bodies.request.is_empty()).then(|| asked(head, endpoint, &bodies.request));
        let answer = (kept && !bodies.response.is_empty())
            .then(|| answered(head, endpoint, &bodies.response));
        Conversation { request, answer }
    }
}

fn asked(head: &Head, endpoint: Endpoint, body: &[u8]) -> ConversationRequest {
    let mut request = Request::default();
    let mut problem = None;
    if endpoint.dialect() == Dialect::Embeddings {
        match inputs(body) {
            Some(inputs) => return embedded(&inputs, settings(body)),
            None => problem = Some("`input` is missing.".to_owned()),
        }
    } else {
        match read_request(endpoint.dialect(), body) {
            Ok(read) => request = read,
            Err(_) if head.request_truncated => {
                problem = Some("The body was cut off when it was captured.".to_owned());
            }
            Err(malformed) => problem = Some(format!("{} has another shape.", malformed.0)),
        }
    }
    let unshown: Vec<String> = request
        .uses
        .iter()
        .filter(|used| {
            let in_chat = used.feature == Feature::Thinking && endpoint.dialect() == Dialect::Chat;
            UNSHOWN.contains(&used.feature) || in_chat
        })
        .map(|used| used.member())
        .collect();
    let tool = |tool: Tool| ConversationTool {
        name: tool.name,
        description: tool.description,
        parameters: tool.parameters,
    };
    ConversationRequest {
        messages: request.turns.iter().map(turn).collect(),
        system: request.system,
        tools: request.tools.into_iter().map(tool).collect(),
        settings: settings(body),
        unshown,
        problem,
    }
}

fn embedded(inputs: &[EmbeddingInput], settings: Map<String, Value>) -> ConversationRequest {
    let part = |input: &EmbeddingInput| match input {
        EmbeddingInput::Text(text) => ConversationPart::Text { text: text.to_string() },
        EmbeddingInput::Tokens(count) => ConversationPart::Tokens { count: *count as u64 },
        EmbeddingInput::Other => ConversationPart::File(ConversationSource::default()),
    };
    let content = inputs.iter().map(part).collect();
    let messages = vec![ConversationMessage { role: "user".to_owned(), content }];
    ConversationRequest { messages, settings, ..ConversationRequest::default() }
}

/// The short members of a request's body, such as `temperature`.
fn settings(body: &[u8]) -> Map<String, Value> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body).unwrap_or_default();
    let shown = members.into_iter().filter_map(|(name, value)| {
        let text = value.get();
        let short = text.len() <= SETTING_BYTES && !text.starts_with(['{', '[']);
        let shown = short && !TEXTS.contains(&name.as_str());
        Some((name, serde_json::from_str::<Value>(text).ok()?)).filter(|_| shown)
    });
    shown.collect()
}

fn turn(turn: &Turn) -> ConversationMessage {
    let role = match turn.speaker {
        Speaker::System => "system",
        Speaker::User => "user",
        Speaker::Assistant => "assistant",
    };
    ConversationMessage { role: role.to_owned(), content: parts(&turn.content) }
}

fn parts(content: &[Part]) -> Vec<ConversationPart> {
    content.iter().map(part).collect()
}

fn part(part: &Part) -> ConversationPart {
    match part {
        Part::Text(text) => ConversationPart::Text { text: text.clone() },
        Part::Refusal(text) => ConversationPart::Refusal { text: text.clone() },
        Part::Thinking(thinking) => ConversationPart::Thinking { text: thinking.text.clone() },
        Part::Image(image) => ConversationPart::Image(source(&image.source, None)),
        Part::File(file) => ConversationPart::File(source(&file.source, file.name.clone())),
        Part::Audio { data, format } => {
            ConversationPart::Audio { media_type: format.clone(), bytes: bytes(data) }
        }
        Part::ToolCall(call) | Part::TextCall(call) => ConversationPart::ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        },
        Part::ToolResult(result) => ConversationPart::ToolResult {
            id: result.call_id.clone(),
            is_error: result.is_error,
            content: parts(&result.content),
        },
    }
}

fn source(source: &Source, name: Option<String>) -> ConversationSource {
    let mut shown = ConversationSource { name: Some(name), ..ConversationSource::default() };
    match source {
        Source::Url(url) => shown.url = Some(url.clone()),
        Source::Text(text) => shown.text = Some(text.clone()),
        Source::Inline { media_type, data } => {
            (shown.media_type, shown.bytes) = (Some(media_type.clone()), Some(bytes(data)));
        }
    }
    shown
}

/// Number of bytes that the base64 text decodes to.
fn bytes(data: &Base64) -> usize {
    data.0.trim_end_matches('=').len() * 3 / 4
}

fn answered(head: &Head, endpoint: Endpoint, body: &[u8]) -> ConversationAnswer {
    if head.status >= 400 && !head.answers_in_events() {
        let problem = Some(failure::read(head.status, body).message);
        return ConversationAnswer { problem, ..ConversationAnswer::default() };
    }
    if endpoint.counts() {
        let tokens = messages::counted(body).map(|count| ConversationPart::Tokens { count });
        let content = tokens.into_iter().collect();
        return ConversationAnswer { content, ..ConversationAnswer::default() };
    }
    if let Some((count, numbers)) =
        vectors(body).filter(|_| endpoint.dialect() == Dialect::Embeddings)
    {
        let content = vec![ConversationPart::Vectors { count, numbers }];
        return ConversationAnswer { content, ..ConversationAnswer::default() };
    }
    let read = read_recorded(endpoint.dialect(), body, head.answers_in_events());
    let stop = match &read.answer.stop {
        StopReason::End => "end",
        StopReason::MaxTokens => "max_tokens",
        StopReason::Sequence(_) => "stop_sequence",
        StopReason::ToolCalls => "tool_calls",
        StopReason::Refusal => "refusal",
        StopReason::Pause => "pause",
        StopReason::Unfinished => "unfinished",
    };
    let cut = "The body was cut off when it was captured.";
    let problem = read.failure.map(|failure| match head.response_truncated {
        true => cut.to_owned(),
        false => failure.message,
    });
    ConversationAnswer {
        content: parts(&read.answer.content),
        stop: Some(stop.to_owned()),
        unshown: read.dropped,
        problem,
    }
}

#[cfg(test)]
#[path = "conversation_json_tests.rs"]
mod tests;
