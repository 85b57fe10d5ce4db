//! The neutral form as a body of Gemini's `generateContent` and `streamGenerateContent`.

use std::collections::HashMap;

use serde_json::json;

use crate::json_writer::{Items, Members, object};
use crate::neutral::part::{PDF, Part, Source, ToolResult};
use crate::neutral::request::{Depth, OutputFormat, Request, Speaker, ToolChoice};
use crate::neutral::seal::{GEMINI, Seal};

/// The signature that Google documents for calls of another model. Models that sign their calls
/// refuse a conversation without any.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

pub(crate) fn write(request: &Request) -> Vec<u8> {
    object(|body| write_members(body, request))
}

/// The body of `countTokens`, for the tokens of a whole request.
pub(super) fn write_count(request: &Request) -> Vec<u8> {
    object(|body| {
        body.object("generateContentRequest", |inner| {
            let (folder, model) = in_folder(&request.model);
            inner.value("model", &[folder, model].concat());
            write_members(inner, request);
        });
    })
}

/// Splits a model's name into its folder and the rest. The default folder is `models/`.
pub(super) fn in_folder(model: &str) -> (&'static str, &str) {
    let named = ["models/", "tunedModels/"].into_iter().find(|folder| model.starts_with(folder));
    let folder = named.unwrap_or("models/");
    (folder, model.strip_prefix(folder).unwrap_or(model))
}

fn write_members(body: &mut Members<'_>, request: &Request) {
    let calls = request.turns.iter().flat_map(|turn| &turn.content);
    let names: HashMap<&str, &str> = calls
        .filter_map(|part| match part {
            Part::ToolCall(call) => Some((call.id.as_str(), call.name.as_str())),
            _ => None,
        })
        .collect();
    let mut system = request.system_texts().peekable();
    if system.peek().is_some() {
        body.object("systemInstruction", |instruction| {
            instruction.array("parts", |parts| {
                system.for_each(|text| write_text(parts, text));
            });
        });
    }
    body.array("contents", |contents| {
        for (speaker, parts) in request.alternating(has_part) {
            contents.object(|content| {
                let is_user = speaker == Speaker::User;
                content.value("role", if is_user { "user" } else { "model" });
                content.array("parts", |list| write_parts(list, &parts, &names));
            });
        }
    });
    write_tools(body, request);
    write_config(body, request);
}

fn has_part(part: &Part) -> bool {
    match part {
        Part::Text(text) | Part::Refusal(text) => !text.is_empty(),
        Part::Thinking(thinking) => {
            let is_own = |seal: &&Seal| seal.dialect == GEMINI;
            thinking
                .seal
                .as_ref()
                .filter(is_own)
                .is_some_and(|seal| seal.text("signature").is_some())
        }
        _ => true,
    }
}

fn write_text(parts: &mut Items<'_>, text: &str) {
    parts.object(|part| part.text("text", text));
}

/// The signature of a thinking part goes into the text or call after it, or into an empty text. Of
/// parallel calls only the first needs a signature. A text between both leaves the signature to the
/// call: clients of chat completions send back the thinking of an answer before its text.
fn write_parts(list: &mut Items<'_>, parts: &[&Part], names: &HashMap<&str, &str>) {
    let mut signature = None;
    let mut is_first_call = true;
    for (at, part) in parts.iter().enumerate() {
        match part {
            Part::Thinking(thinking) => {
                signature = thinking.seal.as_ref().and_then(|seal| seal.text("signature"));
            }
            Part::Text(text) | Part::Refusal(text) => list.object(|part| {
                part.text("text", text);
                let is_signed =
                    |part: &&&Part| matches!(part, Part::Thinking(_) | Part::ToolCall(_));
                let next = parts.iter().skip(at).find(is_signed);
                if !matches!(next, Some(Part::ToolCall(_))) {
                    part.option("thoughtSignature", &signature.take());
                }
            }),
            Part::ToolCall(call) => list.object(|part| {
                part.object("functionCall", |function| {
                    function.value("id", &call.id);
                    function.value("name", &call.name);
                    function.arguments("args", &call.arguments);
                });
                let signed = signature.take().or(is_first_call.then_some(NO_SIGNATURE));
                part.option("thoughtSignature", &signed);
                is_first_call = false;
            }),
            Part::ToolResult(result) => write_result(list, result, names),
            part => write_media(list, part),
        }
    }
    if signature.is_some() {
        list.object(|part| {
            part.text("text", "");
            part.option("thoughtSignature", &signature);
        });
    }
}

fn write_result(list: &mut Items<'_>, result: &ToolResult, names: &HashMap<&str, &str>) {
    list.object(|part| {
        part.object("functionResponse", |response| {
            response.value("id", &result.call_id);
            let name = names.get(result.call_id.as_str()).copied();
            response.value("name", name.unwrap_or("unknown"));
            response.object("response", |object| {
                let member = if result.is_error { "error" } else { "output" };
                object.value(member, &result.texts().join("\n"));
            });
        });
    });
    result.content.iter().for_each(|part| write_media(list, part));
}

