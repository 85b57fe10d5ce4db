//! Checks that ask other servers: providers, a running gateway, and their clocks.

use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;
use jiff::fmt::rfc2822;

use super::super::client::{ProbeAnswer, probe};
use super::report::DoctorReport;
use rerouter_base::clock::Clock;
use rerouter_core::config::{self, Env, Server};
use rerouter_gateway::server::Environment;
use rerouter_gateway::server::ready::{self, Readiness};
use rerouter_routing::{Provider, Routing};
use rerouter_store::DataDir;

/// Longest wait of `doctor` for a provider or a gateway.
const DOCTOR_ANSWER: Duration = Duration::from_secs(10);

/// Names of other machines, each with the seconds by which its clock is ahead of this machine's.
pub(super) type ClockDifferences = Vec<(String, i64)>;

/// Asks the gateway of the document for its readiness, if it runs. Returns whether it does.
pub(super) fn gateway(
    report: &mut DoctorReport,
    server: &Server,
    readiness: &Readiness,
    routing: Option<&Routing>,
) -> bool {
    const SAME: &str = "give `doctor` the --config, --listen, --metrics and --data-dir of `serve`";
    let dir = server.data_dir.display();
    let locked = DataDir::is_locked(&server.data_dir);
    let url = format!("http://{}/readyz", server.metrics.address);
    let ask = || probe(&url, &HeaderMap::new(), None, DOCTOR_ANSWER).ok();
    let answer = (!readiness.in_use.is_empty()).then(ask).flatten();
    let runs = locked.unwrap_or(answer.is_some());
    match (answer, locked) {
        (Some(ProbeAnswer { status: 200, .. }), Some(false)) => {
            let told =
                format!("one is ready at {}, and none runs on {dir}", server.metrics.address);
            report.warn("gateway", &told, SAME);
        }
        (Some(ProbeAnswer { status: 200, .. }), _) => {
            report.ok("gateway", "runs here, and is ready");
            compare_documents(report, server, routing);
        }
        (Some(_), Some(false)) => {
            let told = format!("something else listens at {}", server.metrics.address);
            report.warn("gateway", &told, "stop it, or choose another address");
        }
        (Some(ProbeAnswer { text, .. }), _) => {
            let told = format!("runs here, and is not ready: {}", text.trim());
            report.fail("gateway", &told, "see its log");
        }
        (None, Some(true)) => {
            let told = format!(
                "runs on {dir}, and does not answer at {}: it starts, drains or listens elsewhere",
                server.metrics.address
            );
            report.warn("gateway", &told, SAME);
        }
        (None, _) if readiness.in_use.is_empty() => {
            report.ok("gateway", "does not run here; its addresses are free");
        }
        (None, _) => {
            let why = readiness.in_use.iter().map(|problem| problem.message.as_str());
            let remedy = "stop what listens there, or choose another address";
            report.warn("gateway", &why.collect::<Vec<&str>>().join("; "), remedy);
        }
    }
    runs
}

/// Checks that the gateway has the routing document that is examined here. If the document is not
/// in a file, the environment of `serve` makes it.
fn compare_documents(report: &mut DoctorReport, server: &Server, routing: Option<&Routing>) {
    let url = format!("http://{}/metrics", server.metrics.address);
    let Ok(page) = probe(&url, &HeaderMap::new(), None, DOCTOR_ANSWER) else { return };
    let live = page
        .text
        .lines()
        .find_map(|line| line.strip_prefix("rerouter_routing_info{revision=\"")?.split('"').next());
    let here = routing.map(Routing::revision);
    if let (Some(live), Some(here)) = (live, here)
        && live != here
    {
        let told = format!("has routing document {live}, and {here} is examined here");
        let remedy = "run `doctor` with the options and the environment of `serve`; if they are \
                      the same, the gateway refused the newer document: see its log";
        report.warn("gateway", &told, remedy);
    }
}

