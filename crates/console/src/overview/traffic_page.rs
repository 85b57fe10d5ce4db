//! The traffic section of the overview: numbers, charts, and the largest recipes, targets, keys,
//! users or values of a label.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::traffic::{ALL_LISTED, Steps, Traffic};
use super::view::{Dimension, Range, View, sum_name, sum_of};
use crate::links::with_query;
use crate::pieces::{
    Chart, ChartSeries, bar_chart, chart, count, duration_ms, empty, field, headings, money, table,
};
use rerouter_base::usage_kind::UsageCounts;
use rerouter_records::UsageOrder;
use rerouter_records::usage::{LatencyQuantiles, UsageRecord};

/// `labels`: suggestions of labels of keys.
pub(super) fn show(
    traffic: &Traffic,
    view: &View,
    labels: &BTreeSet<String>,
    is_admin: bool,
) -> Markup {
    html! {
        section aria-labelledby="traffic" {
            h2 #traffic { "Traffic" }
            (choices(view, is_admin))
            @if view.by == Dimension::Label { (label_form(view, labels)) }
            @if traffic.total.sums.requests == 0 {
                (empty("No request ended in this time.",
                    "Requests show here a moment after they end."))
                p.row {
                    a.button href="/console/playground" { "Send one in the playground" }
                    a.button href="/console/keys/new?interface=router" { "Make a key" }
                    a.button href="/console/clients" { "Set up a client" }
                }
            } @else {
                (numbers(&traffic.total))
                (charts(traffic, view))
                (largest(traffic, view))
            }
        }
    }
}

fn choices(view: &View, is_admin: bool) -> Markup {
    html! {
        nav aria-label="Time" {
            ul.tabs {
                @for range in Range::ALL {
                    @let to = View { range, ..view.clone() };
                    li { (tab(&to, &format!("Last {}", range.as_str()), range == view.range)) }
                }
            }
        }
        nav.row.overview-by aria-label="Grouped by" {
            span.muted { "by" }
            @for by in Dimension::ALL {
                @if is_admin || by != Dimension::User {
                    (tab(&view.by(by), by.as_str(), by == view.by))
                }
            }
            @if let Some((dimension, value)) = &view.only {
                span.badge.badge-info { "only " (dimension.as_str()) " " (value) }
                a href=(View { only: None, ..view.clone() }.href()) { "show all" }
            }
        }
    }
}

fn tab(to: &View, label: &str, is_current: bool) -> Markup {
    html! { a.tab href=(to.href()) aria-current=[is_current.then_some("true")] { (label) } }
}

fn label_form(view: &View, labels: &BTreeSet<String>) -> Markup {
    html! {
        form.row action="/console/" method="get" role="search" {
            @for (name, value) in view.query().iter().filter(|(name, _)| *name != "label") {
                input type="hidden" name=(name) value=(value);
            }
            (field("Label of keys", "label", &html! {
                input #label name="label" value=(view.label) list="labels" autocomplete="off"
                    required;
                datalist #labels { @for label in labels { option value=(label) {} } }
            }, ""))
            button { "Show" }
        }
    }
}

fn numbers(total: &UsageRecord) -> Markup {
    let sums = &total.sums;
    let [latency, first_token] = [total.latency_ms, total.first_token_ms].map(quantiles);
    let bad = sums.errors.saturating_add(sums.refused.all());
    let share = bad as f64 / sums.requests.max(1) as f64 * 100.0;
    let cost = sums.cost_usd.map_or_else(|| "unknown".to_owned(), money);
    html! {
        div.grid.overview-numbers {
            (stat("requests", "Requests", &count(sums.requests), &html! {
                @let replays = total.replays.requests;
                @if replays == 1 { "1 reroute beside them" }
                @else if replays > 1 { (count(replays)) " reroutes beside them" }
            }))
            (stat("errors", "Errors", &count(bad), &html! {
                (format!("{share:.1} %"))
                @for (name, word, count_of) in UNANSWERED {
                    @let requests = count_of(total);
                    @if requests > 0.0 {
                        ", " a href=(format!("/console/captures?outcome={word}")) {
                            (count(requests as u64)) " " (name)
                        }
                    }
                }
            }))
            (stat("latency", "Latency", &latency[0], &html! {
                "median; 95 % below " (latency[1])
            }))
            (stat("first-token", "First token", &first_token[0], &html! {
                "median; 95 % below " (first_token[1])
            }))
            (stat("tokens", "Tokens", &count(sums.total_tokens), &html! {
                (count(sums.prompt_tokens)) " in, " (count(sums.completion_tokens)) " out"
                @for (name, used) in UsageCounts::NAMES.into_iter().zip(sums.counts.all()) {
                    @if used > 0 { ", " (count(used)) " " (said(name)) }
                }
            }))
            (stat("cost", "Cost", &cost, &html! {
                @if sums.unpriced_requests > 0 {
                    (count(sums.unpriced_requests)) " requests without a price"
                }
            }))
        }
    }
}

