//! `rerouter replay evaluate`: what a document would have done to captured traffic, by a gateway or by a corpus alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::client::{Client, Failure};
use super::filters::Filters;
use super::output::say;
use super::progress::Progress;
use super::replay::{CAPTURES, dollars, word};
use super::table::Table;
use super::verdict::{
    Bounds, Verdict, changed_share, cost_increase, more_or_less, percent, unpriced,
};
use super::{corpus, listed};
use crate::bounds;
use crate::config::{self, Env, Server};
use crate::evaluate::{HealthSource, OfflineEvaluation};
use crate::routing::Routing;

/// What is evaluated, and what it has to keep to.
#[derive(Args)]
pub(super) struct Arguments {
    /// The routing document to try; without it the live one.
    #[arg(long, value_name = "FILE", required_unless_present = "live")]
    document: Option<PathBuf>,
    /// Try the live document.
    #[arg(long, conflicts_with_all = ["document", "corpus"])]
    live: bool,
    #[command(flatten)]
    filters: Filters,
    /// How many captures at most, the newest first.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=bounds::EVALUATE_MOST))]
    limit: Option<u64>,
    /// Which state of the targets counts: that of then, that of now, or all well.
    #[arg(long, value_enum, default_value_t = Health::Recorded)]
    health: Health,
    /// What it is compared with: what was decided then, or what the live document decides.
    #[arg(long, value_enum)]
    baseline: Option<Baseline>,
    /// Decide the captures of this file, as `export` writes it, without a gateway.
    #[arg(long, value_name = "FILE")]
    corpus: Option<PathBuf>,
    /// With --corpus: compare with what this document decides, instead of what was decided then.
    #[arg(long, value_name = "FILE", requires = "corpus")]
    against: Option<PathBuf>,
    /// With --corpus: the server document whose `routing.signal_headers` the documents may name.
    #[arg(long, value_name = "FILE", requires = "corpus")]
    config: Option<PathBuf>,
    #[command(flatten)]
    bounds: Bounds,
    /// The report as JSON, with `verdicts`.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Health {
    Recorded,
    Current,
    Healthy,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Baseline {
    Recorded,
    Current,
}

impl Health {
    fn as_str(self) -> &'static str {
        match self {
            Health::Recorded => "recorded",
            Health::Current => "current",
            Health::Healthy => "healthy",
        }
    }
}

impl Arguments {
    fn baseline(&self) -> &'static str {
        match self.baseline {
            Some(Baseline::Current) => "current",
            None if self.against.is_some() => "current",
            _ => "recorded",
        }
    }
}

/// Runs it.
pub(super) fn run(
    asked: &Arguments,
    client: &dyn Fn() -> Result<Client, Failure>,
    env: &Env<'_>,
    now: Timestamp,
) -> Result<(), Failure> {
    let report = match &asked.corpus {
        Some(corpus) => offline(asked, corpus, env, now),
        None => client().and_then(|client| by_gateway(asked, &client, now)),
    };
    let report = match report {
        Ok(report) => report,
        Err(failure) => {
            // CI that reads the file must not find that of an earlier run.
            if let Failure::Wrong(why) | Failure::Gateway(why) = &failure {
                asked.bounds.write(&[], Some(why))?;
            }
            return Err(failure);
        }
    };
    let verdicts = asked.bounds.judge(&report);
    let said = if asked.json {
        let mut report = report;
        if let Some(fields) = report.as_object_mut() {
            fields.insert("verdicts".to_owned(), verdicts.iter().map(Verdict::json).collect());
        }
        say(&format!("{report}\n"))
    } else {
        say(&(told(&report) + &verdicts.iter().map(Verdict::line).collect::<String>()))
    };
    // Whether anybody reads it or not, it is judged.
    asked.bounds.write(&verdicts, None)?;
    if verdicts.iter().all(Verdict::holds) { said } else { Err(Failure::Bounds) }
}

