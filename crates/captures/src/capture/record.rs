//! One capture: its head, which is read without the bodies, and the summary that the API answers
//! (contract 6.4).

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use rerouter_base::clock::rfc3339;
use rerouter_base::error::{Error, Kind};
use rerouter_base::id::{KeyId, RequestId, UserId};
use rerouter_base::trace_context::TraceId;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::stream;
use rerouter_dialect::usage::Usage;
use rerouter_routing::{AgentRef, Candidate, Decision, Inputs};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureState {
    /// The answer was complete.
    Completed,
    /// No provider answered, or its answer broke off.
    Failed,
    Aborted,
    /// The gateway refused the request before it called a provider.
    Refused,
}

impl CaptureState {
    pub const ALL: [CaptureState; 4] = [
        CaptureState::Completed,
        CaptureState::Failed,
        CaptureState::Aborted,
        CaptureState::Refused,
    ];

    /// The word in records and filters.
    pub fn as_str(self) -> &'static str {
        match self {
            CaptureState::Completed => "completed",
            CaptureState::Failed => "failed",
            CaptureState::Aborted => "aborted",
            CaptureState::Refused => "refused",
        }
    }
}

/// One attempt at a target of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub provider: Arc<str>,
    /// The model's name at the provider.
    pub model: Arc<str>,
    /// The node that was called, where nodes serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Arc<str>>,
    /// The status of its answer; `None` without one.
    pub status: Option<u16>,
    /// Why it failed, as one fixed word.
    pub error: Option<String>,
    /// Its duration in milliseconds.
    pub duration_ms: u64,
}

/// The target that answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    pub provider: Arc<str>,
    /// The model's name at the provider.
    pub model: Arc<str>,
    /// The node that answered, where nodes serve.
    pub node: Option<String>,
}

/// Everything about a call but its bodies. `version` rises when an older build would misread it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    pub version: u32,
    pub id: RequestId,
    #[serde(with = "micros")]
    pub created_at: Timestamp,
    pub state: CaptureState,
    pub endpoint: String,
    pub owner: UserId,
    pub key: Option<KeyId>,
    pub agent: Option<String>,
    pub client_request_id: Option<String>,
    /// The part of the client's query that the provider got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    pub stream: bool,
    pub status: u16,
    pub request_headers: Vec<(String, String)>,
    pub response_headers: Vec<(String, String)>,
    /// Whether the answer's body is an event stream.
    pub response_stream: bool,
    pub inputs: Option<Inputs>,
    pub decision: Option<Arc<Decision>>,
    pub routing_us: u64,
    pub attempts: Vec<Attempt>,
    pub served: Option<Served>,
    pub usage: Option<Usage>,
    pub cost_usd: Option<f64>,
    pub ttft_ms: Option<u64>,
    pub total_ms: u64,
    /// Whether the bodies are in the capture.
    pub request_captured: bool,
    pub request_truncated: bool,
    pub response_truncated: bool,
    /// Whether something was redacted: a credential in a body, or a match of the server document's
    /// `redact`.
    pub redacted: bool,
    /// Whether only the answer was redacted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub request_whole: bool,
    /// Whether the response's body is the assembled answer instead of the stream.
    #[serde(default)]
    pub response_assembled: bool,
    pub replay_of: Option<RequestId>,
    pub replayed_by: Option<String>,
    /// The live request that this is a shadow of.
    pub shadow_of: Option<RequestId>,
    pub error: Option<String>,
    /// Whether it was imported: this gateway did not see the call.
    #[serde(default)]
    pub imported: bool,
    /// The trace of the call, where traces are exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
}

/// Both bodies, as the client sent and got them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bodies {
    /// The request's body, decoded.
    pub request: Bytes,
    pub response: Bytes,
}

impl Bodies {
    /// The first `most` bytes of a body, copied where a slice would keep much more in memory.
    pub fn cut(body: &Bytes, most: usize) -> Bytes {
        if most >= body.len() / 2 {
            return body.slice(..most.min(body.len()));
        }
        Bytes::copy_from_slice(body.get(..most).unwrap_or_default())
    }
}

