//! What the document says of each parameter, and of the headers that tell what is left of limits.

use serde_json::{Map, Value, json};

use super::Operation;
use crate::interface::Surface;

/// Headers of answers that draw on limits: only those whose limit there is.
const LIMITS: &[(&str, &str, &str)] = &[
    (
        "x-ratelimit-limit-requests",
        "integer",
        "Requests a minute: of the limit that has the least left, whether the key's, that of a key above it or its user's",
    ),
    ("x-ratelimit-remaining-requests", "integer", "Requests left of them"),
    (
        "x-ratelimit-reset-requests",
        "string",
        "How long until all of them are there again, as `1s` or `6m0s`",
    ),
    ("x-ratelimit-limit-tokens", "integer", "Tokens a minute, as with requests"),
    (
        "x-ratelimit-remaining-tokens",
        "integer",
        "Tokens left of them, without what requests under way have reserved",
    ),
    ("x-ratelimit-reset-tokens", "string", "How long until all of them are there again"),
    ("x-ratelimit-limit-budget", "number", "The budget in USD, as with requests"),
    (
        "x-ratelimit-remaining-budget",
        "number",
        "USD left of it, without what requests under way have reserved, this one too",
    ),
    (
        "x-ratelimit-reset-budget",
        "string",
        "How long until its next day or month begins, as `9h0m5s`",
    ),
];

/// Each of them, for `components`.
pub(super) fn headers() -> Value {
    let described = |(name, kind, says): &(&str, &str, &str)| {
        ((*name).to_owned(), json!({ "description": says, "schema": { "type": kind } }))
    };
    LIMITS.iter().map(described).collect::<Map<String, Value>>().into()
}

/// References to them.
pub(super) fn limit_headers() -> Map<String, Value> {
    let referred = |(name, ..): &(&str, &str, &str)| {
        ((*name).to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }))
    };
    LIMITS.iter().map(referred).collect()
}

/// Of a parameter of the query, where its schema does not say it already.
pub(super) fn of_query(operation: &str, name: &str) -> &'static str {
    match (operation, name) {
        (_, "limit") => "Entries of a page.",
        ("listReplays", "after") => "`next` of the page before: what follows is older.",
        (_, "after") => "`next` of the page before.",
        ("usage", "since") => {
            "The first day, as any RFC 3339 time in it. Sums are kept by whole days in UTC; `span` says which."
        }
        ("usage", "until") => {
            "The last day, as any RFC 3339 time in it but its first moment, which ends the day before."
        }
        (_, "since") => "From this RFC 3339 time on.",
        (_, "until") => "Before this RFC 3339 time.",
        ("usage", "group_by") => {
            "`key`, `user`, `model`, `recipe` and `day`, with commas between: sums by these. Without it one sum."
        }
        ("listReplays", "status") => {
            "Status of the answer: `200`, a class as `4xx`, or several with commas between."
        }
        (_, "status") => {
            "`active`, `inactive`, `expired` or `revoked`. Without it all keys but revoked ones."
        }
        ("importReplays", "owner") => {
            "Id of the user whose the captures become; without it each keeps its own."
        }
        (_, "owner") => "Id of a user: only what is theirs. By admins, or for oneself.",
        (_, "descendants") => "Revoke the keys that descend from it as well.",
        (_, "actor") => "Id of who did it.",
        (_, "target") => "Id of what it was done to.",
        (_, "alias") => "The alias that was asked for.",
        (_, "recipe") => "The recipe of the decision.",
        (_, "provider") => "The provider that answered.",
        (_, "model") => "The model that answered.",
        (_, "decided_provider") => "The provider that the decision put first.",
        (_, "decided_model") => "The model that the decision put first.",
        (_, "state") => "`completed`, `failed`, `aborted` or `refused`.",
        (_, "key") => "Id of the key that asked.",
        (_, "replay_of") => "Id of a capture: only its replays.",
        (_, "shadow_of") => "Id of a capture: only its shadow.",
        (_, "dry_run") => "Decide only: no provider is called, nothing is captured.",
        (_, "replays") => "Delete its replays and its shadow as well.",
        (_, "forbid_unroutable") => {
            "Refuse the change where a request that found a target in the last 24 hours would find none."
        }
        (_, "allow_empty") => "Take the change where nothing was captured to try it on.",
        (_, "after_id") => "With `anthropic-version`: the models that follow this one.",
        (_, "before_id") => "With `anthropic-version`: the models before this one.",
        _ => "",
    }
}

/// Of a parameter of the path.
pub(super) fn of_path(path: &str, name: &str) -> &'static str {
    let nouns = [
        ("/v1/users", "Id of the user: `usr_…`."),
        ("/v1/nodes", "Id of the node: `node_…`."),
        ("/v1/agents", "Id of the agent, `agent_…`, or its name."),
        ("/v1/models", "Name of the model: an alias, `agent/<name>` or `provider/model`."),
    ];
    let noun = nouns.iter().find(|(start, _)| path.starts_with(start)).map(|(_, says)| *says);
    match name {
        _ if noun.is_some() => noun.unwrap_or_default(),
        "other" => "Id of the capture that it is compared with.",
        _ if path.starts_with("/v1/router/replay/") => {
            "Id of the capture, which is the id of its request: `req_…`."
        }
        _ if path.contains("keys/") => "Id of the key: `key_…`.",
        _ => "",
    }
}

/// The headers of a request that an operation looks at.
pub(super) fn of_headers(operation: &Operation) -> Vec<Value> {
    let mut found = Vec::new();
    let mut header = |name: &str, says: &str, schema: Value| {
        found.push(json!({ "name": name, "in": "header", "required": false, "description": says, "schema": schema }));
    };
    let text = || json!({ "type": "string" });
    if operation.takes.is_some() && Surface::of(operation.path).is_data_plane() {
        let codings = ["identity", "gzip", "x-gzip", "deflate", "zstd", "br"];
        let says = "How the body is coded; the limit of its size holds for what comes and for what it becomes";
        header("Content-Encoding", says, json!({ "type": "string", "enum": codings }));
        let says = "`off`: the capture has no bodies, where `capture.client_opt_out` of the server document lets clients say so";
        header("x-rerouter-capture", says, json!({ "type": "string", "enum": ["off"] }));
    }
    if operation.id == "reroute" || operation.takes == Some("NewKey") {
        let says = "A name for the call: its repetition within ten minutes has the same answer, and nothing is asked or made again";
        header(
            "Idempotency-Key",
            says,
            json!({ "type": "string", "minLength": 1, "maxLength": crate::bounds::IDEMPOTENCY_KEY }),
        );
    }
    match operation.id {
        "listModels" | "getModel" => header(
            "anthropic-version",
            "With it, whatever its value, the answer has Anthropic's shape",
            text(),
        ),
        "getAgent" => header(
            "If-None-Match",
            "Entity tags, as `ETag` of an answer gives them, or `*`",
            text(),
        ),
        "changeAgent" | "deleteAgent" => {
            header("If-Match", "Entity tags, as `ETag` of an answer gives them, or `*`", text())
        }
        "putConfig" | "rollbackConfig" => {
            let says = "The entity tag of the document that is live, as `GET /v1/router/config` gives it, or `*`; 412 where another is";
            header("If-Match", says, text());
        }
        _ => {}
    }
    found
}
