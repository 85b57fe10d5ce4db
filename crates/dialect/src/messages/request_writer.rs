//! The neutral form as Anthropic's messages.

use serde_json::value::RawValue;
use serde_json::{Number, json};

use super::schema;
use crate::json_writer::{Items, Members, object};
use crate::neutral::part::{Part, Source, Thinking, ToolResult};
use crate::neutral::request::{
    CachePlace, Depth, McpServer, OutputFormat, Request, Speaker, Tool, ToolChoice, WebSearch,
};
use crate::neutral::target_terms::Effort;
use rerouter_base::secret::Secret;

/// The `max_tokens` of a translated request whose client gave no limit, as this dialect requires
/// one, for a model whose longest answer is not known. Budgets reserve this many tokens. Every
/// current model of the dialect can write so much.
pub(super) const DEFAULT_MAX_TOKENS: u64 = 8_192;
/// Anthropic's least budget of thinking, in tokens.
const LEAST_BUDGET: u64 = 1_024;
/// The budget of thinking in tokens, if the client sets no depth.
const FREE_BUDGET: u64 = 8_192;

/// Members that the request's rules forbid are left out and noted in `dropped`.
pub(crate) fn write(request: &Request, dropped: &mut Vec<String>) -> Vec<u8> {
    object(|body| {
        body.value("model", &request.model);
        match &request.max_tokens {
            Some(limit) => body.value("max_tokens", limit),
            None => body.value("max_tokens", &default_limit(request)),
        }
        write_system(body, request);
        let marks = request.marked_parts();
        body.array("messages", |messages| {
            for (speaker, parts) in request.alternating(has_block) {
                messages.object(|message| {
                    let is_user = speaker == Speaker::User;
                    message.value("role", if is_user { "user" } else { "assistant" });
                    message.array("content", |blocks| write_blocks(blocks, &parts, &marks));
                });
            }
        });
        write_tools(body, request);
        write_settings(body, request, dropped);
    })
}

fn write_system(body: &mut Members<'_>, request: &Request) {
    if !request.system_texts().any(says) {
        return;
    }
    body.array("system", |blocks| {
        for (at, text) in request.system_texts().enumerate().filter(|(_, text)| says(text)) {
            let mut marks = request.cache_marks.iter();
            let mark = marks.find(|(place, _)| *place == CachePlace::System(at));
            blocks.object(|block| {
                block.value("type", "text");
                block.text("text", text);
                block.option("cache_control", &mark.map(|(_, mark)| mark));
            });
        }
    });
}

fn default_limit(request: &Request) -> u64 {
    request.target.model.longest_answer.unwrap_or(DEFAULT_MAX_TOKENS)
}

/// Whether a text may be a block. Anthropic refuses texts without a letter.
fn says(text: &str) -> bool {
    !text.trim().is_empty()
}

fn has_block(part: &Part) -> bool {
    match part {
        Part::Text(text) | Part::Refusal(text) => says(text),
        Part::Thinking(thinking) => {
            thinking.seal.as_ref().is_some_and(|seal| seal.dialect == "messages")
        }
        Part::Audio { .. } | Part::TextCall(_) => false,
        _ => true,
    }
}

/// Tool results have to come first.
fn write_blocks(blocks: &mut Items<'_>, parts: &[&Part], marks: &[(&Part, &RawValue)]) {
    let is_result = |part: &&&Part| matches!(part, Part::ToolResult(_));
    let results = parts.iter().filter(is_result);
    for part in results.chain(parts.iter().filter(|part| !is_result(part))) {
        let mark = marks.iter().find(|(marked, _)| std::ptr::eq(*marked, *part));
        blocks.object(|block| {
            write_block(block, part);
            block.option("cache_control", &mark.map(|(_, mark)| mark));
        });
    }
}

