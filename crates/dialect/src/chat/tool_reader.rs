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
    parameters: Box<RawValue>,
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
    uses.add_all("tools.", tool.others);
    let kind = tool.kind.unwrap_or_default();
    let mut cache_control = tool.cache_control;
    if let Some(function) = &tool.function {
        cache_control = function.cache_control.clone().or(cache_control);
    }
    uses.add_if(cache_control.is_some(), Feature::CacheControl, "tools.", "cache_control");
    match (kind.as_str(), tool.function) {
        ("function" | "", Some(function)) => {
            uses.add_all("tools.function.", function.others);
            uses.add(Feature::Tools, "", "tools");
            if function.strict.is_some() {
                uses.add(Feature::StrictTools, "tools.function.", "strict");
            }
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
            uses.add_all("tools.custom.", custom.others);
            uses.add(Feature::CustomTools, "tools.", "custom");
            let format = custom.format.unwrap_or_default();
            uses.add_all("tools.custom.format.", format.others);
            let grammar = format.grammar.unwrap_or_default();
            uses.add_all("tools.custom.format.grammar.", grammar.others);
            let name = custom.name.unwrap_or_default();
            let tool = text_tool::function(name, custom.description, grammar.definition);
            request.tools.push(Tool { cache_control, ..tool });
        }
        ("openrouter:web_search", _) => {
            uses.add(Feature::WebSearch, "tools.", kind);
            let written = tool.parameters.as_deref().map_or("{}", RawValue::get);
            request.web_search = Some(read_parameters(written, uses));
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
        WordOr::Object(mut choice) => match choice.allowed_tools.take() {
            Some(allowed) => {
                uses.add_all("tool_choice.", choice.others);
                uses.add_all("tool_choice.allowed_tools.", allowed.others);
                uses.add(Feature::AllowedTools, "tool_choice.", "allowed_tools");
                let tools = allowed.tools.unwrap_or_default().into_iter();
                let names: Vec<String> = tools.filter_map(|tool| chosen(tool, uses)).collect();
                request.allow(&names);
                of_word(&allowed.mode.unwrap_or_default())
            }
            None => match chosen(choice, uses) {
                Some(name) => ToolChoice::Named(name),
                None => return uses.add(Feature::ServerTools, "", "tool_choice"),
            },
        },
    };
    request.uses.add(Feature::ToolChoice, "", "tool_choice");
    request.tool_choice = Some(choice);
}

/// The name of a chosen tool.
fn chosen(choice: Choice, uses: &mut UsedFeatures) -> Option<String> {
    uses.add_all("tool_choice.", choice.others);
    let tool = choice.function.or(choice.custom)?;
    uses.add_all("tool_choice.function.", tool.others);
    tool.name
}

fn read_parameters(written: &str, uses: &mut UsedFeatures) -> WebSearch {
    const PATH: &str = "tools.parameters.";
    let Ok(asked) = serde_json::from_str::<SearchParameters>(written) else {
        uses.add(Feature::ServerTools, "tools.", "parameters");
        return WebSearch::default();
    };
    uses.add_all(PATH, asked.others);
    let search = WebSearch {
        allowed_domains: asked.allowed_domains.unwrap_or_default(),
        blocked_domains: asked.excluded_domains.unwrap_or_default(),
        place: asked
            .user_location
            .map(|place| uses.read_place(place, "tools.parameters.user_location.")),
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
    uses.add_all("web_search_options.", options.others);
    uses.add(Feature::WebSearch, "", "web_search_options");
    if options.search_context_size.is_some() {
        uses.add(Feature::WebSearchSize, "web_search_options.", "search_context_size");
    }
    let place = options.user_location.and_then(|location| {
        uses.add_all("web_search_options.user_location.", location.others);
        location.approximate
    });
    uses.add_if(place.is_some(), Feature::WebSearchPlace, "web_search_options.", "user_location");
    WebSearch {
        place: place
            .map(|place| uses.read_place(place, "web_search_options.user_location.approximate.")),
        context_size: options.search_context_size,
        ..WebSearch::default()
    }
}
