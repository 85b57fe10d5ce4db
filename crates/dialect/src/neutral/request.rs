//! A request in the neutral form.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Deserialize;
use serde_json::Number;
use serde_json::value::RawValue;

use super::answer::NamespacedTool;
use super::part::{Part, Source, ToolResult};
use super::target_terms::TargetTerms;
use crate::feature::Feature;
use rerouter_base::secret::Secret;

/// OpenAI's limit on the length of `user`, in bytes.
const USER_NAME_BYTES: usize = 64;

#[derive(Clone, Debug, Default)]
pub struct Request {
    pub model: String,
    pub stream: bool,
    /// Texts of the operator or developer before the first turn.
    pub system: Vec<String>,
    pub turns: Vec<Turn>,
    /// Anthropic's `cache_control` of texts and parts, as received.
    pub(crate) cache_marks: Vec<(CachePlace, Box<RawValue>)>,
    pub tools: Vec<Tool>,
    pub web_search: Option<WebSearch>,
    pub web_fetch: bool,
    pub code_execution: bool,
    pub mcp_servers: Vec<McpServer>,
    pub tool_choice: Option<ToolChoice>,
    pub parallel_tool_calls: Option<bool>,
    pub max_tokens: Option<Number>,
    pub stop: Vec<String>,
    pub sampling: Sampling,
    pub output: Option<OutputFormat>,
    pub verbosity: Option<String>,
    pub reasoning: Option<Reasoning>,
    /// The client's name for the end user.
    pub user: Option<String>,
    pub uses: UsedFeatures,
    pub target: TargetTerms,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The operator or developer, between turns.
    System,
    User,
    Assistant,
}

/// What has a mark of the cache: a text of the system by its index, or a part by the indexes of
/// its turn and itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachePlace {
    System(usize),
    Part(usize, usize),
}

/// Consecutive parts of one speaker. Tool results belong to a user turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    pub speaker: Speaker,
    pub content: Vec<Part>,
}

/// A tool that the client runs.
#[derive(Clone, Debug, Default)]
pub struct Tool {
    pub name: String,
    pub description: Option<String>,
    /// JSON Schema of the arguments, as received.
    pub parameters: Option<Box<RawValue>>,
    pub strict: Option<bool>,
    /// Whether the tool takes a text instead of arguments. In other dialects the text is the
    /// argument `input`.
    pub free_text: bool,
    /// The namespace of the tool and its name there. `name` has both.
    pub namespaced: Option<[String; 2]>,
    /// Anthropic's `cache_control`, as received.
    pub(crate) cache_control: Option<Box<RawValue>>,
}

impl Tool {
    fn is_long(&self) -> bool {
        self.name.chars().count() > TOOL_NAME
    }

    /// The schema of the arguments with `properties`, without which OpenAI refuses an object.
    pub(crate) fn schema_with_properties(&self) -> Option<Cow<'_, RawValue>> {
        #[derive(Deserialize)]
        struct Top<'a> {
            #[serde(rename = "type", default)]
            kind: Cow<'a, str>,
            #[serde(borrow)]
            properties: Option<&'a RawValue>,
        }
        let schema = self.parameters.as_deref()?;
        let top = serde_json::from_str::<Top<'_>>(schema.get());
        let lacks = top.is_ok_and(|top| top.kind == "object" && top.properties.is_none());
        let rest = schema.get().strip_prefix('{').filter(|_| lacks);
        let made = rest.map(|rest| RawValue::from_string(format!("{{\"properties\":{{}},{rest}")));
        Some(made.and_then(Result::ok).map_or(Cow::Borrowed(schema), Cow::Owned))
    }
}

/// Limit on the length of a tool's name in most dialects.
const TOOL_NAME: usize = 64;

/// The name, in dialects without namespaces, of a tool in a namespace. Its end counts most.
pub(crate) fn full_name(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        return name.to_owned();
    }
    short_name(&format!("{namespace}__{name}"))
}

