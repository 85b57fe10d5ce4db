//! The answer to a reroute: `{new_id, decision, response, …}`.

use http::StatusCode;
use serde_json::{Value, json};

use super::outcome::Outcome;
use rerouter_base::error::{Error, Kind};
use rerouter_captures::capture::record::Head;
use rerouter_dialect::Dialect;
use rerouter_dialect::chat::completion::{self, CompletionDefaults};
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::recorded_answer::{as_completion, assemble};
use rerouter_records::error::RerouteError;
use rerouter_records::replay::{DecisionRecord, Rerouted};

/// The envelope of every reroute. Without `new_id`, that of a dry run.
pub(super) fn envelope(
    new_id: Option<&str>,
    decision: Option<DecisionRecord>,
    original: &Head,
    response: Value,
) -> Rerouted {
    Rerouted {
        new_id: new_id.map(str::to_owned),
        decision,
        response,
        replay_of: original.id.clone(),
        original: original.as_original(),
        response_kind: None,
    }
}

/// 200 if the provider answered well, else an error with what is known.
pub(super) fn answer(
    instead: &CompletionDefaults<'_>,
    decision: Option<DecisionRecord>,
    original: &Head,
    endpoint: Endpoint,
    outcome: &Outcome,
) -> (StatusCode, Value) {
    let is_stream = outcome.is_stream();
    let response = outcome.answer.as_ref().and_then(|answer| match is_stream {
        true => Some(assemble(endpoint, &answer.body)),
        false => serde_json::from_slice::<Value>(&answer.body).ok(),
    });
    let good = outcome.is_good() && outcome.failure.is_none();
    let object = response.as_ref().is_some_and(Value::is_object);
    let response = match response {
        Some(answer) if good && object && endpoint.completes() => {
            let body = outcome.answer.as_ref().map(|answer| &answer.body);
            let other = body.filter(|_| endpoint.dialect() != Dialect::Chat);
            let read = other.and_then(|body| as_completion(endpoint.dialect(), body, is_stream));
            completion::shaped(read.unwrap_or(answer), instead)
        }
        response => response.unwrap_or(Value::Null),
    };
    let mut rerouted = envelope(Some(instead.id), decision, original, response);
    if good && object {
        // A response is marked with its kind if it is not a chat completion.
        if !endpoint.completes() {
            rerouted.response_kind = Some(endpoint.as_str().to_owned());
        }
        return (StatusCode::OK, json!(rerouted));
    }
    let error = match outcome.status {
        Some(status) if good => Error::new(
            Kind::ProviderFailed,
            format!("The provider answered {status} with something that is not a JSON object."),
        ),
        Some(status) => {
            Error::new(Kind::ProviderFailed, format!("The provider answered {status}."))
        }
        None => outcome.error(),
    };
    let failed = RerouteError {
        error: error.kind().row().word.to_owned(),
        detail: error.detail().to_owned(),
        upstream_status: Some(outcome.status.or_else(|| outcome.last_refusal())),
        rerouted: Some(rerouted),
    };
    (error.status(), json!(failed))
}
