//! Reads chat completions into the neutral form.

use serde::de::IgnoredAny;
use serde_json::Number;
use serde_json::value::RawValue;

use super::tool_reader::{Choice, SearchOptions, ToolMember};
use super::tool_reader::{read_choice, read_search, read_tool};
use crate::feature::Feature;
use crate::members::{Content, MalformedRequest, Table, WordOr, read as parse, wire_object};
use crate::neutral::part::{Base64, File, Image, Part, Source, Thinking, ToolCall, ToolResult};
use crate::neutral::request::{
    CachePlace, Depth, OutputFormat, Reasoning, Request, Sampling, Speaker, UsedFeatures,
};
use crate::neutral::seal;
use crate::neutral::seal::Seal;
use crate::neutral::text_tool;

const BODY: Table = &[
    ("functions", Feature::Functions),
    ("function_call", Feature::Functions),
    ("audio", Feature::AudioOutput),
    ("logprobs", Feature::Logprobs),
    ("logit_bias", Feature::LogitBias),
    ("moderation", Feature::Moderation),
    ("prediction", Feature::Hints),
    ("store", Feature::Hints),
    ("metadata", Feature::Hints),
    ("service_tier", Feature::Hints),
    ("prompt_cache_key", Feature::Hints),
    ("prompt_cache_options", Feature::Hints),
    ("prompt_cache_retention", Feature::Hints),
    ("safety_identifier", Feature::Hints),
];
const MESSAGE: Table = &[
    ("function_call", Feature::Functions),
    ("audio", Feature::ProviderFiles),
    ("annotations", Feature::Hints),
    ("name", Feature::Hints),
    ("reasoning", Feature::Thinking),
];
const DETAIL: Table = &[
    ("type", Feature::Thinking),
    ("format", Feature::Thinking),
    ("index", Feature::Thinking),
    ("id", Feature::Thinking),
    ("text", Feature::Thinking),
    ("summary", Feature::Thinking),
    ("signature", Feature::Thinking),
];
const PART: Table = &[("prompt_cache_breakpoint", Feature::Hints)];
const CALL: Table = &[("index", Feature::Hints), ("extra_content", Feature::Thinking)];
const STREAM_OPTIONS: Table = &[("include_obfuscation", Feature::Hints)];

wire_object!(Body, BODY, {
    model: String,
    messages: Vec<Message>,
    stream: bool,
    stream_options: StreamOptions,
    tools: Vec<ToolMember>,
    tool_choice: WordOr<Choice>,
    parallel_tool_calls: bool,
    max_tokens: Number,
    max_completion_tokens: Number,
    stop: Content<String>,
    temperature: Number,
    top_p: Number,
    top_k: Number,
    presence_penalty: Number,
    frequency_penalty: Number,
    seed: Number,
    n: Number,
    top_logprobs: Number,
    modalities: Vec<String>,
    response_format: Format,
    reasoning_effort: String,
    reasoning: ReasoningMember,
    thinking: ThinkingMember,
    verbosity: String,
    user: String,
    web_search_options: SearchOptions,
});
// OpenRouter's reasoning.
wire_object!(ReasoningMember, &[], {
    effort: String,
    max_tokens: u64,
    enabled: bool,
    exclude: bool,
});
// The thinking of messages, which several servers of chat completions take.
wire_object!(ThinkingMember, &[], { kind: String = "type", budget_tokens: u64, });
wire_object!(StreamOptions, STREAM_OPTIONS, { include_usage: IgnoredAny, });
wire_object!(Message, MESSAGE, {
    role: String,
    content: Content<ContentPart>,
    refusal: String,
    tool_calls: Vec<Call>,
    tool_call_id: String,
    reasoning_content: String,
    reasoning_details: Vec<ReasoningDetail>,
    cache_control: Box<RawValue>,
});
// What the gateway gave the client for a seal. OpenRouter's own have more members.
wire_object!(ReasoningDetail, DETAIL, { data: String, });
wire_object!(ContentPart, PART, {
    kind: String = "type",
    text: String,
    refusal: String,
    image_url: WordOr<ImageUrl>,
    input_audio: AudioData,
    file: FileData,
    thinking: IgnoredAny,
    cache_control: Box<RawValue>,
});
wire_object!(ImageUrl, PART, { url: String, detail: String, });
wire_object!(AudioData, PART, { data: String, format: String, });
wire_object!(FileData, PART, { file_data: String, filename: String, file_id: String, });
wire_object!(Call, CALL, {
    id: String,
    kind: String = "type",
    function: FunctionCall,
    custom: TextToolCall,
});
wire_object!(FunctionCall, CALL, { name: String, arguments: String, });
wire_object!(TextToolCall, CALL, { name: String, input: String, });
wire_object!(Format, &[], { kind: String = "type", json_schema: JsonSchema, });
wire_object!(JsonSchema, &[], {
    name: String,
    description: String,
    schema: Box<RawValue>,
    strict: bool,
});
pub(crate) fn read(body: &[u8]) -> Result<Request, MalformedRequest> {
    let (mut body, uses): (Body, _) = parse(body)?;
    let mut request = Request { uses, ..Request::default() };
    for message in body.messages.take().unwrap_or_default() {
        read_message(message, &mut request)?;
    }
    for tool in body.tools.take().unwrap_or_default() {
        read_tool(tool, &mut request);
    }
    if let Some(options) = body.web_search_options.take() {
        request.web_search = Some(read_search(options, &mut request.uses));
    }
    if let Some(choice) = body.tool_choice.take() {
        read_choice(choice, &mut request);
    }
    request.reasoning = read_reasoning(&mut body, &mut request.uses);
    if let Some(format) = body.response_format.take() {
        request.output = read_format(format, &mut request.uses);
    }
    read_settings(body, &mut request);
    Ok(request)
}