/// Asks each provider of the routing document for its models.
pub(super) fn providers(report: &mut DoctorReport, routing: Option<&Routing>) -> ClockDifferences {
    let Some(routing) = routing else {
        report.warn("providers", "not asked: there is no valid routing document", "mend it");
        return Vec::new();
    };
    let mut clocks = Vec::new();
    for provider in &routing.providers {
        clocks.extend(ask(report, provider));
    }
    clocks
}

/// Loads the routing document as `serve` would with these options and this environment.
pub(super) fn routing(
    server: &Server,
    environment: &Environment,
    env: &Env<'_>,
) -> Option<Routing> {
    let source = match server.routing.store {
        true => config::stored_routing(ready::stored_document(server, environment).ok()?),
        false => config::load_routing(server).ok()?,
    };
    config::read_routing(&source.file, &source.text, server, env, None).ok()
}

/// Asks one provider. Returns its name, and the seconds by which its clock is ahead.
fn ask(report: &mut DoctorReport, provider: &Provider) -> Option<(String, i64)> {
    let name = &*provider.name;
    if !provider.protocol.is_remote() {
        report.ok("provider", &format!("{name} is the mock"));
        return None;
    }
    let head = provider.head.as_ref()?;
    let base = &provider.base;
    let scheme = if base.tls { "https" } else { "http" };
    let path = if base.model_in_path { "" } else { "/models" };
    let url = format!("{scheme}://{}{}", base.authority(), base.request_target_at(path, None));
    let authorities = provider.ca.as_ref().map(|ca| ca.certificates());
    match probe(&url, head.check(), authorities, DOCTOR_ANSWER) {
        Ok(answer) => {
            judge(report, name, answer.status);
            Some((name.to_owned(), ahead(answer.date.as_deref()?)?))
        }
        Err(why) => {
            let remedy = "check `base_url`, DNS, proxies and certificates of this machine";
            report.fail("provider", &format!("{name} cannot be reached: {why}"), remedy);
            None
        }
    }
}

fn judge(report: &mut DoctorReport, name: &str, status: u16) {
    match status {
        200..=299 => report.ok("provider", &format!("{name} answers, and takes the key")),
        401 | 403 => report.fail(
            "provider",
            &format!("{name} refuses the key ({status})"),
            "check the variable that `api_key` names",
        ),
        500..=599 => {
            report.warn("provider", &format!("{name} fails ({status})"), "try again later")
        }
        _ => report
            .ok("provider", &format!("{name} can be reached; it has no list of models ({status})")),
    }
}

fn ahead(date: &str) -> Option<i64> {
    let at: Timestamp = rfc2822::DateTimeParser::new().parse_timestamp(date).ok()?;
    Some(at.as_second() - Clock::System.now().as_second())
}

pub(super) fn clock(report: &mut DoctorReport, others: &ClockDifferences) {
    const REMEDY: &str = "let NTP set the clock: signatures of nodes hold for a minute";
    let Some((name, off)) = others.iter().min_by_key(|(_, off)| off.abs()) else {
        report.ok("clock", "not compared: nobody told the time");
        return;
    };
    let told = format!("{} seconds off that of {name}", off.abs());
    match off.abs() {
        0..=5 => report.ok("clock", &told),
        6..=59 => report.warn("clock", &told, REMEDY),
        _ => report.fail("clock", &told, REMEDY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_that_agrees_most_counts() {
        for (others, word) in [
            (vec![], "ok"),
            (vec![("a".to_owned(), 3), ("b".to_owned(), -4000)], "ok"),
            (vec![("a".to_owned(), -20)], "warn"),
            (vec![("a".to_owned(), 61)], "fail"),
        ] {
            let mut report = DoctorReport::default();
            clock(&mut report, &others);
            assert!(report.text(false).starts_with(word), "{others:?}: {}", report.text(false));
        }
        assert!(ahead("Sun, 06 Nov 1994 08:49:37 GMT").is_some_and(|off| off < 0));
    }
}
