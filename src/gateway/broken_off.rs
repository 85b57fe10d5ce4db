//! What a client reads instead of the rest of a stream that broke off: the error event of its protocol, after which the
//! body ends as it should. None of them is an end of an answer: no `[DONE]`, no `response.completed`, no `message_stop`.

use bytes::Bytes;
use serde_json::{Value, json};

use super::call::Call;
use super::record::Outcome;
use super::reply;
use crate::error::{Error, Kind};
use crate::interface::Surface;
use crate::protocol::endpoint::Endpoint;

/// The event that ends the stream of `call`.
pub(super) fn event(call: &Call, outcome: &Outcome) -> Bytes {
    let start = if outcome.between_events { "" } else { "\n\n" };
    Bytes::from(format!("{start}{}", written(call.endpoint, call.id.as_str(), outcome.next_event)))
}

fn written(endpoint: Endpoint, request_id: &str, number: u64) -> String {
    let error = Error::new(Kind::ProviderFailed, "The provider's stream broke off.");
    let named = |data: Value| format!("event: error\ndata: {data}\n\n");
    match endpoint {
        Endpoint::Messages => named(reply::envelope(Surface::Messages, request_id, &error)),
        Endpoint::Responses => {
            let row = error.kind().row();
            named(json!({
                "type": "error", "code": row.openai_code, "message": error.detail(), "param": null, "sequence_number": number,
            }))
        }
        Endpoint::ChatCompletions | Endpoint::Embeddings | Endpoint::CountTokens => {
            format!("data: {}\n\n", json!({"error": reply::openai_error(&error)}))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::stream::{EventKind, classify};

    #[test]
    fn each_protocol_has_its_own() {
        for (endpoint, expected) in [
            (
                Endpoint::ChatCompletions,
                "data: {\"error\":{\"message\":\"The provider's stream broke off.\",\"type\":\"server_error\",\"param\":null,\"code\":\"provider_error\"}}\n\n",
            ),
            (
                Endpoint::Responses,
                "event: error\ndata: {\"type\":\"error\",\"code\":\"provider_error\",\"message\":\"The provider's stream broke off.\",\"param\":null,\"sequence_number\":7}\n\n",
            ),
            (
                Endpoint::Messages,
                "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"The provider's stream broke off.\"},\"request_id\":\"req_1\"}\n\n",
            ),
        ] {
            let event = written(endpoint, "req_1", 7);
            assert_eq!(event, expected);
            assert!(
                matches!(classify(endpoint, event.as_bytes()), EventKind::Error(_)),
                "{endpoint:?}"
            );
        }
    }
}