/// A capture with its bodies.
#[derive(Clone, Debug, PartialEq)]
pub struct Capture {
    /// Everything but the bodies.
    pub head: Head,
    /// Both bodies; empty where they are not kept.
    pub bodies: Bodies,
}

/// Targets that were not in the plan because of their state then.
fn left_out(decision: &Decision) -> Vec<Value> {
    let entry = |candidate: &Candidate| {
        let Candidate { provider, model, reason, .. } = candidate;
        json!({ "provider": provider, "model": model, "reason": reason })
    };
    decision.kept_away().into_iter().map(entry).collect()
}

impl Head {
    /// The newest version that this build reads. A head is written with the oldest version that
    /// reads it right.
    pub const VERSION: u32 = Self::AGENT;
    /// The version of heads that need no newer one.
    pub const FIRST: u32 = 1;
    /// The version of heads with `response_assembled`: version 1 would take the body for a stream.
    pub(crate) const ASSEMBLED: u32 = 2;
    /// The version of heads with an `agent`: version 2 would replay only the client's part of the
    /// request.
    pub const AGENT: u32 = 3;

    /// An empty head, for the caller to fill in.
    pub fn new(id: RequestId, created_at: Timestamp, owner: UserId, endpoint: &str) -> Self {
        Head {
            version: Self::FIRST,
            id,
            created_at,
            state: CaptureState::Failed,
            endpoint: endpoint.to_owned(),
            owner,
            key: None,
            agent: None,
            client_request_id: None,
            query: None,
            stream: false,
            status: 0,
            request_headers: Vec::new(),
            response_headers: Vec::new(),
            response_stream: false,
            inputs: None,
            decision: None,
            routing_us: 0,
            attempts: Vec::new(),
            served: None,
            usage: None,
            cost_usd: None,
            ttft_ms: None,
            total_ms: 0,
            request_captured: false,
            request_truncated: false,
            response_truncated: false,
            redacted: false,
            request_whole: false,
            response_assembled: false,
            replay_of: None,
            replayed_by: None,
            shadow_of: None,
            error: None,
            imported: false,
            trace_id: None,
        }
    }

    /// Its owner, and the key that authenticated the request.
    pub fn whose(&self) -> (&UserId, Option<&KeyId>) {
        (&self.owner, self.key.as_ref())
    }

    /// The head of a request through this agent, if any.
    #[must_use]
    pub fn through(self, agent: Option<&AgentRef>) -> Self {
        let Some(agent) = agent else { return self };
        Head { agent: Some(agent.id.clone()), version: self.version.max(Self::AGENT), ..self }
    }

    /// Whether the answer's body is an event stream.
    pub(crate) fn answers_in_events(&self) -> bool {
        self.response_stream && !self.response_assembled
    }

    /// Notes that something was taken out of what the request said, or was decided on.
    pub(crate) fn lacks_of_request(&mut self) {
        (self.redacted, self.request_whole) = (true, false);
    }

    /// Notes that the answer was redacted. The call can still be replayed.
    pub(crate) fn lacks_of_answer(&mut self) {
        self.request_whole |= !self.redacted;
        self.redacted = true;
    }

    /// Why the call cannot be replayed; `None` if it can.
    pub fn not_replayable(&self) -> Option<Kind> {
        if !self.request_captured {
            Some(Kind::NotCaptured)
        } else if self.request_truncated {
            Some(Kind::Truncated)
        } else if self.redacted && !self.request_whole {
            Some(Kind::Redacted)
        } else {
            None
        }
    }

    /// A 409 error if the call cannot be replayed.
    pub fn check_replayable(&self) -> Result<(), Error> {
        let detail = match self.not_replayable() {
            None => return Ok(()),
            Some(Kind::NotCaptured) => "The request's body was not captured.",
            Some(Kind::Truncated) => "The captured request body is truncated.",
            Some(_) => "The captured request body is redacted, so it cannot be sent again.",
        };
        Err(Error::new(self.not_replayable().unwrap_or(Kind::NotCaptured), detail))
    }

