//! The command line and the environment: the only code that reads them.

mod backup;
mod check;
mod client;
mod failure;
mod migrate;
mod node;
mod output;
mod progress;
mod replay;
mod table;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};

use self::output::print_error;
use crate::api;
use crate::log;
use crate::secret::Secret;
use crate::server::{self, Environment, Gateway, MASTER_KEY, MASTER_KEY_OLD};

#[derive(Parser)]
#[command(
    name = "rerouter",
    version,
    about = "An LLM edge gateway: authenticated, captured and replayable at proxy speed"
)]
struct CliArguments {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    Serve {
        /// Server document. Default: conf/rerouter.yaml if it exists, else built-in defaults.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Check both documents and this machine, and report every problem at once.
    ///
    /// Exits with 1 if `serve` would refuse to start. Warnings are not problems.
    Check(check::CheckArguments),
    /// List, show, reroute, evaluate, export and import captures.
    ///
    /// Exit codes: 0 success; 1 a bound of `evaluate` is broken; 2 unusable options, documents,
    /// corpora or output; 3 the gateway could not be reached, or refused.
    Replay(Box<replay::ReplayArguments>),
    /// Report an OpenAI-compatible server to a gateway as a node, until stopped.
    Node(Box<node::NodeArguments>),
    /// Copy the data directory, also while a gateway runs on it.
    ///
    /// Copies accounts, keys, documents, audit and captures, each at one moment. The master key is
    /// not copied, and nothing can be read without it: keep it elsewhere. To restore, use the copy
    /// as data directory, put the master key beside it, and start.
    Backup(backup::BackupArguments),
    /// Copy accounts, keys, documents and audit of a stopped gateway to PostgreSQL.
    ///
    /// The database must hold no store yet. All is copied in one transaction, read again and
    /// compared, or nothing is. Captures stay in the data directory.
    Migrate(migrate::MigrateArguments),
    /// Print the OpenAPI 3.1 document.
    Openapi,
}

/// Runs the command line; the whole of `main`.
pub fn main() -> ExitCode {
    let result = match CliArguments::parse().command {
        CliCommand::Serve { config } => serve(config),
        CliCommand::Check(arguments) => check::run(&arguments, environment, &variable),
        CliCommand::Replay(arguments) => return replay::run(*arguments, &variable),
        CliCommand::Node(arguments) => return node::run(&arguments, &variable),
        CliCommand::Backup(arguments) => backup::run(&arguments, &variable),
        CliCommand::Migrate(arguments) => migrate::run(&arguments, &variable),
        CliCommand::Openapi => openapi(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            print_error(&format!("{why}\n"));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where the environment is read")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

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

fn serve(path: Option<PathBuf>) -> Result<(), String> {
    let document = check::server_for_start(path.as_deref(), environment, &variable)?;
    let filter = variable("RUST_LOG");
    let usual = "info,pingora=warn,pingora_core=warn,pingora_proxy=warn";
    let form = document.log.form(std::io::stderr().is_terminal(), variable);
    log::init(filter.as_deref().unwrap_or(usual), form)?;
    log::log_panics();
    let boot = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let gateway = boot
        .block_on(Gateway::prepare(document, environment()))
        .map_err(|error| error.to_string())?;
    server::run(gateway).map_err(|error| error.to_string())
}

fn openapi() -> Result<(), String> {
    let document = serde_json::to_string_pretty(&api::openapi::document())
        .map_err(|error| error.to_string())?;
    match output::print(&format!("{document}\n")) {
        Err(failure::CommandFailure::Usage(why)) => Err(why),
        _ => Ok(()),
    }
}