/// The end of a name that is too long for most dialects. Anthropic takes names of 128 characters.
fn short_name(name: &str) -> String {
    let cut = name.chars().count().saturating_sub(TOOL_NAME);
    let mut end = name.chars().skip(cut);
    // Gemini takes only letters and `_` in front.
    let first = end.next().map(|first| match cut {
        1.. if !first.is_ascii_alphabetic() => '_',
        _ => first,
    });
    first.into_iter().chain(end).collect()
}

impl Request {
    /// The request for a dialect that takes no long names of tools; `None` if it has none, or if
    /// two tools would get one name: then the provider refuses the long one.
    pub(crate) fn with_short_names(&self) -> Option<Request> {
        if !self.tools.iter().any(Tool::is_long) {
            return None;
        }
        let names: HashSet<String> = self.tools.iter().map(|tool| short_name(&tool.name)).collect();
        if names.len() < self.tools.len() {
            return None;
        }
        let mut short = self.clone();
        short.tools.iter_mut().for_each(|tool| tool.name = short_name(&tool.name));
        if let Some(ToolChoice::Named(name)) = &mut short.tool_choice {
            *name = short_name(name);
        }
        for part in short.turns.iter_mut().flat_map(|turn| &mut turn.content) {
            if let Part::ToolCall(call) | Part::TextCall(call) = part {
                call.name = short_name(&call.name);
            }
        }
        Some(short)
    }

    /// The tools whose names the answer has in another form, with their namespaces and names; the
    /// namespace is empty if the name was only too long.
    pub fn renamed_tools(&self) -> Vec<NamespacedTool> {
        let renamed = self.tools.iter().filter_map(|tool| {
            if let Some(namespaced) = &tool.namespaced {
                return Some((tool.name.clone(), namespaced.clone()));
            }
            let short = tool.is_long().then(|| short_name(&tool.name))?;
            let is_free = self.tools.iter().all(|other| other.name != short);
            is_free.then(|| (short, [String::new(), tool.name.clone()]))
        });
        renamed.collect()
    }
}

/// A web search that the provider runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebSearch {
    pub allowed_domains: Vec<String>,
    pub blocked_domains: Vec<String>,
    /// Of `city`, `country`, `region` and `timezone` those that are known.
    pub place: Option<Vec<(&'static str, String)>>,
    /// `low`, `medium` or `high`.
    pub context_size: Option<String>,
}

/// An MCP server that the provider calls without asking for approval.
#[derive(Clone, Debug)]
pub struct McpServer {
    pub name: String,
    pub url: String,
    pub authorization: Option<Secret>,
    /// The tools that may be called; `None` means all.
    pub allowed_tools: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    Auto,
    None,
    /// The model must call a tool.
    Any,
    Named(String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    pub temperature: Option<Number>,
    pub top_p: Option<Number>,
    pub top_k: Option<Number>,
    pub presence_penalty: Option<Number>,
    pub frequency_penalty: Option<Number>,
    pub seed: Option<Number>,
}

#[derive(Clone, Debug)]
pub enum OutputFormat {
    /// A JSON object of any shape.
    Json,
    Schema {
        name: Option<String>,
        description: Option<String>,
        schema: Box<RawValue>,
        strict: Option<bool>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Reasoning {
    pub depth: Depth,
    /// Whether the client wants to read the thinking; `None` if it does not say.
    pub shown: Option<bool>,
}

/// How much the model should think.
#[derive(Clone, Debug, PartialEq)]
pub enum Depth {
    /// The model decides how much.
    Free,
    /// `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`.
    Effort(String),
    /// A limit in tokens.
    Budget(u64),
}

impl Depth {
    pub(crate) fn none() -> Self {
        Depth::Effort("none".to_owned())
    }

    /// The matching OpenAI effort, by Google's budgets for each effort; `None` for `Free`.
    pub fn effort(&self) -> Option<&str> {
        match self {
            Depth::Free => None,
            Depth::Effort(effort) => Some(effort),
            Depth::Budget(0) => Some("none"),
            Depth::Budget(..4096) => Some("low"),
            Depth::Budget(..16_384) => Some("medium"),
            Depth::Budget(_) => Some("high"),
        }
    }

    /// The matching limit in tokens, as in Google's own OpenAI compatibility; `None` for `Free`.
    pub(crate) fn budget(&self) -> Option<u64> {
        match self {
            Depth::Free => None,
            Depth::Budget(budget) => Some(*budget),
            Depth::Effort(effort) => Some(match effort.as_str() {
                "none" => 0,
                "minimal" | "low" => 1024,
                "medium" => 8192,
                _ => 24_576,
            }),
        }
    }
}

/// Limit on noted members of a feature. After that one more entry, `more`, is added.
const NAMED: usize = 32;

/// The features that a request uses, each with the members of the client's dialect.
#[derive(Clone, Debug, Default)]
pub struct UsedFeatures {
    seen: Vec<Use>,
}

/// A feature, and the member that asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Use {
    pub feature: Feature,
    /// The path before the name, such as `messages.content.`.
    path: Cow<'static, str>,
    name: Cow<'static, str>,
}

impl Use {
    /// The member's path, without indexes of lists.
    pub fn member(&self) -> String {
        format!("{}{}", self.path, self.name)
    }
}

impl UsedFeatures {
    pub fn add(
        &mut self,
        feature: Feature,
        path: impl Into<Cow<'static, str>>,
        name: impl Into<Cow<'static, str>>,
    ) {
        let (path, name) = (path.into(), name.into());
        let new = Use { feature, path, name };
        match self.seen.iter().filter(|seen| seen.feature == feature).count() {
            ..=NAMED if self.seen.contains(&new) => {}
            ..NAMED => self.seen.push(new),
            NAMED => self.seen.push(Use { feature, path: "".into(), name: "more".into() }),
            _ => {}
        }
    }