fn write_block(block: &mut Members<'_>, part: &Part) {
    match part {
        Part::Text(text) | Part::Refusal(text) => {
            block.value("type", "text");
            block.text("text", text);
        }
        Part::Image(image) => {
            block.value("type", "image");
            write_source(block, &image.source);
        }
        Part::File(file) => {
            block.value("type", "document");
            write_source(block, &file.source);
            block.option("title", &file.name);
        }
        Part::ToolCall(call) => {
            block.value("type", "tool_use");
            block.value("id", &tool_id(&call.id));
            block.value("name", &call.name);
            block.arguments("input", &call.arguments);
        }
        Part::ToolResult(result) => write_result(block, result),
        Part::Thinking(thinking) => write_thinking(block, thinking),
        // Parts without a block are left out before.
        Part::Audio { .. } | Part::TextCall(_) => {}
    }
}

fn write_result(block: &mut Members<'_>, result: &ToolResult) {
    block.value("type", "tool_result");
    block.value("tool_use_id", &tool_id(&result.call_id));
    let parts: Vec<&Part> = result.content.iter().filter(|part| has_block(part)).collect();
    match parts.as_slice() {
        [] => {}
        [Part::Text(text)] => block.text("content", text),
        parts => block.array("content", |blocks| write_blocks(blocks, parts, &[])),
    }
    if result.is_error {
        block.value("is_error", &true);
    }
}

fn write_source(block: &mut Members<'_>, source: &Source) {
    block.object("source", |member| match source {
        Source::Url(url) => {
            member.value("type", "url");
            member.value("url", url);
        }
        Source::Inline { media_type, data } => {
            member.value("type", "base64");
            member.value("media_type", media_type);
            member.value("data", &data.0);
        }
        Source::Text(text) => {
            member.value("type", "text");
            member.value("media_type", "text/plain");
            member.value("data", text);
        }
    });
}

fn write_thinking(block: &mut Members<'_>, thinking: &Thinking) {
    let Some(seal) = &thinking.seal else { return };
    if let Some(data) = seal.text("redacted") {
        block.value("type", "redacted_thinking");
        return block.value("data", data);
    }
    block.value("type", "thinking");
    block.value("thinking", &thinking.text);
    block.option("signature", &seal.text("signature"));
}

/// Makes an id that matches `[a-zA-Z0-9_-]+`: any other byte becomes `_` and two hexadecimal
/// digits.
pub(super) fn tool_id(id: &str) -> String {
    let mut out = String::with_capacity(id.len());
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => out.push(char::from(byte)),
            _ => out.push_str(&format!("_{byte:02x}")),
        }
    }
    if out.is_empty() { "call".to_owned() } else { out }
}

/// The value of `anthropic-beta` that enables MCP servers.
pub(crate) const MCP_BETA: &str = "mcp-client-2025-11-20";

fn write_tool(tools: &mut Items<'_>, tool: &Tool) {
    tools.object(|item| {
        item.value("name", &tool.name);
        schema::write_tool(item, tool);
        item.option("cache_control", &tool.cache_control);
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
        if request.web_fetch {
            tools.typed("web_fetch_20250910", "name", "web_fetch");
        }
        if request.code_execution {
            tools.typed("code_execution_20260120", "name", "code_execution");
        }
        request.mcp_servers.iter().for_each(|server| write_toolset(tools, server));
    });
    if !request.mcp_servers.is_empty() {
        body.array("mcp_servers", |servers| {
            request.mcp_servers.iter().for_each(|server| write_mcp_server(servers, server));
        });
    }
    // Only `tool_choice` can forbid parallel calls.
    let one_by_one = request.parallel_tool_calls == Some(false);
    if request.tool_choice.is_none() && !one_by_one {
        return;
    }
    body.object("tool_choice", |choice| {
        match &request.tool_choice {
            None | Some(ToolChoice::Auto) => choice.value("type", "auto"),
            Some(ToolChoice::None) => choice.value("type", "none"),
            Some(ToolChoice::Any) => choice.value("type", "any"),
            Some(ToolChoice::Named(name)) => {
                choice.value("type", "tool");
                choice.value("name", name);
            }
        }
        if one_by_one && request.tool_choice != Some(ToolChoice::None) {
            choice.value("disable_parallel_tool_use", &true);
        }
    });
}

