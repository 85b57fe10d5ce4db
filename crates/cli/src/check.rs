//! `rerouter check`: reports problems that would stop `serve`, and probable mistakes, without
//! starting.

use std::path::PathBuf;

use clap::Args;

use super::failure::{CommandFailure, Result, problem_list};
use super::output::{print, print_error};
use super::server_source::name_options;
use super::starter;
use rerouter_core::config::{self, CheckReport, DocumentSource, Env, Problem, Server};
use rerouter_gateway::server::Environment;
use rerouter_gateway::server::ready::{self, Readiness};

#[derive(Args)]
pub(super) struct CheckArguments {
    /// Server document. Default: conf/rerouter.yaml if it exists, else built-in defaults.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Routing document. Default: the one that the server document names.
    #[arg(long, value_name = "FILE")]
    routing: Option<PathBuf>,
    /// Check without the environment, as in CI: `${NAME}` may have any value, and what this
    /// machine lacks (files, addresses, directories) is only a warning.
    #[arg(long)]
    no_env: bool,
}

pub(super) fn run(
    arguments: &CheckArguments,
    environment: fn() -> Environment,
    env: &Env<'_>,
) -> Result<()> {
    let env = (!arguments.no_env).then_some(env);
    let source = config::server_source(arguments.config.as_deref());
    let mut checked = examine(source, env, |server| {
        let _found = env.and_then(|env| starter::adopt(server, env));
    });
    if let Some(server) = &checked.server {
        let environment = env.is_some().then(environment);
        let Readiness { problems, in_use } = ready::check(server, environment.as_ref());
        match env {
            Some(_) => checked.problems.extend(problems),
            None => checked.warnings.extend(as_warnings(problems)),
        }
        checked.warnings.extend(as_warnings(in_use));
    }
    let stored = |server: &Server| match env {
        Some(_) => ready::stored_document(server, &environment()),
        None => Err("that takes the environment".to_owned()),
    };
    checked.check_routing(arguments.routing.as_deref(), env, &stored);
    let findings = findings(&checked);
    if !checked.problems.is_empty() {
        return Err(CommandFailure::Failed(findings.trim_end().to_owned()));
    }
    print_error(&findings);
    // A failure to print changes nothing: the exit code says the same.
    let _ = print(&format!("{}\n", checked.good.join("\n")));
    Ok(())
}

/// Returns the server document for a start, unless a problem prevents the start. `adopt` may change
/// it before the routing document is checked.
pub(super) fn server_for_start(
    source: Result<DocumentSource, Vec<Problem>>,
    adopt: impl FnOnce(&mut Server),
    upgrade: bool,
    environment: fn() -> Environment,
    env: &Env<'_>,
) -> Result<Server, String> {
    let mut checked = examine(source, Some(env), adopt);
    if let Some(server) = &checked.server {
        // The start itself checks the master key, after it has locked the data directory.
        let Readiness { problems, in_use } = ready::check(server, None);
        // An upgrade takes over the addresses of the running gateway.
        let in_use = in_use.into_iter().filter(|_| !upgrade);
        checked.problems.extend(problems.into_iter().chain(in_use));
    }
    let stored = |server: &Server| ready::stored_document(server, &environment());
    checked.check_routing(None, Some(env), &stored);
    name_options(&mut checked.problems);
    match checked.server {
        Some(server) if checked.problems.is_empty() => Ok(server),
        _ => Err(problem_list(&checked.problems)),
    }
}

/// Checks both documents, but not this machine.
pub(super) fn examine_both(
    source: Result<DocumentSource, Vec<Problem>>,
    environment: fn() -> Environment,
    env: &Env<'_>,
) -> CheckReport {
    let mut checked = examine(source, Some(env), |server| {
        let _found = starter::adopt(server, env);
    });
    let stored = |server: &Server| ready::stored_document(server, &environment());
    checked.check_routing(None, Some(env), &stored);
    name_options(&mut checked.problems);
    checked
}

fn examine(
    source: Result<DocumentSource, Vec<Problem>>,
    env: Option<&Env<'_>>,
    adopt: impl FnOnce(&mut Server),
) -> CheckReport {
    let mut checked = CheckReport::server(source, env);
    if let Some(server) = &mut checked.server {
        adopt(server);
    }
    checked
}

fn as_warnings(problems: Vec<Problem>) -> impl Iterator<Item = Problem> {
    problems.into_iter().map(|problem| Problem { warning: true, ..problem })
}

/// Problems and warnings, one per line, and their numbers.
fn findings(checked: &CheckReport) -> String {
    let mut lines: Vec<String> =
        checked.problems.iter().chain(&checked.warnings).map(ToString::to_string).collect();
    let unchecked = checked.unchecked.as_ref();
    lines.extend(unchecked.map(|why| format!("the routing document was not checked: {why}")));
    let counts: Vec<String> =
        [(checked.problems.len(), "problem(s)"), (checked.warnings.len(), "warning(s)")]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
    lines.extend((!counts.is_empty()).then(|| counts.join(", ")));
    lines.iter().map(|line| format!("{line}\n")).collect()
}
