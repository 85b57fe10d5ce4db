//! The state of this gateway, its targets, nodes and other gateways, for those who may see it.

use std::borrow::Cow;

use maud::{Markup, html};

use crate::call::PageCall;
use crate::pieces::{badge, breaker_hint, count, headings, id_link, some, table, time};
use rerouter_base::error::{Kind, Result};
use rerouter_base::url::encode;
use rerouter_records::gateway::{GatewayRecord, GatewayState};
use rerouter_records::node::NodeRecord;
use rerouter_records::status::{Activity, GatewayStatus, ProviderStatus, ProviderTarget};

/// Query for the longest page of a list in the API. Further entries are not read.
const MOST: &[(&str, &str)] = &[("limit", "100")];

/// A target is not failing if fewer attempts of a minute failed: one may fail by chance.
const FAILED: u64 = 2;
/// A target is failing if one of so many attempts failed: clients notice that.
const FAILED_OF: u64 = 5;

/// The state that admins see. A part that could not be read is empty.
#[derive(Default)]
pub(super) struct Present {
    pub(super) status: Option<GatewayStatus>,
    pub(super) providers: Vec<ProviderStatus>,
    pub(super) nodes: Vec<NodeRecord>,
    pub(super) gateways: Vec<GatewayRecord>,
    /// Names of the parts that could not be read, each with the error.
    pub(super) unread: Vec<(&'static str, String)>,
}

impl Present {
    pub(super) async fn read(call: &PageCall<'_>) -> Present {
        let mut present = Present::default();
        if !call.is_admin() {
            return present;
        }
        let (status, providers, nodes, gateways) = futures::join!(
            call.read("/v1/router/status"),
            call.list("/v1/router/providers", "", MOST),
            call.list("/v1/nodes", "", MOST),
            call.list("/v1/gateways", "", &[]),
        );
        present.status = present.take("the state of this gateway", status.map(Some));
        (present.providers, _) = present.take("the state of targets", providers);
        (present.nodes, _) = present.take("nodes", nodes);
        (present.gateways, _) = present.take("gateways", gateways);
        present
    }

    fn take<T: Default>(&mut self, what: &'static str, read: Result<T>) -> T {
        read.unwrap_or_else(|error| {
            // A path that this listener does not serve is not a failure.
            if error.kind() != Kind::NotFound {
                self.unread.push((what, error.detail().to_owned()));
            }
            T::default()
        })
    }

    /// Each target with the id of its provider.
    pub(super) fn targets(&self) -> impl Iterator<Item = (&str, &ProviderTarget)> {
        self.providers.iter().flat_map(|provider| {
            provider.targets.iter().map(move |target| (provider.id.as_str(), target))
        })
    }
}

/// The id of a target's row on the page.
pub(super) fn target_id(provider: &str, model: &str) -> String {
    format!("target-{}", encode(&format!("{provider}/{model}")))
}

pub(super) fn show(present: &Present) -> Markup {
    html! {
        @if let Some(status) = &present.status {
            section aria-labelledby="gateway" {
                h2 #gateway { "Gateway" }
                (gateway(status, &present.gateways))
            }
        }
        @if present.targets().next().is_some() {
            section aria-labelledby="targets" {
                h2 #targets { "Targets" }
                (targets(present))
            }
        }
    }
}

fn gateway(status: &GatewayStatus, gateways: &[GatewayRecord]) -> Markup {
    let GatewayStatus { document, captures, .. } = status;
    let used = captures.queue_bytes as f64 / captures.queue_limit_bytes.max(1) as f64 * 100.0;
    html! {
        div.grid {
            div.card {
                div.muted { "Routing document" }
                div {
                    (id_link("/console/routing", &document.revision))
                    " since " (time(&document.since.to_string()))
                }
            }
            div.card data-stat="captures" {
                div.muted { "Captures" }
                @if captures.enabled {
                    div {
                        (count(captures.stored)) " stored, " (count(captures.dropped)) " dropped, "
                        "queue " (format!("{used:.0} %"))
                    }
                } @else {
                    div { "off" }
                }
            }
            div.card {
                div.muted { "Process" }
                div {
                    "rerouter " (status.version) " since " (time(&status.started_at.to_string()))
                    ", " (some(status.requests_under_way as u64, "request")) " under way"
                    @if let Some(free) = status.disk.free_bytes {
                        ", " (format!("{:.1} GiB", free as f64 / f64::from(1 << 30)))
                        " of disk free"
                    }
                }
            }
            @if !gateways.is_empty() {
                div.card {
                    div.muted { a href="/console/gateways" { "Gateways" } }
                    div.row {
                        @for GatewayRecord { name, state, .. } in gateways {
                            (badge(if *state == GatewayState::Serving { "ok" } else { "bad" },
                                name))
                        }
                    }
                }
            }
        }
    }
}

fn targets(present: &Present) -> Markup {
    let numbers = ["Under way", "Last minute", "Failed of these"];
    let headings = headings(&["Target", "State"], &numbers);
    html! {
        (table("State of targets", "", &headings, &html! {
            @for (provider, target) in present.targets() { (line(provider, target)) }
        }))
        p.hint { "As this gateway sees them." }
        (breaker_hint())
    }
}

fn line(provider: &str, ProviderTarget { model, activity, .. }: &ProviderTarget) -> Markup {
    let (kind, word) = state(activity);
    html! {
        tr id=(target_id(provider, model)) {
            th scope="row" { (provider) "/" (model) }
            td {
                (badge(kind, &word))
                @if let Some(at) = activity.retry_at { " until " (time(&at.to_string())) }
            }
            td.num {
                (count(activity.inflight.into()))
                @if let Some(most) = activity.max_concurrency { " of " (count(most.into())) }
            }
            td.num { (count(activity.requests_1m)) }
            td.num { (count(activity.errors_1m)) }
        }
    }
}

/// The kind of badge for a target's state, and words for the state.
pub(super) fn state(activity: &Activity) -> (&'static str, Cow<'static, str>) {
    let Activity { errors_1m: failed, requests_1m: all, .. } = *activity;
    let is_failing = failed >= FAILED && failed.saturating_mul(FAILED_OF) >= all;
    match (activity.breaker.as_str(), activity.retry_at) {
        ("open", _) => ("bad", "breaker open".into()),
        ("half_open", _) => ("warn", "breaker half open".into()),
        (_, Some(_)) => ("warn", "cools down".into()),
        _ if is_failing => {
            let share = failed as f64 / all.max(1) as f64 * 100.0;
            ("warn", format!("failing, {share:.0} %").into())
        }
        _ => ("ok", "ready".into()),
    }
}
