//! Two captures side by side: decision, text, tool calls, usage, cost, latency.

use maud::{Markup, html};
use serde_json::Value;

use super::address;
use super::diff::{COMPARED, DiffUnit, diff};
use super::text::size;
use super::values::visible;
use crate::call::PageCall;
use crate::layout::Tab;
use crate::pieces::{badge, count, duration_ms, id_link, money, table};
use rerouter_base::blocking::blocking;
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;
use rerouter_records::replay::{ComparedField, Comparison};

/// `GET /console/captures/{id}/compare/{other}`.
pub(crate) async fn show(call: PageCall<'_>) -> ApiResult {
    let (a, b) = (call.param(0), call.param(1));
    let path = format!("/v1/router/replay/{}/compare/{}", encode(&a), encode(&b));
    let compared = call.read(&path).await?;
    // A long diff takes time, so it runs on a thread that may block.
    let main = blocking(move || shown(&compared)).await?;
    call.page("Two requests compared", Tab::Captures, main)
}

fn shown(Comparison { a, b, fields }: &Comparison) -> Markup {
    let (a, b) = (a.as_str(), b.as_str());
    let is_long = |field: &&ComparedField| matches!(&*field.field, "text" | "tool_calls");
    let find = |name: &str| fields.iter().find(|field| field.field == name);
    html! {
        (table("Fields", "cap-compare", &html! {
            th scope="col" { "Field" }
            th scope="col" { "A: " (id_link(&address(a, ""), a)) }
            th scope="col" { "B: " (id_link(&address(b, ""), b)) }
            th scope="col" { "Difference" }
        }, &html! {
            @for field in fields.iter().filter(|field| !is_long(field)) { (row(field)) }
        }))
        (long("Text", find("text"), DiffUnit::Words))
        (long("Tool calls", find("tool_calls"), DiffUnit::Lines))
    }
}

fn row(compared: &ComparedField) -> Markup {
    let ComparedField { field, a, b, equal } = compared;
    html! {
        tr {
            th scope="row" { (label(field)) }
            td { (value(field, a.as_ref())) }
            td { (value(field, b.as_ref())) }
            td {
                @match equal {
                    Some(true) => {}
                    Some(false) => {
                        (badge("info", change(compared).as_deref().unwrap_or("differs")))
                    }
                    None => (badge("warn", "unknown")),
                }
            }
        }
    }
}

/// A field's name as people read it, such as `total time` for `latency.total_ms`.
fn label(name: &str) -> String {
    let words = match name {
        "cost_usd" => "cost",
        "decision.provider" => "first choice: provider",
        "decision.model" => "first choice: model",
        "latency.ttft_ms" => "first token",
        "latency.total_ms" => "total time",
        name => name,
    };
    words.replace(['.', '_'], " ")
}

fn value(name: &str, value: Option<&Value>) -> String {
    let Some(value) = value else { return "–".to_owned() };
    match (value, value.as_f64()) {
        (_, Some(usd)) if name == "cost_usd" => money(usd),
        (_, Some(ms)) if name.starts_with("latency.") => duration_ms(ms),
        (Value::Number(number), _) => number.as_u64().map_or(number.to_string(), count),
        (Value::String(text), _) => visible(text).into_owned(),
        _ => visible(&value.to_string()).into_owned(),
    }
}

/// The change from A to B in percent. `None` if the field is not a measurement, or A is not
/// positive.
fn change(ComparedField { field, a, b, .. }: &ComparedField) -> Option<String> {
    let (a, b) = (a.as_ref()?.as_f64()?, b.as_ref()?.as_f64()?);
    let measured =
        field == "cost_usd" || field.starts_with("usage.") || field.starts_with("latency.");
    (measured && a > 0.0).then(|| format!("{:+.0} %", (b - a) / a * 100.0))
}

/// The section of a long field. Equal texts are shown once, others as their difference and side by
/// side.
fn long(title: &str, field: Option<&ComparedField>, unit: DiffUnit) -> Markup {
    let Some(field) = field else { return html! {} };
    let [a, b] = [&field.a, &field.b].map(|side| side.as_ref().map_or_else(String::new, said));
    let is_cut = a.len().max(b.len()) > COMPARED;
    html! {
        section aria-label=(title) {
            h2 { (title) }
            @if field.a.is_none() && field.b.is_none() {
                p.muted { "Neither has any." }
            } @else if field.equal == Some(true) {
                p { (badge("ok", "equal")) }
                (one(&a))
            } @else {
                @if is_cut { p.muted { "Only the first " (size(COMPARED)) " are compared." } }
                @if field.equal.is_none() {
                    p.muted { "A part was not kept or was redacted, so they may be equal." }
                }
                p.diff { del { "Only in A" } " " ins { "Only in B" } }
                (diff(&a, &b, unit))
                details {
                    summary { "Side by side" }
                    div.split {
                        div { h3 { "A" } (one(&a)) }
                        div { h3 { "B" } (one(&b)) }
                    }
                }
            }
        }
    }
}

/// A value as text. What is not a string becomes indented JSON.
fn said(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    }
}

fn one(text: &str) -> Markup {
    let cut = text.get(..text.floor_char_boundary(COMPARED)).unwrap_or(text);
    html! { pre.cap-text tabindex="0" { (visible(cut)) } }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_differ_say_by_how_much() {
        let compared = json!({"a": "req_a", "b": "req_b", "fields": [
            {"field": "served.model", "a": "<small>", "b": "large", "equal": false},
            {"field": "status", "a": 200, "b": 200, "equal": true},
            {"field": "cost_usd", "a": 0.02, "b": 0.01, "equal": false},
            {"field": "usage.total_tokens", "a": null, "b": 12000, "equal": false},
            {"field": "text", "a": "one two", "b": "one three", "equal": false},
            {"field": "tool_calls", "a": null, "b": [{"name": "\u{202e}"}], "equal": null},
        ]});
        let compared = serde_json::from_value(compared).unwrap();
        let html = shown(&compared).into_string();
        for part in [
            "&lt;small&gt;",
            "$0.0200",
            "-50 %",
            "12\u{2009}000",
            "one <del>two</del><ins>three</ins>",
            "⟨U+202E⟩",
            "may be equal",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
    }
}