fn write_mcp_server(servers: &mut Items<'_>, server: &McpServer) {
    servers.object(|member| {
        member.value("type", "url");
        member.value("name", &server.name);
        member.value("url", &server.url);
        let token = server.authorization.as_ref().map(Secret::expose);
        member.option("authorization_token", &token);
    });
}

/// Writes which tools of an MCP server the model may call.
fn write_toolset(tools: &mut Items<'_>, server: &McpServer) {
    tools.object(|tool| {
        tool.value("type", "mcp_toolset");
        tool.value("mcp_server_name", &server.name);
        let Some(allowed) = &server.allowed_tools else { return };
        tool.value("default_config", &json!({"enabled": false}));
        tool.object("configs", |configs| {
            allowed.iter().for_each(|name| configs.value(name, &json!({"enabled": true})));
        });
    });
}

fn write_search(tools: &mut Items<'_>, search: &WebSearch) {
    tools.object(|tool| {
        tool.value("type", "web_search_20250305");
        tool.value("name", "web_search");
        for (name, domains) in [
            ("allowed_domains", &search.allowed_domains),
            ("blocked_domains", &search.blocked_domains),
        ] {
            if !domains.is_empty() {
                tool.value(name, domains);
            }
        }
        if let Some(place) = &search.place {
            tool.object("user_location", |location| {
                location.value("type", "approximate");
                place.iter().for_each(|(name, value)| location.value(name, value));
            });
        }
    });
}

/// How `thinking` asks for thought.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Unsaid,
    Disabled,
    Adaptive,
    /// With a limit in tokens.
    Enabled(u64),
}

/// The mode for this depth. Thinking is left out, and noted in `dropped`, if the answer has no room
/// for it, if a tool is forced, or if the thinking before tool results is not there. Anthropic
/// refuses these together.
fn mode(request: &Request, depth: Option<&Depth>, dropped: &mut Vec<String>) -> Mode {
    let Some(depth) = depth else { return Mode::Unsaid };
    if depth.effort() == Some("none") {
        return Mode::Disabled;
    }
    let terms = &request.target.model;
    let limit = request.max_tokens.as_ref().and_then(Number::as_u64);
    let limit = limit.unwrap_or(default_limit(request));
    // An effort leaves half of the limit to the text.
    let most = if matches!(depth, Depth::Budget(_)) { limit.saturating_sub(1) } else { limit / 2 };
    let budget = depth.budget().unwrap_or(FREE_BUDGET).max(LEAST_BUDGET).min(most);
    let is_adaptive = !terms.takes(Effort::Budget);
    let fits = is_adaptive || (budget >= LEAST_BUDGET && !lacks_thinking(request));
    if fits && !request.forces_tool() {
        return if is_adaptive { Mode::Adaptive } else { Mode::Enabled(budget) };
    }
    let members = request.reasoning_members().filter(|member| !dropped.contains(member));
    let members: Vec<String> = members.collect();
    dropped.extend(members);
    if terms.takes(Effort::None) { Mode::Disabled } else { Mode::Unsaid }
}

/// Whether the request answers tool calls, and what the model said since the user last asked does
/// not begin with thinking of this dialect.
fn lacks_thinking(request: &Request) -> bool {
    let turns = request.alternating(has_block);
    let answers = |(speaker, parts): &&(Speaker, Vec<&Part>)| {
        *speaker == Speaker::Assistant
            || parts.iter().any(|part| matches!(part, Part::ToolResult(_)))
    };
    let asked = turns.iter().rposition(|turn| !answers(&turn)).map_or(0, |at| at + 1);
    let first = turns.get(asked).filter(|_| turns.last().is_some_and(|last| answers(&last)));
    first.is_some_and(|(_, parts)| !matches!(parts.first(), Some(Part::Thinking(_))))
}