    /// The summary of contract 6.4, with every field.
    pub fn summary(&self) -> Value {
        self.fields().into()
    }

    pub(super) fn fields(&self) -> Map<String, Value> {
        let decision = self.decision.as_ref().map(|decision| {
            let Decision { provider, model, recipe, rule, revision, .. } = decision.as_ref();
            json!({
                "provider": provider, "model": model, "recipe": recipe, "rule": rule,
                "revision": revision, "left_out": left_out(decision),
            })
        });
        let served = self
            .served
            .as_ref()
            .map(|served| json!({ "provider": served.provider, "model": served.model }));
        let latency = json!({
            "routing_us": self.routing_us, "ttft_ms": self.ttft_ms, "total_ms": self.total_ms,
        });
        let not_replayable = self.not_replayable().map(|kind| kind.row().word);
        let fields: [(&str, Value); 23] = [
            ("object", "replay".into()),
            ("id", self.id.as_str().into()),
            ("created_at", rfc3339(self.created_at).into()),
            ("state", self.state.as_str().into()),
            ("endpoint", self.endpoint.as_str().into()),
            ("model", self.inputs.as_ref().map(|inputs| &*inputs.request.model).into()),
            ("key", self.key.as_ref().map(KeyId::as_str).into()),
            ("user", self.owner.as_str().into()),
            ("agent", self.agent.as_deref().into()),
            ("decision", decision.into()),
            ("served", served.into()),
            ("status", self.status.into()),
            ("stream", self.stream.into()),
            ("usage", self.usage.map(|usage| json!(usage)).into()),
            ("cost_usd", self.cost_usd.into()),
            ("latency", latency),
            ("attempts", self.attempts.len().into()),
            ("replayable", not_replayable.is_none().into()),
            ("not_replayable", not_replayable.into()),
            ("replay_of", self.replay_of.as_ref().map(RequestId::as_str).into()),
            ("replayed_by", self.replayed_by.as_deref().into()),
            ("shadow_of", self.shadow_of.as_ref().map(RequestId::as_str).into()),
            ("imported", self.imported.into()),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The `original` in the answer of a reroute.
    pub fn as_original(&self) -> Value {
        let mut fields = self.fields();
        let mut original = Map::new();
        for name in ["decision", "served", "status", "usage", "cost_usd", "latency"] {
            original.insert(name.to_owned(), fields.remove(name).unwrap_or_default());
        }
        original.into()
    }

    /// The answer assembled from the events of a stream, unless it was stored assembled.
    pub fn assembled(&self, stream: &[u8]) -> Value {
        if self.response_assembled {
            return serde_json::from_slice(stream).unwrap_or_default();
        }
        stream::assemble(Endpoint::named(&self.endpoint).unwrap_or_default(), stream)
    }

    /// The decision with its outcome, as answers have it; null without one.
    pub fn decision_json(&self) -> Value {
        let decision = self.decision.as_deref();
        decision.map_or(Value::Null, |decision| {
            decision_json(decision, self.routing_us, self.served.as_ref(), &self.attempts)
        })
    }
}

/// A decision with its outcome, as answers have it (contract 6.3).
pub fn decision_json(
    decision: &Decision,
    routing_us: u64,
    served: Option<&Served>,
    attempts: &[Attempt],
) -> Value {
    let mut shown = json!(decision);
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("routing_us".into(), routing_us.into());
        fields.insert("served".into(), json!(served));
        fields.insert("attempts".into(), json!(attempts));
    }
    shown
}

/// A duration in whole microseconds.
pub fn micros_of(took: std::time::Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// A time as microseconds since the epoch, which is exact.
mod micros {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_i64(at.as_microsecond())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        Timestamp::from_microsecond(i64::deserialize(from)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
