//! `rerouter logs`: the requests of a gateway as they end, from its captures.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use super::client::ApiClient;
use super::destination::ApiClientOptions;
use super::failure::{CommandFailure, Result};
use super::log_columns::LogColumns;
use super::output::{print, print_error};
use super::records::{ListedPage, text};
use super::replay::{CAPTURES, Filters};
use super::table::clean;
use super::terminal::{self, TextStyle, styled};
use rerouter_base::clock::Clock;
use rerouter_core::config::Env;
use rerouter_records::page::PAGE_MAX;

/// Time between two queries of `logs --follow`.
const LOGS_INTERVAL: Duration = Duration::from_secs(1);
/// Most pages that one query of `logs --follow` reads. Requests that began before these are missed.
const LOGS_PAGES: usize = 10;

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

/// The captures that were already printed.
struct Tail<'a> {
    client: &'a ApiClient,
    query: Vec<(&'static str, String)>,
    seen: HashSet<String>,
    /// The ids in the order in which they were noted, so that the oldest can be forgotten.
    order: VecDeque<String>,
}

struct FailedLook {
    failure: CommandFailure,
    /// The next query may succeed: the gateway may be restarting.
    passes: bool,
}

/// Captures are searched among requests that began at most this many seconds ago.
const LONGEST_S: i64 = 15 * 60;

pub(super) fn run(arguments: &LogsArguments, env: &Env<'_>) -> Result<()> {
    let client = ApiClient::new(&arguments.client, env)?;
    let query = arguments.filters.query(&client, Clock::System.now())?;
    let mut tail = Tail { client: &client, query, seen: HashSet::new(), order: VecDeque::new() };
    let lines = usize::try_from(arguments.lines).unwrap_or(usize::MAX);
    let first = tail.look(lines).map_err(|failed| failed.failure)?;
    let columns = LogColumns::fitted(terminal::width());
    if !arguments.json {
        let title = styled(&columns.titles(), TextStyle::Title);
        print(&format!("{}{title}\n", columns.left_out()))?;
    }
    let show = |one: &Value| show(one, &columns, arguments.json);
    first.iter().skip(first.len().saturating_sub(lines)).try_for_each(show)?;
    if !arguments.follow {
        return Ok(());
    }
    let mut is_away = false;
    loop {
        pause();
        match tail.look(0) {
            Ok(found) => {
                is_away = false;
                found.iter().try_for_each(show)?;
            }
            Err(FailedLook { failure: CommandFailure::Gateway(why), passes: true }) => {
                if !is_away {
                    print_error(&format!("{}; trying again\n", clean(&why)));
                }
                is_away = true;
            }
            Err(failed) => return Err(failed.failure),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a command that has nothing else to do")]
fn pause() {
    std::thread::sleep(LOGS_INTERVAL);
}

impl Tail<'_> {
    /// The captures that are new since the last query, oldest first: at least `wanted`, if there
    /// are that many. The list is sorted by the start of requests, so a long request appears behind
    /// newer ones. Each query therefore reads [`LONGEST_S`] back, but at most [`LOGS_PAGES`] pages.
    fn look(&mut self, wanted: usize) -> Result<Vec<Value>, FailedLook> {
        let reach = Clock::System.now().as_second() - LONGEST_S;
        let (mut found, mut after) = (Vec::new(), None::<String>);
        for pages in 1.. {
            let page = self.page(after)?;
            let oldest = page.data.last().and_then(|one| one.get("created_at")?.as_str());
            let oldest = oldest.and_then(|at| at.parse::<Timestamp>().ok());
            let is_near = oldest.is_some_and(|at| at.as_second() >= reach);
            found.extend(page.data);
            after = page.next;
            let goes_on = found.len() < wanted || (is_near && pages < LOGS_PAGES);
            if after.is_none() || !goes_on {
                break;
            }
        }
        // Captures count as printed only if the whole query succeeded.
        found.retain(|one| self.note(&text(one.get("id"))));
        found.reverse();
        Ok(found)
    }

    fn page(&self, after: Option<String>) -> Result<ListedPage, FailedLook> {
        let mut query = self.query.clone();
        query.push(("limit", PAGE_MAX.to_string()));
        query.extend(after.map(|after| ("after", after)));
        let failed = |passes: bool| move |failure| FailedLook { failure, passes };
        let answer = self.client.get(CAPTURES, &query).map_err(failed(true))?;
        let passes = answer.status >= 500;
        answer.ok().and_then(|answer| answer.json()).map_err(failed(passes))
    }

    /// Notes a capture as printed. Returns whether it is new.
    fn note(&mut self, id: &str) -> bool {
        if !self.seen.insert(id.to_owned()) {
            return false;
        }
        self.order.push_back(id.to_owned());
        // More ids than all pages of a query can contain.
        if self.order.len() > 4 * LOGS_PAGES * PAGE_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        true
    }
}

fn show(summary: &Value, columns: &LogColumns, json: bool) -> Result<()> {
    if json {
        return print(&format!("{summary}\n"));
    }
    let status = summary.get("status").and_then(Value::as_u64).unwrap_or(0);
    let line = columns.line(summary);
    let line = match (status, text(summary.get("state")).as_str()) {
        (200..300, "completed") => line,
        (400..500, _) => styled(&line, TextStyle::Doubtful),
        _ => styled(&line, TextStyle::Bad),
    };
    print(&format!("{line}\n"))
}
