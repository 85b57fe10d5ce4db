//! `rerouter usage`

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::client::ApiClient;
use super::destination::ApiClientOptions;
use super::failure::CommandFailure;
use super::output::print;
use super::records::text;
use super::replay::dollars;
use super::table::TextTable;
use super::times;
use rerouter_base::clock::Clock;
use rerouter_core::config::Env;

#[derive(Args)]
pub(super) struct UsageArguments {
    #[command(flatten)]
    client: ApiClientOptions,
    /// From this day in UTC: 2026-11-21, or an age in days such as 7d.
    #[arg(long, value_name = "DAY")]
    since: Option<String>,
    /// Before this day, written like --since.
    #[arg(long, value_name = "DAY")]
    until: Option<String>,
    /// Sum by these; several with commas.
    #[arg(long, value_name = "COLUMNS", default_value = "model", value_delimiter = ',',
        value_parser = ["key", "user", "model", "alias", "recipe", "rule", "day"])]
    by: Vec<String>,
    /// Print the JSON of the API.
    #[arg(long)]
    json: bool,
}

/// The columns that every row has.
const SUMS: [&str; 4] = ["/requests", "/prompt_tokens", "/completion_tokens", "/cached_tokens"];

pub(super) fn run(arguments: &UsageArguments, env: &Env<'_>) -> Result<(), CommandFailure> {
    let now = Clock::System.now();
    let client = ApiClient::new(&arguments.client, env)?;
    let mut by = Vec::new();
    for column in &arguments.by {
        if !by.contains(column) {
            by.push(column.clone());
        }
    }
    let mut query = vec![("group_by", by.join(","))];
    for (name, option, text) in
        [("since", "--since", &arguments.since), ("until", "--until", &arguments.until)]
    {
        if let Some(text) = text {
            query.push((name, day(option, text, now)?));
        }
    }
    let answer = client.get("/v1/router/usage", &query)?.ok()?;
    if arguments.json {
        return print(&format!("{}\n", answer.text));
    }
    let answer: Value = answer.json()?;
    let rows = answer.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if rows.is_empty() {
        return print("no usage\n");
    }
    print(&table(rows, &by).text())?;
    match answer.get("has_more").and_then(Value::as_bool) {
        Some(true) => print("(there is more: choose fewer columns or days)\n"),
        _ => Ok(()),
    }
}

fn table(rows: &[Value], columns: &[String]) -> TextTable {
    let titles = columns.iter().map(|name| name.to_uppercase());
    let sums = ["REQUESTS", "PROMPT", "COMPLETION", "CACHED", "COST", "REPLAYS"];
    // The group, the cost and the number of requests are never cut.
    let from = columns.len();
    let [requests, prompt, completion, cached, cost, replays] =
        [0, 1, 2, 3, 4, 5].map(|at| from + at);
    let sums_by_importance = [cost, requests, prompt, completion, replays, cached];
    let order: Vec<usize> = (0..from).chain(sums_by_importance).collect();
    let mut table = TextTable::titled(titles.chain(sums.map(str::to_owned)).collect())
        .with_priority(&order, from + 2);
    for row in rows {
        let cost = dollars(row.get("cost_usd").and_then(Value::as_f64));
        let unpriced = row.get("unpriced_requests").and_then(Value::as_u64).unwrap_or(0);
        let cost = if unpriced > 0 { format!("{cost} ({unpriced} unpriced)") } else { cost };
        let names = columns.iter().map(|name| text(row.get(name)));
        let sums = SUMS.iter().map(|name| text(row.pointer(name)));
        let replays = text(row.pointer("/replays/requests"));
        table.row(names.chain(sums).chain([cost, replays]));
    }
    table
}

/// The start of a day in UTC.
fn day(option: &str, text: &str, now: Timestamp) -> Result<String, CommandFailure> {
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