fn write_media(list: &mut Items<'_>, part: &Part) {
    match part {
        // Always an image type, even if the URL's suffix says otherwise: the prompt was estimated
        // so.
        Part::Image(image) => write_source(list, &image.source, ("image/", "image/jpeg")),
        Part::File(file) => match file.as_text() {
            Some(text) => write_text(list, &text),
            None => write_source(list, &file.source, ("", PDF)),
        },
        Part::Audio { data, format } => list.object(|part| {
            part.object("inlineData", |inline| {
                inline.value("mimeType", &format!("audio/{format}"));
                inline.value("data", &data.0);
            });
        }),
        _ => {}
    }
}

/// Writes a source whose media type has to begin with `kind`; `fallback` if its URL shows no such
/// type.
fn write_source(list: &mut Items<'_>, source: &Source, (kind, fallback): (&str, &str)) {
    list.object(|part| match source {
        Source::Url(url) => part.object("fileData", |file| {
            file.value(
                "mimeType",
                media_type_of(url).filter(|of| of.starts_with(kind)).unwrap_or(fallback),
            );
            file.value("fileUri", url);
        }),
        Source::Inline { media_type, data } => part.object("inlineData", |inline| {
            inline.value("mimeType", media_type);
            inline.value("data", &data.0);
        }),
        Source::Text(text) => part.text("text", text),
    });
}

/// The media type that the file name in a URL suggests. Gemini requires a media type.
fn media_type_of(url: &str) -> Option<&'static str> {
    let path = url.split(['?', '#']).next()?;
    let extension = path.rsplit('/').next()?.rsplit_once('.')?.1.to_ascii_lowercase();
    Some(match extension.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "gif" => "image/gif",
        "heic" => "image/heic",
        "pdf" => PDF,
        "txt" | "md" => "text/plain",
        "csv" => "text/csv",
        "html" => "text/html",
        _ => return None,
    })
}

fn write_tools(body: &mut Members<'_>, request: &Request) {
    if !request.has_tools() {
        return;
    }
    body.array("tools", |tools| {
        if !request.tools.is_empty() {
            tools.object(|tool| {
                tool.array("functionDeclarations", |functions| {
                    for tool in &request.tools {
                        functions.object(|function| {
                            function.value("name", &tool.name);
                            function.option("description", &tool.description);
                            function.option("parametersJsonSchema", &tool.parameters);
                        });
                    }
                });
            });
        }
        for (is_asked, name) in [
            (request.web_search.is_some() && request.tools.is_empty(), "googleSearch"),
            (request.web_fetch, "urlContext"),
            (request.code_execution, "codeExecution"),
        ] {
            if is_asked {
                tools.object(|tool| tool.object(name, |_| {}));
            }
        }
    });
    let (mode, name) = match &request.tool_choice {
        _ if request.tools.is_empty() => return,
        None => return,
        Some(ToolChoice::Auto) => ("AUTO", None),
        Some(ToolChoice::None) => ("NONE", None),
        Some(ToolChoice::Any) => ("ANY", None),
        Some(ToolChoice::Named(name)) => ("ANY", Some([name])),
    };
    body.object("toolConfig", |config| {
        config.object("functionCallingConfig", |choice| {
            choice.value("mode", mode);
            choice.option("allowedFunctionNames", &name);
        });
    });
}

fn write_config(body: &mut Members<'_>, request: &Request) {
    body.object("generationConfig", |config| {
        config.option("maxOutputTokens", &request.max_tokens);
        if !request.stop.is_empty() {
            config.value("stopSequences", &request.stop);
        }
        let sampling = &request.sampling;
        config.option("temperature", &sampling.temperature);
        config.option("topP", &sampling.top_p);
        config.option("topK", &sampling.top_k);
        config.option("presencePenalty", &sampling.presence_penalty);
        config.option("frequencyPenalty", &sampling.frequency_penalty);
        config.option("seed", &sampling.seed);
        if let Some(output) = &request.output {
            config.value("responseMimeType", "application/json");
            if let OutputFormat::Schema { schema, .. } = output {
                config.value("responseJsonSchema", schema);
            }
        }
        if let (Some(reasoning), Some(depth)) = (&request.reasoning, request.depth()) {
            write_thinking(config, &depth, reasoning.shown);
        }
    });
}

fn write_thinking(config: &mut Members<'_>, depth: &Depth, shown: Option<bool>) {
    let budget = depth.budget().map_or(json!(-1), |budget| json!(budget));
    config.object("thinkingConfig", |thinking| {
        thinking.value("thinkingBudget", &budget);
        if budget != json!(0) && shown != Some(false) {
            thinking.value("includeThoughts", &true);
        }
    });
}