/// The name of a kind of usage in words.
fn said(name: &str) -> String {
    name.trim_end_matches("_tokens").replace('_', " ")
}

fn stat(name: &str, label: &str, value: &str, more: &Markup) -> Markup {
    html! {
        div.card.stat data-stat=(name) {
            div.muted { (label) }
            div.value { (value) }
            div.hint { (more) }
        }
    }
}

/// Median and 95th percentile as text, or two dashes for `None`.
fn quantiles(of: Option<LatencyQuantiles>) -> [String; 2] {
    of.map_or_else(|| ["–"; 2].map(str::to_owned), |of| [of.p50, of.p95].map(duration_ms))
}

type SumOf = fn(&UsageRecord) -> f64;

/// Requests without a good answer: a name, the outcome in the list of captures, and the sum.
const UNANSWERED: [(&str, &str, SumOf); 5] = [
    ("failed", "failed", |row| row.sums.errors as f64),
    ("refused by limits", "limit", |row| row.sums.refused.limit as f64),
    ("without a target", "target", |row| row.sums.refused.target as f64),
    ("of unknown models", "model", |row| row.sums.refused.model as f64),
    ("refused as they are", "request", |row| row.sums.refused.request as f64),
];

fn requests(row: &UsageRecord) -> f64 {
    row.sums.requests as f64
}

fn charts(traffic: &Traffic, view: &View) -> Markup {
    let line = |label: &str, of: fn(&UsageRecord) -> Option<f64>| ChartSeries {
        label: label.to_owned(),
        values: traffic.times.iter().map(|at| traffic.over_time.get(at).and_then(of)).collect(),
    };
    let bars = |label: &str, of: SumOf| ChartSeries {
        label: label.to_owned(),
        values: sums(traffic, &traffic.over_time, of),
    };
    let plot = |title: &str, unit, series| Chart {
        title: title.to_owned(),
        x: traffic.times.clone(),
        series,
        unit,
    };
    let latency = [
        line("median", |row| Some(row.latency_ms?.p50)),
        line("95 % below", |row| Some(row.latency_ms?.p95)),
        line("first token, median", |row| Some(row.first_token_ms?.p50)),
    ];
    let cost: SumOf = |row| row.sums.cost_usd.unwrap_or(0.0);
    let is_drawn = |name, of: SumOf| name == "failed" || of(&traffic.total) > 0.0;
    let errors = UNANSWERED.iter().filter(|(name, _, of)| is_drawn(*name, *of));
    let errors = errors.map(|(name, _, of)| bars(name, *of)).collect();
    let tokens = [
        bars("in", |row| row.sums.prompt_tokens as f64),
        bars("out", |row| row.sums.completion_tokens as f64),
    ];
    html! {
        div.split {
            (bar_chart(&plot("Requests", "count", parts(traffic, view.by, requests))))
            (bar_chart(&plot("Cost", "usd", parts(traffic, view.by, cost))))
            (chart(&plot("Latency", "ms", latency.into())))
            (bar_chart(&plot("Errors", "count", errors)))
            (bar_chart(&plot("Tokens", "count", tokens.into())))
        }
    }
}

/// One sum for each time step, 0 for a step without requests.
fn sums(traffic: &Traffic, steps: &Steps, of: SumOf) -> Vec<Option<f64>> {
    traffic.times.iter().map(|time| Some(steps.get(time).map_or(0.0, of))).collect()
}

