//! Reads Anthropic's messages into the neutral form.

use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Number, json};

use super::tool_reader::{Choice, McpServerMember, ToolMember};
use super::tool_reader::{read_choice, read_mcp_server, read_tool};
use crate::feature::Feature;
use crate::members::{
    Content, MalformedRequest, Table, WordOr, read as parse, read_parts, wire_object,
};
use crate::neutral::part::{Base64, File, Image, Part, Source, Thinking, ToolCall, ToolResult};
use crate::neutral::request::{
    Depth, OutputFormat, Reasoning, Request, Sampling, Speaker, UsedFeatures,
};
use crate::neutral::seal;
use crate::neutral::seal::Seal;

const BODY: Table = &[
    ("container", Feature::StoredState),
    ("inference_geo", Feature::Region),
    ("cache_control", Feature::CacheControl),
    ("context_management", Feature::Hints),
    ("diagnostics", Feature::Hints),
    ("service_tier", Feature::Hints),
    ("speed", Feature::Hints),
];
const BLOCK: Table = &[
    ("cache_control", Feature::CacheControl),
    ("caller", Feature::Hints),
    ("context", Feature::Hints),
    ("toolset_name", Feature::Hints),
];

wire_object!(Body, BODY, {
    model: String,
    messages: Vec<Message>,
    system: Content<Block>,
    max_tokens: Number,
    stream: bool,
    stop_sequences: Vec<String>,
    temperature: Number,
    top_p: Number,
    top_k: Number,
    tools: Vec<ToolMember>,
    mcp_servers: Vec<McpServerMember>,
    tool_choice: Choice,
    thinking: ThinkingMode,
    output_config: OutputConfig,
    output_format: Format,
    metadata: Metadata,
});
wire_object!(Metadata, &[], { user_id: String, });
wire_object!(Message, &[], { role: String, content: Content<Block>, });
wire_object!(Block, BLOCK, {
    kind: String = "type",
    text: String,
    id: String,
    name: String,
    input: Box<RawValue>,
    tool_use_id: String,
    content: Content<Block>,
    is_error: bool,
    source: WordOr<BlockSource>,
    title: String,
    citations: Box<RawValue>,
    thinking: String,
    signature: String,
    data: String,
    tool_name: String,
    tool: IgnoredAny,
});
wire_object!(BlockSource, &[], {
    kind: String = "type",
    media_type: String,
    data: String,
    url: String,
    file_id: String,
    content: Content<Block>,
});
wire_object!(ThinkingMode, &[], {
    kind: String = "type",
    budget_tokens: u64,
    display: String,
});
wire_object!(OutputConfig, &[], { effort: String, format: Format, });
wire_object!(Format, &[], { kind: String = "type", schema: Box<RawValue>, });

pub(crate) fn read(body: &[u8]) -> Result<Request, MalformedRequest> {
    let (mut body, uses): (Body, _) = parse(body)?;
    let mut request = Request { uses, ..Request::default() };
    if body.system.is_some() {
        let parts = read_parts(body.system.take(), "system.", &mut request.uses, read_block);
        request.instruct(texts(parts), "", "system");
    }
    for message in body.messages.take().unwrap_or_default() {
        read_message(message, &mut request)?;
    }
    for server in body.mcp_servers.take().unwrap_or_default() {
        read_mcp_server(server, &mut request);
    }
    for tool in body.tools.take().unwrap_or_default() {
        read_tool(tool, &mut request);
    }
    // A server without allowed tools is left out.
    let no_tools = Some(Vec::new());
    request.mcp_servers.retain(|server| server.allowed_tools != no_tools);
    if let Some(choice) = body.tool_choice.take() {
        read_choice(choice, &mut request);
    }
    read_output(&mut body, &mut request);
    read_settings(body, &mut request);
    Ok(request)
}

