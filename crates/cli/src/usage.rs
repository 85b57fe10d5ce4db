//! `rerouter usage`

use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::client::{ApiCall, ApiClient};
use super::destination::ApiClientOptions;
use super::failure::{CommandFailure, Result};
use super::output::print;
use super::records::{RecordTable, text};
use super::replay::dollars;
use super::table::TextTable;
use super::terminal::confirm;
use super::times;
use rerouter_base::clock::Clock;
use rerouter_base::usage_kind::UsageCounts;
use rerouter_core::config::Env;
use rerouter_records::usage::Settlement;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct UsageArguments {
    #[command(flatten)]
    client: ApiClientOptions,
    /// From this day in UTC: 2026-11-21, or an age in days such as 7d.
    #[arg(long, value_name = "DAY")]
    since: Option<String>,
    /// Before this day, written like --since.
    #[arg(long, value_name = "DAY")]
    until: Option<String>,
    /// Sum by these, several with commas: key, user, model, alias, recipe, rule, day, and a label
    /// of the key such as label:team.
    #[arg(long, value_name = "COLUMNS", default_value = "model", value_delimiter = ',',
        value_parser = column)]
    by: Vec<String>,
    /// The most sums to list, those that cost most first; up to 1000.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: Option<u16>,
    /// Print the JSON of the API.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Option<UsageCommand>,
}

#[derive(Subcommand)]
enum UsageCommand {
    /// List what gateways held of budgets when they died; admins only.
    Lost,
    /// Say what was spent of all that dead gateways held of a budget; admins only. The rest is
    /// given back.
    Settle {
        /// Id of the key or user.
        subject: String,
        /// Day or month, as `lost` lists it.
        period: String,
        /// US dollars that were spent, 0 or more.
        usd: f64,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
}

const USAGE: &str = "/v1/router/usage";

const LOST: RecordTable = RecordTable {
    what: "lost holds",
    titles: &["SUBJECT", "PERIOD", "HELD USD", "SINCE", "GATEWAY"],
    pointers: &["/subject", "/period", "/held_usd", "/held_at", "/gateway"],
    order: &[0, 2, 1, 3, 4],
};

pub(super) fn run(arguments: UsageArguments, env: &Env<'_>) -> Result<()> {
    let client = ApiClient::new(&arguments.client, env)?;
    match arguments.command {
        None => sums(&client, &arguments),
        Some(UsageCommand::Lost) => {
            let path = format!("{USAGE}/lost");
            list(&client, &path, &[], arguments.json, "settle some", |rows| LOST.print(rows))
        }
        Some(UsageCommand::Settle { subject, period, usd, yes }) => {
            let done = format!("{usd} USD of what was lost of {subject} in {period}");
            confirm(yes, &format!("Count {done} as spent, and give the rest back?"))?;
            let body = json!(Settlement { subject, period, spent_usd: usd }).to_string();
            let body = Some(("application/json", body.as_bytes()));
            client.call(&ApiCall { body, ..ApiCall::new("PATCH", USAGE) }, None)?;
            if arguments.json { Ok(()) } else { print(&format!("{done} count as spent\n")) }
        }
    }
}

fn sums(client: &ApiClient, arguments: &UsageArguments) -> Result<()> {
    let now = Clock::System.now();
    let mut by = Vec::new();
    for column in &arguments.by {
        if !by.contains(column) {
            by.push(column.clone());
        }
    }
    let mut query = vec![("group_by", by.join(","))];
    if !by.iter().any(|column| column == "day") {
        query.push(("order", "cost_usd".to_owned()));
    }
    query.extend(arguments.limit.map(|limit| ("limit", limit.to_string())));
    for (name, option, text) in
        [("since", "--since", &arguments.since), ("until", "--until", &arguments.until)]
    {
        if let Some(text) = text {
            query.push((name, day(option, text, now)?));
        }
    }
    let fewer = "choose fewer columns or days, or a higher --limit";
    list(client, USAGE, &query, arguments.json, fewer, |rows| match rows.is_empty() {
        true => print("no usage\n"),
        false => print(&table(rows, &by).text()),
    })
}

/// Prints a list whole. `fewer`: how to see the rest.
fn list(
    client: &ApiClient,
    path: &str,
    query: &[(&str, String)],
    json: bool,
    fewer: &str,
    show: impl FnOnce(&[Value]) -> Result<()>,
) -> Result<()> {
    let answer = client.get(path, query)?.ok()?;
    if json {
        return print(&format!("{}\n", answer.text));
    }
    let answer: Value = answer.json()?;
    show(answer.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice))?;
    match answer.get("has_more").and_then(Value::as_bool) {
        Some(true) => print(&format!("(there is more: {fewer})\n")),
        _ => Ok(()),
    }
}

