//! The records of a capture in the API's answers and in exports.

use base64::Engine;
use bytes::Bytes;
use serde_json::{Map, Value};

use super::record::{Capture, Head};
use rerouter_records::replay::{
    CallLatency, CaptureRecord, CapturedRequest, CapturedResponse, DecisionRecord, DecisionSummary,
    LeftOut, Original, Replay, ReplayBase, ReplayObject,
};
use rerouter_routing::{Candidate, Decision, PlanEntry};

impl Head {
    pub fn summary(&self) -> Replay {
        Replay { base: self.base(), decision: self.decision_summary() }
    }

    /// The `original` in the answer to a reroute.
    pub fn as_original(&self) -> Original {
        let ReplayBase { served, status, usage, cost_usd, latency, .. } = self.base();
        let decision = self.decision_summary();
        Original { decision, served, status, usage, cost_usd, latency }
    }

    pub fn decision_record(&self) -> Option<DecisionRecord> {
        self.decision.as_ref().map(|decision| DecisionRecord {
            decision: decision.clone(),
            routing_us: self.routing_us,
            served: self.served.clone(),
            attempts: self.attempts.clone(),
        })
    }

    fn base(&self) -> ReplayBase {
        let not_replayable = self.not_replayable().map(|kind| kind.row().word.to_owned());
        let served = self.served.as_ref();
        ReplayBase {
            object: ReplayObject::It,
            id: self.id.clone(),
            created_at: self.created_at.into(),
            state: self.state,
            endpoint: self.endpoint.clone(),
            model: self.inputs.as_ref().map(|inputs| inputs.request.model.clone()),
            key: self.key.clone(),
            user: self.owner.clone(),
            agent: self.agent.clone(),
            served: served.map(|served| PlanEntry {
                provider: served.provider.clone(),
                model: served.model.clone(),
            }),
            refused: self.refused,
            status: self.status,
            stream: self.stream,
            usage: self.usage.clone(),
            cost_usd: self.cost_usd,
            latency: CallLatency {
                routing_us: self.routing_us,
                ttft_ms: self.ttft_ms,
                total_ms: self.total_ms,
            },
            attempts: self.attempts.len(),
            replayable: not_replayable.is_none(),
            not_replayable,
            replay_of: self.replay_of.clone(),
            replayed_by: self.replayed_by.clone(),
            shadow_of: self.shadow_of.clone(),
            imported: self.imported,
        }
    }

    fn decision_summary(&self) -> Option<DecisionSummary> {
        let decision = self.decision.as_deref()?;
        let left_out = |candidate: &Candidate| LeftOut {
            provider: candidate.provider.clone(),
            model: candidate.model.clone(),
            reason: candidate.reason.clone().unwrap_or_default(),
        };
        let left_out = decision.kept_away().into_iter().map(left_out).collect();
        let Decision { provider, model, recipe, rule, revision, .. } = decision.clone();
        Some(DecisionSummary { provider, model, recipe, rule, revision, left_out })
    }
}

impl Capture {
    /// The whole capture: the summary, bodies, headers, inputs and the full decision.
    pub fn whole(&self) -> CaptureRecord {
        let (head, bodies) = (&self.head, &self.bodies);
        let (body, body_base64) = text_or_base64(&bodies.request, head.request_captured);
        let request = CapturedRequest {
            headers: joined(&head.request_headers),
            body,
            body_base64,
            truncated: head.request_truncated,
            query: head.query.clone(),
        };
        // An answer from a provider has headers. Without an answer the body is null, not empty.
        let answered = !head.response_headers.is_empty() || !bodies.response.is_empty();
        // In a redacted capture, an empty body may be one that was removed.
        let may_be_empty = head.request_captured && !head.redacted;
        let kept = answered && (may_be_empty || !bodies.response.is_empty());
        let (body, body_base64) =
            text_or_base64(&bodies.response, kept && !head.response_assembled);
        let assembled = (kept && head.response_stream).then(|| head.assembled(&bodies.response));
        let response = CapturedResponse {
            status: head.status,
            headers: joined(&head.response_headers),
            body,
            body_base64,
            stream: head.response_stream,
            truncated: head.response_truncated,
            assembled: assembled.unwrap_or_default(),
        };
        CaptureRecord {
            base: head.base(),
            decision: head.decision_record(),
            inputs: head.inputs.clone(),
            request,
            response,
            redacted: head.redacted,
            client_request_id: head.client_request_id.clone(),
            trace_id: head.trace_id.map(|id| id.to_string()),
            error: head.error.clone(),
            conversation: None,
            explanation: None,
        }
    }
}

/// Returns a UTF-8 body as text, any other body in base64.
fn text_or_base64(body: &Bytes, kept: bool) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(body) {
        _ if !kept => (None, None),
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(base64::engine::general_purpose::STANDARD.encode(body))),
    }
}

/// Headers as an object. Repeated headers are joined as in RFC 9110 section 5.3.
fn joined(headers: &[(String, String)]) -> Map<String, Value> {
    let mut joined: Map<String, Value> = Map::new();
    for (name, value) in headers {
        match joined.get_mut(name) {
            Some(Value::String(before)) => {
                before.push_str(", ");
                before.push_str(value);
            }
            _ => {
                joined.insert(name.clone(), value.as_str().into());
            }
        }
    }
    joined
}
