//! Anthropic's messages into the neutral form.

use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Number, json};

use super::client_tools;
use crate::dialect::feature::Feature;
use crate::dialect::members::{
    Content, MalformedRequest, Table, WordOr, read as parse, wire_object,
};
use crate::dialect::neutral::part::{
    Base64, File, Image, Part, Source, Thinking, ToolCall, ToolResult,
};
use crate::dialect::neutral::request::{
    Depth, OutputFormat, Reasoning, Request, Sampling, Speaker, Tool, ToolChoice, UsedFeatures,
    WebSearch,
};
use crate::dialect::neutral::seal::Seal;

const BODY: Table = &[
    ("container", Feature::StoredState),
    ("mcp_servers", Feature::ServerTools),
    ("inference_geo", Feature::Region),
    ("cache_control", Feature::Hints),
    ("context_management", Feature::Hints),
    ("diagnostics", Feature::Hints),
    ("service_tier", Feature::Hints),
    ("speed", Feature::Hints),
];
const BLOCK: Table = &[
    ("cache_control", Feature::Hints),
    ("caller", Feature::Hints),
    ("context", Feature::Hints),
    ("toolset_name", Feature::Hints),
];
const TOOL: Table = &[
    ("defer_loading", Feature::DeferredTools),
    ("allowed_callers", Feature::Hints),
    ("cache_control", Feature::Hints),
    ("citations", Feature::Hints),
    ("eager_input_streaming", Feature::Hints),
    ("input_examples", Feature::Hints),
    ("max_characters", Feature::Hints),
    ("max_content_tokens", Feature::Hints),
    ("max_uses", Feature::Hints),
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
    content: Content<IgnoredAny>,
});
wire_object!(ToolMember, TOOL, {
    kind: String = "type",
    name: String,
    description: String,
    input_schema: Box<RawValue>,
    strict: bool,
    allowed_domains: Vec<String>,
    blocked_domains: Vec<String>,
    user_location: Place,
    model: IgnoredAny,
});
wire_object!(Place, &[], {
    kind: String = "type",
    city: String,
    country: String,
    region: String,
    timezone: String,
});
wire_object!(Choice, &[], {
    kind: String = "type",
    name: String,
    disable_parallel_tool_use: bool,
});
wire_object!(ThinkingMode, &[], {
    kind: String = "type",
    budget_tokens: u64,
    display: String,
});
wire_object!(OutputConfig, &[], { effort: String, format: Format, });
wire_object!(Format, &[], { kind: String = "type", schema: Box<RawValue>, });

pub(in crate::dialect) fn read(body: &[u8]) -> Result<Request, MalformedRequest> {
    let mut body: Body = parse(body)?;
    let mut request = Request::default();
    request.uses.add_all("", std::mem::take(&mut body.others));
    if let Some(system) = body.system.take() {
        let parts = read_content(system, "system.", &mut request.uses);
        request.instruct(texts(parts), "", "system");
    }
    for message in body.messages.take().unwrap_or_default() {
        read_message(message, &mut request)?;
    }
    for tool in body.tools.take().unwrap_or_default() {
        read_tool(tool, &mut request);
    }
    if let Some(choice) = body.tool_choice.take() {
        read_choice(choice, &mut request);
    }
    read_output(&mut body, &mut request);
    read_settings(body, &mut request);
    Ok(request)
}

fn read_settings(body: Body, request: &mut Request) {
    let uses = &mut request.uses;
    let mut note = |is_there: bool, feature, name: &'static str| {
        if is_there {
            uses.add(feature, "", name);
        }
    };
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
        request.uses.add_all("metadata.", metadata.others);
        if metadata.user_id.is_some() {
            request.uses.add(Feature::User, "metadata.", "user_id");
        }
        request.user = metadata.user_id;
    }
}

