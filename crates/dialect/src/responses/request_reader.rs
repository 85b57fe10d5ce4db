//! Reads OpenAI's responses into the neutral form.

use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Number, json};

use super::tool_reader::{Choice, ToolMember, note_same_names, read_choice, read_tool};
use crate::feature::Feature;
use crate::members::{
    Content, MalformedRequest, Table, WordOr, read as parse, read_parts, wire_object,
};
use crate::neutral::part::{Base64, File, Image, Part, Source, Thinking, ToolCall, ToolResult};
use crate::neutral::request::{
    Depth, OutputFormat, Reasoning, Request, Sampling, Speaker, UsedFeatures, full_name,
};
use crate::neutral::seal::Seal;
use crate::neutral::text_tool;

const BODY: Table = &[
    ("background", Feature::Background),
    ("conversation", Feature::StoredState),
    ("previous_response_id", Feature::StoredState),
    ("prompt", Feature::StoredState),
    ("moderation", Feature::Moderation),
    ("client_metadata", Feature::Hints),
    ("context_management", Feature::Hints),
    ("max_tool_calls", Feature::ToolUses),
    ("metadata", Feature::Hints),
    ("prompt_cache_key", Feature::Hints),
    ("prompt_cache_options", Feature::Hints),
    ("prompt_cache_retention", Feature::Hints),
    ("safety_identifier", Feature::Hints),
    ("service_tier", Feature::Hints),
    ("store", Feature::Hints),
    ("stream_options", Feature::Hints),
    ("truncation", Feature::Hints),
];
const ITEM: Table = &[("caller", Feature::Hints), ("phase", Feature::Hints)];
const PART: Table = &[
    ("annotations", Feature::Hints),
    ("logprobs", Feature::Hints),
    ("prompt_cache_breakpoint", Feature::Hints),
];
const REASONING: Table = &[("context", Feature::Hints), ("mode", Feature::Hints)];

wire_object!(Body, BODY, {
    model: String,
    input: Content<Item>,
    instructions: String,
    tools: Vec<ToolMember>,
    tool_choice: WordOr<Choice>,
    parallel_tool_calls: bool,
    max_output_tokens: Number,
    stream: bool,
    temperature: Number,
    top_p: Number,
    top_logprobs: Number,
    text: TextMember,
    reasoning: ReasoningMember,
    include: Vec<String>,
    user: String,
});
wire_object!(TextMember, &[], { format: Format, verbosity: String, });
wire_object!(Format, &[], {
    kind: String = "type",
    name: String,
    description: String,
    schema: Box<RawValue>,
    strict: bool,
});
wire_object!(ReasoningMember, REASONING, {
    effort: String,
    summary: String,
    generate_summary: String,
});
// `id` and `status` describe the earlier answer of an item, not its content.
wire_object!(Item, ITEM, {
    kind: String = "type",
    role: String,
    content: Content<ContentPart>,
    call_id: String,
    id: String,
    status: IgnoredAny,
    name: String,
    namespace: String,
    arguments: Content<IgnoredAny>,
    input: String,
    output: Content<ContentPart>,
    encrypted_content: String,
    summary: Vec<ContentPart>,
});
wire_object!(ContentPart, PART, {
    kind: String = "type",
    text: String,
    refusal: String,
    image_url: String,
    detail: String,
    file_data: String,
    file_url: String,
    file_id: String,
    filename: String,
    input_audio: AudioData,
});
wire_object!(AudioData, &[], { data: String, format: String, });
pub(crate) fn read(body: &[u8]) -> Result<Request, MalformedRequest> {
    let (mut body, uses): (Body, _) = parse(body)?;
    let mut request = Request { uses, ..Request::default() };
    if let Some(instructions) = body.instructions.take() {
        request.instruct(vec![instructions], "", "instructions");
    }
    match body.input.take() {
        Some(Content::Text(text)) => request.say(Speaker::User, vec![Part::Text(text)], false),
        Some(Content::Parts(items)) => {
            for item in items {
                read_item(item, &mut request)?;
            }
        }
        Some(Content::Other) => request.uses.add(Feature::OtherContent, "", "input"),
        None => {}
    }
    for tool in body.tools.take().unwrap_or_default() {
        read_tool(tool, &mut request);
    }
    note_same_names(&mut request);
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
    note(body.max_output_tokens.is_some(), Feature::MaxTokens, "max_output_tokens");
    note(body.temperature.is_some(), Feature::Temperature, "temperature");
    note(body.top_p.is_some(), Feature::TopP, "top_p");
    note(body.user.is_some(), Feature::User, "user");
    note(body.stream == Some(true), Feature::Stream, "stream");
    note(body.parallel_tool_calls == Some(false), Feature::ParallelCalls, "parallel_tool_calls");
    let asks = |number: &Number| number.as_f64() != Some(0.0);
    note(body.top_logprobs.as_ref().is_some_and(asks), Feature::Logprobs, "top_logprobs");
    for included in body.include.unwrap_or_default() {
        match included.as_str() {
            // Translated answers always include what the client needs to send reasoning back.
            "reasoning.encrypted_content" => {}
            "message.output_text.logprobs" => note(true, Feature::Logprobs, "include"),
            _ => note(true, Feature::Hints, "include"),
        }
    }
    request.model = body.model.unwrap_or_default();
    request.stream = body.stream.unwrap_or_default();
    request.max_tokens = body.max_output_tokens;
    request.parallel_tool_calls = body.parallel_tool_calls;
    request.sampling =
        Sampling { temperature: body.temperature, top_p: body.top_p, ..Sampling::default() };
    request.user = body.user;
}