    pub(crate) fn add_if(
        &mut self,
        is_asked: bool,
        feature: Feature,
        path: &'static str,
        name: &'static str,
    ) {
        if is_asked {
            self.add(feature, path, name);
        }
    }

    fn replace(&mut self, feature: Feature, other: Feature) {
        let same = self.seen.iter_mut().filter(|seen| seen.feature == feature);
        same.for_each(|seen| seen.feature = other);
    }

    pub fn iter(&self) -> impl Iterator<Item = &Use> {
        self.seen.iter()
    }

    pub(crate) fn add_file(&mut self, source: &Source, path: &'static str, name: &'static str) {
        let feature = match source {
            Source::Url(_) => Feature::FileUrls,
            Source::Inline { media_type, .. } if media_type != "application/pdf" => {
                Feature::OtherFiles
            }
            _ => Feature::Files,
        };
        self.add(feature, path, name);
    }
}

impl Request {
    /// Adds parts to the last turn, if `joins` and the speaker is the same; otherwise as a new
    /// turn.
    pub fn say(&mut self, speaker: Speaker, mut content: Vec<Part>, joins: bool) {
        match self.turns.last_mut() {
            Some(last) if joins && last.speaker == speaker => last.content.append(&mut content),
            _ => self.turns.push(Turn { speaker, content }),
        }
    }

    /// Adds text of the operator or developer: to `system`, or as a turn if there are turns
    /// already.
    pub(crate) fn instruct(&mut self, texts: Vec<String>, path: &'static str, name: &'static str) {
        if self.turns.is_empty() {
            self.system.extend(texts.into_iter().filter(|text| !text.is_empty()));
            self.uses.add(Feature::SystemText, path, name);
        } else if !texts.is_empty() {
            self.uses.add(Feature::LaterSystemText, path, name);
            self.say(Speaker::System, texts.into_iter().map(Part::Text).collect(), false);
        }
    }

    pub(crate) fn marked_parts(&self) -> Vec<(&Part, &RawValue)> {
        let marked = self.cache_marks.iter().filter_map(|(place, mark)| match place {
            CachePlace::Part(turn, part) => {
                Some((self.turns.get(*turn)?.content.get(*part)?, &**mark))
            }
            CachePlace::System(_) => None,
        });
        marked.collect()
    }

