//! Captures for tests: complete ones, with some members replaced.

use serde_json::{Value, json};

use crate::fixtures;
use rerouter_records::replay::{CaptureRecord, Replay};

/// The members that both kinds of captures have: those of lists, and whole ones.
fn base() -> Value {
    json!({
        "object": "replay", "id": "req_1", "created_at": "2025-11-24T16:00:00Z",
        "state": "completed", "endpoint": "chat.completions", "model": "auto", "key": "key_1",
        "user": "usr_1", "agent": null, "served": {"provider": "south", "model": "medium"},
        "status": 200, "stream": false, "usage": null, "cost_usd": null,
        "latency": {"routing_us": 0, "ttft_ms": null, "total_ms": 0}, "attempts": 0,
        "replayable": true, "not_replayable": null, "replay_of": null, "replayed_by": null,
        "shadow_of": null, "imported": false,
    })
}

/// A capture as lists have it, with the members of `with`.
pub(super) fn listed(with: Value) -> Replay {
    let mut whole = base();
    whole["decision"] = json!({
        "provider": "south", "model": "medium", "recipe": "main", "rule": "code",
        "revision": "0123456789ab", "left_out": [],
    });
    fixtures::record(whole, with)
}

/// A whole capture with an empty conversation, and with the members of `with`.
pub(super) fn record(with: Value) -> CaptureRecord {
    let mut whole = base();
    let more = json!({
        "decision": {
            "provider": "south", "model": "medium", "recipe": "main", "rule": "code",
            "strategy": "priority", "alias": "auto", "revision": "0123456789ab",
            "seed": "0000000000000000", "propensity": 1.0, "plan": [], "candidates": [],
            "routing_us": 0, "served": {"provider": "south", "model": "medium"}, "attempts": [],
        },
        "inputs": null,
        "request": {"headers": {}, "body": null, "truncated": false},
        "response": {"status": 200, "headers": {}, "body": null, "stream": false,
            "truncated": false, "assembled": null},
        "redacted": false, "client_request_id": null, "trace_id": null, "error": null,
        "conversation": {
            "request": {"system": [], "messages": [], "tools": [], "settings": {}, "unshown": [],
                "problem": null},
            "answer": {"content": [], "stop": "end", "unshown": [], "problem": null},
        },
    });
    whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fixtures::record(whole, with)
}
