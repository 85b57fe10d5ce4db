//! One capture: its head, which can be read without the bodies, and both bodies.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use rerouter_base::error::{Error, Kind, RefusalReason};
use rerouter_base::id::{KeyId, RequestId, UserId};
use rerouter_base::trace_context::TraceId;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::recorded_answer;
use rerouter_dialect::usage::Usage;
pub use rerouter_records::replay::{Attempt, CaptureState, Served};
use rerouter_routing::{AgentRef, Decision, Inputs};

/// All data of a call except its bodies. `version` rises if an older build would misread the head.
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
    /// Whether any text was redacted: a credential in a body, or a match of the server document's
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
    /// The live request whose shadow this is.
    pub shadow_of: Option<RequestId>,
    pub error: Option<String>,
    /// Whether the capture was imported: this gateway did not serve the call.
    #[serde(default)]
    pub imported: bool,
    /// The trace of the call, if traces are exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// Why the gateway refused the request; earlier versions did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusalReason>,
}

/// Both bodies, as the client sent and received them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bodies {
    /// The request's body, decoded.
    pub request: Bytes,
    pub response: Bytes,
}

impl Bodies {
    /// The first `most` bytes of a body. They are copied if a slice would keep much more in memory.
    pub fn cut(body: &Bytes, most: usize) -> Bytes {
        if most >= body.len() / 2 {
            return body.slice(..most.min(body.len()));
        }
        Bytes::copy_from_slice(body.get(..most).unwrap_or_default())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Capture {
    pub head: Head,
    /// Empty if they are not kept.
    pub bodies: Bodies,
}

impl Head {
    /// The newest version that this build reads. Each head is written with the oldest version that
    /// reads it correctly.
    pub const VERSION: u32 = Self::KINDS;
    /// The version of heads that use no feature of a newer version.
    pub const FIRST: u32 = 1;
    /// The version of heads with `response_assembled`: version 1 would read the body as a stream.
    pub(crate) const ASSEMBLED: u32 = 2;
    /// The version of heads with an `agent`: version 2 would replay only the client's part of the
    /// request.
    pub const AGENT: u32 = 3;
    /// The version of heads with further kinds of usage, which version 3 would price as others, or
    /// with the reason of a refusal.
    pub const KINDS: u32 = 4;

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
            refused: None,
        }
    }

    pub fn set_usage(&mut self, usage: Option<Usage>) {
        if usage.as_ref().is_some_and(Usage::has_kinds) {
            self.version = self.version.max(Self::KINDS);
        }
        self.usage = usage;
    }

    pub fn set_refused(&mut self, refused: Option<RefusalReason>) {
        if refused.is_some() {
            self.version = self.version.max(Self::KINDS);
        }
        self.refused = refused;
    }

    pub fn whose(&self) -> (&UserId, Option<&KeyId>) {
        (&self.owner, self.key.as_ref())
    }

    /// The head of a request through this agent, if any.
    #[must_use]
    pub fn through(self, agent: Option<&AgentRef>) -> Self {
        let Some(agent) = agent else { return self };
        Head { agent: Some(agent.id.clone()), version: self.version.max(Self::AGENT), ..self }
    }

    pub(crate) fn answers_in_events(&self) -> bool {
        self.response_stream && !self.response_assembled
    }

    /// Notes that a part of the request, or of the decision's inputs, was removed.
    pub(crate) fn lacks_of_request(&mut self) {
        (self.redacted, self.request_whole) = (true, false);
    }

    /// Notes that the answer was redacted, so the call can still be replayed.
    pub(crate) fn lacks_of_answer(&mut self) {
        self.request_whole |= !self.redacted;
        self.redacted = true;
    }

    /// The reason why the call cannot be replayed; `None` if it can.
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

    /// Returns a 409 error if the call cannot be replayed.
    pub fn check_replayable(&self) -> Result<(), Error> {
        let detail = match self.not_replayable() {
            None => return Ok(()),
            Some(Kind::NotCaptured) => "The request's body was not captured.",
            Some(Kind::Truncated) => "The captured request body is truncated.",
            Some(_) => "The captured request body is redacted, so it cannot be sent again.",
        };
        Err(Error::new(self.not_replayable().unwrap_or(Kind::NotCaptured), detail))
    }

    /// The answer assembled from the events of a stream, or the stored one if it was stored
    /// assembled.
    pub fn assembled(&self, stream: &[u8]) -> Value {
        if self.response_assembled {
            return serde_json::from_slice(stream).unwrap_or_default();
        }
        recorded_answer::assemble(Endpoint::named(&self.endpoint).unwrap_or_default(), stream)
    }
}

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
