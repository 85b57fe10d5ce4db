//! `rerouter replay evaluate`: what a document would have done to captured traffic. A gateway
//! evaluates its captures, or a corpus is evaluated here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::super::client::{ApiClient, refusal};
use super::super::failure::{CommandFailure, Result, problem_list};
use super::super::fields::word;
use super::super::output::print;
use super::super::progress::ProgressLine;
use super::super::records::text;
use super::captures::CAPTURES;
use super::corpus::for_each_capture;
use super::filters::Filters;
use super::gate::{Bounds, GateVerdict};
use super::{junit, report};
use rerouter_core::config::{self, Env, Server};
use rerouter_core::evaluate::{HealthSource, OfflineEvaluation};
use rerouter_records::evaluation::{
    AssumedHealth, Baseline, EVALUATE_MAX, EvaluationRecord, NewEvaluation,
};
use rerouter_routing::Routing;

#[derive(Args)]
#[command(group(ArgGroup::new("evaluated").required(true).args(["document", "live"])))]
pub(super) struct EvaluateArguments {
    /// Routing document to evaluate.
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,
    /// Evaluate the live document.
    #[arg(long, conflicts_with = "corpus")]
    live: bool,
    #[command(flatten)]
    filters: Filters,
    /// Maximum number of captures, the newest first.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=EVALUATE_MAX))]
    limit: Option<u64>,
    /// State of the targets: as recorded, as it is now, or all healthy.
    #[arg(long, default_value = "recorded", value_parser = word!(AssumedHealth))]
    health: AssumedHealth,
    /// Compare with the recorded decisions (default), or with those of the live document.
    #[arg(long, value_parser = word!(Baseline))]
    baseline: Option<Baseline>,
    /// Decide the captures of this exported file, without a gateway.
    #[arg(long, value_name = "FILE")]
    corpus: Option<PathBuf>,
    /// With --corpus: compare with the decisions of this document instead of the recorded ones.
    #[arg(long, value_name = "FILE", requires = "corpus")]
    against: Option<PathBuf>,
    /// With --corpus: server document whose `routing.signal_headers` the routing documents may use.
    #[arg(long, value_name = "FILE", requires = "corpus")]
    config: Option<PathBuf>,
    #[command(flatten)]
    bounds: Bounds,
    /// Print the report as JSON, with `verdicts`.
    #[arg(long)]
    json: bool,
}

impl EvaluateArguments {
    fn baseline(&self) -> Baseline {
        let usual = if self.against.is_some() { Baseline::Current } else { Baseline::Recorded };
        self.baseline.unwrap_or(usual)
    }

    /// Writes the file for CI, if it is requested. `failure` is the reason why there is no report.
    fn write_junit(&self, verdicts: &[GateVerdict], failure: Option<&str>) -> Result<()> {
        let Some(path) = &self.bounds.junit else { return Ok(()) };
        std::fs::write(path, junit::render(verdicts, failure))
            .map_err(|error| CommandFailure::Usage(format!("{}: {error}", path.display())))
    }
}

pub(super) fn run(
    arguments: &EvaluateArguments,
    connect: &dyn Fn() -> Result<ApiClient>,
    env: &Env<'_>,
    now: Timestamp,
) -> Result<()> {
    let evaluated = match &arguments.corpus {
        Some(corpus) => offline(arguments, corpus, env, now),
        None => connect().and_then(|client| online(arguments, &client, now)),
    };
    let read = |told: Value| match EvaluationRecord::deserialize(&told) {
        Ok(report) => Ok((told, report)),
        Err(error) => Err(CommandFailure::Gateway(format!("the report cannot be read: {error}"))),
    };
    let (mut told, report) = match evaluated.and_then(read) {
        Ok(both) => both,
        Err(failure) => {
            // Otherwise CI could read the file of an earlier run.
            if let CommandFailure::Usage(why) | CommandFailure::Gateway(why) = &failure {
                arguments.write_junit(&[], Some(why))?;
            }
            return Err(failure);
        }
    };
    let verdicts = arguments.bounds.judge(&report);
    let printed = if arguments.json {
        if let Some(fields) = told.as_object_mut() {
            fields.insert("verdicts".to_owned(), verdicts.iter().map(GateVerdict::json).collect());
        }
        print(&format!("{told}\n"))
    } else {
        let lines: String = verdicts.iter().map(GateVerdict::line).collect();
        print(&(report::render(&report) + &lines))
    };
    // The verdict counts even if it could not be printed.
    arguments.write_junit(&verdicts, None)?;
    if verdicts.iter().all(GateVerdict::holds) { printed } else { Err(CommandFailure::BoundBroken) }
}

