//! Reads the tools in requests for messages.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::client_tools;
use crate::feature::Feature;
use crate::members::{Place, Table, wire_object};
use crate::neutral::request::{McpServer, Request, Tool, ToolChoice, WebSearch};
use rerouter_base::secret::Secret;

const TOOL: Table = &[
    ("defer_loading", Feature::DeferredTools),
    ("allowed_callers", Feature::Hints),
    ("cache_control", Feature::CacheControl),
    ("citations", Feature::Hints),
    ("eager_input_streaming", Feature::Hints),
    ("input_examples", Feature::Hints),
    ("max_characters", Feature::Hints),
    ("max_content_tokens", Feature::Hints),
    ("max_uses", Feature::ToolUses),
];

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
    mcp_server_name: String,
    default_config: ToolsetConfig,
    configs: BTreeMap<String, ToolsetConfig>,
});
wire_object!(ToolsetConfig, TOOL, { enabled: bool, });
wire_object!(McpServerMember, &[], {
    kind: String = "type",
    name: String,
    url: String,
    authorization_token: String,
    tool_configuration: ToolConfiguration,
});
wire_object!(ToolConfiguration, &[], { enabled: bool, allowed_tools: Vec<String>, });
wire_object!(Choice, &[], {
    kind: String = "type",
    name: String,
    disable_parallel_tool_use: bool,
});

pub(super) fn read_tool(tool: ToolMember, request: &mut Request) {
    let uses = &mut request.uses;
    let kind = tool.kind.unwrap_or_default();
    let name = tool.name.unwrap_or_default();
    if matches!(kind.as_str(), "" | "custom") {
        uses.add(Feature::Tools, "", "tools");
        uses.add_if(tool.strict == Some(true), Feature::StrictTools, "tools.", "strict");
        request.tools.push(Tool {
            name,
            description: tool.description,
            parameters: tool.input_schema,
            strict: tool.strict,
            ..Tool::default()
        });
        return;
    }
    if let Some(function) = client_tools::as_function(&kind, &name) {
        uses.add(Feature::ClientTools, "tools.", kind);
        request.tools.push(function);
        return;
    }
    if kind == "mcp_toolset" {
        return read_toolset(tool.mcp_server_name, tool.default_config, tool.configs, request);
    }
    let allowed_domains = tool.allowed_domains.unwrap_or_default();
    let (allows, blocks) = (Feature::WebSearchAllowed, Feature::WebSearchBlocked);
    uses.add_if(!allowed_domains.is_empty(), allows, "tools.", "allowed_domains");
    let blocked_domains = tool.blocked_domains.unwrap_or_default();
    uses.add_if(!blocked_domains.is_empty(), blocks, "tools.", "blocked_domains");
    if kind.starts_with("web_search_") {
        let place = tool.user_location.map(Place::parts);
        uses.add_if(place.is_some(), Feature::WebSearchPlace, "tools.", "user_location");
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

pub(super) fn read_mcp_server(server: McpServerMember, request: &mut Request) {
    let uses = &mut request.uses;
    uses.add(Feature::McpServers, "", "mcp_servers");
    let tools = server.tool_configuration.unwrap_or_default();
    let is_off = tools.enabled == Some(false);
    request.mcp_servers.push(McpServer {
        name: server.name.unwrap_or_default(),
        url: server.url.unwrap_or_default(),
        authorization: server.authorization_token.map(Secret::new),
        allowed_tools: if is_off { Some(Vec::new()) } else { tools.allowed_tools },
    });
}

/// Reads which tools of an MCP server the model may call.
fn read_toolset(
    server: Option<String>,
    default: Option<ToolsetConfig>,
    configs: Option<BTreeMap<String, ToolsetConfig>>,
    request: &mut Request,
) {
    const PATH: &str = "tools.configs.";
    let uses = &mut request.uses;
    let (default, configs) = (default.unwrap_or_default(), configs.unwrap_or_default());
    let all = default.enabled != Some(false);
    let mut allowed = Vec::new();
    for (name, config) in configs {
        match config.enabled.unwrap_or(all) {
            true => allowed.push(name),
            false if all => uses.add(Feature::McpTerms, PATH, "enabled"),
            false => {}
        }
    }
    let mut servers = request.mcp_servers.iter_mut();
    match servers.find(|known| Some(&known.name) == server.as_ref()) {
        Some(server) if !all => server.allowed_tools = Some(allowed),
        Some(_) => {}
        None => uses.add(Feature::McpTerms, "tools.", "mcp_server_name"),
    }
}

pub(super) fn read_choice(choice: Choice, request: &mut Request) {
    let uses = &mut request.uses;
    uses.add(Feature::ToolChoice, "", "tool_choice");
    let parallel = choice.disable_parallel_tool_use.map(|disabled| !disabled);
    let (is_off, name) = (parallel == Some(false), "disable_parallel_tool_use");
    uses.add_if(is_off, Feature::ParallelCalls, "tool_choice.", name);
    request.parallel_tool_calls = parallel;
    let of_provider = request.web_search.is_some() || request.web_fetch || request.code_execution;
    let is_function = |name: &String| request.tools.iter().any(|tool| tool.name == *name);
    request.tool_choice = Some(match (choice.kind.as_deref(), choice.name) {
        // The provider's own tools have other names in other dialects. Beside functions, none of
        // them can be chosen there.
        (Some("tool"), Some(name)) if of_provider && !is_function(&name) => {
            let has_functions = !request.tools.is_empty();
            uses.add_if(has_functions, Feature::ServerTools, "tool_choice.", "name");
            ToolChoice::Any
        }
        (Some("tool"), Some(name)) => ToolChoice::Named(name),
        (Some("any"), _) => ToolChoice::Any,
        (Some("none"), _) => ToolChoice::None,
        _ => ToolChoice::Auto,
    });
}