/// Writes `thinking`. Newer models show none of it, if they are not asked to.
fn write_mode(body: &mut Members<'_>, mode: Mode, shown: Option<bool>) {
    let (name, budget) = match mode {
        Mode::Unsaid => return,
        Mode::Disabled => return body.value("thinking", &json!({"type": "disabled"})),
        Mode::Adaptive => ("adaptive", None),
        Mode::Enabled(budget) => ("enabled", Some(budget)),
    };
    body.object("thinking", |thinking| {
        thinking.value("type", name);
        thinking.option("budget_tokens", &budget);
        if shown == Some(false) {
            thinking.value("display", "omitted");
        } else if mode == Mode::Adaptive {
            thinking.value("display", "summarized");
        }
    });
}

fn write_settings(body: &mut Members<'_>, request: &Request, dropped: &mut Vec<String>) {
    // Anthropic refuses blank sequences.
    let stop: Vec<&String> = request.stop.iter().filter(|sequence| says(sequence)).collect();
    if stop.len() < request.stop.len() {
        dropped.push("stop".to_owned());
    }
    body.option("stop_sequences", &Some(&stop).filter(|stop| !stop.is_empty()));
    let depth = request.depth();
    let mode = mode(request, depth.as_deref(), dropped);
    write_mode(body, mode, request.reasoning.as_ref().and_then(|reasoning| reasoning.shown));
    let effort = depth.as_deref().and_then(Depth::effort).filter(|_| mode == Mode::Adaptive);
    let effort = effort.map(|effort| if effort == "minimal" { "low" } else { effort });
    let schema = match &request.output {
        Some(OutputFormat::Schema { schema, .. }) => Some(schema),
        _ => None,
    };
    if effort.is_some() || schema.is_some() {
        body.object("output_config", |config| {
            config.option("effort", &effort);
            if let Some(schema) = schema {
                config.object("format", |format| {
                    format.value("type", "json_schema");
                    match schema::closed(schema) {
                        Some(closed) => format.value("schema", &closed),
                        None => format.value("schema", schema),
                    }
                });
            }
        });
    }
    let thinks = matches!(mode, Mode::Adaptive | Mode::Enabled(_));
    let is_fixed = thinks || request.target.model.sampling == Some(false);
    write_sampling(body, request, is_fixed, dropped);
    match &request.user {
        Some(user) if is_reachable(user) => dropped.push("user".to_owned()),
        Some(user) => body.object("metadata", |metadata| metadata.value("user_id", user)),
        None => {}
    }
    if request.stream {
        body.value("stream", &true);
    }
}

/// Whether the name of a user looks like an address or a phone number, which Anthropic refuses.
fn is_reachable(user: &str) -> bool {
    let is_dialled = |c: char| c.is_ascii_digit() || "+-(). ".contains(c);
    let digits = user.chars().filter(char::is_ascii_digit).count();
    user.contains('@') || (digits >= 7 && user.chars().all(is_dialled))
}

/// Writes temperature, `top_p` and `top_k`. The temperature is at most 1 in this dialect. Newer
/// models refuse `top_p` beside it. If they are fixed, as with thinking, only the defaults are
/// allowed, so all three are left out.
fn write_sampling(
    body: &mut Members<'_>,
    request: &Request,
    is_fixed: bool,
    dropped: &mut Vec<String>,
) {
    let sampling = &request.sampling;
    if let Some(temperature) = &sampling.temperature {
        let is_high = temperature.as_f64().is_some_and(|temperature| temperature > 1.0);
        let is_one = temperature.as_f64() == Some(1.0);
        if is_high || (is_fixed && !is_one) {
            dropped.push("temperature".to_owned());
        }
        if !is_fixed && is_high {
            body.value("temperature", &1);
        } else if !is_fixed {
            body.value("temperature", temperature);
        }
    }
    for (name, number) in [("top_p", &sampling.top_p), ("top_k", &sampling.top_k)] {
        let is_beside = name == "top_p" && sampling.temperature.is_some();
        match number {
            Some(_) if is_fixed || is_beside => dropped.push(name.to_owned()),
            number => body.option(name, number),
        }
    }
}
