//! The concerns of the overview.

use serde_json::{Value, json};

use super::*;
use crate::fixtures::record;
use rerouter_base::clock::fixtures::at;
use rerouter_records::status::ProviderStatus;
use rerouter_records::usage::RefusalCounts;

fn found(present: &Present, concerns: &Concerns) -> Vec<(bool, String)> {
    findings(present, concerns, at(0))
        .iter()
        .map(|finding| {
            let links = finding.links.iter().map(|(_, href)| href.as_str());
            let links: Vec<&str> = links.collect();
            let says = finding.says.clone().into_string();
            (finding.urgent, format!("{says} {}", links.join(" ")))
        })
        .collect()
}

const SOON: &str = "2025-11-30T16:00:00Z";

fn status(with: Value) -> GatewayStatus {
    let whole = json!({
        "object": "status", "version": "1", "started_at": SOON, "requests_under_way": 0,
        "document": {"revision": "0123456789ab", "since": SOON, "refused": null},
        "captures": {"enabled": true, "queue_bytes": 0, "queue_limit_bytes": 100, "stored": 0,
            "dropped": 0},
        "disk": {"free_bytes": 1 << 30, "low": false}, "certificates": [],
    });
    record(whole, with)
}

fn provider(targets: &[Value]) -> ProviderStatus {
    let target = |with: &Value| {
        let whole = json!({
            "breaker": "closed", "retry_at": null, "ewma_ms": null, "inflight": 0,
            "max_concurrency": null, "requests_1m": 0, "errors_1m": 0,
        });
        record::<Value>(whole, with.clone())
    };
    let targets: Vec<Value> = targets.iter().map(target).collect();
    let whole = json!({"object": "provider", "id": "a", "protocol": "openai"});
    record(whole, json!({ "targets": targets }))
}

fn node(state: &str, is_registered: bool) -> NodeRecord {
    let registered = json!({"at": SOON, "epoch": 1, "version": "1", "endpoint": "http://n",
        "models": [], "max_concurrency": null, "labels": {}});
    let whole = json!({
        "object": "node", "id": "node_1", "name": "n", "models": [], "endpoint": null,
        "running": 0, "queued": 0, "inflight": 0, "breaker": null, "lease_expires_at": null,
        "generation": 1, "previous_secret_expires_at": null, "created_at": SOON,
        "rotated_at": null,
    });
    let registered = is_registered.then_some(registered);
    record(whole, json!({"state": state, "registered": registered}))
}

fn gateway(state: &str) -> GatewayRecord {
    let whole = json!({
        "object": "gateway", "id": "gw_1", "name": "g", "address": "", "version": "1",
        "self": true, "lease_ms": 0, "serves_stale": false, "applied": 0, "lag": 0,
        "document": "0123456789ab", "registered_at": null, "renewed_at": null,
        "clock_offset_ms": 0,
    });
    record(whole, json!({ "state": state }))
}

fn key(name: &str) -> KeyRecord {
    let budget = json!({"of": "key", "limit_usd": 2.0, "per": "day", "spent_usd": 1.8,
        "reserved_usd": 0.0, "remaining_usd": 0.2, "resets_at": SOON});
    let whole = json!({
        "object": "api_key", "id": "key_1", "interface": "router", "redacted": "rtr_…",
        "owner": "usr_1", "created_by": {"type": "session", "id": "sess_1"}, "scopes": [],
        "labels": {}, "limits": {}, "status": "active", "created_at": SOON,
        "expires_at": SOON, "last_used_at": null, "revoked_at": null, "rotated_at": null,
        "previous_secret_expires_at": null, "metadata": {},
        "usage": {"requests": null, "tokens": null, "concurrency": null, "budget": budget},
    });
    record(whole, json!({ "name": name }))
}

#[test]
fn a_good_gateway_needs_nothing() {
    let present = Present {
        status: Some(status(json!({}))),
        providers: vec![provider(&[json!({"model": "m"})])],
        nodes: vec![node("ready", true), node("unreachable", false)],
        gateways: vec![gateway("serving")],
        ..Present::default()
    };
    assert!(found(&present, &Concerns::default()).is_empty());
    // As a caller sees it who may see nothing of the gateway.
    assert!(found(&Present::default(), &Concerns::default()).is_empty());
}

#[test]
fn each_finding_has_its_place() {
    let bad = json!({
        "document": {"refused": {"at": SOON, "problems": ["<rules[0]> is wrong"]}},
        "captures": {"dropped": 3}, "disk": {"low": true}, "certificates": [
            {"listener": "a", "expires_at": SOON}, {"listener": "b", "expires_at": null},
            {"listener": "c", "expires_at": "2026-06-01T00:00:00Z"},
        ],
    });
    let targets = [
        json!({"model": "m/1", "breaker": "open", "retry_at": SOON, "errors_1m": 4}),
        json!({"model": "m2", "retry_at": SOON}),
        json!({"model": "m3", "requests_1m": 14, "errors_1m": 6}),
        json!({"model": "m4", "requests_1m": 14, "errors_1m": 2}),
    ];
    let present = Present {
        status: Some(status(bad)),
        providers: vec![provider(&targets)],
        nodes: vec![node("unreachable", true)],
        gateways: vec![gateway("silent")],
        unread: vec![("nodes", "the store is away".to_owned())],
    };
    let concerns = Concerns {
        expiring: vec![key("ends")],
        unused: vec![key("idle")],
        short: vec![key("short")],
        refused: RefusalCounts { limit: 4, target: 3, model: 2, request: 0 },
    };
    let found = found(&present, &concerns);
    let (urgent, later): (Vec<_>, Vec<_>) = found.iter().partition(|(urgent, _)| *urgent);
    for (among, says, href) in [
        (&urgent, "the store is away", "/console/"),
        (&urgent, "&lt;rules[0]&gt; is wrong", "/console/routing"),
        (&urgent, "breaker open", "#target-a%2Fm%2F1"),
        (&urgent, "breaker open", "decided_provider=a&decided_model=m%2F1"),
        (&later, "cools down", "#target-a%2Fm2"),
        (&later, "m3</strong>: failing, 43 %. 6 of 14", "#target-a%2Fm3"),
        (&urgent, "3 requests of the last hour", "/console/captures?span=1h&outcome=target"),
        (&later, "4 requests of the last hour", "/console/captures?span=1h&outcome=limit"),
        (&later, "2 requests of the last hour", "/console/captures?span=1h&outcome=model"),
        (&urgent, "is silent", "/console/nodes/node_1"),
        (&urgent, "lease", "/console/gateways"),
        (&later, "3 captures were dropped", "/console/captures"),
        (&urgent, "1\u{2009}024 MiB", "/console/captures"),
        (&later, "certificate of a", "/console/gateways"),
        (&urgent, "certificate of b", "/console/gateways"),
        (&later, "has used 90 %", "/console/keys/key_1?interface=router"),
        (&later, "ends</strong>", "/console/keys/key_1?interface=router"),
        (&later, "idle</strong>", "/console/keys/key_1?interface=router"),
    ] {
        let there = among.iter().any(|(_, text)| text.contains(says) && text.contains(href));
        assert!(there, "{says} {href}: {found:#?}");
    }
    assert_eq!(found.len(), 17);
    assert!(found.is_sorted_by_key(|(urgent, _)| !urgent));
}