fn read_output(body: &mut Body, request: &mut Request) {
    let uses = &mut request.uses;
    if let Some(text) = body.text.take() {
        uses.add_if(text.verbosity.is_some(), Feature::Verbosity, "text.", "verbosity");
        request.verbosity = text.verbosity;
        request.output = text.format.and_then(|format| read_format(format, uses));
    }
    if let Some(reasoning) = body.reasoning.take() {
        let shown = reasoning.summary.or(reasoning.generate_summary).is_some();
        uses.add_if(shown, Feature::ReasoningSummary, "reasoning.", "summary");
        uses.add_if(reasoning.effort.is_some(), Feature::Reasoning, "reasoning.", "effort");
        let depth = reasoning.effort.map_or(Depth::Free, Depth::Effort);
        request.reasoning = Some(Reasoning { depth, shown: shown.then_some(true) });
    }
}

fn read_format(format: Format, uses: &mut UsedFeatures) -> Option<OutputFormat> {
    match format.kind.as_deref() {
        Some("json_object") => {
            uses.add(Feature::JsonObject, "text.", "format");
            Some(OutputFormat::Json)
        }
        Some("json_schema") => {
            uses.add(Feature::JsonSchema, "text.", "format");
            Some(OutputFormat::Schema {
                name: format.name,
                description: format.description,
                schema: format.schema?,
                strict: format.strict,
            })
        }
        Some("text") | None => None,
        Some(other) => {
            uses.add(Feature::Unlisted, "text.format.", other.to_owned());
            None
        }
    }
}

