//! Everything that a decision may look at, copied out before it is made and stored in the capture,
//! so that the same decision can be made again, on any machine, under any document.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::recipe::Routing;
use super::{language, on_nodes};
use crate::bounds;
use crate::protocol::endpoint::Endpoint;

/// What `decide` sees of a request, its sender and the state of the targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// Version of estimator, hashes and strategies: [`Inputs::VERSION`].
    pub version: u32,
    /// When the decision was made.
    #[serde(with = "time")]
    pub at: Timestamp,
    /// The request.
    pub request: RequestFacts,
    /// Keyword sets of the document: hash of the words, and whether one is in the last user message. Empty where no
    /// expression of the document looks at keywords.
    #[serde(default)]
    pub keywords: BTreeMap<String, KeywordHit>,
    /// Who sent it.
    pub principal: Who,
    /// Source of every draw; sixteen hex digits in JSON, as JSON numbers lose bits.
    #[serde(with = "hex")]
    pub seed: u64,
    /// State of the targets, by `provider/model`, and of the nodes that serve the targets to which the name asked for may lead, by
    /// id; a target that is missing counts as healthy and idle.
    pub health: BTreeMap<String, TargetHealth>,
}

impl Inputs {
    /// The version that this code writes.
    pub const VERSION: u32 = 3;

    /// Puts in what the expressions of this document look at and is costly to find out: the language, and hits of keyword
    /// sets; and the state of its targets on nodes, where nodes are told of. What is known already stands, so that inputs of another document lose nothing. `text` gives the last user
    /// message; it is only called where something is missing. Whether nothing is missing any more.
    pub fn complete(&mut self, routing: &Routing, text: impl Fn() -> Option<String>) -> bool {
        let signals = routing.signals();
        on_nodes::fill(routing, &mut self.health, self.at, false);
        if signals.keywords {
            self.keywords = routing.keywords().find(&self.keywords, &text);
        }
        if signals.language && self.request.language.is_none() {
            self.request.language = text().map(|text| language::detect(&text).to_owned());
        }
        (!signals.keywords || self.keywords.len() == routing.keywords().names().count())
            && (!signals.language || self.request.language.is_some())
    }
}

/// What the request asks for and looks like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestFacts {
    /// `chat.completions`, …
    pub endpoint: String,
    /// The model asked for, as the client wrote it.
    pub model: String,
    /// The name looked up in the document: the model asked for, or what an agent puts in its place.
    pub name: String,
    /// The agent that the request went through.
    #[serde(default)]
    pub agent: Option<AgentRef>,
    /// Capabilities that a target must have: `tools`, `vision`, `json`, `audio`.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Estimated.
    pub prompt_tokens: u64,
    /// As asked; absent when the client set none.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// Answers asked for (`n`, `best_of`); absent where the client said nothing.
    #[serde(default)]
    pub choices: Option<u64>,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// Messages in it.
    pub messages: u64,
    /// Tools offered.
    pub tools: u64,
    /// Images in it.
    pub images: u64,
    /// Pieces of audio in it.
    pub audio: u64,
    /// Whether JSON is asked for.
    pub json_output: bool,
    /// ISO 639-1 code of the language of the last user message, `""` when it cannot be told; absent when nobody looked.
    #[serde(default)]
    pub language: Option<String>,
    /// The headers named by `routing.signal_headers`, lower-case.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

impl RequestFacts {
    /// How long the answer may be taken to be: as asked, or else [`bounds::ANSWER_TOKENS`]; nothing where none is generated.
    pub fn answer_tokens(&self) -> u64 {
        match Endpoint::named(&self.endpoint) {
            Some(endpoint) if !endpoint.generates() => 0,
            // To some servers no tokens are no limit.
            _ => self.max_tokens.filter(|most| *most > 0).unwrap_or(bounds::ANSWER_TOKENS),
        }
    }

    /// What all answers that were asked for may take together.
    pub fn charged_answer_tokens(&self, each: u64) -> u64 {
        self.answer_tokens().min(each).saturating_mul(self.choices.unwrap_or(1).max(1))
    }

    /// What a model has to be able to.
    pub fn demand(&self) -> Demand<'_> {
        Demand {
            needs: Cow::Borrowed(&self.needs),
            tokens: self.prompt_tokens.saturating_add(self.max_tokens.unwrap_or(0)),
        }
    }

    /// What of the rates and the budget it takes, the prompt: nothing where a prompt is only counted.
    pub fn charged_prompt_tokens(&self) -> u64 {
        if self.endpoint == Endpoint::CountTokens.as_str() { 0 } else { self.prompt_tokens }
    }
}

/// What a request demands of the model that serves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand<'a> {
    /// Capabilities.
    pub needs: Cow<'a, [String]>,
    /// Tokens that the model's context has to have room for: the prompt, and the answer where its length was asked for.
    pub tokens: u64,
}

impl Demand<'_> {
    /// What speaks against a model of this context and these capabilities, where those are known: `capability` or `context`.
    pub fn against(
        &self,
        context: Option<u64>,
        capabilities: Option<&[String]>,
    ) -> Option<&'static str> {
        if capabilities.is_some_and(|able| !self.needs.iter().all(|need| able.contains(need))) {
            return Some("capability");
        }
        context.is_some_and(|context| self.tokens > context).then_some("context")
    }

    /// The same, on its own.
    pub fn into_owned(self) -> Demand<'static> {
        Demand { needs: Cow::Owned(self.needs.into_owned()), tokens: self.tokens }
    }
}

