//! Model of a provider that reads requests as leniently as any real one: the most that it could
//! bill for a body. It accepts any spelling of a name or number. If an object has a member twice,
//! it takes the more expensive one.

use rerouter::internals::dialect::Dialect;
use rerouter::internals::dialect::endpoint::Endpoint;
use rerouter::internals::dialect::request::ModelRequest;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// JSON that keeps every member of an object, even duplicates.
enum Node {
    Null,
    Truth(bool),
    Number(u64),
    Text(String),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

/// The most tokens that could be billed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens of all answers, and others at the price of answers.
    pub answers: u64,
}

/// Properties of a provider's model and its tokenizer.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Most tokens of a prompt.
    pub context: u64,
    /// Tokens of an image.
    pub image: u64,
    /// Most tokens of an answer if the client sets no limit.
    pub answer: u64,
    /// Bytes of text per token. One is the worst case.
    pub bytes_a_token: u64,
}

impl Rules {
    /// The most expensive rules for a model with this context.
    pub fn dearest(context: u64) -> Self {
        Rules { context, image: 4_784, answer: 1_024, bytes_a_token: 1 }
    }
}

/// Asserts that no provider can bill more for this body than its ceiling.
pub fn never_bills_more(endpoint: Endpoint, body: &[u8], request: &ModelRequest) {
    let rules = Rules::dearest(1_000_000);
    let Some(bill) = bill(endpoint, body, rules) else { return };
    let prompt = request.ceiling.prompt_tokens(rules.context, rules.image);
    assert!(
        bill.prompt <= prompt,
        "{} tokens of a prompt, and {prompt} are reserved: {}",
        bill.prompt,
        String::from_utf8_lossy(body)
    );
    let answers = request.ceiling.answers;
    assert!(
        bill.answers <= answers,
        "{} tokens of answers, and {answers} are reserved: {}",
        bill.answers,
        String::from_utf8_lossy(body)
    );
}

/// Names under which servers take the limit of an answer.
const LIMITS: [&str; 7] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "max_length",
    "num_predict",
    "n_predict",
];
/// Names of the number of answers.
const CHOICES: [&str; 3] = ["n", "candidate_count", "num_return_sequences"];
/// Members that refer to content outside the request, or add some.
const ELSEWHERE: [&str; 10] = [
    "previous_response_id",
    "conversation",
    "cached_content",
    "mcp_servers",
    "web_search_options",
    "search_parameters",
    "enable_search",
    "chat_template",
    "mm_processor_kwargs",
    "images",
];
/// The same for members of a part.
const NAMED: [&str; 6] = ["file_id", "file_url", "video_url", "audio_url", "video", "min_pixels"];
/// Members with the prompt, or a part of it.
const PROMPTS: [&str; 2] = ["messages", "input"];

/// The most expensive bill for a body. `None` if it is not a JSON object.
pub fn bill(endpoint: Endpoint, body: &[u8], rules: Rules) -> Option<Bill> {
    let Ok(Node::Object(members)) = serde_json::from_slice(body) else { return None };
    let mut found = Found { dialect: endpoint, ..Found::default() };
    found.request(&members);
    let images = found.images.saturating_mul(rules.image);
    // A chat template adds marks for each message.
    let told = found.bytes.div_ceil(rules.bytes_a_token).saturating_add(found.messages * 5);
    let prompt = if found.elsewhere {
        rules.context
    } else {
        told.saturating_add(images).min(rules.context)
    };
    // Some servers know only one name of the limit, and some read 0 as no limit.
    let is_limited = found.has_own_limit && !found.is_unlimited;
    let limit = found.limit.unwrap_or(0).max(if is_limited { 0 } else { rules.answer });
    // Outside Anthropic's API, some models think before the tokens that `max_tokens` limits.
    let thought = if is_anthropic(endpoint) {
        limit.max(found.thinking)
    } else {
        limit.saturating_add(found.thinking)
    };
    let one = thought.saturating_add(found.predicted.div_ceil(rules.bytes_a_token));
    let answers = one.saturating_mul(found.choices.max(1)).saturating_mul(found.best_of.max(1));
    Some(match endpoint {
        Endpoint::CountTokens => Bill::default(),
        Endpoint::Embeddings => Bill { prompt, answers: 0 },
        _ => Bill { prompt, answers },
    })
}

#[derive(Default)]
struct Found {
    /// The endpoint whose dialect the body is in.
    dialect: Endpoint,
    limit: Option<u64>,
    has_own_limit: bool,
    is_unlimited: bool,
    thinking: u64,
    choices: u64,
    best_of: u64,
    predicted: u64,
    bytes: u64,
    messages: u64,
    images: u64,
    elsewhere: bool,
}

