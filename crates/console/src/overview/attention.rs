//! What needs attention, each with a link to where it is mended.

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::concerns::Concerns;
use super::present::{Present, state, target_id, text};
use super::traffic::{number, whole};
use crate::pieces::{badge, count, time};
use rerouter_base::bounds;
use rerouter_base::url::encode;

/// Share of the capture queue that is named.
const QUEUE: f64 = 0.8;

/// Something that somebody should look at.
pub(super) struct Concern {
    /// Requests suffer now.
    urgent: bool,
    says: Markup,
    /// Label and address of where to look.
    links: Vec<(&'static str, String)>,
}

impl Concern {
    fn new(urgent: bool, says: Markup, label: &'static str, href: impl Into<String>) -> Concern {
        Concern { urgent, says, links: vec![(label, href.into())] }
    }

    fn and(mut self, label: &'static str, href: impl Into<String>) -> Concern {
        self.links.push((label, href.into()));
        self
    }
}

/// The urgent ones first.
pub(super) fn findings(present: &Present, concerns: &Concerns, now: Timestamp) -> Vec<Concern> {
    let unread = present.unread.iter().map(|(what, why)| {
        let says = html! { (what) " cannot be read: " (why) };
        Concern::new(true, says, "Try again", "/console/")
    });
    let mut all: Vec<Concern> = unread
        .chain(document(&present.status))
        .chain(present.targets().filter_map(|(provider, target)| of_target(provider, target)))
        .chain(present.nodes.iter().filter_map(of_node))
        .chain(present.gateways.iter().filter_map(of_gateway))
        .chain(captures(&present.status))
        .chain(disk(&present.status))
        .chain(certificates(&present.status, now))
        .chain(concerns.short.iter().map(short_budget))
        .chain(concerns.expiring.iter().map(expiring))
        .chain(concerns.unused.iter().map(unused))
        .collect();
    all.sort_by_key(|finding| !finding.urgent);
    all
}

pub(super) fn show(findings: &[Concern]) -> Markup {
    html! {
        section.card aria-labelledby="attention" {
            h2 #attention { "What needs attention" }
            @if findings.is_empty() {
                p { (badge("ok", "nothing")) }
            }
            ul.overview-findings {
                @for finding in findings {
                    li {
                        (badge(if finding.urgent { "bad" } else { "warn" },
                            if finding.urgent { "now" } else { "soon" }))
                        span { (finding.says) }
                        span.row {
                            @for (label, href) in &finding.links { a href=(href) { (label) } }
                        }
                    }
                }
            }
        }
    }
}

fn document(status: &Value) -> Option<Concern> {
    let refused = status.pointer("/document/refused").filter(|refused| !refused.is_null())?;
    let problems = refused.get("problems").and_then(Value::as_array);
    let problems: Vec<&str> = problems.into_iter().flatten().filter_map(Value::as_str).collect();
    let says = html! {
        "A change of the routing document was refused (" (time(text(refused, "at"))) "); the one "
        "before stays live."
        ul { @for problem in problems.iter().take(3) { li { (problem) } } }
    };
    Some(Concern::new(true, says, "Routing", "/console/routing"))
}

fn of_target(provider: &str, target: &Value) -> Option<Concern> {
    let (kind, word) = state(target);
    if kind == "ok" {
        return None;
    }
    let model = text(target, "model");
    let says = html! {
        strong { (provider) "/" (model) } ": " (word)
        @if let Some(at) = target.get("retry_at").and_then(Value::as_str) {
            ", until " (time(at))
        }
        ". " (count(whole(target, "/errors_1m"))) " of "
        (count(whole(target, "/requests_1m"))) " attempts of the last minute failed."
    };
    let meant = format!("decided_provider={}&decided_model={}", encode(provider), encode(model));
    let finding =
        Concern::new(kind == "bad", says, "Its state", format!("#{}", target_id(provider, model)));
    Some(
        finding
            .and("Requests meant for it", format!("/console/captures?{meant}"))
            .and("Routing", "/console/routing"),
    )
}

fn of_node(node: &Value) -> Option<Concern> {
    let registered = node.get("registered").is_some_and(|record| !record.is_null());
    let silent = registered && text(node, "state") == "unreachable";
    silent.then(|| {
        let says = html! { "The node " strong { (text(node, "name")) } " is silent." };
        Concern::new(true, says, "Node", format!("/console/nodes/{}", encode(text(node, "id"))))
    })
}

fn of_gateway(gateway: &Value) -> Option<Concern> {
    let says = match text(gateway, "state") {
        "serving" => return None,
        "fenced" => "was too slow for a change and must register anew.",
        _ => "is silent: its lease has run out.",
    };
    let says = html! { "The gateway " strong { (text(gateway, "name")) } " " (says) };
    Some(Concern::new(true, says, "Gateways", "/console/gateways"))
}

fn captures(status: &Value) -> Option<Concern> {
    let dropped = whole(status, "/captures/dropped");
    let limit = number(status, "/captures/queue_limit_bytes").max(1.0);
    let used = number(status, "/captures/queue_bytes") / limit;
    if dropped == 0 && used < QUEUE {
        return None;
    }
    let says = html! {
        @if dropped > 0 {
            (count(dropped)) " captures were dropped since this gateway started. "
        }
        @if used >= QUEUE {
            "The queue of captures is full to " (format!("{:.0}", used * 100.0)) " %. "
        }
        "The log says why: mostly the disk is full, or too slow."
    };
    Some(Concern::new(used >= QUEUE, says, "Captures", "/console/captures"))
}

fn disk(status: &Value) -> Option<Concern> {
    let low = status.pointer("/disk/low") == Some(&Value::Bool(true));
    low.then(|| {
        let mib = whole(status, "/disk/free_bytes") >> 20;
        let says = html! {
            "Only " (count(mib)) " MiB are free where the data directory is: a full disk stops "
            "captures and changes of keys."
        };
        Concern::new(true, says, "Captures", "/console/captures")
    })
}

fn certificates(status: &Value, now: Timestamp) -> Vec<Concern> {
    let all = status.get("certificates").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|certificate| {
        let end = certificate.get("expires_at").and_then(Value::as_str);
        let at = end.and_then(|end| end.parse::<Timestamp>().ok());
        let days = at.map(|at| (at.as_second() - now.as_second()).div_euclid(86_400));
        if days.is_some_and(|days| days >= bounds::DOCTOR_CERTIFICATE_DAYS) {
            return None;
        }
        let says = html! {
            "The certificate of " (text(certificate, "listener"))
            @match end {
                Some(end) => { " ends " (time(end)) },
                None => " cannot be read",
            }
            ": renew its file; the gateway reads the new one by itself."
        };
        Some(Concern::new(days.is_none_or(|days| days < 1), says, "Gateways", "/console/gateways"))
    })
    .collect()
}

