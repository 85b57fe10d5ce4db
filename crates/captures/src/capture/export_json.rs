//! Renders a capture as the JSON of the API and of exports (contract 6.4).

use base64::Engine;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::record::Capture;

impl Capture {
    /// The summary of contract 6.4.
    pub fn summary(&self) -> Value {
        self.head.summary()
    }

    /// The whole capture of contract 6.4: the summary, bodies, headers, inputs and the full
    /// decision.
    pub fn whole(&self) -> Value {
        let head = &self.head;
        let mut whole = head.fields();
        let (body, body_base64) = if head.request_captured {
            body_json(&self.bodies.request)
        } else {
            (Value::Null, None)
        };
        let mut request = json!({
            "headers": headers_json(&head.request_headers), "body": body,
            "truncated": head.request_truncated,
        });
        add_base64(&mut request, body_base64);
        if let (Some(query), Some(fields)) = (&head.query, request.as_object_mut()) {
            fields.insert("query".into(), query.as_str().into());
        }
        // A provider's answer has headers. Without an answer the body is null, not empty.
        let answered = !head.response_headers.is_empty() || !self.bodies.response.is_empty();
        // Where something was redacted, an empty body may be a removed one.
        let may_be_empty = head.request_captured && !head.redacted;
        let kept = answered && (may_be_empty || !self.bodies.response.is_empty());
        let (body, body_base64) = if kept && !head.response_assembled {
            body_json(&self.bodies.response)
        } else {
            (Value::Null, None)
        };
        let assembled = if kept && head.response_stream {
            head.assembled(&self.bodies.response)
        } else {
            Value::Null
        };
        let mut response = json!({
            "status": head.status, "headers": headers_json(&head.response_headers), "body": body,
            "stream": head.response_stream, "truncated": head.response_truncated,
            "assembled": assembled,
        });
        add_base64(&mut response, body_base64);
        whole.insert("decision".into(), head.decision_json());
        whole.insert("inputs".into(), json!(head.inputs));
        whole.insert("request".into(), request);
        whole.insert("response".into(), response);
        whole.insert("redacted".into(), head.redacted.into());
        whole.insert("client_request_id".into(), json!(head.client_request_id));
        whole.insert("trace_id".into(), json!(head.trace_id));
        whole.insert("error".into(), json!(head.error));
        whole.into()
    }
}

/// A UTF-8 body as text; any other as null and base64.
fn body_json(body: &Bytes) -> (Value, Option<String>) {
    match std::str::from_utf8(body) {
        Ok(text) => (text.into(), None),
        Err(_) => (Value::Null, Some(base64::engine::general_purpose::STANDARD.encode(body))),
    }
}

fn add_base64(part: &mut Value, body: Option<String>) {
    if let (Some(body), Some(fields)) = (body, part.as_object_mut()) {
        fields.insert("body_base64".into(), body.into());
    }
}

/// Headers as an object, with repeated ones joined as in RFC 9110 section 5.3.
fn headers_json(headers: &[(String, String)]) -> Value {
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
    joined.into()
}
