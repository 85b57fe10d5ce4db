//! Parses the JSON of an exported capture, so that a corpus can be imported, or evaluated
//! without a gateway.

use base64::Engine;
use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::record::{Bodies, Capture, CaptureState, Head, Served};
use rerouter_base::error::{Kind, RefusalReason};
use rerouter_base::id::{KeyId, RequestId, UserId};
use rerouter_base::trace_context::TraceId;
use rerouter_dialect::usage::Usage;
use rerouter_records::replay::{CallLatency, CapturedRequest, CapturedResponse, DecisionRecord};
use rerouter_routing::Inputs;

#[derive(Deserialize)]
struct ExportedCapture {
    id: RequestId,
    created_at: String,
    state: CaptureState,
    endpoint: String,
    key: Option<KeyId>,
    user: UserId,
    agent: Option<String>,
    client_request_id: Option<String>,
    trace_id: Option<TraceId>,
    decision: Option<DecisionRecord>,
    inputs: Option<Inputs>,
    served: Option<Served>,
    status: u16,
    stream: bool,
    usage: Option<Usage>,
    cost_usd: Option<f64>,
    latency: CallLatency,
    not_replayable: Option<String>,
    replay_of: Option<RequestId>,
    replayed_by: Option<String>,
    shadow_of: Option<RequestId>,
    request: CapturedRequest,
    response: CapturedResponse,
    redacted: bool,
    error: Option<String>,
    refused: Option<RefusalReason>,
}

fn headers(shown: &Map<String, Value>) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    shown.iter().map(|(name, value)| (name.clone(), text(value))).collect()
}

/// A body that is given as text or in base64; `None` if there is none.
fn body(text: Option<String>, coded: Option<&str>) -> Result<Option<Bytes>, String> {
    match (text, coded) {
        (Some(text), None) => Ok(Some(Bytes::from(text))),
        (None, Some(coded)) => {
            let decoded = base64::engine::general_purpose::STANDARD.decode(coded);
            Ok(Some(decoded.map_err(|_| "a `body_base64` is not base64")?.into()))
        }
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err("there are both `body` and `body_base64`".to_owned()),
    }
}

impl Capture {
    /// Parses the JSON of [`Capture::whole`]. Repeated headers stay joined; everything else is
    /// restored. The error quotes nothing of the capture.
    pub fn read_whole(text: &[u8]) -> Result<Capture, String> {
        // The parser's own error may quote the text.
        let mut exported: ExportedCapture =
            serde_json::from_slice(text).map_err(|error| match error.classify() {
                serde_json::error::Category::Data => {
                    format!("not a capture, at column {}", error.column())
                }
                _ => format!("not JSON, at column {}", error.column()),
            })?;
        let created_at: Timestamp =
            exported.created_at.parse().map_err(|_| "`created_at` is not a time")?;
        let (asked, answered) = (&mut exported.request, &mut exported.response);
        let request = body(asked.body.take(), asked.body_base64.as_deref())?;
        let response = body(answered.body.take(), answered.body_base64.as_deref())?;
        let mut head = Head::new(exported.id, created_at, exported.user, &exported.endpoint);
        // A redacted stream is stored as the assembled answer.
        head.response_assembled = exported.response.stream
            && response.is_none()
            && !exported.response.assembled.is_null();
        let response = match head.response_assembled {
            true => Bytes::from(exported.response.assembled.to_string()),
            false => response.unwrap_or_default(),
        };
        (head.state, head.status, head.stream) = (exported.state, exported.status, exported.stream);
        (head.key, head.agent, head.client_request_id) =
            (exported.key, exported.agent, exported.client_request_id);
        (head.request_headers, head.response_headers) =
            (headers(&exported.request.headers), headers(&exported.response.headers));
        (head.response_stream, head.response_truncated) =
            (exported.response.stream, exported.response.truncated);
        // Without its body the request cannot be replayed, whatever the JSON says.
        head.request_captured = request.is_some()
            && exported.not_replayable.as_deref() != Some(Kind::NotCaptured.row().word);
        let request = request.filter(|_| head.request_captured);
        (head.request_truncated, head.redacted) = (exported.request.truncated, exported.redacted);
        head.request_whole = exported.redacted && exported.not_replayable.is_none();
        // No request has an empty body.
        head.request_captured &= request.as_ref().is_some_and(|body| !body.is_empty())
            || head.not_replayable().is_some();
        head.query = exported.request.query;
        head.inputs = exported.inputs;
        head.served = exported.served;
        if let Some(DecisionRecord { decision, served, attempts, .. }) = exported.decision {
            (head.decision, head.attempts) = (Some(decision), attempts);
            // The summary's `served` lacks the node.
            head.served = served.or(head.served);
        }
        head.cost_usd = exported.cost_usd;
        (head.routing_us, head.ttft_ms, head.total_ms) =
            (exported.latency.routing_us, exported.latency.ttft_ms, exported.latency.total_ms);
        (head.replay_of, head.replayed_by, head.shadow_of) =
            (exported.replay_of, exported.replayed_by, exported.shadow_of);
        head.error = exported.error;
        head.trace_id = exported.trace_id;
        // The version that a gateway gives such a capture, so that builds that would misread it
        // refuse it.
        head.version = match (&head.agent, head.response_assembled) {
            (Some(_), _) => Head::AGENT,
            (None, true) => Head::ASSEMBLED,
            (None, false) => Head::FIRST,
        };
        head.set_usage(exported.usage);
        head.set_refused(exported.refused);
        Ok(Capture { head, bodies: Bodies { request: request.unwrap_or_default(), response } })
    }
}

#[cfg(test)]
#[path = "import_json_tests.rs"]
mod tests;