fn read_settings(body: Body, request: &mut Request) {
    let uses = &mut request.uses;
    let mut note = |is_there, feature, name| uses.add_if(is_there, feature, "", name);
    let over = |number: &Option<Number>, most| {
        number.as_ref().and_then(Number::as_f64).is_some_and(|number| number > most)
    };
    note(over(&body.n, 1.0), Feature::SeveralAnswers, "n");
    note(over(&body.top_logprobs, 0.0), Feature::Logprobs, "top_logprobs");
    for modality in body.modalities.unwrap_or_default().iter().filter(|word| *word != "text") {
        let is_image = modality == "image";
        let feature = if is_image { Feature::ImageOutput } else { Feature::AudioOutput };
        note(true, feature, "modalities");
    }
    note(body.parallel_tool_calls == Some(false), Feature::ParallelCalls, "parallel_tool_calls");
    note(body.temperature.is_some(), Feature::Temperature, "temperature");
    note(body.top_p.is_some(), Feature::TopP, "top_p");
    note(body.top_k.is_some(), Feature::TopK, "top_k");
    note(body.seed.is_some(), Feature::Seed, "seed");
    note(body.presence_penalty.is_some(), Feature::Penalties, "presence_penalty");
    note(body.frequency_penalty.is_some(), Feature::Penalties, "frequency_penalty");
    note(body.user.is_some(), Feature::User, "user");
    note(body.verbosity.is_some(), Feature::Verbosity, "verbosity");
    note(body.stream == Some(true), Feature::Stream, "stream");
    request.stop = match body.stop {
        Some(Content::Text(stop)) => vec![stop],
        Some(Content::Parts(stops)) => stops,
        _ => Vec::new(),
    };
    note(!request.stop.is_empty(), Feature::Stop, "stop");
    request.model = body.model.unwrap_or_default();
    request.stream = body.stream.unwrap_or_default();
    request.parallel_tool_calls = body.parallel_tool_calls;
    request.max_tokens = body.max_completion_tokens.or(body.max_tokens);
    note(request.max_tokens.is_some(), Feature::MaxTokens, "max_tokens");
    request.sampling = Sampling {
        temperature: body.temperature,
        top_p: body.top_p,
        top_k: body.top_k,
        presence_penalty: body.presence_penalty,
        frequency_penalty: body.frequency_penalty,
        seed: body.seed,
    };
    request.verbosity = body.verbosity;
    request.user = body.user;
}

