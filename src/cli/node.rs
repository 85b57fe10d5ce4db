//! `rerouter node`: beside a server that speaks OpenAI's API it says to a gateway what that serves and how busy it is, signed,
//! for as long as it runs; and that it leaves, when it is told to. Gateways may restart and clocks be wrong meanwhile.

mod gateway;
mod upstream;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use self::gateway::{Gateway, Said};
use self::upstream::{Load, Trouble, Upstream};
use super::client::authorities;
use crate::bounds;
use crate::config::Env;
use crate::id::{NodeId, Random};
use crate::routing::BaseUrl;
use crate::secret::Secret;

/// What is reported to which gateway.
#[derive(Args)]
pub(super) struct Arguments {
    /// The gateway, by the name that it signs with: its `public_url`, else the address of its listener.
    #[arg(long, value_name = "URL")]
    gateway: String,
    /// The node, as `POST /v1/nodes` named it. Its secret is in REROUTER_NODE_SECRET.
    #[arg(long, value_name = "NODE")]
    id: String,
    /// The generation of the secret: 1, and one more with each rotation.
    #[arg(long, default_value_t = 1)]
    generation: u32,
    /// The server that serves the models. What it wants to be shown is in REROUTER_NODE_API_KEY, here and at the gateway.
    #[arg(long, value_name = "URL")]
    upstream: String,
    /// Where the gateway reaches that server; without it at the same URL.
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// A model of the server that is told of, or with a `*` at its end several; again for more. Without it all.
    #[arg(long = "model", value_name = "PATTERN")]
    models: Vec<String>,
    /// Requests that it is given at once; without it any number.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    max_concurrency: Option<u32>,
    /// Seconds to wait for requests that it still serves, when told to leave; all of them where the server does not say how busy it is.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    drain: u64,
    /// Certificate authorities in PEM that the gateway's certificate is checked against, instead of the public ones.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The same for the certificate of the server. The gateway has its own: `nodes.ca` of its document.
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,
}

/// Runs it to its end: 0 when told to leave, 1 when told twice, 2 when something is wrong with the options, the gateway refuses the
/// first registration, or another process has it.
pub(super) fn run(arguments: &Arguments, env: &Env<'_>) -> ExitCode {
    let ended = Node::new(arguments, env).and_then(|mut node| node.live(&told_to_leave()?));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(&why);
            ExitCode::from(2)
        }
    }
}

