//! Reads the tools in requests for responses.

use std::collections::HashMap;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::feature::Feature;
use crate::members::{Place, Table, WordOr, read, wire_object};
use crate::neutral::json_text::JsonPresence;
use crate::neutral::request::{McpServer, Request, Tool, ToolChoice, WebSearch, full_name};
use crate::neutral::text_tool;
use rerouter_base::secret::Secret;

const TOOL: Table = &[
    ("allowed_callers", Feature::Hints),
    ("defer_loading", Feature::DeferredTools),
    ("external_web_access", Feature::Hints),
    ("output_schema", Feature::Hints),
    ("server_description", Feature::Hints),
];
const CONTAINER: Table = &[("file_ids", Feature::ProviderFiles), ("memory_limit", Feature::Hints)];
const FILTERS: Table = &[("blocked_domains", Feature::WebSearchBlocked)];

wire_object!(ToolMember, TOOL, {
    kind: String = "type",
    name: String,
    description: String,
    parameters: Box<RawValue>,
    strict: bool,
    filters: Filters,
    user_location: Place,
    search_context_size: String,
    container: WordOr<Container>,
    format: TextFormat,
    server_label: String,
    server_url: String,
    authorization: String,
    allowed_tools: Box<RawValue>,
    require_approval: WordOr<IgnoredAny>,
    connector_id: JsonPresence,
    tunnel_id: JsonPresence,
    headers: JsonPresence,
    tools: Vec<ToolMember>,
});
wire_object!(Container, CONTAINER, { kind: String = "type", });
// The grammar's text shows its syntax.
wire_object!(TextFormat, &[], { kind: String = "type", syntax: IgnoredAny, definition: String, });
wire_object!(ToolFilter, &[], { tool_names: Vec<String>, read_only: bool, });
wire_object!(Filters, FILTERS, { allowed_domains: Vec<String>, });
wire_object!(Choice, &[], {
    kind: String = "type",
    name: String,
    namespace: String,
    mode: String,
    tools: Vec<Choice>,
});

impl Choice {
    /// The name that the tool has in other dialects.
    fn tool_name(&self) -> Option<String> {
        Some(full_name(self.namespace.as_deref().unwrap_or_default(), self.name.as_deref()?))
    }
}

pub(super) fn read_tool(mut tool: ToolMember, request: &mut Request) {
    let uses = &mut request.uses;
    let kind = tool.kind.take().unwrap_or_default();
    match kind.as_str() {
        "function" => {
            uses.add(Feature::Tools, "", "tools");
            uses.add_if(tool.strict == Some(true), Feature::StrictTools, "tools.", "strict");
            request.tools.push(Tool {
                name: tool.name.unwrap_or_default(),
                description: tool.description,
                parameters: tool.parameters,
                strict: tool.strict,
                ..Tool::default()
            });
        }
        "code_interpreter" => {
            if let Some(WordOr::Word(_)) = tool.container {
                uses.add(Feature::StoredState, "tools.", "container");
            }
            uses.add(Feature::CodeExecution, "tools.", kind);
            request.code_execution = true;
        }
        "custom" => {
            uses.add(Feature::CustomTools, "tools.", kind);
            let format = tool.format.unwrap_or_default();
            let name = tool.name.unwrap_or_default();
            request.tools.push(text_tool::function(name, tool.description, format.definition));
        }
        "namespace" => {
            uses.add(Feature::Namespaces, "tools.", kind);
            read_namespace(tool, request);
        }
        "mcp" => read_mcp_server(tool, request),
        "tool_search" => uses.add(Feature::DeferredTools, "tools.", kind),
        _ if kind.starts_with("web_search") => {
            uses.add(Feature::WebSearch, "tools.", kind);
            let filters = tool.filters.unwrap_or_default();
            let allowed_domains = filters.allowed_domains.unwrap_or_default();
            let place = tool.user_location.map(Place::parts);
            let context_size = tool.search_context_size;
            let (filters, is_asked) = ("tools.filters.", !allowed_domains.is_empty());
            uses.add_if(is_asked, Feature::WebSearchAllowed, filters, "allowed_domains");
            uses.add_if(place.is_some(), Feature::WebSearchPlace, "tools.", "user_location");
            let is_sized = context_size.is_some();
            uses.add_if(is_sized, Feature::WebSearchSize, "tools.", "search_context_size");
            let blocked_domains = Vec::new();
            request.web_search =
                Some(WebSearch { allowed_domains, blocked_domains, place, context_size });
        }
        _ => uses.add(Feature::ServerTools, "tools.", kind),
    }
}

