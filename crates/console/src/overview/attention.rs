//! Findings that need attention, each with a link to the page where it can be fixed.

use jiff::Timestamp;
use maud::{Markup, html};

use super::concerns::Concerns;
use super::present::{Present, state, target_id};
use crate::links::with_query;
use crate::pieces::{badge, count, some, time};
use rerouter_base::bounds;
use rerouter_base::error::RefusalReason;
use rerouter_base::url::encode;
use rerouter_records::gateway::{GatewayRecord, GatewayState};
use rerouter_records::key::KeyRecord;
use rerouter_records::node::{NodeRecord, NodeState};
use rerouter_records::status::{CertificateStatus, GatewayStatus, ProviderTarget};

/// The capture queue is a finding if at least this share of it is used.
const QUEUE: f64 = 0.8;

/// Something that somebody should look at.
pub(super) struct Concern {
    /// Whether requests are affected now.
    urgent: bool,
    says: Markup,
    /// Labels and addresses of pages about it.
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

/// All findings, the urgent ones first.
pub(super) fn findings(present: &Present, concerns: &Concerns, now: Timestamp) -> Vec<Concern> {
    let unread = present.unread.iter().map(|(what, why)| {
        let says = html! { (what) " cannot be read: " (why) };
        Concern::new(true, says, "Try again", "/console/")
    });
    let status = present.status.as_ref();
    let certificates = status.into_iter().flat_map(|status| &status.certificates);
    let mut all: Vec<Concern> = unread
        .chain(status.and_then(document))
        .chain(present.targets().filter_map(|(provider, target)| of_target(provider, target)))
        .chain(present.nodes.iter().filter_map(of_node))
        .chain(present.gateways.iter().filter_map(of_gateway))
        .chain(status.and_then(captures))
        .chain(status.and_then(disk))
        .chain(certificates.filter_map(|one| certificate(one, now)))
        .chain(concerns.refused.each().into_iter().filter_map(refused))
        .chain(concerns.short.iter().filter_map(short_budget))
        .chain(concerns.expiring.iter().filter_map(expiring))
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

fn document(status: &GatewayStatus) -> Option<Concern> {
    let refused = status.document.refused.as_ref()?;
    let says = html! {
        "A change of the routing document was refused (" (time(&refused.at.to_string()))
        "); the one before stays live."
        ul { @for problem in refused.problems.iter().take(3) { li { (problem) } } }
    };
    Some(Concern::new(true, says, "Routing", "/console/routing"))
}

fn of_target(provider: &str, target: &ProviderTarget) -> Option<Concern> {
    let ProviderTarget { model, activity, .. } = target;
    let (kind, word) = state(activity);
    if kind == "ok" {
        return None;
    }
    let says = html! {
        strong { (provider) "/" (model) } ": " (word)
        @if let Some(at) = activity.retry_at { ", until " (time(&at.to_string())) }
        ". " (count(activity.errors_1m)) " of " (count(activity.requests_1m))
        " attempts of the last minute failed."
    };
    let meant = [("decided_provider", provider), ("decided_model", model.as_str())];
    let (row, captures) =
        (format!("#{}", target_id(provider, model)), with_query("/console/captures", &meant));
    let finding = Concern::new(kind == "bad", says, "Its state", row);
    Some(finding.and("Requests meant for it", captures).and("Routing", "/console/routing"))
}

fn refused((reason, requests): (RefusalReason, u64)) -> Option<Concern> {
    let why = match reason {
        RefusalReason::Limit => "by limits of keys or users",
        RefusalReason::Target => "because no target could take them",
        RefusalReason::Model => "because the routing document does not know their model",
        RefusalReason::Request => "for what they ask for, or how they are written",
    };
    let says = html! { (some(requests, "request")) " of the last hour: refused " (why) "." };
    let shown = [("span", "1h"), ("outcome", reason.as_str())];
    let captures = with_query("/console/captures", &shown);
    let finding = Concern::new(reason == RefusalReason::Target, says, "Captures", captures);
    (requests > 0).then(|| match reason {
        RefusalReason::Target | RefusalReason::Model => finding.and("Routing", "/console/routing"),
        RefusalReason::Limit => finding.and("Keys", "/console/keys"),
        RefusalReason::Request => finding,
    })
}

fn of_node(node: &NodeRecord) -> Option<Concern> {
    let silent = node.registered.is_some() && node.state == NodeState::Unreachable;
    silent.then(|| {
        let says = html! { "The node " strong { (node.name) } " is silent." };
        Concern::new(true, says, "Node", format!("/console/nodes/{}", encode(node.id.as_str())))
    })
}

fn of_gateway(gateway: &GatewayRecord) -> Option<Concern> {
    let says = match gateway.state {
        GatewayState::Serving => return None,
        GatewayState::Fenced => "was too slow for a change and must register anew.",
        GatewayState::Silent => "is silent: its lease has run out.",
    };
    let says = html! { "The gateway " strong { (gateway.name) } " " (says) };
    Some(Concern::new(true, says, "Gateways", "/console/gateways"))
}

fn captures(GatewayStatus { captures, .. }: &GatewayStatus) -> Option<Concern> {
    let dropped = captures.dropped;
    let used = captures.queue_bytes as f64 / captures.queue_limit_bytes.max(1) as f64;
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

fn disk(GatewayStatus { disk, .. }: &GatewayStatus) -> Option<Concern> {
    disk.low.then(|| {
        let mib = disk.free_bytes.unwrap_or_default() >> 20;
        let says = html! {
            "Only " (count(mib)) " MiB are free where the data directory is: a full disk stops "
            "captures and changes of keys."
        };
        Concern::new(true, says, "Captures", "/console/captures")
    })
}

fn certificate(certificate: &CertificateStatus, now: Timestamp) -> Option<Concern> {
    let CertificateStatus { listener, expires_at } = certificate;
    let days = expires_at.map(|at| (at.0.as_second() - now.as_second()).div_euclid(86_400));
    if days.is_some_and(|days| days >= bounds::DOCTOR_CERTIFICATE_DAYS) {
        return None;
    }
    let says = html! {
        "The certificate of " (listener)
        @match expires_at {
            Some(end) => { " ends " (time(&end.to_string())) },
            None => " cannot be read",
        }
        ": renew its file; the gateway reads the new one by itself."
    };
    Some(Concern::new(days.is_none_or(|days| days < 1), says, "Gateways", "/console/gateways"))
}

fn of_key(urgent: bool, key: &KeyRecord, says: &Markup) -> Concern {
    let says = html! {
        "The key " strong { (key.name) } " " span.mono { (key.redacted) } " " (says) "."
    };
    let (id, interface) = (encode(key.id.as_str()), key.interface.as_str());
    Concern::new(urgent, says, "Key", format!("/console/keys/{id}?interface={interface}"))
}

fn short_budget(key: &KeyRecord) -> Option<Concern> {
    let budget = key.usage.as_ref()?.as_ref()?.budget.as_ref()?;
    let left = budget.remaining_usd;
    let used = (1.0 - left / budget.limit_usd.max(f64::MIN_POSITIVE)) * 100.0;
    let says = html! {
        "has used " (format!("{used:.0} %")) " of the budget of its " (budget.per.as_str())
        ", until " (time(&budget.resets_at.to_string()))
    };
    Some(of_key(left <= 0.0, key, &says))
}

fn expiring(key: &KeyRecord) -> Option<Concern> {
    let says = html! { "expires " (time(&key.expires_at?.to_string())) };
    Some(of_key(false, key, &says))
}

fn unused(key: &KeyRecord) -> Concern {
    let says = match key.last_used_at {
        Some(at) => html! { "was last used " (time(&at.to_string())) },
        None => html! { "was never used since " (time(&key.created_at.to_string())) },
    };
    of_key(false, key, &says)
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
