//! The command line: what was typed, and the environment, read here and nowhere else; then a call into the layers below.

mod backup;
mod check;
mod client;
mod corpus;
mod evaluate;
mod filters;
mod import;
mod node;
mod output;
mod progress;
mod replay;
mod table;
mod terminal;
mod verdict;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};

use crate::api;
use crate::config;
use crate::log;
use crate::secret::Secret;
use crate::server::{self, Environment, Gateway, MASTER_KEY, MASTER_KEY_OLD};

#[derive(Parser)]
#[command(
    name = "rerouter",
    version,
    about = "An LLM edge gateway: authenticated, captured and replayable at proxy speed"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway.
    Serve {
        /// The server document; without it conf/rerouter.yaml if there, else built-in defaults.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Check both documents, and what they need of this machine, and report everything at once.
    ///
    /// Exit 1 if `serve` would stop at something; warnings are no problems.
    Check(check::Arguments),
    /// The captures of a gateway: list, show, reroute, evaluate, export, import.
    ///
    /// Exit codes: 0 good, 1 a bound of `evaluate` was broken, 2 wrong options, documents or corpora, or
    /// output that cannot be written, 3 the gateway could not be asked or refused.
    Replay(Box<replay::Arguments>),
    /// Beside a server that speaks OpenAI's API: report it to a gateway as a node, until told to leave.
    Node(Box<node::Arguments>),
    /// Copy the store into a directory that a gateway can be started on, also while one runs on it.
    ///
    /// Accounts, keys, documents, the audit, captures and their index, each as it is at one moment. The master key is not
    /// copied: keep it apart, as nothing can be read without it. To restore, make the copy the data directory, put the master
    /// key beside it and start.
    Backup(backup::Arguments),
    /// Print the OpenAPI 3.1 document.
    Openapi,
}

/// Runs the command line; the whole of `main`.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Serve { config } => serve(config),
        Command::Check(asked) => check::run(&asked, &variable),
        Command::Replay(arguments) => return replay::run(*arguments, &variable),
        Command::Node(arguments) => return node::run(&arguments, &variable),
        Command::Backup(arguments) => backup::run(&arguments, &variable),
        Command::Openapi => openapi(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Nobody is left to tell when standard error is gone too.
            let _ = writeln!(std::io::stderr(), "{why}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where the environment is read")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn serve(path: Option<PathBuf>) -> Result<(), String> {
    log::init(
        variable("RUST_LOG")
            .as_deref()
            .unwrap_or("info,pingora=warn,pingora_core=warn,pingora_proxy=warn"),
    )?;
    log::log_panics();
    let document = check::for_serve(path.as_deref(), &variable)?;
    let environment = environment();
    let boot = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let gateway = boot
        .block_on(Gateway::prepare(document, environment))
        .map_err(|error| error.to_string())?;
    server::run(gateway).map_err(|error| error.to_string())
}

/// What the environment says to a gateway.
fn environment() -> Environment {
    Environment {
        admin_key: variable("ADMIN_API_KEY").map(Secret::new),
        agent_key: variable("AGENT_CLOUD_API_KEY").map(Secret::new),
        master_key: variable(MASTER_KEY).map(Secret::new),
        master_key_old: variable(MASTER_KEY_OLD).map(Secret::new),
        variables: Arc::new(variable),
        ..Environment::default()
    }
}

fn listed(problems: &[config::Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    format!("{}\n{} problem(s)", lines.join("\n"), lines.len())
}

fn openapi() -> Result<(), String> {
    let document = serde_json::to_string_pretty(&api::openapi::document())
        .map_err(|error| error.to_string())?;
    writeln!(std::io::stdout(), "{document}").map_err(|error| error.to_string())
}
