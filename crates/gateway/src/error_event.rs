//! The error event, in the client's protocol, that ends a stream which broke off. A regular end,
//! such as `[DONE]`, `response.completed` or `message_stop`, is not sent.

use bytes::Bytes;

use super::call::InferenceCall;
use super::outcome::Outcome;
use rerouter_base::error::{Error, Kind};
use rerouter_dialect::endpoint::Endpoint;

pub(super) fn error_event(call: &InferenceCall, outcome: &Outcome) -> Bytes {
    if let Some(event) = &outcome.last_event {
        return event.clone();
    }
    let start = if outcome.relay.between_events() { "" } else { "\n\n" };
    let event =
        rendered(call.request.endpoint, call.id.as_str(), outcome.relay.tally().next_number());
    Bytes::from(format!("{start}{event}"))
}

fn rendered(endpoint: Endpoint, request_id: &str, number: u64) -> String {
    let error = Error::new(Kind::ProviderFailed, "The provider's stream broke off.");
    endpoint.error_event(&error, request_id, number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rerouter_dialect::stream::{EventKind, classify};

    #[test]
    fn each_protocol_has_its_own() {
        for (endpoint, expected) in [
            (
                Endpoint::ChatCompletions,
                "data: {\"error\":{\"message\":\"The provider's stream broke off.\",\
                \"type\":\"server_error\",\"param\":null,\"code\":\"provider_error\"}}\n\n",
            ),
            (
                Endpoint::Responses,
                "event: error\ndata: {\"type\":\"error\",\"code\":\"provider_error\",\
                \"message\":\"The provider's stream broke off.\",\
                \"param\":null,\"sequence_number\":7}\n\n\
                event: response.failed\ndata: {\"type\":\"response.failed\",\
                \"sequence_number\":8,\"response\":{\"id\":\"req_1\",\"object\":\"response\",\
                \"status\":\"failed\",\"error\":{\"code\":\"provider_error\",\
                \"message\":\"The provider's stream broke off.\"},\
                \"incomplete_details\":null,\"output\":[]}}\n\n",
            ),
            (
                Endpoint::Messages,
                "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\
                \"message\":\"The provider's stream broke off.\"},\"request_id\":\"req_1\"}\n\n",
            ),
        ] {
            let event = rendered(endpoint, "req_1", 7);
            assert_eq!(event, expected);
            for event in event.split_inclusive("\n\n") {
                let kind = classify(endpoint, event.as_bytes());
                assert!(matches!(kind, EventKind::Error(_)), "{endpoint:?}");
            }
        }
    }
}