    /// Notes what only the whole request shows. `prefills` tells that the answer goes on with the
    /// text of a last turn of the assistant.
    pub(crate) fn conclude(&mut self, prefills: bool) {
        let last = self.turns.last().filter(|turn| turn.speaker == Speaker::Assistant);
        let ends_with_text = last.and_then(|turn| turn.content.last()?.text()).is_some();
        self.uses.add_if(prefills && ends_with_text, Feature::Prefill, "", "messages");
        // Other dialects need a turn.
        if self.turns.is_empty() && !self.system.is_empty() {
            let texts = self.system.drain(..).map(Part::Text).collect();
            self.say(Speaker::User, texts, false);
            for (place, _) in &mut self.cache_marks {
                if let CachePlace::System(at) = *place {
                    *place = CachePlace::Part(0, at);
                }
            }
        }
        if self.web_search.is_some() && !self.tools.is_empty() {
            self.uses.replace(Feature::WebSearch, Feature::OfferedSearch);
        }
    }

    /// Consecutive results share a turn.
    pub(crate) fn answer_call(&mut self, result: ToolResult) {
        self.uses.add(Feature::ToolResults, "", "tool results");
        let last = self.turns.last().and_then(|turn| turn.content.last());
        let joins = matches!(last, Some(Part::ToolResult(_)));
        self.say(Speaker::User, vec![Part::ToolResult(result)], joins);
    }

    /// All texts of the operator or developer, including those between turns.
    pub(crate) fn system_texts(&self) -> impl Iterator<Item = &str> {
        let later = self.turns.iter().filter(|turn| turn.speaker == Speaker::System);
        let later = later.flat_map(|turn| &turn.content).filter_map(Part::text);
        self.system.iter().map(String::as_str).chain(later)
    }

    /// Alternating turns of user and assistant, with the parts that the dialect can write.
    pub(crate) fn alternating(&self, takes: fn(&Part) -> bool) -> Vec<(Speaker, Vec<&Part>)> {
        let mut turns: Vec<(Speaker, Vec<&Part>)> = Vec::new();
        for turn in self.turns.iter().filter(|turn| turn.speaker != Speaker::System) {
            let parts = turn.content.iter().filter(|part| takes(part));
            match turns.last_mut() {
                Some((speaker, last)) if *speaker == turn.speaker => last.extend(parts),
                _ => {
                    let parts: Vec<&Part> = parts.collect();
                    if !parts.is_empty() {
                        turns.push((turn.speaker, parts));
                    }
                }
            }
        }
        turns
    }

    /// Whether the model may call tools of the client or provider.
    pub(crate) fn has_tools(&self) -> bool {
        let of_provider = self.web_search.is_some() || self.web_fetch || self.code_execution;
        let of_provider = of_provider || !self.mcp_servers.is_empty();
        of_provider || !self.tools.is_empty()
    }

    pub(crate) fn forces_tool(&self) -> bool {
        let is_forced = matches!(self.tool_choice, Some(ToolChoice::Any | ToolChoice::Named(_)));
        is_forced && self.has_tools()
    }

    /// How much the target's model is asked to think. Not as the client asks, if the model does not
    /// take that. `None` if the client does not ask, or the model does not reason.
    pub(crate) fn depth(&self) -> Option<Cow<'_, Depth>> {
        let (asked, terms) = (&self.reasoning.as_ref()?.depth, &self.target.model);
        match asked.effort() {
            None => Some(Cow::Borrowed(asked)).filter(|_| !terms.never_reasons()),
            Some(effort) => terms.fit(effort).map(|fit| match fit == effort {
                true => Cow::Borrowed(asked),
                false => Cow::Owned(Depth::Effort(fit.to_owned())),
            }),
        }
    }

    pub(crate) fn reasoning_members(&self) -> impl Iterator<Item = String> {
        let asked = self.uses.iter().filter(|used| used.feature == Feature::Reasoning);
        asked.map(Use::member)
    }

    /// The end user, unless the name is longer than OpenAI's API accepts.
    pub(crate) fn short_user(&self) -> Option<&str> {
        self.user.as_deref().filter(|user| user.len() <= USER_NAME_BYTES)
    }

    /// Keeps the tools and the namespaces of these names only.
    pub fn allow(&mut self, names: &[String]) {
        let names: HashSet<&str> = names.iter().map(String::as_str).collect();
        self.tools.retain(|tool| {
            let namespace = tool.namespaced.as_ref().map_or("", |[namespace, _]| namespace);
            names.contains(tool.name.as_str()) || names.contains(namespace)
        });
    }
}
