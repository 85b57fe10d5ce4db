//! Parses the JSON of an exported capture (contract 6.4), so that a corpus can be imported, or
//! evaluated without a gateway.

use std::sync::Arc;

use base64::Engine;
use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::record::{Attempt, Bodies, Capture, CaptureState, Head, Served};
use crate::error::Kind;
use crate::id::{KeyId, RequestId, UserId};
use crate::protocol::usage::Usage;
use crate::routing::{Decision, Inputs};

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
    decision: Option<ExportedDecision>,
    inputs: Option<Inputs>,
    served: Option<Served>,
    status: u16,
    stream: bool,
    usage: Option<Usage>,
    cost_usd: Option<f64>,
    latency: ExportedLatency,
    not_replayable: Option<String>,
    replay_of: Option<RequestId>,
    replayed_by: Option<String>,
    shadow_of: Option<RequestId>,
    request: ExportedSide,
    response: ExportedSide,
    redacted: bool,
    error: Option<String>,
}

/// A decision with its outcome.
#[derive(Deserialize)]
struct ExportedDecision {
    #[serde(flatten)]
    decision: Decision,
    served: Option<Served>,
    #[serde(default)]
    attempts: Vec<Attempt>,
}

#[derive(Deserialize)]
struct ExportedLatency {
    routing_us: u64,
    ttft_ms: Option<u64>,
    total_ms: u64,
}

/// A request or a response.
#[derive(Deserialize)]
struct ExportedSide {
    headers: Map<String, Value>,
    body: Option<String>,
    body_base64: Option<String>,
    truncated: bool,
    query: Option<String>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    assembled: Value,
}

impl ExportedSide {
    fn headers(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.headers.iter().map(|(name, value)| (name.clone(), text(value))).collect()
    }

    /// The body; `None` if there is none.
    fn body(&self) -> Result<Option<Bytes>, String> {
        match (&self.body, &self.body_base64) {
            (Some(text), None) => Ok(Some(Bytes::from(text.clone()))),
            (None, Some(coded)) => {
                let decoded = base64::engine::general_purpose::STANDARD.decode(coded);
                Ok(Some(decoded.map_err(|_| "a `body_base64` is not base64")?.into()))
            }
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err("there are both `body` and `body_base64`".to_owned()),
        }
    }
}

