//! Writes the neutral form as a request for a chat completion.

use std::borrow::Cow;

use serde_json::json;

use crate::json_writer::{Items, Members, object};
use crate::neutral::part::{File, Part, Source, ToolResult};
use crate::neutral::request::{OutputFormat, Request, Speaker, ToolChoice, Turn, WebSearch};
use crate::neutral::target_terms::TargetTerms;

pub(crate) fn write(request: &Request) -> Vec<u8> {
    object(|body| {
        body.value("model", &request.model);
        body.array("messages", |messages| {
            if !request.system.is_empty() {
                write_system(messages, request.system.iter().map(String::as_str));
            }
            let terms = &request.target;
            request.turns.iter().for_each(|turn| write_turn(messages, turn, terms));
        });
        write_tools(body, request);
        write_settings(body, request);
    })
}

fn write_settings(body: &mut Members<'_>, request: &Request) {
    let limit =
        if request.target.completion_tokens { "max_completion_tokens" } else { "max_tokens" };
    body.option(limit, &request.max_tokens);
    if !request.stop.is_empty() {
        body.value("stop", &request.stop);
    }
    let sampling = &request.sampling;
    body.option("temperature", &sampling.temperature);
    body.option("top_p", &sampling.top_p);
    body.option("presence_penalty", &sampling.presence_penalty);
    body.option("frequency_penalty", &sampling.frequency_penalty);
    body.option("seed", &sampling.seed);
    match &request.output {
        None => {}
        Some(OutputFormat::Json) => body.value("response_format", &json!({"type": "json_object"})),
        Some(OutputFormat::Schema { name, description, schema, strict }) => {
            body.object("response_format", |format| {
                format.value("type", "json_schema");
                format.object("json_schema", |json_schema| {
                    json_schema.value("name", name.as_deref().unwrap_or("answer"));
                    json_schema.option("description", description);
                    json_schema.value("schema", schema);
                    json_schema.option("strict", strict);
                });
            });
        }
    }
    body.option("verbosity", &request.verbosity);
    if let Some(depth) = request.depth() {
        body.option("reasoning_effort", &depth.effort());
    }
    body.option("user", &request.short_user());
    if request.stream {
        body.value("stream", &true);
        // The other dialects report the usage in every stream, so it is always requested.
        if request.target.stream_usage {
            body.value("stream_options", &json!({"include_usage": true}));
        }
    }
}

/// Writes texts as content: a single text as a string, which every server accepts, several as a
/// list.
fn write_texts<'a>(message: &mut Members<'_>, mut texts: impl Iterator<Item = &'a str> + Clone) {
    let (first, second) = (texts.clone().next(), texts.clone().nth(1));
    match (first, second) {
        (None, _) => message.value("content", ""),
        (Some(text), None) => message.text("content", text),
        _ => message.array("content", |parts| {
            texts.by_ref().for_each(|text| parts.text("text", text));
        }),
    }
}

fn write_system<'a>(messages: &mut Items<'_>, texts: impl Iterator<Item = &'a str> + Clone) {
    messages.object(|message| {
        message.value("role", "system");
        write_texts(message, texts);
    });
}

/// The text of a part that becomes plain text in a chat completion.
fn whole_text(part: &Part) -> Option<Cow<'_, str>> {
    match part {
        Part::Text(text) => Some(Cow::Borrowed(text)),
        Part::File(file) => file.as_text().map(Cow::Owned),
        _ => None,
    }
}

fn write_turn(messages: &mut Items<'_>, turn: &Turn, terms: &TargetTerms) {
    match turn.speaker {
        Speaker::System => write_system(messages, turn.content.iter().filter_map(Part::text)),
        Speaker::Assistant => write_answer(messages, &turn.content, terms),
        Speaker::User => write_user(messages, &turn.content),
    }
}

fn write_answer(messages: &mut Items<'_>, content: &[Part], terms: &TargetTerms) {
    let refusal = content.iter().find_map(|part| match part {
        Part::Refusal(refusal) => Some(refusal),
        _ => None,
    });
    let calls = content.iter().filter_map(|part| match part {
        Part::ToolCall(call) => Some(call),
        _ => None,
    });
    messages.object(|message| {
        message.value("role", "assistant");
        let texts = content.iter().filter_map(Part::text);
        if texts.clone().next().is_some() || (refusal.is_none() && calls.clone().next().is_none()) {
            write_texts(message, texts);
        } else {
            message.value("content", &());
        }
        message.option("refusal", &refusal);
        let thoughts = content.iter().filter_map(|part| match part {
            Part::Thinking(thinking) if terms.reasoning_content => Some(thinking.text.as_str()),
            _ => None,
        });
        let thoughts = thoughts.collect::<String>();
        if !thoughts.is_empty() {
            message.value("reasoning_content", &thoughts);
        }
        if calls.clone().next().is_some() {
            message.array("tool_calls", |list| {
                for call in calls {
                    list.object(|item| {
                        item.value("id", &call.id);
                        item.value("type", "function");
                        item.object("function", |function| {
                            function.value("name", &call.name);
                            function.value("arguments", &call.arguments);
                        });
                    });
                }
            });
        }
    });
}

