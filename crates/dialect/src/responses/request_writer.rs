//! Writes the neutral form as a request for a response.

use serde_json::json;

use crate::json_writer::{Items, Members, object};
use crate::neutral::part::{File, Part, Source, Thinking, ToolResult};
use crate::neutral::request::{
    McpServer, OutputFormat, Request, Speaker, Tool, ToolChoice, Turn, WebSearch,
};
use rerouter_base::secret::Secret;

pub(crate) fn write(request: &Request) -> Vec<u8> {
    object(|body| {
        body.value("model", &request.model);
        if !request.system.is_empty() {
            body.value("instructions", &request.system.join("\n\n"));
        }
        body.array("input", |items| {
            request.turns.iter().for_each(|turn| write_turn(items, turn));
        });
        write_tools(body, request);
        write_settings(body, request);
    })
}

fn write_settings(body: &mut Members<'_>, request: &Request) {
    body.option("max_output_tokens", &request.max_tokens);
    body.option("temperature", &request.sampling.temperature);
    body.option("top_p", &request.sampling.top_p);
    if request.output.is_some() || request.verbosity.is_some() {
        body.object("text", |text| {
            match &request.output {
                None => {}
                Some(OutputFormat::Json) => text.value("format", &json!({"type": "json_object"})),
                Some(OutputFormat::Schema { name, description, schema, strict }) => {
                    text.object("format", |format| {
                        format.value("type", "json_schema");
                        format.value("name", name.as_deref().unwrap_or("answer"));
                        format.option("description", description);
                        format.value("schema", schema);
                        format.option("strict", strict);
                    });
                }
            }
            text.option("verbosity", &request.verbosity);
        });
    }
    if let (Some(reasoning), Some(depth)) = (&request.reasoning, request.depth()) {
        write_reasoning(body, reasoning.shown, depth.effort());
    }
    body.option("user", &request.short_user());
    // Providers of the other dialects store nothing, so this provider must not either.
    body.value("store", &false);
    if request.stream {
        body.value("stream", &true);
    }
}

fn write_reasoning(body: &mut Members<'_>, shown: Option<bool>, effort: Option<&str>) {
    body.object("reasoning", |member| {
        member.option("effort", &effort);
        if shown == Some(true) {
            member.value("summary", "auto");
        }
    });
    if effort != Some("none") {
        // Without stored state, this is the only form in which reasoning can go back to the model.
        body.value("include", &["reasoning.encrypted_content"]);
    }
}

fn write_turn(items: &mut Items<'_>, turn: &Turn) {
    // Consecutive parts that are no items form one message.
    let is_item =
        |part: &Part| matches!(part, Part::ToolCall(_) | Part::ToolResult(_) | Part::Thinking(_));
    for parts in turn.content.chunk_by(|left, right| !is_item(left) && !is_item(right)) {
        match (parts, turn.speaker) {
            ([Part::ToolCall(call)], _) => items.object(|item| {
                item.value("type", "function_call");
                item.value("call_id", &call.id);
                item.value("name", &call.name);
                item.value("arguments", &call.arguments);
            }),
            ([Part::ToolResult(result)], _) => write_result(items, result),
            ([Part::Thinking(thinking)], _) => write_thinking(items, thinking),
            (parts, Speaker::Assistant) => {
                for part in parts {
                    if let Part::Text(text) | Part::Refusal(text) = part {
                        items.object(|item| {
                            item.value("type", "message");
                            item.value("role", "assistant");
                            item.text("content", text);
                        });
                    }
                }
            }
            (parts, speaker) => items.object(|item| {
                let is_system = speaker == Speaker::System;
                item.value("type", "message");
                item.value("role", if is_system { "system" } else { "user" });
                item.array("content", |list| parts.iter().for_each(|part| write_part(list, part)));
            }),
        }
    }
}

fn write_result(items: &mut Items<'_>, result: &ToolResult) {
    items.object(|item| {
        item.value("type", "function_call_output");
        item.value("call_id", &result.call_id);
        match result.content.as_slice() {
            [] => item.value("output", ""),
            [Part::Text(text)] => item.text("output", text),
            parts => item.array("output", |list| {
                parts.iter().for_each(|part| write_part(list, part));
            }),
        }
    });
}