fn by_gateway(asked: &Arguments, client: &Client, now: Timestamp) -> Result<Value, Failure> {
    let mut body = json!({ "filter": asked.filters.object(now)?, "health": asked.health.as_str(), "baseline": asked.baseline() });
    if let Some(fields) = body.as_object_mut() {
        if let Some(document) = &asked.document {
            let source =
                config::load(document).map_err(|problems| Failure::Wrong(listed(&problems)))?;
            fields.insert("document".to_owned(), source.text.into());
        }
        fields.extend(asked.limit.map(|limit| ("limit".to_owned(), limit.into())));
    }
    let mut report = None;
    let mut progress = Progress::new();
    let file = asked.document.as_ref().map(|document| document.display().to_string());
    let done = client.lines(&format!("{CAPTURES}/evaluate"), &body, file.as_deref(), |line| {
        let line: Value = serde_json::from_str(line)
            .map_err(|_| Failure::Gateway("a line of the answer is not JSON".to_owned()))?;
        match line.get("object").and_then(Value::as_str) {
            Some("evaluation.progress") => show(&mut progress, &line),
            Some("evaluation") => report = Some(line),
            _ => return Err(super::client::refused_with(200, &line.to_string(), file.as_deref())),
        }
        Ok(())
    });
    progress.end();
    done?;
    report.ok_or_else(|| Failure::Gateway("the answer broke off before its report".to_owned()))
}

fn offline(
    asked: &Arguments,
    path: &Path,
    env: &Env<'_>,
    now: Timestamp,
) -> Result<Value, Failure> {
    let wrong = |why: &str| Err(Failure::Wrong(why.to_owned()));
    if !asked.filters.query(now)?.is_empty() {
        return wrong("a corpus is taken whole: filter when you export it");
    }
    if asked.health == Health::Current {
        return wrong("a corpus knows the state of then only: --health recorded or healthy");
    }
    match (asked.baseline, &asked.against) {
        (Some(Baseline::Current), None) => {
            return wrong("--baseline current needs a document: --against FILE");
        }
        (Some(Baseline::Recorded), Some(_)) => {
            return wrong("--against is a baseline of its own: leave out --baseline recorded");
        }
        _ => {}
    }
    let told = |problems: Vec<config::Problem>| Failure::Wrong(listed(&problems));
    let server = match &asked.config {
        Some(path) => config::load_server(Some(path), env),
        None => config::read_server("defaults", "", env),
    };
    let server = server.map_err(told)?;
    let Some(candidate) = &asked.document else { return wrong("--corpus needs a --document") };
    let candidate = document(candidate, &server)?;
    let baseline = asked.against.as_deref().map(|path| document(path, &server)).transpose()?;
    let standing = if asked.health == Health::Healthy {
        HealthSource::Given(BTreeMap::new())
    } else {
        HealthSource::Recorded
    };
    let limit = asked.limit.unwrap_or(bounds::EVALUATE_MOST);
    let revision = candidate.revision().to_string();
    let (mut evaluation, mut done) = (OfflineEvaluation::new(candidate, baseline, standing), 0);
    let mut progress = Progress::new();
    let read = corpus::read(path, |capture, (at, all)| {
        evaluation.add(capture);
        done += 1;
        // Each line takes longer to write than a hundred captures to decide.
        if done % 1_000 == 0 {
            progress.bar(at, all, &format!("{done} captures"));
        }
        done < limit
    });
    progress.end();
    read?;
    let mut report = evaluation.report().json();
    if let Some(fields) = report.as_object_mut() {
        fields.insert("revision".to_owned(), revision.into());
        fields.insert("baseline".to_owned(), asked.baseline().into());
        fields.insert("health".to_owned(), asked.health.as_str().into());
        fields.insert("limit".to_owned(), limit.into());
    }
    Ok(report)
}

fn document(path: &Path, server: &Server) -> Result<Routing, Failure> {
    let told = |problems: Vec<config::Problem>| Failure::Wrong(listed(&problems));
    let source = config::load(path).map_err(told)?;
    config::read_remembered(&source.text, server, None).map_err(|mut problems| {
        problems.iter_mut().for_each(|problem| problem.file.clone_from(&source.file));
        told(problems)
    })
}

