//! Everything that a decision may look at. It is copied before the decision is made and stored with
//! the capture, so that the decision can be repeated on any machine and under any document. Plain
//! data: nothing here depends on another file of this crate.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use rerouter_base::bounds;
use rerouter_dialect::Dialect;
use rerouter_dialect::endpoint::Endpoint;

/// What `decide` sees of a request, its sender and the state of the targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Inputs {
    /// Version of the token estimate, hashes and strategies.
    pub version: u32,
    /// Time of the decision.
    #[serde(with = "time")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub at: Timestamp,
    pub request: RequestFacts,
    /// For each keyword set: the hash of its words, and whether one is in the last user message.
    /// Empty where no expression of the document reads `keywords`.
    #[serde(default)]
    pub keywords: BTreeMap<String, KeywordHit>,
    /// For each text of the request that an expression of the document searches, by its signal:
    /// what matched. The text itself is no part of the inputs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub texts: BTreeMap<String, TextMatches>,
    pub principal: PrincipalFacts,
    /// Seed of every draw. Sixteen hex digits in JSON, because JSON numbers lose bits.
    #[serde(with = "hex")]
    #[schemars(with = "String")]
    pub seed: u64,
    /// State of the targets by `provider/model`, and of nodes by id. Nodes are listed where they
    /// serve a target that the requested name may lead to. A missing target is healthy and idle.
    pub health: BTreeMap<String, TargetHealth>,
}

impl Inputs {
    /// The version that this build writes.
    pub const VERSION: u32 = 3;
}

/// Properties of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct RequestFacts {
    /// Endpoint as a word: `chat.completions`, `messages`, …
    pub endpoint: Cow<'static, str>,
    /// The requested model, as the client wrote it.
    pub model: Arc<str>,
    /// The name to look up in the document: the requested model, or the one that its agent names.
    pub name: Arc<str>,
    /// The agent that was requested as a model.
    #[serde(default)]
    pub agent: Option<AgentRef>,
    /// Capabilities that a target must have: `tools`, `vision`, `json`, `audio`.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Estimated tokens of the prompt.
    pub prompt_tokens: u64,
    /// Limit on the answer; absent when the client set none.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// Number of answers (`n`, `best_of`); absent when the client set none.
    #[serde(default)]
    pub choices: Option<u64>,
    /// Whether the answer is streamed.
    pub stream: bool,
    pub messages: u64,
    pub tools: u64,
    pub images: u64,
    /// Number of audio parts.
    pub audio: u64,
    /// Whether the answer has to be JSON.
    pub json_output: bool,
    /// ISO 639-1 code of the language of the last user message; `""` if detection failed; absent if
    /// no expression reads `language`.
    #[serde(default)]
    pub language: Option<String>,
    /// The headers that `routing.signal_headers` names, lower-case.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// By dialect, what the request asks for that the dialect cannot carry. Absent if no target
    /// that the name may lead to needs a translation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untranslatable: Option<Untranslatable>,
}

/// Features of a request by the name of the dialect that cannot carry them.
pub type Untranslatable = BTreeMap<String, RefusedFeature>;

/// Something that a request asks for and a dialect cannot carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct RefusedFeature {
    /// The member of the client's request that asks for it.
    pub member: String,
    /// A sentence for the client.
    pub detail: String,
}

impl RequestFacts {
    pub(super) fn refused(&self, dialect: Dialect) -> Option<&RefusedFeature> {
        self.untranslatable.as_ref()?.get(dialect.name())
    }

    /// Assumed length of the answer: `max_tokens`, else [`bounds::ANSWER_TOKENS`]; 0 where the
    /// endpoint generates nothing.
    pub(crate) fn answer_tokens(&self) -> u64 {
        match Endpoint::named(&self.endpoint) {
            Some(endpoint) if !endpoint.generates() => 0,
            // Some servers read 0 as "no limit".
            _ => self.max_tokens.filter(|most| *most > 0).unwrap_or(bounds::ANSWER_TOKENS),
        }
    }

    /// Assumed tokens of all requested answers together. One answer counts at most `each`.
    pub fn charged_answer_tokens(&self, each: u64) -> u64 {
        self.answer_tokens().min(each).saturating_mul(self.choices.unwrap_or(1).max(1))
    }

    pub fn demand(&self) -> Demand<'_> {
        Demand {
            needs: Cow::Borrowed(&self.needs),
            tokens: self.prompt_tokens.saturating_add(self.max_tokens.unwrap_or(0)),
        }
    }

    /// Prompt tokens that count against rates and budgets; 0 where the request only counts tokens.
    pub fn charged_prompt_tokens(&self) -> u64 {
        match Endpoint::named(&self.endpoint) {
            Some(endpoint) if !endpoint.costs() => 0,
            _ => self.prompt_tokens,
        }
    }
}

