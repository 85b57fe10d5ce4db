//! The content of an access log line.

use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::clock::rfc3339;
use crate::id::{KeyId, RequestId, UserId};
use crate::trace_context::TraceId;

/// The fields of an access line with their descriptions, in order. A line has only the known
/// fields.
pub const ACCESS_FIELDS: &[(&str, &str)] = &[
    ("at", "When the request began, RFC 3339 in UTC."),
    ("request_id", "Its id, and that of its capture."),
    ("client_request_id", "The client's own `X-Request-Id`."),
    ("client", "The client's address; behind trusted proxies that of `X-Forwarded-For`."),
    ("method", "The method."),
    ("route", "The pattern of the route, or `unknown`."),
    ("path", "The path, without the query."),
    (
        "status",
        "The status that the client got; 499 where it left before, or ended its body early.",
    ),
    ("duration_us", "Microseconds from the request's head to the last byte of the answer."),
    ("bytes_in", "Bytes of the request's body, as sent."),
    ("bytes_out", "Bytes of the answer's body."),
    ("interface", "`pin`, `agent` or `router`."),
    ("key", "Id of the key."),
    ("user", "Id of the user."),
    ("model", "The model as the client asked for it."),
    ("recipe", "The recipe that the model led to; `direct` for a target asked for by its name."),
    ("rule", "The rule that decided."),
    ("provider", "The provider that answered."),
    ("served_model", "The provider's name of the model that answered."),
    ("attempts", "Attempts at providers."),
    ("prompt_tokens", "Tokens of the prompt, with those from the provider's cache."),
    ("completion_tokens", "Tokens of the answer."),
    ("usage_estimated", "`true` where the tokens are our estimate."),
    ("cost_usd", "Cost in US dollars, where the prices are known."),
    ("dropped", "What a translation left out, as in `x-rerouter-dropped`; of a stream all of it."),
    ("routing_us", "Microseconds to decide."),
    ("ttft_ms", "Milliseconds to the first content of the answer."),
    ("state", "`completed`, `failed`, `aborted` or `refused`."),
    ("trace_id", "Id of the trace, where [traces](../operate/traces.md) are exported."),
    (
        "error",
        "The code of the error that the client got, in the words of its interface; for an answer \
         that failed half way the capture's word, such as `cut`.",
    ),
    ("cause", "The reason of an error of ours. No client reads it."),
];

/// One line of the access log, which the log's thread serializes.
#[derive(Clone, Debug, Serialize)]
pub struct AccessLine {
    #[serde(serialize_with = "time")]
    pub at: Timestamp,
    pub request_id: RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_request_id: Option<String>,
    pub client: Option<IpAddr>,
    #[serde(serialize_with = "method")]
    pub method: Method,
    pub route: &'static str,
    pub path: String,
    pub status: u16,
    pub duration_us: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub interface: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<UserId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served_model: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub usage_estimated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

impl AccessLine {
    pub fn new(at: Timestamp, request_id: RequestId) -> Self {
        AccessLine {
            at,
            request_id,
            client_request_id: None,
            client: None,
            method: Method::GET,
            route: "unknown",
            path: String::new(),
            status: 0,
            duration_us: 0,
            bytes_in: 0,
            bytes_out: 0,
            interface: "",
            key: None,
            user: None,
            model: None,
            recipe: None,
            rule: None,
            provider: None,
            served_model: None,
            attempts: None,
            prompt_tokens: None,
            completion_tokens: None,
            usage_estimated: false,
            cost_usd: None,
            dropped: None,
            routing_us: None,
            ttft_ms: None,
            state: None,
            trace_id: None,
            error: None,
            cause: None,
        }
    }
}

fn time<S: Serializer>(at: &Timestamp, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&rfc3339(*at))
}

fn method<S: Serializer>(method: &Method, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(method.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line with every field.
    fn full() -> AccessLine {
        let text = |text: &str| Some(text.to_owned());
        AccessLine {
            client_request_id: text("mine"),
            client: "192.0.2.1".parse().ok(),
            method: Method::POST,
            route: "/v1/chat/completions",
            path: "/v1/chat/completions".into(),
            status: 200,
            duration_us: 1_234_567,
            bytes_in: 70,
            bytes_out: 900,
            interface: "router",
            key: Some(KeyId::known("key_1")),
            user: Some(UserId::known("usr_1")),
            model: text("auto"),
            recipe: Some("main".into()),
            rule: Some("default".into()),
            provider: Some("openai".into()),
            served_model: Some("gpt-4o".into()),
            attempts: Some(2),
            prompt_tokens: Some(7),
            completion_tokens: Some(3),
            usage_estimated: true,
            cost_usd: Some(0.000_044),
            dropped: text("citations"),
            routing_us: Some(9),
            ttft_ms: Some(400),
            state: Some("completed"),
            trace_id: TraceId::parse("4bf92f3577b34da6a3ce929d0e0e4736"),
            error: text("provider_error"),
            cause: text("why"),
            ..AccessLine::new(Timestamp::UNIX_EPOCH, RequestId::known("req_1"))
        }
    }

    #[test]
    fn the_reference_has_each_field_in_its_place() {
        let line = serde_json::to_value(full()).unwrap();
        let names: Vec<&String> = line.as_object().unwrap().keys().collect();
        let listed: Vec<&str> = ACCESS_FIELDS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, listed);
    }
}
