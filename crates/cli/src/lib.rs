//! The command line and the environment; no other code reads them. One file for each command.
//! Commands that talk to a gateway share `client`, `destination` and `records`.

// The documentation is for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]
// A test's scenario reads from top to bottom, however many steps it has.
#![cfg_attr(test, allow(clippy::too_many_lines))]

mod agents;
mod backup;
mod check;
mod client;
mod configuration;
mod destination;
mod doctor;
mod failure;
mod fields;
mod import;
mod init;
mod keys;
mod log_columns;
mod logs;
mod migrate;
mod node;
mod nodes;
mod output;
mod profile_file;
mod profiles;
mod progress;
mod records;
mod reference;
mod replay;
mod serve;
mod server_source;
mod starter;
mod table;
mod terminal;
mod times;
mod usage;
mod users;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, Parser, Subcommand};

use self::failure::{CommandFailure, Result};
#[doc(hidden)]
pub use self::node::NODE_CALLBACK_TIMEOUT;
use self::output::print_error;
use self::table::clean;
use rerouter_base::secret::Secret;
use rerouter_core::api;
use rerouter_gateway::server::{Environment, MASTER_KEY, MASTER_KEY_OLD};

#[derive(Parser)]
#[command(
    name = "rerouter",
    version,
    about = "An LLM edge gateway: authenticated, captured and replayable at proxy speed",
    after_help = "Commands that talk to a gateway find it by --url and --key, REROUTER_URL and \
                  REROUTER_API_KEY, or a profile."
)]
struct CliArguments {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Run the gateway.
    ///
    /// Without a routing document it serves the providers that the environment has keys for, and
    /// shows a first key once.
    Serve(serve::ServeArguments),
    /// Write both documents, from a few questions or from options.
    Init(init::InitArguments),
    /// Check both documents and this machine, and report every problem at once.
    ///
    /// Exits with 1 if `serve` would refuse to start. Warnings are not problems.
    Check(check::CheckArguments),
    /// Examine a deployment: documents, store, disk, clock, certificates, providers.
    ///
    /// Each line is ok, warn or fail, with a remedy. Exits with 1 if one fails.
    Doctor(doctor::DoctorArguments),
    /// Keys of a gateway.
    Keys(Box<keys::KeysArguments>),
    /// Users of a gateway; admins only.
    Users(Box<users::UsersArguments>),
    /// Agents of a gateway. The key is that of the AGENT interface, from REROUTER_AGENT_API_KEY.
    Agents(Box<agents::AgentsArguments>),
    /// Nodes of a gateway; admins only.
    Nodes(Box<nodes::NodesArguments>),
    /// Requests, tokens and cost of a gateway, summed by day, key, user, model or recipe.
    Usage(Box<usage::UsageArguments>),
    /// The routing document of a gateway.
    Config(Box<configuration::ConfigArguments>),
    /// Requests of a gateway, newest last; with --follow as they end.
    ///
    /// They are read from captures, so requests that are not captured are missing.
    Logs(Box<logs::LogsArguments>),
    /// List, show, reroute, evaluate, export and import captures.
    ///
    /// Exit codes: 0 success; 1 a bound of `evaluate` is broken; 2 unusable options, documents,
    /// corpora or output; 3 the gateway could not be reached, or refused.
    Replay(Box<replay::ReplayArguments>),
    /// Gateways by name, with their keys, in a file that only you can read.
    Profile(profiles::ProfileArguments),
    /// Report an OpenAI-compatible server to a gateway as a node, until stopped.
    Node(Box<node::NodeArguments>),
    /// Turn the configuration of another gateway into a routing document.
    Import(import::ImportArguments),
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
    /// Print completions for a shell.
    Completions(reference::CompletionsArguments),
    /// Print or write manual pages.
    Man(reference::ManArguments),
}

/// Runs the command line: this is all of `main`.
pub fn main() -> ExitCode {
    let env = &variable;
    ended(match CliArguments::parse().command {
        CliCommand::Serve(arguments) => serve::run(&arguments, environment, env),
        CliCommand::Init(arguments) => init::run(&arguments, env),
        CliCommand::Check(arguments) => check::run(&arguments, environment, env),
        CliCommand::Doctor(arguments) => doctor::run(&arguments, environment, env),
        CliCommand::Keys(arguments) => keys::run(*arguments, env),
        CliCommand::Users(arguments) => users::run(*arguments, env),
        CliCommand::Agents(arguments) => agents::run(*arguments, env),
        CliCommand::Nodes(arguments) => nodes::run(*arguments, env),
        CliCommand::Usage(arguments) => usage::run(*arguments, env),
        CliCommand::Config(arguments) => configuration::run(*arguments, env),
        CliCommand::Logs(arguments) => logs::run(&arguments, env),
        CliCommand::Replay(arguments) => replay::run(*arguments, env),
        CliCommand::Profile(arguments) => profiles::run(arguments, env),
        CliCommand::Node(arguments) => return node::run(&arguments, env),
        CliCommand::Import(arguments) => import::run(&arguments),
        CliCommand::Backup(arguments) => backup::run(&arguments, env),
        CliCommand::Migrate(arguments) => migrate::run(&arguments, env),
        CliCommand::Openapi => openapi(),
        CliCommand::Completions(arguments) => {
            reference::completions(&arguments, CliArguments::command())
        }
        CliCommand::Man(arguments) => reference::man(&arguments, CliArguments::command()),
    })
}

/// Prints why it failed.
fn ended(result: Result<()>) -> ExitCode {
    let (code, why) = match result {
        Ok(()) | Err(CommandFailure::PipeClosed) => return ExitCode::SUCCESS,
        Err(CommandFailure::BoundBroken) => return ExitCode::from(1),
        Err(CommandFailure::Failed(why)) => (1, why),
        Err(CommandFailure::Usage(why)) => (2, why),
        Err(CommandFailure::Gateway(why)) => (3, why),
    };
    print_error(&format!("{}\n", clean(&why)));
    ExitCode::from(code)
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

fn openapi() -> Result<()> {
    let document = String::from_utf8_lossy(&api::openapi_file().plain);
    output::print(&format!("{document}\n"))
}