/// Reads what is asked of thinking and of the form of the answer.
fn read_output(body: &mut Body, request: &mut Request) {
    let uses = &mut request.uses;
    let mut depth = None;
    let mut shown = None;
    if let Some(thinking) = body.thinking.take() {
        uses.add_all("thinking.", thinking.others);
        depth = match (thinking.kind.as_deref(), thinking.budget_tokens) {
            (Some("disabled"), _) => None,
            (_, Some(budget)) => Some(Depth::Budget(budget)),
            _ => Some(Depth::Free),
        };
        if depth.is_some() {
            uses.add(Feature::Reasoning, "", "thinking");
            shown = Some(thinking.display.as_deref() != Some("omitted"));
        }
        if thinking.display.is_some() {
            uses.add(Feature::ReasoningSummary, "thinking.", "display");
        }
    }
    let mut format = body.output_format.take();
    if let Some(config) = body.output_config.take() {
        uses.add_all("output_config.", config.others);
        format = config.format.or(format);
        if let Some(effort) = config.effort {
            uses.add(Feature::Reasoning, "output_config.", "effort");
            depth = Some(Depth::Effort(effort));
        }
    }
    request.reasoning = depth.map(|depth| Reasoning { depth, shown });
    if let Some(Format { schema: Some(schema), others, .. }) = format {
        uses.add_all("output_config.format.", others);
        uses.add(Feature::JsonSchema, "output_config.", "format");
        request.output =
            Some(OutputFormat::Schema { name: None, description: None, schema, strict: None });
    }
}

fn texts(parts: Vec<Part>) -> Vec<String> {
    let texts = parts.into_iter().filter_map(|part| match part {
        Part::Text(text) => Some(text),
        _ => None,
    });
    texts.collect()
}

fn read_content(content: Content<Block>, path: &'static str, uses: &mut UsedFeatures) -> Vec<Part> {
    match content {
        Content::Text(text) => vec![Part::Text(text)],
        Content::Parts(blocks) => {
            blocks.into_iter().filter_map(|block| read_block(block, path, uses)).collect()
        }
        Content::Other => Vec::new(),
    }
}