fn online(arguments: &EvaluateArguments, client: &ApiClient, now: Timestamp) -> Result<Value> {
    let filter = arguments.filters.query(client, now)?;
    let filter = filter.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
    let document = arguments.document.as_deref().map(config::load).transpose();
    let asked = NewEvaluation {
        document: document.map_err(unusable)?.map_or(Value::Null, |source| source.text.into()),
        filter: Some(filter.collect()),
        limit: arguments.limit,
        health: Some(arguments.health),
        baseline: Some(arguments.baseline()),
    };
    let file = arguments.document.as_ref().map(|document| document.display().to_string());
    let (progress, mut report) = (ProgressLine::text(), None);
    let done = client.lines(&format!("{CAPTURES}/evaluate"), &asked, file.as_deref(), |line| {
        let line: Value = serde_json::from_str(line)
            .map_err(|_| CommandFailure::Gateway("a line of the answer is not JSON".to_owned()))?;
        match line.get("object").and_then(Value::as_str) {
            Some("evaluation.progress") => progress.show(&progress_text(&line)),
            Some("evaluation") => report = Some(line),
            _ => return Err(refusal(200, &line.to_string(), file.as_deref())),
        }
        Ok(())
    });
    progress.clear();
    done?;
    report.ok_or_else(|| CommandFailure::Gateway("the answer ended before its report".to_owned()))
}

/// A text instead of a bar: captures arrive newest first, and their number is unknown.
fn progress_text(line: &Value) -> String {
    let [done, changed, reached] = ["done", "changed", "reached"].map(|name| text(line.get(name)));
    let back = reached.split('.').next().unwrap_or_default();
    format!("{done} captures, {changed} changed, back to {back}")
}

/// Decides the captures of a corpus without a gateway.
fn offline(
    arguments: &EvaluateArguments,
    corpus: &Path,
    env: &Env<'_>,
    now: Timestamp,
) -> Result<Value> {
    let usage = |why: &str| CommandFailure::Usage(why.to_owned());
    check_offline(arguments, now)?;
    let server = match &arguments.config {
        // Only names of headers and variables count here.
        Some(path) => config::load_server_without_env(path),
        None => config::read_server("defaults", "", env),
    };
    let server = server.map_err(unusable)?;
    let candidate =
        arguments.document.as_ref().ok_or_else(|| usage("--corpus needs --document"))?;
    let candidate = load_document(candidate, &server)?;
    let baseline = arguments.against.as_deref().map(|path| load_document(path, &server));
    let health = match arguments.health {
        AssumedHealth::Healthy => HealthSource::Given(BTreeMap::new()),
        _ => HealthSource::Recorded,
    };
    let limit = arguments.limit.unwrap_or(EVALUATE_MAX);
    let revision = candidate.revision().to_string();
    let mut evaluation = OfflineEvaluation::new(candidate, baseline.transpose()?, health);
    let (progress, mut captures) = (ProgressLine::bar(), 0);
    let done = for_each_capture(corpus, |capture, position| {
        evaluation.add(capture);
        captures += 1;
        progress.advance(position.read, position.length, &format!("{captures} captures"));
        captures < limit
    });
    progress.clear();
    done?;
    let report = EvaluationRecord {
        revision: Some(revision),
        baseline: Some(arguments.baseline().as_str().to_owned()),
        health: Some(arguments.health.as_str().to_owned()),
        limit: Some(limit),
        ..evaluation.report().record()
    };
    serde_json::to_value(report).map_err(|error| CommandFailure::Failed(error.to_string()))
}

/// Refuses options that need a gateway.
fn check_offline(arguments: &EvaluateArguments, now: Timestamp) -> Result<()> {
    let usage = |why: &str| Err(CommandFailure::Usage(why.to_owned()));
    if !arguments.filters.given(now)?.is_empty() {
        return usage("a corpus is taken whole: filter when exporting");
    }
    if arguments.health == AssumedHealth::Current {
        return usage("a corpus holds recorded health only: use --health recorded or healthy");
    }
    match (arguments.baseline, &arguments.against) {
        (Some(Baseline::Current), None) => {
            usage("--baseline current needs a document: --against FILE")
        }
        (Some(Baseline::Recorded), Some(_)) => {
            usage("--against and --baseline recorded exclude each other")
        }
        _ => Ok(()),
    }
}

fn load_document(path: &Path, server: &Server) -> Result<Routing> {
    let source = config::load(path).map_err(unusable)?;
    config::read_remembered(&source.text, server, None).map_err(|mut problems| {
        problems.iter_mut().for_each(|problem| problem.file.clone_from(&source.file));
        unusable(problems)
    })
}

fn unusable(problems: Vec<config::Problem>) -> CommandFailure {
    CommandFailure::Usage(problem_list(&problems))
}