/// OpenAI's word counts most, then OpenRouter's.
fn read_reasoning(body: &mut Body, uses: &mut UsedFeatures) -> Option<Reasoning> {
    let said = body.reasoning_effort.take().map(Depth::Effort);
    uses.add_if(said.is_some(), Feature::Reasoning, "", "reasoning_effort");
    let mut shown = None;
    let routed = body.reasoning.take().and_then(|member| {
        uses.add(Feature::Reasoning, "", "reasoning");
        let hides = member.exclude == Some(true);
        uses.add_if(hides, Feature::ReasoningSummary, "reasoning.", "exclude");
        shown = hides.then_some(false);
        let budget = member.max_tokens.map(Depth::Budget);
        match member.enabled {
            Some(false) => Some(Depth::none()),
            enabled => {
                let free = enabled.map(|_| Depth::Free);
                member.effort.map(Depth::Effort).or(budget).or(free)
            }
        }
    });
    let thinks = body.thinking.take().map(|member| {
        uses.add(Feature::Reasoning, "", "thinking");
        match (member.kind.as_deref(), member.budget_tokens) {
            (Some("disabled"), _) => Depth::none(),
            (_, Some(budget)) => Depth::Budget(budget),
            _ => Depth::Free,
        }
    });
    said.or(routed).or(thinks).map(|depth| Reasoning { depth, shown })
}

fn read_message(message: Message, request: &mut Request) -> Result<(), MalformedRequest> {
    let uses = &mut request.uses;
    let (mut content, mut marks) = read_content(message.content, uses);
    if let Some(mark) = message.cache_control {
        uses.add(Feature::CacheControl, "messages.", "cache_control");
        marks.push((content.len().saturating_sub(1), mark));
    }
    // The index of the first part among the parts of its turn.
    let mut first = 0;
    match message.role.as_deref() {
        Some("system" | "developer") => {
            instruct(content, std::mem::take(&mut marks), request);
        }
        Some("user") => request.say(Speaker::User, content, false),
        Some("assistant") => {
            let thinking =
                read_thinking(message.reasoning_content, message.reasoning_details, uses);
            marks.iter_mut().for_each(|(part, _)| *part += thinking.len());
            content.splice(0..0, thinking);
            content.extend(message.refusal.map(Part::Refusal));
            for call in message.tool_calls.unwrap_or_default() {
                content.extend(read_call(call, uses));
            }
            request.say(Speaker::Assistant, content, false);
        }
        Some("tool") => {
            let call_id = message.tool_call_id.unwrap_or_default();
            let has_media = content.iter().any(|part| part.text().is_none());
            uses.add_if(has_media, Feature::ResultMedia, "messages.", "content");
            request.answer_call(ToolResult { call_id, content, is_error: false });
            // A result has one mark, whichever part of it has one.
            marks = marks.pop().map(|(_, mark)| (0, mark)).into_iter().collect();
            first = request.turns.last().map_or(0, |turn| turn.content.len().saturating_sub(1));
        }
        Some("function") => uses.add(Feature::Functions, "messages.", "role"),
        _ => return Err(MalformedRequest("messages.role".to_owned())),
    }
    let turn = request.turns.len().saturating_sub(1);
    let place = |(part, mark)| (CachePlace::Part(turn, first + part), mark);
    request.cache_marks.extend(marks.into_iter().map(place));
    Ok(())
}

/// Reads the thinking of an earlier answer, as far as the gateway sealed it. A signature of
/// messages is for a text, which has to be there: that of the only seal that hides none.
fn read_thinking(
    text: Option<String>,
    details: Option<Vec<ReasoningDetail>>,
    uses: &mut UsedFeatures,
) -> Vec<Part> {
    uses.add_if(text.is_some(), Feature::Thinking, "messages.", "reasoning_content");
    uses.add_if(details.is_some(), Feature::Thinking, "messages.", "reasoning_details");
    let data = details.into_iter().flatten().filter_map(|detail| detail.data);
    let seals: Vec<Seal> = data.filter_map(|data| Seal::from_text(&data)).collect();
    let hides = |seal: &Seal| seal.text("redacted").is_some();
    let is_one = seals.iter().filter(|seal| !hides(seal)).count() == 1;
    let text = text.filter(|_| is_one).unwrap_or_default();
    let is_whole = |seal: &Seal| seal.dialect != seal::MESSAGES || !text.is_empty() || hides(seal);
    let part = |seal: Seal| {
        let text = if hides(&seal) { String::new() } else { text.clone() };
        Part::Thinking(Thinking { text, seal: Some(seal) })
    };
    seals.into_iter().filter(is_whole).map(part).collect()
}

/// Marks of the cache, with the indexes of their parts in the content.
type Marks = Vec<(usize, Box<RawValue>)>;