/// How far the gateway has come. Captures come newest first, and nobody knows how many there are,
/// so there is no bar.
fn show(progress: &mut Progress, line: &Value) {
    let at = |name: &str| word(line.get(name));
    let reached = at("reached");
    let back = reached.split('.').next().unwrap_or_default();
    progress.write(&format!("{} captures, {} changed, back to {back}", at("done"), at("changed")));
}

/// The report for people.
fn told(report: &Value) -> String {
    let at = |pointer: &str| word(report.pointer(pointer));
    let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    let listed = |value: &Value, name: &str| {
        value.get(name).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let share = changed_share(report);
    let mut text = format!(
        "{} captures decided by {}, compared with {}\n{} changed ({}), {} by another rule, {} with another plan, {} unroutable\n",
        at("/evaluated"),
        at("/revision"),
        if at("/baseline") == "current" { "the live document" } else { "what was decided" },
        at("/changed"),
        percent(share),
        at("/rule_changed"),
        at("/plan_changed"),
        at("/unroutable"),
    );
    let mut changes = Table::new(&["FROM", "TO", "COUNT", "COST", "WHY"]);
    for change in listed(report, "by_change") {
        let cost = dollars(change.get("cost_delta_usd").and_then(Value::as_f64));
        let mut first =
            [word(change.get("from")), word(change.get("to")), word(change.get("count")), cost];
        for reason in listed(&change, "reasons") {
            let [from, to, count, cost] = std::mem::take(&mut first);
            changes.row([
                from,
                to,
                count,
                cost,
                format!("{}x {}", word(reason.get("count")), word(reason.get("detail"))),
            ]);
        }
        if first != [const { String::new() }; 4] {
            let [from, to, count, cost] = first;
            changes.row([from, to, count, cost, String::new()]);
        }
    }
    let mut shift = Table::new(&["TARGET", "BEFORE", "AFTER"]);
    for row in listed(report, "shift") {
        shift.row([word(row.get("target")), word(row.get("before")), word(row.get("after"))]);
    }
    for table in [changes, shift].iter().filter(|table| !table.is_empty()) {
        text.push('\n');
        text.push_str(&table.text());
    }
    text.push('\n');
    text.push_str(&costs(report));
    text.push_str(&format!(
        "{} inexact, {} assumed; left out: {} replays, {} shadows, {} undecided, {} of another version, {} redacted\n",
        at("/inexact"),
        at("/assumed"),
        at("/skipped/replays"),
        at("/skipped/shadows"),
        at("/skipped/undecided"),
        at("/skipped/version"),
        at("/skipped/redacted"),
    ));
    if number("/unreadable") > 0.0 {
        text.push_str(&format!(
            "{} captures cannot be read, and are in none of these numbers\n",
            at("/unreadable")
        ));
    }
    text
}

/// What they cost, and how far that is known.
fn costs(report: &Value) -> String {
    let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    let amount = |pointer: &str| dollars(Some(number(pointer)));
    let (before, after) = (amount("/cost/before"), amount("/cost/after"));
    let mut text =
        format!("cost {before} before, {after} after ({})\n", more_or_less(cost_increase(report)));
    if number("/cost/estimated/before") + number("/cost/estimated/after") > 0.0 {
        let (before, after) = (amount("/cost/estimated/before"), amount("/cost/estimated/after"));
        text.push_str(&format!(
            "of that estimated, as providers told no usage: {before} before, {after} after\n"
        ));
    }
    if number("/cost/unpriced") > 0.0 {
        text.push_str(&format!(
            "{} captures not priced: {}\n",
            word(report.pointer("/cost/unpriced")),
            unpriced(report)
        ));
    }
    if number("/cost/skipped") > 0.0 {
        text.push_str(&format!("captures that were left out cost {}\n", amount("/cost/skipped")));
    }
    text
}
