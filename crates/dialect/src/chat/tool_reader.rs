//! Reads the tools in requests for chat completions.

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::feature::Feature;
use crate::members::{Place, Table, WordOr, wire_object};
use crate::neutral::request::{Request, Tool, ToolChoice, UsedFeatures, WebSearch};
use crate::neutral::text_tool;

const TOOL: Table =
    &[("eager_input_streaming", Feature::Hints), ("defer_loading", Feature::DeferredTools)];
const SEARCH: Table = &[
    ("engine", Feature::Hints),
    ("max_results", Feature::Hints),
    ("max_total_results", Feature::Hints),
    ("max_uses", Feature::ToolUses),
];

wire_object!(ToolMember, TOOL, {
    kind: String = "type",
    function: Function,
    custom: TextTool,
    parameters: SearchParameters,
    cache_control: Box<RawValue>,
});
wire_object!(TextTool, TOOL, { name: String, description: String, format: TextFormat, });
wire_object!(TextFormat, &[], { kind: String = "type", grammar: Grammar, });
// The grammar's text shows its syntax.
wire_object!(Grammar, &[], { syntax: IgnoredAny, definition: String, });
// Options of OpenRouter's web search.
wire_object!(SearchParameters, SEARCH, {
    search_context_size: String,
    allowed_domains: Vec<String>,
    excluded_domains: Vec<String>,
    user_location: Place,
});
wire_object!(Function, TOOL, {
    name: String,
    description: String,
    parameters: Box<RawValue>,
    strict: bool,
    cache_control: Box<RawValue>,
});
wire_object!(Choice, TOOL, {
    kind: String = "type",
    function: Named,
    allowed_tools: Allowed,
    custom: Named,
});
wire_object!(Named, TOOL, { name: String, });
wire_object!(Allowed, TOOL, { mode: String, tools: Vec<Choice>, });
wire_object!(SearchOptions, &[], { search_context_size: String, user_location: Location, });
wire_object!(Location, &[], { kind: String = "type", approximate: Place, });

pub(super) fn read_tool(tool: ToolMember, request: &mut Request) {
    let uses = &mut request.uses;
    let kind = tool.kind.unwrap_or_default();
    let mut cache_control = tool.cache_control;
    if let Some(function) = &tool.function {
        cache_control = function.cache_control.clone().or(cache_control);
    }
    uses.add_if(cache_control.is_some(), Feature::CacheControl, "tools.", "cache_control");
    match (kind.as_str(), tool.function) {
        ("function" | "", Some(function)) => {
            uses.add(Feature::Tools, "", "tools");
            let is_strict = function.strict == Some(true);
            uses.add_if(is_strict, Feature::StrictTools, "tools.function.", "strict");
            request.tools.push(Tool {
                name: function.name.unwrap_or_default(),
                description: function.description,
                parameters: function.parameters,
                strict: function.strict,
                cache_control,
                ..Tool::default()
            });
        }
        ("custom", _) => {
            let custom = tool.custom.unwrap_or_default();
            uses.add(Feature::CustomTools, "tools.", "custom");
            let format = custom.format.unwrap_or_default();
            let grammar = format.grammar.unwrap_or_default();
            let name = custom.name.unwrap_or_default();
            let tool = text_tool::function(name, custom.description, grammar.definition);
            request.tools.push(Tool { cache_control, ..tool });
        }
        ("openrouter:web_search", _) => {
            uses.add(Feature::WebSearch, "tools.", kind);
            request.web_search = Some(read_parameters(tool.parameters.unwrap_or_default(), uses));
        }
        _ => uses.add(Feature::ServerTools, "tools.", kind),
    }
}

pub(super) fn read_choice(choice: WordOr<Choice>, request: &mut Request) {
    let uses = &mut request.uses;
    let of_word = |word: &str| match word {
        "none" => ToolChoice::None,
        "required" | "any" => ToolChoice::Any,
        _ => ToolChoice::Auto,
    };
    let choice = match choice {
        WordOr::Word(word) => of_word(&word),
        WordOr::Object(Choice { allowed_tools: Some(allowed), .. }) => {
            uses.add(Feature::AllowedTools, "tool_choice.", "allowed_tools");
            let tools = allowed.tools.unwrap_or_default().into_iter();
            let named = tools.filter_map(|tool| tool.function.or(tool.custom)?.name);
            let names: Vec<String> = named.collect();
            request.allow(&names);
            of_word(&allowed.mode.unwrap_or_default())
        }
        WordOr::Object(Choice { function, custom, .. }) => {
            let Some(tool) = function.or(custom) else {
                uses.add(Feature::ServerTools, "", "tool_choice");
                return;
            };
            ToolChoice::Named(tool.name.unwrap_or_default())
        }
    };
    request.uses.add(Feature::ToolChoice, "", "tool_choice");
    request.tool_choice = Some(choice);
}

fn read_parameters(asked: SearchParameters, uses: &mut UsedFeatures) -> WebSearch {
    const PATH: &str = "tools.parameters.";
    let search = WebSearch {
        allowed_domains: asked.allowed_domains.unwrap_or_default(),
        blocked_domains: asked.excluded_domains.unwrap_or_default(),
        place: asked.user_location.map(Place::parts),
        context_size: asked.search_context_size,
    };
    for (is_asked, feature, name) in [
        (!search.allowed_domains.is_empty(), Feature::WebSearchAllowed, "allowed_domains"),
        (!search.blocked_domains.is_empty(), Feature::WebSearchBlocked, "excluded_domains"),
        (search.place.is_some(), Feature::WebSearchPlace, "user_location"),
        (search.context_size.is_some(), Feature::WebSearchSize, "search_context_size"),
    ] {
        uses.add_if(is_asked, feature, PATH, name);
    }
    search
}

pub(super) fn read_search(options: SearchOptions, uses: &mut UsedFeatures) -> WebSearch {
    uses.add(Feature::WebSearch, "", "web_search_options");
    if options.search_context_size.is_some() {
        uses.add(Feature::WebSearchSize, "web_search_options.", "search_context_size");
    }
    let place = options.user_location.and_then(|location| location.approximate);
    uses.add_if(place.is_some(), Feature::WebSearchPlace, "web_search_options.", "user_location");
    WebSearch {
        place: place.map(Place::parts),
        context_size: options.search_context_size,
        ..WebSearch::default()
    }
}