fn table(rows: &[Value], columns: &[String]) -> TextTable {
    // What keys and users are called today.
    let has = |name: &str| columns.iter().any(|column| column == name);
    let called = [("NAME", "/key_name", has("key")), ("EMAIL", "/user_email", has("user"))];
    let called: Vec<_> = called.into_iter().filter(|(.., is_asked)| *is_asked).collect();
    let is_used = |kind: &&str| rows.iter().any(|row| count_of(row, kind) > 0);
    let kinds: Vec<_> = UsageCounts::NAMES.into_iter().filter(is_used).collect();
    let sums = ["REQUESTS", "COST", "FAILED", "REFUSED", "PROMPT", "COMPLETION", "REPLAYS"];
    let of_kinds = kinds.iter().map(|kind| kind.trim_end_matches("_tokens").to_uppercase());
    // The group, the cost and the number of requests are never cut.
    let (from, named) = (columns.len(), columns.len() + called.len());
    let titles = columns.iter().map(|name| name.to_uppercase());
    let titles = titles.chain(called.iter().map(|(title, ..)| (*title).to_owned()));
    let titles: Vec<_> = titles.chain(sums.map(str::to_owned)).chain(of_kinds).collect();
    let order = (0..from).chain([named + 1, named]).chain(from..named);
    let order: Vec<usize> = order.chain(named + 2..titles.len()).collect();
    let mut table = TextTable::titled(titles).with_priority(&order, from + 2);
    for row in rows {
        let cost = dollars(row.get("cost_usd").and_then(Value::as_f64));
        let unpriced = count_of(row, "unpriced_requests");
        let cost = if unpriced > 0 { format!("{cost} ({unpriced} unpriced)") } else { cost };
        let unknown = count_of(row, "unknown_usage");
        let cost = if unknown > 0 { format!("{cost} ({unknown} unknown)") } else { cost };
        let names = columns.iter().map(|column| {
            // `label:team` is the member `label`.
            text(row.get(column.split(':').next().unwrap_or(column)))
        });
        let called = called.iter().map(|(_, pointer, _)| text(row.pointer(pointer)));
        let refused = row.get("refused").and_then(Value::as_object);
        let refused = refused.into_iter().flat_map(|each| each.values().filter_map(Value::as_u64));
        let refused = refused.sum::<u64>().to_string();
        let [requests, failed, prompt, completion, replays] =
            ["/requests", "/errors", "/prompt_tokens", "/completion_tokens", "/replays/requests"]
                .map(|sum| text(row.pointer(sum)));
        let sums = [requests, cost, failed, refused, prompt, completion, replays];
        let of_kinds = kinds.iter().map(|kind| count_of(row, kind).to_string());
        table.row(names.chain(called).chain(sums).chain(of_kinds));
    }
    table
}

fn count_of(row: &Value, name: &str) -> u64 {
    row.get(name).and_then(Value::as_u64).unwrap_or(0)
}

fn column(text: &str) -> Result<String, String> {
    const COLUMNS: [&str; 7] = ["key", "user", "model", "alias", "recipe", "rule", "day"];
    let is_label = text.strip_prefix("label:").is_some_and(|name| !name.is_empty());
    match is_label || COLUMNS.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("has to be one of {}, label:NAME", COLUMNS.join(", "))),
    }
}

/// The start of a day in UTC.
fn day(option: &str, text: &str, now: Timestamp) -> Result<String> {
    let whole_days = |age: Duration| age.as_secs().is_multiple_of(86_400);
    let start = |at: Timestamp| at.to_zoned(TimeZone::UTC).date().to_string();
    if let Some(age) = times::distance(text).filter(|age| whole_days(*age)) {
        return now
            .checked_sub(age)
            .map(start)
            .map_err(|error| CommandFailure::Usage(format!("{option}: {error}")));
    }
    text.parse::<jiff::civil::Date>().map(|date| date.to_string()).map_err(|_| {
        CommandFailure::Usage(format!("{option} has to be a day such as 2026-11-21, or 7d"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_a_date_or_an_age_in_days() {
        let now = rerouter_base::clock::fixtures::at(0);
        for (text, expected) in
            [("2025-11-01", "2025-11-01"), ("7d", "2025-11-17"), ("48h", "2025-11-22")]
        {
            assert_eq!(day("--since", text, now).unwrap(), expected);
        }
        for bad in ["", "12h", "yesterday", "2025-13-01"] {
            assert!(day("--since", bad, now).is_err(), "{bad}");
        }
    }
}
