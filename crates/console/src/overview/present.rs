//! The state of this gateway, its targets and its neighbours, for those who may see it.

use maud::{Markup, html};
use serde_json::Value;

use super::traffic::{maybe_number, rows, whole};
use crate::call::PageCall;
use crate::pieces::{badge, breaker_hint, count, id_link, some, time};
use rerouter_base::error::Kind;
use rerouter_base::url::encode;

/// Entries of a list that are looked at: the longest page of the API.
const MOST: &str = "?limit=100";

/// What admins see. A part that is missing could not be read.
#[derive(Default)]
pub(super) struct Present {
    pub(super) status: Value,
    pub(super) providers: Vec<Value>,
    pub(super) nodes: Vec<Value>,
    pub(super) gateways: Vec<Value>,
    /// What could not be read, and why.
    pub(super) unread: Vec<(&'static str, String)>,
}

impl Present {
    pub(super) async fn read(call: &PageCall<'_>) -> Present {
        if !call.is_admin() {
            return Present::default();
        }
        let (providers, nodes) =
            (format!("/v1/router/providers{MOST}"), format!("/v1/nodes{MOST}"));
        let (status, providers, nodes, gateways) = futures::join!(
            call.get("/v1/router/status"),
            call.get(&providers),
            call.get(&nodes),
            call.get("/v1/gateways"),
        );
        let mut unread = Vec::new();
        let mut take = |what, read: rerouter_base::error::Result<Value>| {
            read.unwrap_or_else(|error| {
                // What this listener does not serve is not missed.
                let fails = error.kind() != Kind::NotFound;
                unread.extend(fails.then(|| (what, error.detail().to_owned())));
                Value::Null
            })
        };
        Present {
            status: take("the state of this gateway", status),
            providers: rows(take("the state of targets", providers)),
            nodes: rows(take("nodes", nodes)),
            gateways: rows(take("gateways", gateways)),
            unread,
        }
    }

    /// Each target with the id of its provider.
    pub(super) fn targets(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.providers.iter().flat_map(|provider| {
            let targets = provider.get("targets").and_then(Value::as_array);
            targets.into_iter().flatten().map(move |target| (text(provider, "id"), target))
        })
    }
}

/// A text of a record; empty where there is none.
pub(super) fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The id of a target's row on the page.
pub(super) fn target_id(provider: &str, model: &str) -> String {
    format!("target-{}", encode(&format!("{provider}/{model}")))
}

pub(super) fn show(present: &Present) -> Markup {
    html! {
        @if !present.status.is_null() {
            section aria-labelledby="gateway" {
                h2 #gateway { "Gateway" }
                (gateway(present))
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

fn gateway(present: &Present) -> Markup {
    let status = &present.status;
    let at = |pointer: &str| status.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (queued, limit) =
        (whole(status, "/captures/queue_bytes"), whole(status, "/captures/queue_limit_bytes"));
    let used = queued as f64 / limit.max(1) as f64 * 100.0;
    html! {
        div.grid {
            div.card {
                div.muted { "Routing document" }
                div {
                    (id_link("/console/routing", at("/document/revision")))
                    " since " (time(at("/document/since")))
                }
            }
            div.card data-stat="captures" {
                div.muted { "Captures" }
                @if status.pointer("/captures/enabled") == Some(&Value::Bool(true)) {
                    div {
                        (count(whole(status, "/captures/stored"))) " stored, "
                        (count(whole(status, "/captures/dropped"))) " dropped, "
                        "queue " (format!("{used:.0} %"))
                    }
                } @else {
                    div { "off" }
                }
            }
            div.card {
                div.muted { "Process" }
                div {
                    "rerouter " (text(status, "version")) " since " (time(at("/started_at"))) ", "
                    (some(whole(status, "/requests_under_way"), "request")) " under way"
                    @if let Some(free) = maybe_number(status, "/disk/free_bytes") {
                        ", " (format!("{:.1} GiB", free / f64::from(1 << 30))) " of disk free"
                    }
                }
            }
            @if !present.gateways.is_empty() {
                div.card {
                    div.muted { a href="/console/gateways" { "Gateways" } }
                    div.row {
                        @for gateway in &present.gateways {
                            @let kind =
                                if text(gateway, "state") == "serving" { "ok" } else { "bad" };
                            (badge(kind, text(gateway, "name")))
                        }
                    }
                }
            }
        }
    }
}

fn targets(present: &Present) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="State of targets" {
            table.table {
                thead {
                    tr {
                        th scope="col" { "Target" }
                        th scope="col" { "State" }
                        @for column in ["Under way", "Last minute", "Failed of these"] {
                            th.num scope="col" { (column) }
                        }
                    }
                }
                tbody {
                    @for (provider, target) in present.targets() { (line(provider, target)) }
                }
            }
        }
        p.hint { "As this gateway sees them." }
        (breaker_hint())
    }
}

fn line(provider: &str, target: &Value) -> Markup {
    let model = text(target, "model");
    let (kind, word) = state(target);
    html! {
        tr id=(target_id(provider, model)) {
            th scope="row" { (provider) "/" (model) }
            td {
                (badge(kind, word))
                @if let Some(at) = target.get("retry_at").and_then(Value::as_str) {
                    " until " (time(at))
                }
            }
            td.num {
                (count(whole(target, "/inflight")))
                @if let Some(most) = target.get("max_concurrency").and_then(Value::as_u64) {
                    " of " (count(most))
                }
            }
            td.num { (count(whole(target, "/requests_1m"))) }
            td.num { (count(whole(target, "/errors_1m"))) }
        }
    }
}

/// The state of a target: the kind of its badge, and a word.
pub(super) fn state(target: &Value) -> (&'static str, &'static str) {
    match (text(target, "breaker"), target.get("retry_at").is_some_and(Value::is_string)) {
        ("open", _) => ("bad", "breaker open"),
        ("half_open", _) => ("warn", "breaker half open"),
        (_, true) => ("warn", "cools down"),
        _ => ("ok", "ready"),
    }
}
