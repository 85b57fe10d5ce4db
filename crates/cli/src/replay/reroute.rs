//! `rerouter replay reroute`

use serde_json::{Value, json};

use super::super::client::{ApiCall, ApiClient, refusal};
use super::super::failure::Result;
use super::super::output::print;
use super::super::records::text;
use super::super::table::TextTable;
use super::captures::{dollars, path};

pub(super) fn reroute(
    client: &ApiClient,
    id: &str,
    dry_run: bool,
    idempotency_key: Option<&str>,
    json: bool,
) -> Result<()> {
    let path = path(id)?;
    let query = if dry_run { vec![("dry_run", "true".to_owned())] } else { Vec::new() };
    let headers: Vec<_> = idempotency_key.iter().map(|key| ("idempotency-key", *key)).collect();
    let target = format!("{path}/reroute");
    let call = ApiCall { query: &query, headers: &headers, ..ApiCall::new("POST", &target) };
    let answer = client.any(&call)?;
    let mut reroute: Value = answer.json().unwrap_or_default();
    let new_id = reroute.get("new_id").and_then(Value::as_str).map(str::to_owned);
    let failed = || Err(refusal(answer.status, &answer.text, None));
    // If only the provider failed, there is still a new capture to show.
    if answer.status != 200 && new_id.is_none() {
        return failed();
    }
    let comparison = match &new_id {
        Some(new) => Some(client.get(&format!("{path}/compare/{new}"), &[])?)
            .filter(|answer| answer.status == 200),
        None => None,
    };
    let comparison = match comparison {
        Some(answer) => answer.json()?,
        None => compare_decisions(&reroute),
    };
    let printed = if json {
        if let Some(fields) = reroute.as_object_mut() {
            fields.insert("compare".to_owned(), comparison);
        }
        print(&format!("{reroute}\n"))
    } else {
        let new = new_id.as_deref().unwrap_or("dry run");
        print(&format!("{new} of {id}\n\n{}", side_by_side(&comparison)))
    };
    if answer.status == 200 { printed } else { failed() }
}

/// Compares only the decisions, if there is no new capture.
fn compare_decisions(reroute: &Value) -> Value {
    let rows = ["provider", "model", "recipe", "rule", "revision"].map(|name| {
        let at = |decision: &str| {
            reroute.pointer(&format!("{decision}/{name}")).cloned().unwrap_or_default()
        };
        let (a, b) = (at("/original/decision"), at("/decision"));
        json!({ "field": format!("decision.{name}"), "equal": a == b, "a": a, "b": b })
    });
    json!({ "fields": rows })
}

fn side_by_side(comparison: &Value) -> String {
    let mut table = TextTable::new(&["FIELD", "ORIGINAL", "NEW", ""]);
    for field in comparison.get("fields").and_then(Value::as_array).into_iter().flatten() {
        let mark = match field.get("equal").and_then(Value::as_bool) {
            Some(true) => "",
            Some(false) => "differs",
            None => "unknown",
        };
        let name = text(field.get("field"));
        let [a, b] = ["a", "b"].map(|side| match name.ends_with("cost_usd") {
            true => dollars(field.get(side).and_then(Value::as_f64)),
            false => text(field.get(side)),
        });
        table.row([name, a, b, mark.to_owned()]);
    }
    table.text()
}
