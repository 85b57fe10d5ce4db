//! `rerouter replay list`

use serde_json::Value;

use super::super::client::ApiClient;
use super::super::failure::Result;
use super::super::output::{print, print_error};
use super::super::records::{for_each_record, short, text};
use super::super::table::TextTable;
use super::super::{terminal, times};
use super::captures::{CAPTURES, dollars, rule, target};

const TITLES: [&str; 10] =
    ["TIME", "ID", "STATE", "STATUS", "ASKED FOR", "SERVED BY", "RULE", "TOKENS", "COST", "MS"];

pub(super) fn list(
    client: &ApiClient,
    query: &[(&'static str, String)],
    limit: u64,
    json: bool,
) -> Result<()> {
    // Id and time are always shown. Of the other columns the outcome is the most important.
    let is_brief = times::are_brief(terminal::width());
    let mut titles = TITLES;
    if is_brief {
        titles[0] = "TIME (UTC)";
    }
    let mut table = TextTable::new(&titles).with_priority(&[1, 0, 3, 5, 8, 6, 4, 7, 9, 2], 2);
    let unreadable = for_each_record(client, CAPTURES, query, limit, |summary| {
        if json {
            return print(&format!("{summary}\n"));
        }
        table.row(row(summary, is_brief));
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

fn row(summary: &Value, is_brief: bool) -> [String; 10] {
    let time = summary.get("created_at");
    let at = |pointer: &str| text(summary.pointer(pointer));
    [
        if is_brief { times::brief(time) } else { short(time) },
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