fn read_settings(body: Body, request: &mut Request) {
    let uses = &mut request.uses;
    let mut note = |is_there, feature, name| uses.add_if(is_there, feature, "", name);
    note(body.max_tokens.is_some(), Feature::MaxTokens, "max_tokens");
    note(body.temperature.is_some(), Feature::Temperature, "temperature");
    note(body.top_p.is_some(), Feature::TopP, "top_p");
    note(body.top_k.is_some(), Feature::TopK, "top_k");
    note(body.stream == Some(true), Feature::Stream, "stream");
    request.stop = body.stop_sequences.unwrap_or_default();
    note(!request.stop.is_empty(), Feature::Stop, "stop_sequences");
    request.model = body.model.unwrap_or_default();
    request.stream = body.stream.unwrap_or_default();
    request.max_tokens = body.max_tokens;
    request.sampling = Sampling {
        temperature: body.temperature,
        top_p: body.top_p,
        top_k: body.top_k,
        ..Sampling::default()
    };
    if let Some(metadata) = body.metadata {
        request.uses.add_if(metadata.user_id.is_some(), Feature::User, "metadata.", "user_id");
        request.user = metadata.user_id;
    }
}

/// Reads the settings of thinking and of the output format.
fn read_output(body: &mut Body, request: &mut Request) {
    let uses = &mut request.uses;
    let mut depth = None;
    let mut shown = None;
    if let Some(thinking) = body.thinking.take() {
        depth = match (thinking.kind.as_deref(), thinking.budget_tokens) {
            (Some("disabled"), _) => Some(Depth::none()),
            (_, Some(budget)) => Some(Depth::Budget(budget)),
            _ => Some(Depth::Free),
        };
        uses.add(Feature::Reasoning, "", "thinking");
        if depth != Some(Depth::none()) {
            shown = Some(thinking.display.as_deref() != Some("omitted"));
        }
        uses.add_if(thinking.display.is_some(), Feature::ReasoningSummary, "thinking.", "display");
    }
    let mut format = body.output_format.take();
    if let Some(config) = body.output_config.take() {
        format = config.format.or(format);
        match config.effort {
            // The effort of an answer without thinking.
            Some(_) if depth == Some(Depth::none()) => {
                uses.add(Feature::Hints, "output_config.", "effort");
            }
            Some(effort) => {
                uses.add(Feature::Reasoning, "output_config.", "effort");
                depth = Some(Depth::Effort(effort));
            }
            None => {}
        }
    }
    request.reasoning = depth.map(|depth| Reasoning { depth, shown });
    if let Some(Format { schema: Some(schema), .. }) = format {
        uses.add(Feature::JsonSchema, "output_config.", "format");
        request.output =
            Some(OutputFormat::Schema { name: None, description: None, schema, strict: None });
    }
}

/// The texts of content that allows text blocks only.
fn texts_of(
    content: Option<Content<Block>>,
    path: &'static str,
    uses: &mut UsedFeatures,
) -> Vec<String> {
    let parts = read_parts(content, path, uses, read_block);
    let has_others = parts.iter().any(|part| part.text().is_none());
    uses.add_if(has_others, Feature::OtherContent, path, "content");
    texts(parts)
}

fn texts(parts: Vec<Part>) -> Vec<String> {
    parts.into_iter().filter_map(Part::into_text).collect()
}

fn read_message(message: Message, request: &mut Request) -> Result<(), MalformedRequest> {
    let speaker = match message.role.as_deref() {
        Some("user") => Speaker::User,
        Some("assistant") => Speaker::Assistant,
        Some("system") => Speaker::System,
        _ => return Err(MalformedRequest("messages.role".to_owned())),
    };
    let content = read_parts(message.content, "messages.content.", &mut request.uses, read_block);
    // Tool calls belong to the assistant, and tool results to the user.
    let is_misplaced = |part: &Part| match part {
        Part::ToolCall(_) => speaker != Speaker::Assistant,
        Part::ToolResult(_) => speaker != Speaker::User,
        _ => false,
    };
    if content.iter().any(is_misplaced) {
        return Err(MalformedRequest("messages.content".to_owned()));
    }
    if speaker == Speaker::System {
        request.instruct(texts(content), "messages.", "role");
    } else {
        request.say(speaker, content, false);
    }
    Ok(())
}