/// An agent as it was when the request came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentRef {
    /// Its id.
    pub id: String,
    /// Its name, as expressions see it.
    pub name: String,
    /// Its version.
    pub etag: String,
}

/// Outcome of one keyword set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeywordHit {
    /// Hash of the set's words.
    pub hash: String,
    /// Whether one of them occurred.
    pub hit: bool,
}

/// Who sent the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Who {
    /// Id of the key, unless a session.
    pub key: Option<String>,
    /// Id of the user.
    pub user: Option<String>,
    /// Labels of the key.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Labels of the user.
    #[serde(default)]
    pub user_labels: BTreeMap<String, String>,
    /// Names the key may ask for; checked before the decision.
    #[serde(default)]
    pub models: Option<Vec<String>>,
}

/// State of one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetHealth {
    /// State of its breaker.
    pub breaker: Breaker,
    /// Whether a half-open breaker has its probe to give.
    pub probe_free: bool,
    /// Until when it asked to be left alone.
    #[serde(with = "time::option", default)]
    pub cooldown_until: Option<Timestamp>,
    /// Latency, decayed to `at`.
    #[serde(default)]
    pub ewma_us: Option<u64>,
    /// Requests it is serving.
    pub inflight: u32,
    /// Most it may serve at once.
    #[serde(default)]
    pub max: Option<u32>,
    /// Of a target on nodes: how many nodes serve it. Its state is that of the one which would be asked next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// Of a target on nodes: nodes are told of only as far as they serve what the name asked for may lead to, so that nothing is
    /// known of models that are missing. Captures that are older than this tell of every node and all of its models.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_part: bool,
    /// Of a node: what a decision on targets on nodes has to know of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeFacts>,
}

/// A node that serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// The models that it serves, as far as they are told of.
    pub models: Vec<Arc<str>>,
    /// Requests at it, running or waiting, by its last report and what was given it since.
    pub load: u32,
    /// What it said of its models, by their names; one that is missing takes any request, as all do in captures that are older
    /// than this.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub abilities: BTreeMap<Arc<str>, Arc<Abilities>>,
}

impl NodeFacts {
    /// What the node said of a model that speaks against serving the request with it: `capability` or `context`.
    pub fn against(&self, model: &str, demand: &Demand<'_>) -> Option<&'static str> {
        let said = self.abilities.get(model)?;
        demand.against(said.context, said.capabilities.as_deref())
    }
}

/// What a node said of one of its models; what it did not say sets no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abilities {
    /// Tokens that prompt and answer share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    /// What it can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Vec<String>>,
}

/// A breaker's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Breaker {
    /// Requests pass.
    #[default]
    Closed,
    /// None pass.
    Open,
    /// One probe passes.
    HalfOpen,
}

/// Times as RFC 3339 text with microseconds.
mod time {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&crate::clock::rfc3339(*at))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }

    pub(super) mod option {
        use super::*;

        pub(in super::super) fn serialize<S: Serializer>(
            at: &Option<Timestamp>,
            out: S,
        ) -> Result<S::Ok, S::Error> {
            match at {
                Some(at) => super::serialize(at, out),
                None => out.serialize_none(),
            }
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<Timestamp>, D::Error> {
            let text = Option::<std::borrow::Cow<'de, str>>::deserialize(from)?;
            text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
        }
    }
}

/// Sixteen lower-case hex digits.
pub(super) mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in super::super) fn serialize<S: Serializer>(
        seed: &u64,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.serialize_str(&format!("{seed:016x}"))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<u64, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        if text.len() != 16 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(D::Error::custom("a seed is sixteen hex digits"));
        }
        u64::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Inputs of an ordinary chat request.
    pub(crate) fn chat(model: &str, seed: u64) -> Inputs {
        Inputs {
            version: Inputs::VERSION,
            at: Timestamp::from_second(1_764_000_000).unwrap(),
            request: RequestFacts {
                endpoint: "chat.completions".into(),
                model: model.into(),
                name: model.into(),
                prompt_tokens: 12,
                messages: 1,
                ..RequestFacts::default()
            },
            keywords: BTreeMap::new(),
            principal: Who {
                key: Some("key_1".into()),
                user: Some("usr_1".into()),
                ..Who::default()
            },
            seed,
            health: BTreeMap::new(),
        }
    }

    #[test]
    fn they_read_back_equal() {
        let mut inputs = chat("auto", u64::MAX - 1);
        inputs.request.max_tokens = Some(5);
        inputs.principal.labels.insert("team".into(), "core".into());
        inputs.health.insert(
            "a/b".into(),
            TargetHealth {
                breaker: Breaker::HalfOpen,
                cooldown_until: Some(inputs.at),
                ewma_us: Some(u64::MAX),
                ..TargetHealth::default()
            },
        );
        let text = serde_json::to_string(&inputs).unwrap();
        assert!(text.contains("\"seed\":\"fffffffffffffffe\""), "{text}");
        assert!(text.contains("\"at\":\"2025-11-24T16:00:00.000000Z\""), "{text}");
        assert_eq!(serde_json::from_str::<Inputs>(&text).unwrap(), inputs);
        assert_eq!(
            serde_json::from_value::<Inputs>(serde_json::to_value(&inputs).unwrap()).unwrap(),
            inputs
        );
        assert!(
            serde_json::from_str::<Inputs>(&text.replace("fffffffffffffffe", "+ffffffffffffffe"))
                .is_err()
        );
    }
}