impl Found {
    fn request(&mut self, members: &[(String, Node)]) {
        let endpoint = self.dialect;
        for (name, value) in members {
            let is = |known: &str| reads(name, known);
            if LIMITS.iter().any(|known| is(known)) {
                let own = if endpoint == Endpoint::Responses {
                    "max_output_tokens"
                } else {
                    "max_tokens"
                };
                self.has_own_limit |= is(own) && count(value).is_some();
                self.is_unlimited |= count(value) == Some(0);
                self.limit = self.limit.max(count(value));
            } else if CHOICES.iter().any(|known| is(known)) {
                self.choices = self.choices.max(count(value).unwrap_or(0));
            } else if is("best_of") {
                self.best_of = self.best_of.max(count(value).unwrap_or(0));
            } else if is("thinking_budget") {
                self.thinking = self.thinking.max(count(value).unwrap_or(0));
            } else if is("thinking") {
                self.nested(value, "budget_tokens");
            } else if is("reasoning") {
                self.nested(value, "max_tokens");
            } else if is("prediction") {
                self.predicted = self.predicted.saturating_add(text(value));
            } else if let (true, Node::Object(members)) = (is("extra_body"), value) {
                self.request(members);
            } else if is("system") {
                self.said(value);
            } else if PROMPTS.iter().any(|known| is(known)) {
                self.conversation(value);
            } else {
                if is("tools") || is("functions") {
                    // The tools are written again, with blanks between all their values.
                    self.bytes += 2 * nodes(value);
                    self.elsewhere |= is("tools")
                        && endpoint != Endpoint::Embeddings
                        && runs_at_the_provider(value);
                }
                let is_nothing = match value {
                    Node::Null | Node::Truth(false) => true,
                    Node::Text(text) => text.is_empty(),
                    Node::List(all) => all.is_empty(),
                    // A web search without options is still a search.
                    Node::Object(members) => members.is_empty() && !is("web_search_options"),
                    _ => false,
                };
                self.elsewhere |= ELSEWHERE.iter().any(|known| is(known)) && !is_nothing;
                self.bytes += text(value);
            }
        }
    }

    fn nested(&mut self, value: &Node, known: &str) {
        let Node::Object(members) = value else { return };
        for (_, value) in members.iter().filter(|(name, _)| reads(name, known)) {
            self.thinking = self.thinking.max(count(value).unwrap_or(0));
        }
    }

    /// Counts the messages of a conversation.
    fn conversation(&mut self, value: &Node) {
        let endpoint = self.dialect;
        let Node::List(all) = value else { return self.said(value) };
        for message in all {
            let Node::Object(members) = message else {
                self.said(message);
                continue;
            };
            self.messages += u64::from(members.len() > 1);
            for (name, value) in members {
                let is_said = reads(name, "content")
                    || (reads(name, "output") && self.dialect == Endpoint::Responses);
                self.bytes += name.len() as u64;
                self.elsewhere |= endpoint == Endpoint::ChatCompletions && reads(name, "images");
                if is_said { self.said(value) } else { self.bytes += text(value) }
            }
        }
    }

    /// Counts content: a text, or parts.
    fn said(&mut self, value: &Node) {
        match value {
            Node::List(all) => all.iter().for_each(|value| self.said(value)),
            Node::Object(members) => self.part(members),
            other => self.bytes += text(other),
        }
    }

    /// Counts a part, and the parts in it.
    fn part(&mut self, members: &[(String, Node)]) {
        let has_type = |text: &str| {
            members.iter().any(|(name, value)| {
                reads(name, "type") && matches!(value, Node::Text(has) if has.contains(text))
            })
        };
        for (name, value) in members {
            let is = |known: &[&str]| known.iter().any(|known| reads(name, known));
            let has = |known: &str| {
                matches!(
                    value, Node::Object(of) if of.iter().any(
                        |(name, value)| reads(name, known) && !matches!(value, Node::Null)
                    )
                )
            };
            if matches!(value, Node::Null) {
                continue;
            }
            self.bytes += name.len() as u64;
            let is_image = is(&["source"]) && has_type("image")
                || is(&["image_url"]) && !is_anthropic(self.dialect);
            if is_image && is_image_file(value) || is(&["file_id"]) && has_type("image") {
                self.images += 1;
            } else if is(&["input_audio"]) {
                self.elsewhere |= is_address(value);
                // 32 tokens for a second of audio at 6 kbit/s, in base64.
                self.bytes += text(value) / 31;
            } else if is(&["content"]) {
                self.said(value);
            } else {
                self.elsewhere |= is(&["source"]) && has_type("document") && has("url");
                self.elsewhere |=
                    is(&["source", "file", "file_data", "image_url"]) && is_pdf(value);
                self.elsewhere |= !is_anthropic(self.dialect) && is(&NAMED);
                self.bytes += text(value);
            }
        }
    }
}

