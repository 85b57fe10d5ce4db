//! `rerouter replay list`

use serde_json::Value;

use super::super::client::ApiClient;
use super::super::failure::CommandFailure;
use super::super::output::{print, print_error};
use super::super::records::{for_each_record, short, text};
use super::super::table::TextTable;
use super::captures::{CAPTURES, dollars, rule, target};

const TITLES: [&str; 10] =
    ["TIME", "ID", "STATE", "STATUS", "ASKED FOR", "SERVED BY", "RULE", "TOKENS", "COST", "MS"];

pub(super) fn list(
    client: &ApiClient,
    query: &[(&'static str, String)],
    limit: u64,
    json: bool,
) -> Result<(), CommandFailure> {
    // Id and time are always shown, then the outcome counts most.
    let mut table = TextTable::new(&TITLES).with_priority(&[1, 0, 3, 5, 4, 2, 6, 8, 9, 7], 2);
    let unreadable = for_each_record(client, CAPTURES, query, limit, |summary| {
        if json {
            return print(&format!("{summary}\n"));
        }
        table.row(row(summary));
        Ok(())
    })?;
    if unreadable > 0 {
        print_error(&format!("{unreadable} captures cannot be read\n"));
    }
    match (json, table.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => print("no captures\n"),
        (false, false) => print(&table.text()),
    }
}

fn row(summary: &Value) -> [String; 10] {
    let at = |pointer: &str| text(summary.pointer(pointer));
    [
        short(summary.get("created_at")),
        at("/id"),
        at("/state"),
        at("/status"),
        at("/model"),
        target(summary.get("served")),
        rule(summary.get("decision")),
        at("/usage/total_tokens"),
        dollars(summary.get("cost_usd").and_then(Value::as_f64)),
        at("/latency/total_ms"),
    ]
}