/// What a request demands of the model that serves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand<'a> {
    pub needs: Cow<'a, [String]>,
    /// Required context: the prompt, plus `max_tokens` if the client set it.
    pub tokens: u64,
}

impl Demand<'_> {
    /// Why a model with this context and these capabilities is unfit: `capability` or `context`.
    /// Unknown bounds (`None`) exclude nothing.
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

    pub fn into_owned(self) -> Demand<'static> {
        Demand { needs: Cow::Owned(self.needs.into_owned()), tokens: self.tokens }
    }
}

/// The agent of a request, at the version that was current then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct AgentRef {
    pub id: String,
    /// Agent name, the signal `agent`.
    pub name: String,
    /// Version of the agent (its entity tag).
    pub etag: String,
}

/// Result of the search for one keyword set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct KeywordHit {
    /// Hash of the set's words, sixteen hex digits.
    pub hash: String,
    /// Whether one of the words occurs.
    pub hit: bool,
}

/// Result of the search in a text of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct TextMatches {
    /// Hash of the text that was searched, sixteen hex digits.
    pub digest: String,
    /// By the hash of a pattern: whether it matches.
    pub matches: BTreeMap<String, bool>,
}

/// The sender of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PrincipalFacts {
    /// Key id; none for a session.
    pub key: Option<Arc<str>>,
    pub user: Option<Arc<str>>,
    /// Labels of the key.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Labels of the user.
    #[serde(default)]
    pub user_labels: BTreeMap<String, String>,
    /// Names that the key may request. Checked before the decision.
    #[serde(default)]
    pub models: Option<Vec<String>>,
}

/// State of one target or node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct TargetHealth {
    /// State of the breaker.
    pub breaker: BreakerState,
    /// Whether a half-open breaker still admits its probe.
    pub probe_free: bool,
    /// End of the cooldown.
    #[serde(with = "time::option", default)]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub cooldown_until: Option<Timestamp>,
    /// Peak EWMA of the time to first content, in microseconds, decayed to `at`.
    #[serde(default)]
    pub ewma_us: Option<u64>,
    pub inflight: u32,
    /// Limit on requests in flight.
    #[serde(default)]
    pub max: Option<u32>,
    /// Only for `nodes/…` targets: number of nodes that serve it. The other fields are the state of
    /// the node that would be tried next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// Only for nodes: what the node serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeFacts>,
}

impl TargetHealth {
    /// Why this state excludes the target or node at `at`: `breaker_open`, `cooldown` or
    /// `concurrency`.
    pub fn against(&self, at: Timestamp) -> Option<&'static str> {
        let TargetHealth { breaker, probe_free, cooldown_until, inflight, max, .. } = self;
        if *breaker == BreakerState::Open || (*breaker == BreakerState::HalfOpen && !probe_free) {
            Some("breaker_open")
        } else if cooldown_until.is_some_and(|until| until > at) {
            Some("cooldown")
        } else if max.is_some_and(|max| *inflight >= max) {
            Some("concurrency")
        } else {
            None
        }
    }
}

/// Models and load of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct NodeFacts {
    /// Served models that the requested name may lead to.
    pub models: Vec<Arc<str>>,
    /// Requests running or queued: the last heartbeat's, corrected by what was sent since.
    pub load: u32,
    /// Bounds that the node registered, by model. A missing model takes any request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub abilities: BTreeMap<Arc<str>, Arc<Abilities>>,
}

impl NodeFacts {
    /// Why the node's model is unfit for the request: `capability` or `context`.
    pub fn against(&self, model: &str, demand: &Demand<'_>) -> Option<&'static str> {
        let said = self.abilities.get(model)?;
        demand.against(said.context, said.capabilities.as_deref())
    }
}

/// Bounds that a node registered for one of its models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Abilities {
    /// Context length in tokens, prompt and answer together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    /// Capabilities of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Vec<String>>,
}

rerouter_base::words! {
    /// State of a breaker.
    #[derive(Default)]
    pub enum BreakerState {
        #[default]
        Closed = "closed",
        Open = "open",
        HalfOpen = "half_open",
    }
}

/// Times as RFC 3339 text with microseconds.
mod time {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&rerouter_base::clock::rfc3339(*at))
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
mod tests {
    use super::super::fixtures::chat;
    use super::*;

    #[test]
    fn they_read_back_equal() {
        let mut inputs = chat("auto", u64::MAX - 1);
        inputs.request.max_tokens = Some(5);
        inputs.principal.labels.insert("team".into(), "core".into());
        inputs.health.insert(
            "a/b".into(),
            TargetHealth {
                breaker: BreakerState::HalfOpen,
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
