//! `rerouter import`: turns another gateway's configuration into documents for this one.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::failure::{CommandFailure, Result, problem_list};
use super::output::{print, print_error};
use super::starter;
use rerouter_core::config;
use rerouter_importer::LitellmImport;

#[derive(Args)]
pub(super) struct ImportArguments {
    #[command(subcommand)]
    command: ImportCommand,
}

#[derive(Subcommand)]
enum ImportCommand {
    /// Turn the configuration of a LiteLLM proxy into a routing document, and list what cannot be
    /// carried, each with its reason. Keys in clear text are not copied.
    Litellm(LitellmArguments),
}

#[derive(Args)]
struct LitellmArguments {
    /// config.yaml of the proxy.
    file: PathBuf,
    /// Write rerouter.yaml and routing.yaml to this directory. Default: print the routing document.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Overwrite rerouter.yaml and routing.yaml if they exist.
    #[arg(long, requires = "dir")]
    force: bool,
}

pub(super) fn run(arguments: &ImportArguments) -> Result<()> {
    let ImportCommand::Litellm(arguments) = &arguments.command;
    let unusable = |problems: Vec<config::Problem>| CommandFailure::Usage(problem_list(&problems));
    let source = config::load(&arguments.file).map_err(unusable)?;
    let configuration = config::read_foreign(&source).map_err(unusable)?;
    let imported = rerouter_importer::import(&configuration);
    let allowed = allowed(&imported.variables)?;
    check(&imported, &allowed)?;
    match &arguments.dir {
        None => print(&imported.routing)?,
        Some(dir) => write(dir, arguments.force, &imported, &allowed)?,
    }
    print_error(&report(&imported, &allowed, arguments.dir.as_deref()));
    match imported.names {
        0 => Err(CommandFailure::Failed("no model could be carried".to_owned())),
        _ => Ok(()),
    }
}

/// Patterns of variables for `routing.env_allow`, if the usual ones are not enough.
fn allowed(variables: &[String]) -> Result<Vec<String>> {
    let usual = config::read_server("defaults", "", &|_| None)
        .map_err(|problems| CommandFailure::Failed(problem_list(&problems)))?;
    let usual = usual.routing.env_allow;
    let is_usual = |name: &&String| {
        usual.iter().any(|pattern| name.ends_with(pattern.trim_start_matches('*')))
    };
    let more: Vec<String> = variables.iter().filter(|name| !is_usual(name)).cloned().collect();
    Ok(if more.is_empty() { Vec::new() } else { [usual, more].concat() })
}

/// Checks that the result is a document without problems.
fn check(imported: &LitellmImport, allowed: &[String]) -> Result<()> {
    let failed = |problems: Vec<config::Problem>| {
        let list = problem_list(&problems);
        CommandFailure::Failed(format!("the imported document has problems:\n{list}"))
    };
    let text = starter::server_document(starter::ADDRESSES, "./data", "routing.yaml", allowed);
    let server = config::read_server("imported", &text, &|_| None).map_err(failed)?;
    config::read_unexpanded(&imported.routing, &server, None).map(drop).map_err(failed)
}

fn write(dir: &Path, force: bool, imported: &LitellmImport, allowed: &[String]) -> Result<()> {
    let [server, routing] = starter::files(dir, force)?;
    let path = routing.display().to_string();
    let text = starter::server_document(starter::ADDRESSES, "./data", &path, allowed);
    starter::write(&server, &text)?;
    starter::write(&routing, &imported.routing)?;
    print(&format!("Wrote {} and {}.\n", server.display(), routing.display()))
}

/// The text about what was imported, what was not, and what to do.
fn report(imported: &LitellmImport, allowed: &[String], dir: Option<&Path>) -> String {
    let LitellmImport { notes, variables, names, .. } = imported;
    let mut lines = vec![format!("Imported {names} model name(s).")];
    if !notes.is_empty() {
        lines.push(format!("{} setting(s) were not, or only partly, imported:", notes.len()));
        lines.extend(notes.iter().map(|note| format!("  {note}")));
    }
    if !variables.is_empty() {
        lines.push(format!("Set in the environment of rerouter: {}.", variables.join(", ")));
    }
    if !allowed.is_empty() && dir.is_none() {
        lines.push(format!(
            "In the server document: routing: {{ env_allow: {} }}",
            serde_json::json!(allowed)
        ));
    }
    lines.join("\n") + "\n"
}