fn read_block(mut block: Block, path: &'static str, uses: &mut UsedFeatures) -> Option<Part> {
    let kind = block.kind.take().unwrap_or_default();
    let citations = &block.citations;
    let wants_citations = || citations.as_ref().is_some_and(|wants| wants.get().contains("true"));
    if matches!(kind.as_str(), "document" | "search_result") && wants_citations() {
        uses.add(Feature::Citations, path, "citations");
    }
    match kind.as_str() {
        "text" => {
            uses.add_if(citations.is_some(), Feature::Hints, path, "citations");
            block.text.map(Part::Text)
        }
        "image" => {
            let source = read_source(block.source?, false, path, uses)?;
            uses.add(Feature::Images, path, "image");
            Some(Part::Image(Image { source, detail: None }))
        }
        "document" => {
            let source = read_source(block.source?, true, path, uses)?;
            uses.add_file(&source, path, "document");
            Some(Part::File(File { source, name: block.title }))
        }
        "search_result" => {
            uses.add(Feature::SearchResults, path, kind);
            let from = match block.source {
                Some(WordOr::Word(from)) => Some(from),
                _ => None,
            };
            let found = texts_of(block.content, path, uses);
            let whole = block.title.into_iter().chain(from).chain(found).collect::<Vec<_>>();
            Some(Part::Text(whole.join("\n")))
        }
        "tool_use" => {
            uses.add(Feature::ToolCalls, path, "tool_use");
            Some(Part::ToolCall(ToolCall {
                id: block.id.unwrap_or_default(),
                name: block.name.unwrap_or_default(),
                arguments: block.input.map_or_else(String::new, |input| input.get().to_owned()),
            }))
        }
        "tool_result" => {
            uses.add(Feature::ToolResults, path, "tool_result");
            Some(Part::ToolResult(read_tool_result(block, path, uses)))
        }
        "thinking" | "redacted_thinking" => {
            uses.add(Feature::Thinking, path, kind);
            Some(Part::Thinking(read_thinking(block)))
        }
        "tool_reference" => {
            uses.add(Feature::DeferredTools, path, kind);
            block.tool_name.map(Part::Text)
        }
        _ => {
            note_other(kind, path, uses);
            None
        }
    }
}

fn read_tool_result(block: Block, path: &'static str, uses: &mut UsedFeatures) -> ToolResult {
    let call_id = block.tool_use_id.unwrap_or_default();
    let is_error = block.is_error.unwrap_or_default();
    uses.add_if(is_error, Feature::ResultErrors, path, "is_error");
    let content = read_parts(block.content, "messages.content.content.", uses, read_block);
    let has_media = content.iter().any(|part| matches!(part, Part::Image(_) | Part::File(_)));
    uses.add_if(has_media, Feature::ResultMedia, path, "tool_result");
    ToolResult { call_id, content, is_error }
}

/// Notes a block type that the neutral form does not have.
fn note_other(kind: String, path: &'static str, uses: &mut UsedFeatures) {
    let of_server = ["_tool_use", "_tool_result"].iter().any(|end| kind.ends_with(end));
    let feature = match kind.as_str() {
        _ if of_server => Feature::ServerToolHistory,
        "tool_addition" => Feature::DeferredTools,
        "compaction" => Feature::Compaction,
        "container_upload" => Feature::ProviderFiles,
        _ => Feature::OtherContent,
    };
    uses.add(feature, path, kind);
}

fn read_thinking(block: Block) -> Thinking {
    let signed = block.signature.map(|signature| ("signature", signature));
    let sealed = signed.or(block.data.map(|data| ("redacted", data)));
    let seal = sealed.and_then(|(member, sealed)| {
        let own = || Seal { dialect: seal::MESSAGES, value: json!({ member: sealed }) };
        Seal::from_signature(&sealed, own)
    });
    Thinking { text: block.thinking.unwrap_or_default(), seal }
}

fn read_source(
    source: WordOr<BlockSource>,
    is_file: bool,
    path: &'static str,
    uses: &mut UsedFeatures,
) -> Option<Source> {
    let WordOr::Object(source) = source else {
        uses.add(Feature::OtherContent, path, "source");
        return None;
    };
    if let Some(url) = source.url {
        return Some(Source::Url(url));
    }
    match (source.kind.as_deref(), source.data, source.content) {
        (Some("text"), Some(text), _) if is_file => Some(Source::Text(text)),
        (_, Some(data), _) => {
            let media_type = source.media_type.unwrap_or_default();
            Some(Source::Inline { media_type, data: Base64(data) })
        }
        (_, _, Some(content)) if is_file => {
            let texts = texts_of(Some(content), "messages.content.source.", uses);
            Some(Source::Text(texts.join("\n")))
        }
        (Some("file"), ..) => {
            uses.add(Feature::ProviderFiles, path, "source");
            None
        }
        _ => {
            uses.add(Feature::OtherContent, path, "source");
            None
        }
    }
}
