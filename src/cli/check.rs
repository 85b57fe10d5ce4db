//! `rerouter check`: what `serve` would stop at, and what is most likely not meant, without a
//! start.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{environment, listed};
use crate::config::{Checked, Env, Problem, Server};
use crate::server::ready::{self, Found};

/// What is checked.
#[derive(Args)]
pub(super) struct Arguments {
    /// The server document; without it conf/rerouter.yaml if there, else built-in defaults.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The routing document; without it the one that the server document names.
    #[arg(long, value_name = "FILE")]
    routing: Option<PathBuf>,
    /// Check without the environment, as in CI: `${NAME}` may hold anything, and what this machine
    /// lacks (files, addresses, directories) is only a warning.
    #[arg(long)]
    no_env: bool,
}

/// Runs it.
pub(super) fn run(asked: &Arguments, env: &Env<'_>) -> Result<(), String> {
    let env = (!asked.no_env).then_some(env);
    let mut checked = Checked::server(asked.config.as_deref(), env);
    if let Some(server) = &checked.server {
        let environment = env.is_some().then(environment);
        let Found { problems, in_use } = ready::look(server, environment.as_ref());
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
    checked.and_routing(asked.routing.as_deref(), env, &stored);
    // Nobody is left to tell when either output is gone.
    if checked.problems.is_empty() {
        let _ = write!(std::io::stderr(), "{}", told(&checked));
        let _ = writeln!(std::io::stdout(), "{}", checked.good.join("\n"));
        return Ok(());
    }
    Err(told(&checked).trim_end().to_owned())
}

/// The server document for a start, if nothing speaks against that.
pub(super) fn for_serve(path: Option<&Path>, env: &Env<'_>) -> Result<Server, String> {
    let mut checked = Checked::server(path, Some(env));
    if let Some(server) = &checked.server {
        // The start itself looks at the master key, when it has the data directory.
        let Found { problems, in_use } = ready::look(server, None);
        checked.problems.extend(problems.into_iter().chain(in_use));
    }
    let stored = |server: &Server| ready::stored_document(server, &environment());
    checked.and_routing(None, Some(env), &stored);
    match checked.server {
        Some(server) if checked.problems.is_empty() => Ok(server),
        _ => Err(listed(&checked.problems)),
    }
}

fn as_warnings(problems: Vec<Problem>) -> impl Iterator<Item = Problem> {
    problems.into_iter().map(|problem| Problem { warning: true, ..problem })
}

/// All that was found but what is good, with how much it is.
fn told(checked: &Checked) -> String {
    let mut lines: Vec<String> =
        checked.problems.iter().chain(&checked.warnings).map(ToString::to_string).collect();
    lines.extend(
        checked
            .unchecked
            .as_ref()
            .map(|why| format!("the routing document was not checked: {why}")),
    );
    let count = |problems: &[Problem], what: &str| {
        (!problems.is_empty()).then(|| format!("{} {what}", problems.len()))
    };
    let counts: Vec<String> =
        [count(&checked.problems, "problem(s)"), count(&checked.warnings, "warning(s)")]
            .into_iter()
            .flatten()
            .collect();
    lines.extend((!counts.is_empty()).then(|| counts.join(", ")));
    lines.iter().map(|line| format!("{line}\n")).collect()
}