impl Capture {
    /// Parses what [`Capture::whole`] rendered. Repeated headers stay joined; all else is as it
    /// was. The error quotes nothing of the capture.
    pub fn read_whole(text: &[u8]) -> Result<Capture, String> {
        // The parser's own error may quote the text.
        let exported: ExportedCapture =
            serde_json::from_slice(text).map_err(|error| match error.classify() {
                serde_json::error::Category::Data => {
                    format!("not a capture, at column {}", error.column())
                }
                _ => format!("not JSON, at column {}", error.column()),
            })?;
        let created_at: Timestamp =
            exported.created_at.parse().map_err(|_| "`created_at` is not a time")?;
        let request = exported.request.body()?;
        let response = exported.response.body()?;
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
            (exported.request.headers(), exported.response.headers());
        (head.response_stream, head.response_truncated) =
            (exported.response.stream, exported.response.truncated);
        // Without its body it cannot be replayed, whatever the text says.
        head.request_captured = request.is_some()
            && exported.not_replayable.as_deref() != Some(Kind::NotCaptured.row().word);
        let request = request.filter(|_| head.request_captured);
        (head.request_truncated, head.redacted) = (exported.request.truncated, exported.redacted);
        head.request_whole = exported.redacted && exported.not_replayable.is_none();
        // No request's body is empty.
        head.request_captured &= request.as_ref().is_some_and(|body| !body.is_empty())
            || head.not_replayable().is_some();
        head.query = exported.request.query;
        head.inputs = exported.inputs;
        head.served = exported.served;
        if let Some(ExportedDecision { decision, served, attempts }) = exported.decision {
            (head.decision, head.attempts) = (Some(Arc::new(decision)), attempts);
            // The one of the summary has no node.
            head.served = served.or(head.served);
        }
        (head.usage, head.cost_usd) = (exported.usage, exported.cost_usd);
        (head.routing_us, head.ttft_ms, head.total_ms) =
            (exported.latency.routing_us, exported.latency.ttft_ms, exported.latency.total_ms);
        (head.replay_of, head.replayed_by, head.shadow_of) =
            (exported.replay_of, exported.replayed_by, exported.shadow_of);
        head.error = exported.error;
        // As it is where such a capture is made: builds that would misread it do not read it.
        head.version = match (&head.agent, head.response_assembled) {
            (Some(_), _) => Head::AGENT,
            (None, true) => Head::ASSEMBLED,
            (None, false) => Head::FIRST,
        };
        Ok(Capture { head, bodies: Bodies { request: request.unwrap_or_default(), response } })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::capture::record::tests::capture;
    use crate::id::Random;

    fn back(capture: &Capture) -> Capture {
        Capture::read_whole(capture.whole().to_string().as_bytes()).unwrap()
    }

    #[test]
    fn an_ordinary_capture_is_read_back_but_for_headers_that_were_joined() {
        let mut capture = capture(3, &UserId::known("usr_1"), &Random::seeded(1));
        let mut read = back(&capture);
        assert_eq!(read.head.request_headers, [("accept".to_owned(), "a, b".to_owned())]);
        read.head.request_headers.clone_from(&capture.head.request_headers);
        assert_eq!(read, capture);
        // What was redacted of a stream is exported as what it amounts to.
        capture.head.request_headers.clear();
        (capture.head.response_stream, capture.head.response_assembled, capture.head.redacted) =
            (true, true, true);
        capture.bodies.response = Bytes::from_static(b"{\"choices\":[]}");
        capture.head.version = Head::ASSEMBLED;
        assert_eq!(back(&capture), capture);
    }

    #[test]
    fn what_is_no_capture_is_told_without_its_contents() {
        let text = capture(3, &UserId::known("usr_1"), &Random::seeded(1)).whole().to_string();
        for (broken, expected) in [
            (text.replace("\"status\":200", "\"status\":\"my secret\""), "not a capture"),
            (
                text.replace("\"created_at\":\"", "\"created_at\":\"my secret"),
                "`created_at` is not a time",
            ),
            (
                text.replacen("\"truncated\":", "\"body_base64\":\"my secret\",\"truncated\":", 1),
                "there are both",
            ),
            (
                text.replacen("\"body\":\"{", "\"body\":null,\"body_base64\":\"my secret{", 1),
                "not base64",
            ),
            ("my secret".to_owned(), "not JSON"),
            ("[]".to_owned(), "not a capture"),
        ] {
            let error = Capture::read_whole(broken.as_bytes()).unwrap_err();
            assert!(
                error.contains(expected) && !error.contains("my secret"),
                "{expected}: {error}"
            );
        }
    }

    #[test]
    fn what_is_there_in_part_is_not_run_again_and_not_misread() {
        let mut capture = capture(5, &UserId::known("usr_1"), &Random::seeded(2));
        capture.head.response_stream = true;
        let mut whole = capture.whole();
        assert_eq!(
            (back(&capture).head.version, back(&capture).head.not_replayable()),
            (Head::FIRST, None)
        );
        whole["request"]["body"] = Value::Null;
        let read = |whole: &Value| Capture::read_whole(whole.to_string().as_bytes()).unwrap();
        assert_eq!(
            read(&whole).head.not_replayable(),
            Some(Kind::NotCaptured),
            "its body is not there"
        );
        whole["request"]["body"] = "".into();
        assert_eq!(read(&whole).head.not_replayable(), Some(Kind::NotCaptured), "it has none");
        whole["request"]["truncated"] = true.into();
        assert_eq!(
            read(&whole).head.not_replayable(),
            Some(Kind::Truncated),
            "nothing of it was kept"
        );
        let mut denied = capture.whole();
        denied["not_replayable"] = "not_captured".into();
        assert_eq!(
            (read(&denied).head.request_captured, read(&denied).bodies.request),
            (false, Bytes::new())
        );
        let mut assembled = capture.whole();
        assembled["response"]["body"] = Value::Null;
        assembled["response"]["assembled"] = serde_json::json!({"choices": []});
        assert_eq!(read(&assembled).head.version, Head::ASSEMBLED);
        assembled["agent"] = "agent_1".into();
        assert_eq!(read(&assembled).head.version, Head::AGENT);
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back_to_what_is_shown(
            request in prop::collection::vec(any::<u8>(), 1..100),
            response: Vec<u8>, text: String, flags: [bool; 6], node: Option<String>, cost: Option<f64>, seed: u64,
        ) {
            let mut capture = capture(5, &UserId::known("usr_1"), &Random::seeded(seed));
            let head = &mut capture.head;
            (head.request_captured, head.request_truncated, head.response_truncated) = (flags[0], flags[1], flags[2]);
            (head.redacted, head.response_stream, head.stream) = (flags[3], flags[4], flags[5]);
            head.query = flags[0].then(|| text.clone());
            (head.error, head.agent, head.cost_usd) = (Some(text.clone()), node.clone(), cost.filter(|cost| cost.is_finite()));
            head.served.as_mut().unwrap().node = node;
            head.inputs.as_mut().unwrap().seed = seed;
            head.request_headers.push(("x-text".to_owned(), text));
            capture.bodies = Bodies { request: request.into(), response: response.into() };
            let read = back(&capture);
            prop_assert_eq!(read.whole(), capture.whole());
            prop_assert_eq!((&read.head.inputs, &read.head.decision), (&capture.head.inputs, &capture.head.decision));
            prop_assert_eq!(read.head.not_replayable(), capture.head.not_replayable());
            if capture.head.request_captured {
                prop_assert_eq!(&read.bodies, &capture.bodies);
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
            prop_assert!(Capture::read_whole(text.as_bytes()).is_err());
        }
    }
}