/// The page of a key.
fn page(key: &Value) -> String {
    let (id, interface) = (encode(text(key, "id")), encode(text(key, "interface")));
    format!("/console/keys/{id}?interface={interface}")
}

fn named(key: &Value) -> Markup {
    html! { "The key " strong { (text(key, "name")) } " " span.mono { (text(key, "redacted")) } }
}

fn short_budget(key: &Value) -> Concern {
    let budget = key.pointer("/usage/budget").unwrap_or(&Value::Null);
    let (limit, left) = (number(budget, "/limit_usd"), number(budget, "/remaining_usd"));
    let used = (1.0 - left / limit.max(f64::MIN_POSITIVE)) * 100.0;
    let says = html! {
        (named(key)) " has used " (format!("{used:.0} %")) " of the budget of its "
        (text(budget, "per")) ", until " (time(text(budget, "resets_at"))) "."
    };
    Concern::new(left <= 0.0, says, "Key", page(key))
}

fn expiring(key: &Value) -> Concern {
    let says = html! { (named(key)) " expires " (time(text(key, "expires_at"))) "." };
    Concern::new(false, says, "Key", page(key))
}

fn unused(key: &Value) -> Concern {
    let says = html! {
        (named(key))
        @match key.get("last_used_at").and_then(Value::as_str) {
            Some(at) => { " was last used " (time(at)) "." },
            None => { " was never used since " (time(text(key, "created_at"))) "." },
        }
    };
    Concern::new(false, says, "Key", page(key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use rerouter_base::clock::fixtures::at;

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

    fn status() -> Value {
        json!({
            "document": {"revision": "0123456789ab", "refused": null},
            "captures": {"enabled": true, "queue_bytes": 0, "queue_limit_bytes": 100, "dropped": 0},
            "disk": {"free_bytes": 1 << 30, "low": false}, "certificates": [],
        })
    }

    #[test]
    fn a_good_gateway_needs_nothing() {
        let target = json!({"model": "m", "breaker": "closed", "retry_at": null});
        let present = Present {
            status: status(),
            providers: vec![json!({"id": "a", "targets": [target]})],
            nodes: vec![
                json!({"name": "n", "state": "ready", "registered": {}}),
                json!({"name": "new", "state": "unreachable", "registered": null}),
            ],
            gateways: vec![json!({"name": "g", "state": "serving"})],
            ..Present::default()
        };
        assert!(found(&present, &Concerns::default()).is_empty());
        // As a caller sees it who may see nothing of the gateway.
        assert!(found(&Present::default(), &Concerns::default()).is_empty());
    }

    #[test]
    fn each_finding_has_its_place() {
        let soon = "2025-11-30T16:00:00Z";
        let mut bad = status();
        bad["document"]["refused"] = json!({"at": soon, "problems": ["<rules[0]> is wrong"]});
        bad["captures"]["dropped"] = json!(3);
        bad["disk"]["low"] = json!(true);
        bad["certificates"] = json!([
            {"listener": "a", "expires_at": soon}, {"listener": "b", "expires_at": null},
            {"listener": "c", "expires_at": "2026-06-01T00:00:00Z"},
        ]);
        let targets = json!([
            {"model": "m/1", "breaker": "open", "retry_at": soon, "errors_1m": 4},
            {"model": "m2", "breaker": "closed", "retry_at": soon},
        ]);
        let present = Present {
            status: bad,
            providers: vec![json!({"id": "a", "targets": targets})],
            nodes: vec![
                json!({"id": "node_1", "name": "n", "state": "unreachable", "registered": {}}),
            ],
            gateways: vec![json!({"name": "g", "state": "silent"})],
            unread: vec![("nodes", "the store is away".to_owned())],
        };
        let budget = json!({"limit_usd": 2.0, "remaining_usd": 0.2, "per": "day"});
        let (id, via) = ("key_1", "router");
        let key =
            |name: &str| json!({"id": id, "name": name, "interface": via, "expires_at": soon});
        let mut short = key("short");
        short["usage"] = json!({ "budget": budget });
        let concerns =
            Concerns { expiring: vec![key("ends")], unused: vec![key("idle")], short: vec![short] };
        let found = found(&present, &concerns);
        let (urgent, later): (Vec<_>, Vec<_>) = found.iter().partition(|(urgent, _)| *urgent);
        for (among, says, href) in [
            (&urgent, "the store is away", "/console/"),
            (&urgent, "&lt;rules[0]&gt; is wrong", "/console/routing"),
            (&urgent, "breaker open", "#target-a%2Fm%2F1"),
            (&urgent, "breaker open", "decided_provider=a&decided_model=m%2F1"),
            (&later, "cools down", "#target-a%2Fm2"),
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
        assert_eq!(found.len(), 13);
        assert!(found.is_sorted_by_key(|(urgent, _)| !urgent));
    }
}