fn read_content(
    content: Option<Content<ContentPart>>,
    uses: &mut UsedFeatures,
) -> (Vec<Part>, Marks) {
    let (mut read, mut marks) = (Vec::new(), Vec::new());
    match content {
        Some(Content::Text(text)) => read.push(Part::Text(text)),
        Some(Content::Parts(parts)) => {
            for mut part in parts {
                let mark = part.cache_control.take();
                uses.add_if(
                    mark.is_some(),
                    Feature::CacheControl,
                    "messages.content.",
                    "cache_control",
                );
                let Some(part) = read_part(part, uses) else { continue };
                marks.extend(mark.map(|mark| (read.len(), mark)));
                read.push(part);
            }
        }
        Some(Content::Other) => uses.add(Feature::OtherContent, "messages.", "content"),
        None => {}
    }
    (read, marks)
}

/// Adds system text. Text between turns is moved, so its marks of the cache are left out, as are
/// those of parts that hold no text.
fn instruct(content: Vec<Part>, mut marks: Marks, request: &mut Request) {
    let (before, is_first) = (request.system.len(), request.turns.is_empty());
    let mut texts = Vec::new();
    for (at, part) in content.into_iter().enumerate() {
        let Some(text) = part.into_text().filter(|text| !text.is_empty()) else { continue };
        let mark = marks.iter().position(|(marked, _)| is_first && *marked == at);
        let place = CachePlace::System(before + texts.len());
        request.cache_marks.extend(mark.map(|mark| (place, marks.remove(mark).1)));
        texts.push(text);
    }
    request.uses.add_if(!marks.is_empty(), Feature::Hints, "messages.", "cache_control");
    request.instruct(texts, "messages.", "role");
}

fn read_part(part: ContentPart, uses: &mut UsedFeatures) -> Option<Part> {
    const PATH: &str = "messages.content.";
    let kind = part.kind.unwrap_or_default();
    Some(match kind.as_str() {
        "text" => Part::Text(part.text?),
        "refusal" => Part::Refusal(part.refusal?),
        "image_url" => {
            let (url, detail) = match part.image_url? {
                WordOr::Word(url) => (url, None),
                WordOr::Object(image) => (image.url?, image.detail),
            };
            uses.add(Feature::Images, PATH, "image_url");
            // `auto` is the default.
            let detail = detail.filter(|detail| detail != "auto");
            if detail.is_some() {
                uses.add(Feature::ImageDetail, "messages.content.image_url.", "detail");
            }
            Part::Image(Image { source: Source::of_url(url), detail })
        }
        "input_audio" => {
            let audio = part.input_audio?;
            uses.add(Feature::Audio, PATH, "input_audio");
            Part::Audio { data: Base64(audio.data?), format: audio.format.unwrap_or_default() }
        }
        "file" => {
            let file = part.file?;
            let Some(data) = file.file_data else {
                uses.add(Feature::ProviderFiles, PATH, "file");
                return None;
            };
            let source = Source::of_file(data);
            uses.add_file(&source, PATH, "file");
            Part::File(File { source, name: file.filename })
        }
        "thinking" => {
            uses.add(Feature::Thinking, PATH, "thinking");
            return None;
        }
        _ => {
            uses.add(Feature::OtherContent, PATH, kind);
            return None;
        }
    })
}

fn read_call(call: Call, uses: &mut UsedFeatures) -> Option<Part> {
    let id = call.id.unwrap_or_default();
    if let Some(custom) = call.custom {
        uses.add(Feature::CustomTools, "messages.", "tool_calls");
        let arguments = text_tool::arguments(&custom.input.unwrap_or_default());
        let name = custom.name.unwrap_or_default();
        return Some(Part::ToolCall(ToolCall { id, name, arguments }));
    }
    let function = call.function?;
    uses.add(Feature::ToolCalls, "messages.", "tool_calls");
    Some(Part::ToolCall(ToolCall {
        id,
        name: function.name.unwrap_or_default(),
        arguments: function.arguments.unwrap_or_default(),
    }))
}

fn read_format(format: Format, uses: &mut UsedFeatures) -> Option<OutputFormat> {
    match (format.kind.as_deref(), format.json_schema) {
        (Some("json_object"), _) => {
            uses.add(Feature::JsonObject, "", "response_format");
            Some(OutputFormat::Json)
        }
        (Some("json_schema"), Some(schema)) => {
            uses.add(Feature::JsonSchema, "", "response_format");
            Some(OutputFormat::Schema {
                name: schema.name,
                description: schema.description,
                schema: schema.schema?,
                strict: schema.strict,
            })
        }
        (Some("text") | None, _) => None,
        (Some(other), _) => {
            uses.add(Feature::Unlisted, "response_format.", other.to_owned());
            None
        }
    }
}
