//! Descriptions of parameters and of rate limit headers.

use serde_json::{Map, Value, json};

use crate::api::idempotency::IDEMPOTENCY_KEY;
use crate::api::operation::Operation;
use rerouter_base::interface::Surface;

/// Headers of answers to calls that draw on limits; each only if there is such a limit.
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

/// The headers as `components`.
pub(super) fn headers() -> Value {
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

/// Description of a query parameter whose schema has none.
pub(super) fn of_query(operation: &str, name: &str) -> &'static str {
    match (operation, name) {
        (_, "limit") => "Maximum number of entries of the page.",
        ("listReplays", "after") => "`next` of the previous page.",
        (_, "after") => "`next` of the previous page.",
        (_, "since") => "From this RFC 3339 time on.",
        (_, "until") => "Before this RFC 3339 time.",
        ("eraseReplays", "user") => "Id of the owner; admins only.",
        ("eraseReplays", "key") => "Id of the calling key, within the caller's reach.",
        ("listReplays", "status") => {
            "Status of the answer: `200`, a class like `4xx`, or a comma-separated list."
        }
        ("importReplays", "owner") => {
            "Id of the new owner of the captures. Default: each keeps its owner."
        }
        (_, "owner") => "Id of a user; admins may name any, others themselves.",
        (_, "alias") => "The alias requested.",
        (_, "recipe") => "The recipe of the decision.",
        (_, "provider") => "The provider that answered.",
        (_, "model") => "The model that answered.",
        (_, "decided_provider") => "The provider that the decision put first.",
        (_, "decided_model") => "The model that the decision put first.",
        (_, "state") => "`completed`, `failed`, `aborted` or `refused`.",
        (_, "key") => "Id of the calling key.",
        (_, "replay_of") => "Id of a capture: lists its replays.",
        (_, "shadow_of") => "Id of a capture: lists its shadow.",
        (_, "with") => "Comma-separated list of what is added: `conversation`, `explanation`.",
        (_, "stream") => "Only requests that asked for a stream, or only others.",
        (_, "replay") => "Only replays, or only others.",
        (_, "dry_run") => "Decide only: no provider is called, nothing is captured.",
        (_, "replays") => "Also delete its replays and its shadow.",
        (_, "forbid_unroutable") => {
            "Refuse the change if a request of the last 24 hours would lose its last target."
        }
        (_, "allow_empty") => "Accept the change if there are no captures to evaluate it on.",
        (_, "after_id") => "With `anthropic-version`: models after this one.",
        (_, "before_id") => "With `anthropic-version`: models before this one.",
        _ => "",
    }
}

/// Description of a path parameter.
pub(super) fn of_path(path: &str, name: &str) -> &'static str {
    let nouns = [
        ("/v1/users", "Id of the user: `usr_…`."),
        ("/v1/nodes", "Id of the node: `node_…`."),
        ("/v1/gateways", "Id of the registration of the gateway: `gw_…`."),
        ("/v1/agents", "Id of the agent, `agent_…`, or its name."),
        ("/v1/models", "Name of the model: an alias, `agent/<name>` or `provider/model`."),
    ];
    let noun = nouns.iter().find(|(start, _)| path.starts_with(start)).map(|(_, says)| *says);
    match name {
        _ if noun.is_some() => noun.unwrap_or_default(),
        "other" => "Id of the capture to compare with.",
        "revision" => "The revision of the document: twelve hex digits.",
        _ if path.starts_with("/v1/router/replay/") => {
            "Id of the capture, equal to its request id: `req_…`."
        }
        _ if path.contains("keys/") => "Id of the key: `key_…`.",
        _ => "",
    }
}

/// Request headers that an operation reads.
pub(super) fn of_headers(operation: &Operation) -> Vec<Value> {
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