fn read_message(message: Message, request: &mut Request) -> Result<(), MalformedRequest> {
    request.uses.add_all("messages.", message.others);
    let speaker = match message.role.as_deref() {
        Some("user") => Speaker::User,
        Some("assistant") => Speaker::Assistant,
        Some("system") => Speaker::System,
        _ => return Err(MalformedRequest("messages.role".to_owned())),
    };
    let content = message.content.map_or_else(Vec::new, |content| {
        read_content(content, "messages.content.", &mut request.uses)
    });
    // Calls are of the assistant, and results of the user.
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

fn read_block(block: Block, path: &'static str, uses: &mut UsedFeatures) -> Option<Part> {
    let Block { kind, text, source, title, citations, others, .. } = block;
    uses.add_all(path, others);
    let kind = kind.unwrap_or_default();
    match kind.as_str() {
        "text" => {
            if citations.is_some() {
                uses.add(Feature::Hints, path, "citations");
            }
            text.map(Part::Text)
        }
        "image" => {
            let source = read_source(source?, false, path, uses)?;
            uses.add(Feature::Images, path, "image");
            Some(Part::Image(Image { source, detail: None }))
        }
        "document" => {
            let source = read_source(source?, true, path, uses)?;
            uses.add_file(&source, path, "document");
            if citations.is_some_and(|citations| citations.get().contains("true")) {
                uses.add(Feature::Citations, path, "citations");
            }
            Some(Part::File(File { source, name: title }))
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
            let is_error = block.is_error.unwrap_or_default();
            if is_error {
                uses.add(Feature::ResultErrors, path, "is_error");
            }
            let content = block.content.map_or_else(Vec::new, |content| {
                read_content(content, "messages.content.content.", uses)
            });
            if content.iter().any(|part| matches!(part, Part::Image(_) | Part::File(_))) {
                uses.add(Feature::ResultMedia, path, "tool_result");
            }
            let call_id = block.tool_use_id.unwrap_or_default();
            Some(Part::ToolResult(ToolResult { call_id, content, is_error }))
        }
        "thinking" | "redacted_thinking" => {
            uses.add(Feature::Thinking, path, kind);
            Some(Part::Thinking(read_thinking(block.thinking, block.signature, block.data)))
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

/// Notes a kind of block that the neutral form does not have.
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

fn read_thinking(
    text: Option<String>,
    signature: Option<String>,
    data: Option<String>,
) -> Thinking {
    let own = |value| Seal { dialect: "messages", value };
    let seal = match (signature, data) {
        (Some(signature), _) => Some(
            Seal::from_text(&signature).unwrap_or_else(|| own(json!({ "signature": signature }))),
        ),
        (None, Some(data)) => {
            Some(Seal::from_text(&data).unwrap_or_else(|| own(json!({ "redacted": data }))))
        }
        (None, None) => None,
    };
    Thinking { text: text.unwrap_or_default(), seal }
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
    uses.add_all("messages.content.source.", source.others);
    if let Some(url) = source.url {
        return Some(Source::Url(url));
    }
    match (source.kind.as_deref(), source.data, source.content) {
        (Some("text"), Some(text), _) if is_file => Some(Source::Text(text)),
        (_, Some(data), _) => {
            let media_type = source.media_type.unwrap_or_default();
            Some(Source::Inline { media_type, data: Base64(data) })
        }
        (_, _, Some(Content::Text(text))) if is_file => Some(Source::Text(text)),
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

fn read_tool(tool: ToolMember, request: &mut Request) {
    let uses = &mut request.uses;
    uses.add_all("tools.", tool.others);
    let kind = tool.kind.unwrap_or_default();
    let name = tool.name.unwrap_or_default();
    if matches!(kind.as_str(), "" | "custom") {
        uses.add(Feature::Tools, "", "tools");
        if tool.strict.is_some() {
            uses.add(Feature::StrictTools, "tools.", "strict");
        }
        request.tools.push(Tool {
            name,
            description: tool.description,
            parameters: tool.input_schema,
            strict: tool.strict,
        });
        return;
    }
    if let Some(function) = client_tools::as_function(&kind, &name) {
        uses.add(Feature::ClientTools, "tools.", kind);
        request.tools.push(function);
        return;
    }
    let allowed_domains = tool.allowed_domains.unwrap_or_default();
    if !allowed_domains.is_empty() {
        uses.add(Feature::WebSearchAllowed, "tools.", "allowed_domains");
    }
    let blocked_domains = tool.blocked_domains.unwrap_or_default();
    if !blocked_domains.is_empty() {
        uses.add(Feature::WebSearchBlocked, "tools.", "blocked_domains");
    }
    if kind.starts_with("web_search_") {
        if tool.user_location.is_some() {
            uses.add(Feature::WebSearchPlace, "tools.", "user_location");
        }
        let place = tool
            .user_location
            .map(|place| [place.city, place.country, place.region, place.timezone]);
        uses.add(Feature::WebSearch, "tools.", kind);
        request.web_search =
            Some(WebSearch { allowed_domains, blocked_domains, place, context_size: None });
    } else if kind.starts_with("web_fetch_") {
        uses.add(Feature::WebFetch, "tools.", kind);
        request.web_fetch = true;
    } else if kind.starts_with("code_execution_") {
        uses.add(Feature::CodeExecution, "tools.", kind);
        request.code_execution = true;
    } else if kind.starts_with("tool_search_") {
        uses.add(Feature::DeferredTools, "tools.", kind);
    } else {
        uses.add(Feature::ServerTools, "tools.", kind);
    }
}

fn read_choice(choice: Choice, request: &mut Request) {
    let uses = &mut request.uses;
    uses.add_all("tool_choice.", choice.others);
    uses.add(Feature::ToolChoice, "", "tool_choice");
    if choice.disable_parallel_tool_use == Some(true) {
        uses.add(Feature::ParallelCalls, "tool_choice.", "disable_parallel_tool_use");
    }
    request.parallel_tool_calls = choice.disable_parallel_tool_use.map(|disabled| !disabled);
    request.tool_choice = Some(match (choice.kind.as_deref(), choice.name) {
        (Some("tool"), Some(name)) => ToolChoice::Named(name),
        (Some("any"), _) => ToolChoice::Any,
        (Some("none"), _) => ToolChoice::None,
        _ => ToolChoice::Auto,
    });
}
