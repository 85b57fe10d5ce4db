//! Headers of requests and of rate limits.

use serde_json::{Map, Value, json};

use crate::api::idempotency::IDEMPOTENCY_KEY;
use crate::api::operation::Operation;
use rerouter_base::interface::Surface;

/// Headers of answers to calls that count against limits. Each is sent only if there is such a
/// limit.
const LIMITS: &[(&str, &str, &str)] = &[
    (
        "x-ratelimit-limit-requests",
        "integer",
        "Requests per minute: of the limit with the least left, of the key, \
         an ancestor of it or the user",
    ),
    ("x-ratelimit-remaining-requests", "integer", "Requests left"),
    (
        "x-ratelimit-reset-requests",
        "string",
        "Time until the full limit is available again, as `1s` or `6m0s`",
    ),
    ("x-ratelimit-limit-tokens", "integer", "Tokens per minute, as with requests"),
    (
        "x-ratelimit-remaining-tokens",
        "integer",
        "Tokens left, without the reserves of running requests",
    ),
    ("x-ratelimit-reset-tokens", "string", "Time until the full limit is available again"),
    ("x-ratelimit-limit-budget", "number", "Budget in USD, as with requests"),
    (
        "x-ratelimit-remaining-budget",
        "number",
        "USD left, without the reserves of running requests, including this one",
    ),
    ("x-ratelimit-reset-budget", "string", "Time until the next day or month begins, as `9h0m5s`"),
];

/// The rate limit headers as `components`.
pub(super) fn of_limits() -> Value {
    let described = |(name, kind, says): &(&str, &str, &str)| {
        ((*name).to_owned(), json!({ "description": says, "schema": { "type": kind } }))
    };
    LIMITS.iter().map(described).collect::<Map<String, Value>>().into()
}

pub(super) fn limit_headers() -> Map<String, Value> {
    let referred = |(name, ..): &(&str, &str, &str)| {
        ((*name).to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }))
    };
    LIMITS.iter().map(referred).collect()
}

pub(super) fn of_requests(operation: &Operation) -> Vec<Value> {
    let mut found = Vec::new();
    let mut header = |name: &str, says: &str, schema: Value| {
        found.push(json!({
            "name": name, "in": "header", "required": false, "description": says, "schema": schema
        }));
    };
    let text = || json!({ "type": "string" });
    if operation.takes.is_some() && Surface::of(operation.route.path).is_data_plane() {
        let codings = ["identity", "gzip", "x-gzip", "deflate", "zstd", "br"];
        let says = "Content coding of the body; the size limit holds before and after decoding";
        header("Content-Encoding", says, json!({ "type": "string", "enum": codings }));
        let says = "`off`: capture without bodies, if `capture.client_opt_out` of the server \
            document allows it";
        header("x-rerouter-capture", says, json!({ "type": "string", "enum": ["off"] }));
    }
    if operation.id == "reroute"
        || operation.id.starts_with("create") && operation.id.ends_with("Key")
    {
        let says = "Name of the call: a repetition within ten minutes gets the same answer and has \
            no effect";
        header(
            "Idempotency-Key",
            says,
            json!({
                "type": "string",
                "minLength": 1,
                "maxLength": IDEMPOTENCY_KEY,
            }),
        );
    }
    match operation.id {
        "listModels" | "getModel" => {
            header("anthropic-version", "If present, the answer has Anthropic's shape", text())
        }
        "getAgent" => header("If-None-Match", "Entity tags from `ETag`, or `*`", text()),
        "changeAgent" | "deleteAgent" => {
            header("If-Match", "Entity tags from `ETag`, or `*`", text())
        }
        "putConfig" | "rollbackConfig" => {
            let says = "Entity tag of the live document, from `GET /v1/router/config`, or `*`; \
                412 if another is live";
            header("If-Match", says, text());
        }
        _ => {}
    }
    found
}