/// Writes each tool result as a message. A last message has the rest of the turn, and content that
/// a result cannot hold.
fn write_user(messages: &mut Items<'_>, content: &[Part]) {
    let results = content.iter().filter_map(|part| match part {
        Part::ToolResult(result) => Some(result),
        _ => None,
    });
    results.clone().for_each(|result| write_result(messages, result));
    let in_results = results.clone().flat_map(|result| &result.content).filter(|part| match part {
        Part::File(file) => file.as_text().is_none(),
        part => !matches!(part, Part::Text(_)),
    });
    let own = content.iter().filter(|part| !matches!(part, Part::ToolResult(_)));
    let parts = in_results.chain(own);
    if parts.clone().next().is_none() && results.clone().next().is_some() {
        return;
    }
    messages.object(|message| {
        message.value("role", "user");
        match parts.clone().map(whole_text).collect::<Option<Vec<_>>>() {
            Some(texts) => write_texts(message, texts.iter().map(|text| &**text)),
            None => message.array("content", |list| parts.for_each(|part| write_part(list, part))),
        }
    });
}

fn write_result(messages: &mut Items<'_>, result: &ToolResult) {
    messages.object(|message| {
        message.value("role", "tool");
        message.value("tool_call_id", &result.call_id);
        write_texts(message, result.texts().iter().map(String::as_str));
    });
}

fn write_part(parts: &mut Items<'_>, part: &Part) {
    match part {
        Part::Text(text) => parts.text("text", text),
        Part::Image(image) => parts.object(|part| {
            part.value("type", "image_url");
            part.object("image_url", |url| {
                url.value("url", &image.source.to_url());
                url.option("detail", &image.detail);
            });
        }),
        Part::Audio { data, format } => parts.object(|part| {
            part.value("type", "input_audio");
            part.object("input_audio", |audio| {
                audio.value("data", &data.0);
                audio.value("format", format);
            });
        }),
        Part::File(file) => write_file(parts, file),
        Part::Refusal(_)
        | Part::Thinking(_)
        | Part::ToolCall(_)
        | Part::TextCall(_)
        | Part::ToolResult(_) => {}
    }
}

fn write_file(parts: &mut Items<'_>, file: &File) {
    if let Some(text) = file.as_text() {
        return parts.text("text", &text);
    }
    // Files by URL are refused before this writer runs.
    let Source::Inline { .. } = &file.source else { return };
    parts.object(|part| {
        part.value("type", "file");
        part.object("file", |data| {
            data.value("filename", file.name.as_deref().unwrap_or("file"));
            data.value("file_data", &file.source.to_url());
        });
    });
}

fn write_tools(body: &mut Members<'_>, request: &Request) {
    // Models that search have no tools, and all others refuse the option.
    if request.tools.is_empty() {
        if let Some(search) = &request.web_search {
            write_search(body, search);
        }
        return;
    }
    body.array("tools", |tools| {
        for tool in &request.tools {
            tools.object(|item| {
                item.value("type", "function");
                item.object("function", |function| {
                    function.value("name", &tool.name);
                    function.option("description", &tool.description);
                    function.option("parameters", &tool.schema_with_properties());
                    function.option("strict", &tool.strict);
                });
            });
        }
    });
    match &request.tool_choice {
        None => {}
        Some(ToolChoice::Auto) => body.value("tool_choice", "auto"),
        Some(ToolChoice::None) => body.value("tool_choice", "none"),
        Some(ToolChoice::Any) => body.value("tool_choice", "required"),
        Some(ToolChoice::Named(name)) => {
            body.value("tool_choice", &json!({"type": "function", "function": {"name": name}}));
        }
    }
    body.option("parallel_tool_calls", &request.parallel_tool_calls);
}

fn write_search(body: &mut Members<'_>, search: &WebSearch) {
    body.object("web_search_options", |options| {
        options.option("search_context_size", &search.context_size);
        if let Some(place) = &search.place {
            options.object("user_location", |location| {
                location.value("type", "approximate");
                location.object("approximate", |approximate| {
                    place.iter().for_each(|(name, value)| approximate.value(name, value));
                });
            });
        }
    });
}
