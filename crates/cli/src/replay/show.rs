//! `rerouter replay show`

use serde_json::Value;

use super::super::client::ApiClient;
use super::super::failure::Result;
use super::super::output::print;
use super::super::records::text;
use super::super::table::{TextTable, clean};
use super::captures::{dollars, path, rule, target};

/// Fields of a capture that are shown unchanged.
const FIELDS: [&str; 12] = [
    "id",
    "created_at",
    "state",
    "status",
    "error",
    "endpoint",
    "model",
    "user",
    "key",
    "stream",
    "replay_of",
    "shadow_of",
];

pub(super) fn show(client: &ApiClient, id: &str, json: bool) -> Result<()> {
    let answer = client.get(&path(id)?, &[])?.ok()?;
    if json {
        return print(&format!("{}\n", answer.text));
    }
    let capture = answer.json()?;
    print(&facts(&capture).text())?;
    for table in [candidates(&capture), attempts(&capture)] {
        if !table.is_empty() {
            print(&format!("\n{}", table.text()))?;
        }
    }
    print(&format!("\nREQUEST\n{}\n", body(&capture, "request")))?;
    print(&format!("\nRESPONSE\n{}\n", body(&capture, "response")))
}

fn facts(capture: &Value) -> TextTable {
    let at = |pointer: &str| text(capture.pointer(pointer));
    let mut table = TextTable::new(&["FIELD", "VALUE"]);
    for name in FIELDS {
        table.row([name.to_owned(), text(capture.get(name))]);
    }
    let tokens = format!("{} + {}", at("/usage/prompt_tokens"), at("/usage/completion_tokens"));
    let latency = format!(
        "{} ms, of which routing {} us",
        at("/latency/total_ms"),
        at("/latency/routing_us")
    );
    let replayable = match at("/not_replayable").as_str() {
        "-" => "yes".to_owned(),
        why => format!("no: {why}"),
    };
    let cost = dollars(capture.get("cost_usd").and_then(Value::as_f64));
    for (name, value) in [
        ("rule", rule(capture.get("decision"))),
        ("strategy", at("/decision/strategy")),
        ("revision", at("/decision/revision")),
        ("served by", target(capture.get("served"))),
        ("tokens", tokens),
        ("cost", cost),
        ("latency", latency),
        ("replayable", replayable),
    ] {
        table.row([name.to_owned(), value]);
    }
    table
}

fn candidates(capture: &Value) -> TextTable {
    let mut table = TextTable::new(&["CANDIDATE", "ELIGIBLE"]);
    for candidate in listed(capture, "/decision/candidates") {
        let eligible = match candidate.get("reason").filter(|reason| !reason.is_null()) {
            Some(why) => format!("no: {}", text(Some(why))),
            None => "yes".to_owned(),
        };
        table.row([target(Some(candidate)), eligible]);
    }
    table
}

fn attempts(capture: &Value) -> TextTable {
    let mut table = TextTable::new(&["ATTEMPT", "STATUS", "ERROR", "MS"]);
    for attempt in listed(capture, "/decision/attempts") {
        let [status, error, duration] =
            ["status", "error", "duration_ms"].map(|name| text(attempt.get(name)));
        table.row([target(Some(attempt)), status, error, duration]);
    }
    table
}

fn listed<'a>(capture: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    capture.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// A body as text, for a stream the assembled answer.
fn body(capture: &Value, side: &str) -> String {
    let at = |name: &str| capture.get(side)?.get(name).filter(|value| !value.is_null());
    let body = match (at("assembled"), at("body"), at("body_base64")) {
        (Some(assembled), ..) => assembled.to_string(),
        (None, Some(body), _) => text(Some(body)),
        (None, None, Some(_)) => "(not text; --json has the bytes)".to_owned(),
        _ => "(not captured)".to_owned(),
    };
    let truncated = at("truncated") == Some(&Value::Bool(true));
    clean(&body) + if truncated { "\n(truncated)" } else { "" }
}