fn read_item(item: Item, request: &mut Request) -> Result<(), MalformedRequest> {
    let uses = &mut request.uses;
    let kind = item.kind.unwrap_or_default();
    match kind.as_str() {
        "" | "message" => {
            let content = read_parts(item.content, "input.content.", uses, read_part);
            match item.role.as_deref() {
                Some("user") => request.say(Speaker::User, content, false),
                Some("assistant") => request.say(Speaker::Assistant, content, true),
                Some("system" | "developer") => {
                    let texts = content.into_iter().filter_map(Part::into_text);
                    request.instruct(texts.collect(), "input.", "role");
                }
                _ => return Err(MalformedRequest("input.role".to_owned())),
            }
        }
        "function_call" | "custom_tool_call" => {
            let arguments = match item.arguments {
                _ if kind == "custom_tool_call" => {
                    uses.add(Feature::CustomTools, "input.", kind);
                    text_tool::arguments(&item.input.unwrap_or_default())
                }
                arguments => {
                    uses.add(Feature::ToolCalls, "input.", kind);
                    match arguments {
                        Some(Content::Text(arguments)) => arguments,
                        None => String::new(),
                        _ => return Err(MalformedRequest("input.arguments".to_owned())),
                    }
                }
            };
            let name =
                full_name(&item.namespace.unwrap_or_default(), &item.name.unwrap_or_default());
            let call = ToolCall { id: item.call_id.unwrap_or_default(), name, arguments };
            request.say(Speaker::Assistant, vec![Part::ToolCall(call)], true);
        }
        "function_call_output" | "custom_tool_call_output" => {
            let content = read_parts(item.output, "input.output.", uses, read_part);
            let has_media = content.iter().any(|part| part.text().is_none());
            uses.add_if(has_media, Feature::ResultMedia, "input.", "output");
            let call_id = item.call_id.unwrap_or_default();
            request.answer_call(ToolResult { call_id, content, is_error: false });
        }
        "reasoning" => {
            uses.add(Feature::Thinking, "input.", kind);
            let summary = item.summary.unwrap_or_default();
            let texts: Vec<String> = summary.into_iter().filter_map(|part| part.text).collect();
            let seal = item.encrypted_content.and_then(|sealed| {
                Seal::from_signature(&sealed, || Seal {
                    dialect: "responses",
                    value: json!({ "id": item.id, "encrypted_content": sealed }),
                })
            });
            let thinking = Part::Thinking(Thinking { text: texts.join("\n\n"), seal });
            request.say(Speaker::Assistant, vec![thinking], true);
        }
        _ => note_other(kind, uses),
    }
    Ok(())
}

/// Notes an item type that the neutral form does not have.
fn note_other(kind: String, uses: &mut UsedFeatures) {
    let feature = match kind.as_str() {
        "item_reference" => Feature::StoredState,
        "compaction" | "compaction_trigger" => Feature::Compaction,
        "web_search_call"
        | "file_search_call"
        | "code_interpreter_call"
        | "image_generation_call"
        | "mcp_list_tools"
        | "mcp_call"
        | "mcp_approval_request"
        | "mcp_approval_response"
        | "program"
        | "program_output" => Feature::ServerToolHistory,
        _ if kind.ends_with("_call") || kind.ends_with("_call_output") => Feature::ServerTools,
        _ => Feature::OtherContent,
    };
    uses.add(feature, "input.", kind);
}

fn read_part(part: ContentPart, path: &'static str, uses: &mut UsedFeatures) -> Option<Part> {
    let kind = part.kind.unwrap_or_default();
    match (kind.as_str(), part.image_url, part.file_data.or(part.file_url)) {
        ("input_text" | "output_text" | "text", ..) => part.text.map(Part::Text),
        ("refusal", ..) => part.refusal.map(Part::Refusal),
        ("input_image", Some(url), _) => {
            uses.add(Feature::Images, path, "input_image");
            // `auto` is the default.
            let detail = part.detail.filter(|detail| detail != "auto");
            uses.add_if(detail.is_some(), Feature::ImageDetail, path, "detail");
            Some(Part::Image(Image { source: Source::of_url(url), detail }))
        }
        ("input_file", _, Some(file)) => {
            let source = Source::of_file(file);
            uses.add_file(&source, path, "input_file");
            uses.add_if(part.detail.is_some(), Feature::Hints, path, "detail");
            Some(Part::File(File { source, name: part.filename }))
        }
        ("input_image" | "input_file", ..) => {
            uses.add(Feature::ProviderFiles, path, "file_id");
            None
        }
        ("input_audio", ..) => {
            let audio = part.input_audio?;
            uses.add(Feature::Audio, path, "input_audio");
            let format = audio.format.unwrap_or_default();
            Some(Part::Audio { data: Base64(audio.data?), format })
        }
        _ => {
            uses.add(Feature::OtherContent, path, kind);
            None
        }
    }
}