/// Reads the tools in a namespace. Its description goes before that of its first tool.
fn read_namespace(namespace: ToolMember, request: &mut Request) {
    let first = request.tools.len();
    for tool in namespace.tools.unwrap_or_default() {
        read_tool(tool, request);
    }
    let name = namespace.name.unwrap_or_default();
    let mut about = namespace.description.map(|says| format!("{name}: {says}"));
    for tool in request.tools.iter_mut().skip(first) {
        let own = std::mem::take(&mut tool.name);
        tool.name = full_name(&name, &own);
        tool.namespaced = Some([name.clone(), own]);
        let says: Vec<String> = about.take().into_iter().chain(tool.description.take()).collect();
        tool.description = (!says.is_empty()).then(|| says.join("\n\n"));
    }
}

/// Notes different tools that have one name with their namespaces.
pub(super) fn note_same_names(request: &mut Request) {
    let mut known = HashMap::new();
    for tool in &request.tools {
        let before = known.insert(&tool.name, &tool.namespaced);
        if before.is_some_and(|namespaced| *namespaced != tool.namespaced) {
            request.uses.add(Feature::SameNames, "tools.", tool.name.clone());
        }
    }
}

fn read_mcp_server(tool: ToolMember, request: &mut Request) {
    let uses = &mut request.uses;
    // The default requires the client's approval of each call.
    let runs = matches!(&tool.require_approval, Some(WordOr::Word(word)) if word == "never");
    let allowed_tools = tool.allowed_tools.map_or(Ok(None), |written| read_allowed(&written));
    let is_there = |member: Option<JsonPresence>| member.is_some_and(|member| member.0);
    for (is_asked, name) in [
        (!runs, "require_approval"),
        (allowed_tools.is_err(), "allowed_tools"),
        (is_there(tool.connector_id), "connector_id"),
        (is_there(tool.tunnel_id), "tunnel_id"),
        (is_there(tool.headers), "headers"),
    ] {
        uses.add_if(is_asked, Feature::McpTerms, "tools.", name);
    }
    uses.add(Feature::McpServers, "tools.", "mcp");
    request.mcp_servers.push(McpServer {
        name: tool.server_label.unwrap_or_default(),
        url: tool.server_url.unwrap_or_default(),
        authorization: tool.authorization.map(Secret::new),
        allowed_tools: allowed_tools.unwrap_or_default(),
    });
}

/// The names of the tools that may be called, from a list or an object with a list. Any other rule
/// is an error.
fn read_allowed(written: &RawValue) -> Result<Option<Vec<String>>, ()> {
    if let Ok(names) = serde_json::from_str(written.get()) {
        return Ok(Some(names));
    }
    match read::<ToolFilter>(written.get().as_bytes()) {
        Ok((filter, unknown)) if filter.read_only.is_none() && unknown.iter().next().is_none() => {
            Ok(filter.tool_names)
        }
        _ => Err(()),
    }
}

pub(super) fn read_choice(choice: WordOr<Choice>, request: &mut Request) {
    let of_word = |word: &str| match word {
        "none" => ToolChoice::None,
        "required" => ToolChoice::Any,
        _ => ToolChoice::Auto,
    };
    let choice = match choice {
        WordOr::Word(word) => of_word(&word),
        WordOr::Object(choice) => match (choice.kind.as_deref(), choice.tool_name()) {
            (Some("function" | "custom"), Some(name)) => ToolChoice::Named(name),
            (Some("allowed_tools"), _) => {
                request.uses.add(Feature::AllowedTools, "", "tool_choice");
                let tools = choice.tools.unwrap_or_default();
                let names: Vec<String> = tools.iter().filter_map(Choice::tool_name).collect();
                request.allow(&names);
                of_word(&choice.mode.unwrap_or_default())
            }
            _ => {
                request.uses.add(Feature::ServerTools, "", "tool_choice");
                return;
            }
        },
    };
    request.uses.add(Feature::ToolChoice, "", "tool_choice");
    request.tool_choice = Some(choice);
}