fn say(what: &str) {
    // Nobody is left to tell when standard error is gone.
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// Hears of SIGTERM and SIGINT on a thread of its own. The second one ends the process there, whatever is waited for.
fn told_to_leave() -> Result<Receiver<()>, String> {
    let (tell, told) = channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    // Listened for before anything else is done.
    let guard = runtime.enter();
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    drop(guard);
    let listen = move || {
        runtime.block_on(async {
            for again in [false, true] {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                if again {
                    say("told twice: it has left without a word to the gateway");
                    std::process::exit(1);
                }
                // It may have left by itself.
                let _ = tell.send(());
            }
        });
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(listen)
        .map_err(|error| error.to_string())?;
    Ok(told)
}

/// An agent that asks those whom it knows and nobody else, whose certificate `ca` vouches for, or else the public authorities.
fn agent(ca: Option<&Path>) -> Result<Agent, String> {
    let mut tls = TlsConfig::builder();
    if let Some(file) = ca {
        let found = authorities(file)
            .map_err(|_| format!("{}: holds no certificate in PEM", file.display()))?;
        tls = tls.root_certs(RootCerts::new_with_certs(&found));
    }
    let config = Agent::config_builder().http_status_as_error(false).max_redirects(0);
    // Both are asked where they are said to be, whatever way out the environment knows for others.
    let config = config
        .proxy(None)
        .user_agent(concat!("rerouter/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls.build())
        .build();
    Ok(Agent::new_with_config(config))
}

fn url(base: &BaseUrl, path: &str) -> String {
    format!("{}://{}{path}", if base.tls { "https" } else { "http" }, base.authority())
}

struct Node {
    id: NodeId,
    gateway: Gateway,
    upstream: Upstream,
    endpoint: String,
    max_concurrency: Option<u32>,
    drain: Duration,
    random: Random,
    /// Models that the gateway took last; none before it took a registration.
    taken: Option<Vec<Value>>,
    /// Models that it does not want to hear of: they are not told again until they are others.
    refused: Option<Vec<Value>>,
}

/// What comes after reports.
enum Next {
    Register,
    /// The same, as the gateway does not know the registration any more.
    Lost,
    Leave,
    /// Without a word: the registration is another process's.
    End,
}

/// What the server was the last times that it was asked.
#[derive(Default)]
struct Sight {
    /// It did not answer in time, once: it may be busy, and is taken to be as it was.
    late: bool,
    load: Load,
}

/// A report in the making.
struct Report {
    status: &'static str,
    models: Option<Vec<Value>>,
    load: Load,
}

impl Node {
    fn new(arguments: &Arguments, env: &Env<'_>) -> Result<Node, String> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let url = |name: &str, text: &str| {
            BaseUrl::parse(text).map_err(|wrong| format!("--{name}: the URL {wrong}"))
        };
        if let Some(endpoint) = &arguments.endpoint {
            url("endpoint", endpoint)?;
        }
        let id = NodeId::parse(&arguments.id).ok_or("--id is like node_… with 26 characters")?;
        let secret = set("REROUTER_NODE_SECRET")
            .map(Secret::new)
            .ok_or("no secret: set REROUTER_NODE_SECRET")?;
        let (base, api_key) =
            (url("upstream", &arguments.upstream)?, set("REROUTER_NODE_API_KEY").map(Secret::new));
        let gateway = url("gateway", &arguments.gateway)?;
        Ok(Node {
            gateway: Gateway::new(
                gateway,
                arguments.ca.as_deref(),
                id.clone(),
                arguments.generation,
                secret,
            )?,
            upstream: Upstream::new(
                base,
                arguments.upstream_ca.as_deref(),
                api_key,
                arguments.models.clone(),
            )?,
            id,
            endpoint: arguments.endpoint.clone().unwrap_or_else(|| arguments.upstream.clone()),
            max_concurrency: arguments.max_concurrency,
            drain: Duration::from_secs(arguments.drain),
            random: Random::System,
            taken: None,
            refused: None,
        })
    }

    /// Registers, reports, and registers again whenever the gateway wants it, until told to leave.
    fn live(&mut self, leave: &Receiver<()>) -> Result<(), String> {
        let (mut retry, mut lost) = (Retry::default(), 0);
        loop {
            match self.register() {
                Said::Taken => {
                    say(&format!("{} is registered", self.id));
                    let begun = Instant::now();
                    retry = Retry::default();
                    match self.report(leave) {
                        Next::Leave => return self.leave(),
                        Next::End => return Ok(()),
                        Next::Register => continue,
                        Next::Lost => {}
                    }
                    // A gateway may lose a registration once. One that is lost again at once was taken by another process, which
                    // would lose it next: the one that was there first gives way.
                    lost = if begun.elapsed() < bounds::NODE_LEASE { lost + 1 } else { 1 };
                    if lost > 1 {
                        return Err(format!(
                            "{} is reported by another process: this one gives way",
                            self.id
                        ));
                    }
                    continue;
                }
                Said::Never(_, why) if self.taken.is_none() => return Err(why),
                // What was good may be so again: clocks are set right, secrets and enrolments restored.
                Said::Never(_, why) => say(&format!("not registered again, and tried on: {why}")),
                Said::Unregistered => {}
                Said::Later(why) => say(&format!("not registered yet: {why}")),
            }
            if pause(leave, retry.next(&self.random)) {
                if self.taken.is_none() {
                    say(&format!("{} leaves before it was registered", self.id));
                    return Ok(());
                }
                say(&format!(
                    "{} leaves while it is not registered: the gateway is told once",
                    self.id
                ));
                return self.leave();
            }
        }
    }

    fn register(&mut self) -> Said {
        let models = match self.upstream.look() {
            Ok(seen) => seen.models,
            Err(Trouble::Late(why) | Trouble::Away(why)) => return Said::Later(why),
        };
        if let Some(taken) = self.taken.clone().filter(|_| self.refused.as_ref() == Some(&models)) {
            return self.register_with(taken);
        }
        let said = self.register_with(models.clone());
        match (&said, self.taken.clone()) {
            (Said::Never(400 | 403, why), Some(taken)) if taken != models => {
                self.refuse(models, why);
                self.register_with(taken)
            }
            _ => said,
        }
    }

    fn refuse(&mut self, models: Vec<Value>, why: &str) {
        say(&format!("the server's models are not told, those of before stay: {why}"));
        self.refused = Some(models);
    }

    fn register_with(&mut self, models: Vec<Value>) -> Said {
        let mut body = json!({ "version": env!("CARGO_PKG_VERSION"), "endpoint": self.endpoint, "models": models });
        if let Value::Object(fields) = &mut body {
            fields.extend(
                self.upstream.api_key().map(|key| ("api_key".to_owned(), key.expose().into())),
            );
            fields.extend(
                self.max_concurrency.map(|most| ("max_concurrency".to_owned(), most.into())),
            );
        }
        let said = self.gateway.call("register", &body);
        if matches!(said, Said::Taken) {
            self.taken = Some(models);
        }
        said
    }

    /// Reports until the gateway wants another registration, or it is time to leave.
    fn report(&mut self, leave: &Receiver<()>) -> Next {
        let (mut seq, mut sight, mut retry) = (0, Sight::default(), Retry::default());
        loop {
            let due = Instant::now() + bounds::NODE_HEARTBEAT;
            seq += 1;
            let mut report = self.look(&mut sight);
            report.models = report.models.filter(|models| self.refused.as_ref() != Some(models));
            let mut said = self.heartbeat(seq, &report);
            if let Said::Never(400 | 403, why) = &said
                && let Some(models) = report.models.take()
            {
                self.refuse(models, why);
                seq += 1;
                said = self.heartbeat(seq, &report);
            }
            let told = match said {
                Said::Taken => {
                    retry = Retry::default();
                    self.taken = report.models.take().or(self.taken.take());
                    self.rest(leave, due, report.status == "error")
                }
                Said::Unregistered => return Next::Lost,
                Said::Later(why) => {
                    say(&format!("a report was not taken: {why}"));
                    pause(leave, retry.next(&self.random))
                }
                // Whether that is for good, a registration shows.
                Said::Never(_, why) => {
                    say(&format!("a report was refused: {why}"));
                    return if pause(leave, retry.next(&self.random)) {
                        Next::Leave
                    } else {
                        Next::Register
                    };
                }
            };
            if told {
                return self.drain(seq);
            }
        }
    }

    /// A server that does not answer can serve nobody; one that is late once may be busy. Its models are asked for again with
    /// each report.
    fn look(&mut self, sight: &mut Sight) -> Report {
        let (status, models) = match self.upstream.look() {
            Ok(seen) => {
                *sight = Sight { late: false, load: seen.load.unwrap_or_default() };
                ("ready", Some(seen.models))
            }
            Err(Trouble::Late(_)) if !sight.late => {
                sight.late = true;
                ("ready", None)
            }
            Err(Trouble::Late(why) | Trouble::Away(why)) => {
                say(&format!("the server is in trouble: {why}"));
                *sight = Sight { late: true, load: Load::default() };
                ("error", None)
            }
        };
        Report { status, models, load: sight.load }
    }

    /// Waits for the next report; for one of a server in trouble only until it answers again. Whether it was told to leave.
    fn rest(&self, leave: &Receiver<()>, due: Instant, trouble: bool) -> bool {
        let left = || due.saturating_duration_since(Instant::now());
        while trouble && left() > bounds::NODE_RETRY {
            if pause(leave, bounds::NODE_RETRY) {
                return true;
            }
            if self.upstream.answers() {
                return false;
            }
        }
        pause(leave, left())
    }

    fn heartbeat(&mut self, seq: u64, report: &Report) -> Said {
        let Report { status, models, load } = report;
        let mut body =
            json!({ "seq": seq, "status": status, "running": load.running, "queued": load.queued });
        if let (Value::Object(fields), Some(models)) = (&mut body, models) {
            fields.insert("models".to_owned(), models.as_slice().into());
        }
        self.gateway.call("heartbeat", &body)
    }

    /// Takes no new requests, and waits for those that it has: until there are none, or where that is not known for as long as it
    /// may. Ends at once where another process reports for the node by now.
    fn drain(&mut self, mut seq: u64) -> Next {
        let end = Instant::now() + self.drain;
        // Dropped at the end of the call: nobody tells it anything, so that waiting on it is waiting.
        let (_quiet, never) = channel::<()>();
        let mut load = Some(Load { running: 1, queued: 0 });
        let (mut idle, mut known) = (0, false);
        loop {
            seq += 1;
            let report =
                Report { status: "draining", models: None, load: load.unwrap_or_default() };
            match self.heartbeat(seq, &report) {
                Said::Unregistered => {
                    say(&format!(
                        "{} is reported by another process: it stays registered",
                        self.id
                    ));
                    return Next::End;
                }
                Said::Later(why) | Said::Never(_, why) => {
                    say(&format!("a report was not taken: {why}"))
                }
                Said::Taken => known = true,
            }
            load = self.upstream.load();
            // Twice: what the gateway sent just before it knew may have come in between. Until it knows it sends more.
            idle = if known && load == Some(Load::default()) { idle + 1 } else { 0 };
            if idle == 2 || Instant::now() >= end {
                return Next::Leave;
            }
            pause(&never, bounds::NODE_RETRY.min(end.saturating_duration_since(Instant::now())));
        }
    }

    fn leave(&mut self) -> Result<(), String> {
        match self.gateway.call("deregister", &json!({})) {
            Said::Taken | Said::Unregistered => {
                say(&format!("{} has left", self.id));
                Ok(())
            }
            Said::Later(why) | Said::Never(_, why) => {
                Err(format!("the gateway does not know that the node has left: {why}"))
            }
        }
    }
}

/// Waits that grow from one failure to the next, each by chance between half of it and all: nodes that lost their gateway
/// together do not come back together.
struct Retry(Duration);

impl Default for Retry {
    fn default() -> Self {
        Retry(bounds::NODE_RETRY)
    }
}

impl Retry {
    fn next(&mut self, random: &Random) -> Duration {
        let whole = self.0;
        self.0 = (whole * 2).min(bounds::NODE_HEARTBEAT);
        let chance = Duration::from_millis(
            random.next_u64() % (1 + u64::try_from(whole.as_millis() / 2).unwrap_or(u64::MAX - 1)),
        );
        whole / 2 + chance
    }
}

/// Waits; whether it was told to leave meanwhile.
fn pause(leave: &Receiver<()>, wait: Duration) -> bool {
    !matches!(leave.recv_timeout(wait), Err(RecvTimeoutError::Timeout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_differ() {
        let random = Random::seeded(7);
        let mut retry = Retry::default();
        for most in [1, 2, 4, 8, 10, 10, 10].map(Duration::from_secs) {
            let wait = retry.next(&random);
            assert!(wait >= most / 2 && wait <= most, "{wait:?} of {most:?}");
        }
        let waits: std::collections::BTreeSet<Duration> =
            (0..50).map(|_| retry.next(&random)).collect();
        assert!(waits.len() > 40, "{waits:?}");
    }
}
