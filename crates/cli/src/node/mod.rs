//! `rerouter node`: runs beside an OpenAI-compatible server, reports its models and load to a
//! gateway in signed callbacks, and deregisters when it stops.

mod arguments;
mod backoff;
mod gateway;
mod http;
mod reporter;
mod server_formats;
mod signals;
mod upstream;

use std::process::ExitCode;

pub(super) use self::arguments::NodeArguments;
pub use self::gateway::NODE_CALLBACK_TIMEOUT;
use self::reporter::Reporter;
use self::signals::Stop;
use super::output::print_error;
use rerouter_core::config::Env;

/// Runs until it is stopped. Exit codes: 0 if it was stopped; 1 if a second signal stopped it; 2
/// for wrong options, a refused first registration, or another process that reports as the same
/// node.
pub(super) fn run(arguments: &NodeArguments, env: &Env<'_>) -> ExitCode {
    let ended =
        Reporter::new(arguments, env).and_then(|mut reporter| reporter.run(&Stop::on_signals()?));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            print_error(&format!("{why}\n"));
            ExitCode::from(2)
        }
    }
}