fn is_anthropic(endpoint: Endpoint) -> bool {
    endpoint.dialect() == Dialect::Messages
}

/// Whether a tool without a name is in the list. The provider runs such tools itself, and adds what
/// they find.
fn runs_at_the_provider(tools: &Node) -> bool {
    match tools {
        Node::List(all) => all.iter().any(runs_at_the_provider),
        Node::Object(members) => members.iter().all(|(name, value)| match value {
            // A function without a name is refused, so nobody runs it.
            Node::Text(kind) if name == "type" => kind != "function" && kind != "custom",
            _ => name != "name" && name != "function",
        }),
        _ => false,
    }
}

/// Whether the value has an address in place of data.
fn is_address(value: &Node) -> bool {
    match value {
        Node::Text(text) => text.starts_with("https://"),
        Node::Object(members) => members.iter().any(|(_, value)| is_address(value)),
        _ => false,
    }
}

/// Bytes of all texts, names of members among them, and one for each other value.
fn text(value: &Node) -> u64 {
    match value {
        Node::Text(text) => text.len() as u64,
        Node::List(all) => all.iter().map(text).sum(),
        Node::Object(members) => {
            members.iter().map(|(name, value)| name.len() as u64 + text(value)).sum()
        }
        Node::Number(_) | Node::Truth(_) | Node::Null => 1,
    }
}

/// Whether a file is a PDF, which may have any number of pages.
fn is_pdf(value: &Node) -> bool {
    match value {
        Node::Text(text) => data(text).starts_with("JVBERi"),
        Node::Object(members) => members.iter().any(|(_, value)| is_pdf(value)),
        _ => false,
    }
}

/// The data of a `data:` URL, after its head.
fn data(text: &str) -> &str {
    text.split_once("base64,").map_or(text, |(_, data)| data)
}

/// Whether a part's value is an image, by its first bytes or because it is an address.
fn is_image_file(value: &Node) -> bool {
    match value {
        Node::Text(text) => {
            let begins = ["iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR"];
            text.starts_with("https://")
                || begins.iter().any(|begins| data(text).starts_with(begins))
        }
        Node::Object(members) => members.iter().any(|(name, value)| {
            ["url", "data"].iter().any(|known| reads(name, known)) && is_image_file(value)
        }),
        _ => false,
    }
}

/// Number of values and names in a value.
fn nodes(value: &Node) -> u64 {
    match value {
        Node::List(all) => all.iter().map(nodes).sum(),
        Node::Object(members) => members.iter().map(|(_, value)| 1 + nodes(value)).sum(),
        _ => 1,
    }
}

/// Whether some reader takes `name` for `known`: in any case with Unicode folding (`ſ` and the
/// kelvin sign fold to ASCII letters), in camel case, and up to the first NUL.
fn reads(name: &str, known: &str) -> bool {
    let seen = name.split('\0').next().unwrap_or_default();
    let folded: String = seen.to_lowercase().replace('ſ', "s");
    folded == known || (seen.chars().any(char::is_uppercase) && folded == known.replace('_', ""))
}

/// A number in any form: `5`, `5.0`, `5e0`, `"5"`, `[5]`, `true`.
fn count(value: &Node) -> Option<u64> {
    match value {
        Node::Number(number) => Some(*number),
        Node::Text(text) => {
            let digits = text.trim().replace(['_', ','], "");
            digits.parse().ok().or_else(|| digits.parse::<f64>().ok().map(|number| number as u64))
        }
        Node::List(all) => all.iter().filter_map(count).max(),
        Node::Truth(truth) => Some(u64::from(*truth)),
        Node::Object(_) | Node::Null => None,
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Node;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Node, E> {
        Ok(Node::Truth(truth))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Number(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Number(number.max(0) as u64))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Number(number as u64))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut all = Vec::new();
        while let Some(value) = list.next_element()? {
            all.push(value);
        }
        Ok(Node::List(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let mut all = Vec::new();
        while let Some(member) = members.next_entry()? {
            all.push(member);
        }
        Ok(Node::Object(all))
    }
}
