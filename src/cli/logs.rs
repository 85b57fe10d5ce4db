//! `rerouter logs`: the requests of a gateway as they end, from its captures.

use std::collections::{HashSet, VecDeque};

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use super::client::ApiClient;
use super::destination::ApiClientOptions;
use super::failure::CommandFailure;
use super::output::print;
use super::records::{short, text};
use super::replay::{CAPTURES, Filters, dollars, rule, target};
use super::table::clean;
use super::terminal::{TextStyle, styled};
use crate::bounds;
use crate::clock::Clock;
use crate::config::Env;

#[derive(Args)]
pub(super) struct LogsArguments {
    #[command(flatten)]
    client: ApiClientOptions,
    #[command(flatten)]
    filters: Filters,
    /// Go on with the requests to come, until interrupted.
    #[arg(long, short)]
    follow: bool,
    /// Number of past requests to begin with.
    #[arg(long, short = 'n', default_value_t = 20, value_name = "COUNT",
        value_parser = clap::value_parser!(u64).range(0..=1000))]
    lines: u64,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// What was printed of the newest captures.
struct Tail<'a> {
    client: &'a ApiClient,
    query: Vec<(&'static str, String)>,
    seen: HashSet<String>,
    /// The same in the order of their ends, so that the oldest can be forgotten.
    order: VecDeque<String>,
}

/// A capture is looked for among those that began this long before it ended.
const LONGEST_S: i64 = 15 * 60;

pub(super) fn run(arguments: &LogsArguments, env: &Env<'_>) -> Result<(), CommandFailure> {
    let client = ApiClient::new(&arguments.client, env)?;
    let query = arguments.filters.query(Clock::System.now())?;
    let mut tail = Tail { client: &client, query, seen: HashSet::new(), order: VecDeque::new() };
    let first = tail.look()?;
    let skipped =
        first.len().saturating_sub(usize::try_from(arguments.lines).unwrap_or(usize::MAX));
    if !arguments.json {
        print(&format!("{}\n", styled(&title(), TextStyle::Title)))?;
    }
    first.iter().skip(skipped).try_for_each(|one| show(one, arguments.json))?;
    if !arguments.follow {
        return Ok(());
    }
    loop {
        pause();
        tail.look()?.iter().try_for_each(|one| show(one, arguments.json))?;
    }
}

#[expect(clippy::disallowed_methods, reason = "a command that has nothing else to do")]
fn pause() {
    std::thread::sleep(bounds::LOGS_INTERVAL);
}

impl Tail<'_> {
    /// The captures that are new since the last look, oldest first. Captures are listed by the
    /// time when their requests began, so a long request appears behind newer ones: the look goes
    /// back a quarter of an hour, or [`bounds::LOGS_PAGES`].
    fn look(&mut self) -> Result<Vec<Value>, CommandFailure> {
        let reach = Clock::System.now().as_second() - LONGEST_S;
        let (mut found, mut after) = (Vec::new(), None::<String>);
        for _ in 0..bounds::LOGS_PAGES {
            let mut query = self.query.clone();
            query.push(("limit", bounds::PAGE_MAX.to_string()));
            query.extend(after.take().map(|after| ("after", after)));
            let page = self.client.get(CAPTURES, &query)?.ok()?.json()?;
            let listed = page.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            for summary in listed {
                if self.note(&text(summary.get("id"))) {
                    found.push(summary.clone());
                }
            }
            let oldest = listed.last().and_then(|one| one.get("created_at")?.as_str());
            let oldest = oldest.and_then(|at| at.parse::<Timestamp>().ok());
            match page.get("next").and_then(Value::as_str) {
                Some(next) if oldest.is_some_and(|at| at.as_second() >= reach) => {
                    after = Some(next.to_owned());
                }
                _ => break,
            }
        }
        found.reverse();
        Ok(found)
    }

    /// Whether a capture is new.
    fn note(&mut self, id: &str) -> bool {
        if !self.seen.insert(id.to_owned()) {
            return false;
        }
        self.order.push_back(id.to_owned());
        // More than all looks can find again.
        if self.order.len() > 4 * bounds::LOGS_PAGES * bounds::PAGE_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        true
    }
}

fn title() -> String {
    line(["TIME", "STATUS", "ASKED FOR", "SERVED BY", "RULE", "TOKENS", "COST", "MS", "USER", "ID"])
}

fn show(summary: &Value, json: bool) -> Result<(), CommandFailure> {
    if json {
        return print(&format!("{summary}\n"));
    }
    let at = |pointer: &str| short(summary.pointer(pointer));
    let status = summary.get("status").and_then(Value::as_u64).unwrap_or(0);
    let cost = dollars(summary.get("cost_usd").and_then(Value::as_f64));
    let (served, rule) = (target(summary.get("served")), rule(summary.get("decision")));
    let [time, shown, model, tokens, ms, user, id] = [
        "/created_at",
        "/status",
        "/model",
        "/usage/total_tokens",
        "/latency/total_ms",
        "/user",
        "/id",
    ]
    .map(at);
    let cells = [&time, &shown, &model, &served, &rule, &tokens, &cost, &ms, &user, &id];
    let text = line(cells.map(|cell| cell.as_str()));
    let text = clean(&text.replace(['\n', '\t'], " "));
    let text = match (status, at("/state").as_str()) {
        (200..300, "completed") => text,
        (400..500, _) => styled(&text, TextStyle::Doubtful),
        _ => styled(&text, TextStyle::Bad),
    };
    print(&format!("{text}\n"))
}

/// Cells at fixed places: lines come one by one.
fn line(cells: [&str; 10]) -> String {
    let [time, status, model, served, rule, tokens, cost, ms, user, id] = cells;
    format!(
        "{time:19}  {status:6}  {model:24}  {served:32}  {rule:24}  {tokens:>7}  {cost:>10}  \
         {ms:>8}  {user:30}  {id}"
    )
}