/// One sum over time: a series for each of the largest values, and one for all others together.
fn parts(traffic: &Traffic, by: Dimension, of: SumOf) -> Vec<ChartSeries> {
    let mut rest = sums(traffic, &traffic.over_time, of);
    let mut parts = Vec::new();
    for (value, steps) in &traffic.series {
        let values = sums(traffic, steps, of);
        for (rest, value) in rest.iter_mut().zip(&values) {
            *rest = rest.zip(*value).map(|(rest, value)| (rest - value).max(0.0));
        }
        let label = traffic.name(by, Some(value)).to_owned();
        parts.push(ChartSeries { label, values });
    }
    // Sums of dollars have rounding errors.
    if parts.is_empty() || rest.iter().flatten().any(|value| *value > 1e-9) {
        let label = if parts.is_empty() { "all" } else { "others" };
        parts.push(ChartSeries { label: label.to_owned(), values: rest });
    }
    parts
}

/// Headings of the numbers in the table of the largest values.
const NUMBERS: [&str; 8] =
    ["Requests", "Failed", "Refused", "Median", "95 % below", "First token", "Tokens", "Cost"];

fn largest(traffic: &Traffic, view: &View) -> Markup {
    let order = view.order();
    let most = traffic.largest.first().map_or(0.0, |row| sum_of(order, row));
    let title = format!("Most {} by {}", sum_name(order), view.by.as_str());
    html! {
        h3 { (title) @if view.by == Dimension::Label { " " (view.label) } }
        nav.row.overview-by aria-label="Order" {
            span.muted { "most" }
            @for by in UsageOrder::ALL {
                @let to = View { order: Some(by), ..view.clone() };
                (tab(&to, sum_name(by), by == order))
            }
        }
        (table(&title, "overview-largest", &html! {
            (headings(&[view.by.as_str()], &NUMBERS))
            th scope="col" { span.visually-hidden { "Captures" } }
        }, &html! { @for row in &traffic.largest { (line(traffic, view, row, most)) } }))
        @if view.all && traffic.has_more {
            p.muted { "These are the " (count(ALL_LISTED as u64)) " largest." }
        } @else if view.all || traffic.has_more {
            @let label = if view.all { "Only the largest" } else { "Show all" };
            p { a href=(View { all: !view.all, ..view.clone() }.href()) { (label) } }
        }
    }
}

fn line(traffic: &Traffic, view: &View, row: &UsageRecord, largest: f64) -> Markup {
    let value = view.by.value(row);
    let name = traffic.name(view.by, value);
    let share = if largest > 0.0 { sum_of(view.order(), row) / largest * 100.0 } else { 0.0 };
    let latency = quantiles(row.latency_ms);
    html! {
        tr {
            th scope="row" {
                @if let Some(value) = value.filter(|_| view.by.has_filter()) {
                    @let only = Some((view.by, value.to_owned()));
                    a href=(View { only, ..view.clone() }.href()) title=(value) { (name) }
                } @else {
                    (name)
                }
                svg.bar viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true" {
                    rect.rest width="100" height="6" {}
                    rect width=(format!("{share:.1}")) height="6" {}
                }
            }
            td.num { (count(row.sums.requests)) }
            td.num { (count(row.sums.errors)) }
            td.num { (count(row.sums.refused.all())) }
            td.num { (latency[0]) }
            td.num { (latency[1]) }
            td.num { (quantiles(row.first_token_ms)[0]) }
            td.num { (count(row.sums.total_tokens)) }
            td.num { (row.sums.cost_usd.map_or_else(|| "–".to_owned(), money)) }
            td {
                @if let Some(href) = value.and_then(|value| captures(view.by, value)) {
                    a href=(href) aria-label=(format!("Captures of {name}")) { "captures" }
                }
            }
        }
    }
}

/// The address of the captures with this value.
fn captures(by: Dimension, value: &str) -> Option<String> {
    let filters = match by {
        Dimension::Recipe => [("recipe", value), ("", "")],
        Dimension::Target => {
            let (provider, model) = value.split_once('/')?;
            [("provider", provider), ("model", model)]
        }
        Dimension::Key => [("key", value), ("", "")],
        Dimension::User => [("owner", value), ("", "")],
        Dimension::Label => return None,
    };
    Some(with_query("/console/captures", &filters))
}