fn write_thinking(items: &mut Items<'_>, thinking: &Thinking) {
    let Some(seal) = thinking.seal.as_ref().filter(|seal| seal.dialect == "responses") else {
        return;
    };
    items.object(|item| {
        item.value("type", "reasoning");
        item.option("id", &seal.text("id"));
        item.array("summary", |summary| {
            if !thinking.text.is_empty() {
                summary.typed("summary_text", "text", &thinking.text);
            }
        });
        item.option("encrypted_content", &seal.text("encrypted_content"));
    });
}

fn write_part(parts: &mut Items<'_>, part: &Part) {
    match part {
        Part::Text(text) => parts.text("input_text", text),
        Part::Image(image) => parts.object(|part| {
            part.value("type", "input_image");
            part.value("image_url", &image.source.to_url());
            part.value("detail", image.detail.as_deref().unwrap_or("auto"));
        }),
        Part::File(file) => write_file(parts, file),
        // Audio is refused before a writer runs; the other parts are items.
        Part::Audio { .. }
        | Part::Refusal(_)
        | Part::Thinking(_)
        | Part::ToolCall(_)
        | Part::TextCall(_)
        | Part::ToolResult(_) => {}
    }
}

fn write_file(parts: &mut Items<'_>, file: &File) {
    if let Some(text) = file.as_text() {
        return parts.text("input_text", &text);
    }
    parts.object(|part| {
        part.value("type", "input_file");
        match &file.source {
            Source::Url(url) => part.value("file_url", url),
            source => {
                part.value("filename", file.name.as_deref().unwrap_or("file"));
                part.value("file_data", &source.to_url());
            }
        }
    });
}

fn write_tool(tools: &mut Items<'_>, tool: &Tool) {
    tools.object(|item| {
        item.value("type", "function");
        item.value("name", &tool.name);
        item.option("description", &tool.description);
        match tool.schema_with_properties() {
            Some(schema) => item.value("parameters", &schema),
            None => item.value("parameters", &json!({"type": "object", "properties": {}})),
        }
        // Only this dialect has `true` as the default of `strict`.
        item.value("strict", &tool.strict.unwrap_or(false));
    });
}

fn write_tools(body: &mut Members<'_>, request: &Request) {
    if !request.has_tools() {
        return;
    }
    body.array("tools", |tools| {
        request.tools.iter().for_each(|tool| write_tool(tools, tool));
        if let Some(search) = &request.web_search {
            write_search(tools, search);
        }
        if request.code_execution {
            tools.typed("code_interpreter", "container", &json!({"type": "auto"}));
        }
        request.mcp_servers.iter().for_each(|server| write_mcp_server(tools, server));
    });
    match &request.tool_choice {
        None => {}
        Some(ToolChoice::Auto) => body.value("tool_choice", "auto"),
        Some(ToolChoice::None) => body.value("tool_choice", "none"),
        Some(ToolChoice::Any) => body.value("tool_choice", "required"),
        Some(ToolChoice::Named(name)) => {
            body.value("tool_choice", &json!({"type": "function", "name": name}));
        }
    }
    body.option("parallel_tool_calls", &request.parallel_tool_calls);
}

fn write_mcp_server(tools: &mut Items<'_>, server: &McpServer) {
    tools.object(|tool| {
        tool.value("type", "mcp");
        tool.value("server_label", &server.name);
        tool.value("server_url", &server.url);
        tool.option("authorization", &server.authorization.as_ref().map(Secret::expose));
        tool.option("allowed_tools", &server.allowed_tools);
        // By default each call waits for the client's approval, which other dialects cannot
        // express.
        tool.value("require_approval", "never");
    });
}

fn write_search(tools: &mut Items<'_>, search: &WebSearch) {
    tools.object(|tool| {
        tool.value("type", "web_search");
        if !search.allowed_domains.is_empty() {
            tool.object("filters", |filters| {
                filters.value("allowed_domains", &search.allowed_domains);
            });
        }
        tool.option("search_context_size", &search.context_size);
        if let Some(place) = &search.place {
            tool.object("user_location", |location| {
                location.value("type", "approximate");
                place.iter().for_each(|(name, value)| location.value(name, value));
            });
        }
    });
}
