//! `rerouter node`: runs beside an OpenAI-compatible server, reports its models and load to a
//! gateway in signed callbacks, and deregisters when it stops.

mod backoff;
mod gateway;
mod http;
mod reporter;
mod server_formats;
mod signals;
mod upstream;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use self::reporter::{Reporter, Settings};
use self::signals::Stop;
use super::output::print_error;
use crate::config::Env;

#[derive(Args)]
pub(super) struct NodeArguments {
    /// URL of the gateway, with the name that signatures cover: its `public_url`, else the address
    /// of its listener.
    #[arg(long, value_name = "URL")]
    gateway: String,
    /// Id of the node, from `POST /v1/nodes`. Its secret is read from REROUTER_NODE_SECRET.
    #[arg(long, value_name = "NODE")]
    id: String,
    /// Generation of the secret: 1, plus one for each rotation.
    #[arg(long, default_value_t = 1)]
    generation: u32,
    /// URL of the server with the models. Its API key is read from REROUTER_NODE_API_KEY, and sent
    /// to the gateway.
    #[arg(long, value_name = "URL")]
    upstream: String,
    /// URL at which the gateway reaches the server. Default: the same as --upstream.
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Report only this model (a trailing `*` matches a prefix). Repeatable. Default: all.
    #[arg(long = "model", value_name = "PATTERN")]
    models: Vec<String>,
    /// Maximum number of concurrent requests. Default: unlimited.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    max_concurrency: Option<u32>,
    /// Seconds to wait for running requests when stopped; the full time if the server does not
    /// report its load.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    drain: u64,
    /// PEM file of certificate authorities to trust for the gateway instead of the public ones.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// PEM file of certificate authorities to trust for the server. The gateway has its own:
    /// `nodes.ca`.
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,
}

/// Runs until it is stopped. Exit codes: 0 stopped; 1 stopped by a second signal; 2 wrong options,
/// a refused first registration, or another process with the same node.
pub(super) fn run(arguments: &NodeArguments, env: &Env<'_>) -> ExitCode {
    let settings = Settings {
        gateway: &arguments.gateway,
        gateway_ca: arguments.ca.as_deref(),
        id: &arguments.id,
        generation: arguments.generation,
        upstream: &arguments.upstream,
        upstream_ca: arguments.upstream_ca.as_deref(),
        endpoint: arguments.endpoint.as_deref(),
        models: &arguments.models,
        max_concurrency: arguments.max_concurrency,
        drain: arguments.drain,
    };
    let ended =
        Reporter::new(&settings, env).and_then(|mut reporter| reporter.run(&Stop::on_signals()?));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            print_error(&format!("{why}\n"));
            ExitCode::from(2)
        }
    }
}
