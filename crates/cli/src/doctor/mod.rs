//! `rerouter doctor`: checks what a deployment needs, with a remedy for each problem.

mod machine;
mod places;
mod report;

use clap::Args;

use self::report::DoctorReport;
use super::check;
use super::failure::{CommandFailure, Result};
use super::output::print;
use super::server_source::ServerSourceArguments;
use rerouter_core::config::Env;
use rerouter_gateway::server::Environment;
use rerouter_gateway::server::ready;

#[derive(Args)]
pub(super) struct DoctorArguments {
    #[command(flatten)]
    server: ServerSourceArguments,
    /// Ask neither providers nor a running gateway.
    #[arg(long)]
    offline: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(
    arguments: &DoctorArguments,
    environment: fn() -> Environment,
    env: &Env<'_>,
) -> Result<()> {
    let mut report = DoctorReport::default();
    let checked = check::examine_both(arguments.server.source(), environment, env);
    report.documents(&checked);
    if let Some(server) = &checked.server {
        let readiness = ready::check(server, Some(&environment()));
        machine::store(&mut report, server, &readiness, &environment());
        machine::disk(&mut report, server);
        machine::certificates(&mut report, server, &readiness);
        let routing = places::routing(server, &environment(), env);
        let routing = routing.as_ref();
        let running =
            !arguments.offline && places::gateway(&mut report, server, &readiness, routing);
        machine::lease(&mut report, server, running);
        if arguments.offline {
            report.ok("objects", "not asked");
            report.ok("providers", "not asked");
            report.ok("clock", "not compared");
        } else {
            machine::objects(&mut report, server, &environment());
            let clocks = places::providers(&mut report, routing);
            places::clock(&mut report, &clocks);
        }
    }
    print(&report.text(arguments.json))?;
    if report.has_failed() { Err(CommandFailure::BoundBroken) } else { Ok(()) }
}
