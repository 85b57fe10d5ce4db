//! `rerouter node`: beside a server that speaks OpenAI's API it says to a gateway what that serves and how busy it is, signed,
//! for as long as it runs; and that it leaves, when it is told to. Gateways may restart and clocks be wrong meanwhile.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, http};

use super::client::authorities;
use crate::auth::signature::{Covered, Signer};
use crate::bounds;
use crate::clock::Clock;
use crate::config::Env;
use crate::id::{NodeId, Random};
use crate::routing::provider::Base;
use crate::secret::Secret;
use crate::store::covers;

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
    /// The server that serves the models.
    #[arg(long, value_name = "URL")]
    upstream: String,
    /// Where the gateway reaches that server; without it at the same URL. What it wants to be shown is in REROUTER_NODE_API_KEY.
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
}

/// Runs it to its end: 0 when told to leave, 2 when something is wrong with the options or the gateway refuses the registration.
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

/// Hears of SIGTERM and SIGINT on a thread of its own.
fn told_to_leave() -> Result<Receiver<()>, String> {
    let (tell, told) = channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    // Listened for before anything else is done.
    let guard = runtime.enter();
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    drop(guard);
    let listen = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        });
        // It may have left by itself.
        let _ = tell.send(());
    };
    std::thread::Builder::new().name("signals".into()).spawn(listen).map_err(|error| error.to_string())?;
    Ok(told)
}

struct Node {
    agent: Agent,
    gateway: Base,
    id: NodeId,
    generation: u32,
    secret: Secret,
    upstream: Base,
    endpoint: String,
    api_key: Option<Secret>,
    /// Patterns of the models to tell of; none: all.
    patterns: Vec<String>,
    max_concurrency: Option<u32>,
    drain: Duration,
    clock: Clock,
    /// Seconds that the gateway's clock is ahead.
    ahead: i64,
}

/// What became of a callback.
enum Said {
    /// It was taken.
    Taken,
    /// The gateway does not know the registration.
    Unregistered,
    /// Not now.
    Later(String),
    /// Never: the enrolment, or what was sent, is wrong, as this status says.
    Never(u16, String),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    running: u64,
    queued: u64,
}

impl Node {
    fn new(arguments: &Arguments, env: &Env<'_>) -> Result<Node, String> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let url = |name: &str, text: &str| Base::parse(text).map_err(|wrong| format!("--{name}: the URL {wrong}"));
        let mut tls = TlsConfig::builder();
        if let Some(file) = &arguments.ca {
            let found = authorities(file).map_err(|_| format!("{}: holds no certificate in PEM", file.display()))?;
            tls = tls.root_certs(RootCerts::new_with_certs(&found));
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(bounds::NODE_HEARTBEAT))
            .user_agent(concat!("rerouter/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls.build())
            .build();
        let upstream = url("upstream", &arguments.upstream)?;
        if let Some(endpoint) = &arguments.endpoint {
            url("endpoint", endpoint)?;
        }
        Ok(Node {
            agent: Agent::new_with_config(config),
            gateway: url("gateway", &arguments.gateway)?,
            id: NodeId::parse(&arguments.id).ok_or("--id is like node_… with 26 characters")?,
            generation: arguments.generation,
            secret: set("REROUTER_NODE_SECRET").map(Secret::new).ok_or("no secret: set REROUTER_NODE_SECRET")?,
            upstream,
            endpoint: arguments.endpoint.clone().unwrap_or_else(|| arguments.upstream.clone()),
            api_key: set("REROUTER_NODE_API_KEY").map(Secret::new),
            patterns: arguments.models.clone(),
            max_concurrency: arguments.max_concurrency,
            drain: Duration::from_secs(arguments.drain),
            clock: Clock::System,
            ahead: 0,
        })
    }

    /// Registers, reports, and registers again whenever the gateway wants it, until told to leave.
    fn live(&mut self, leave: &Receiver<()>) -> Result<(), String> {
        let mut wait = bounds::NODE_RETRY;
        loop {
            match self.register() {
                Said::Taken => {
                    say(&format!("{} is registered", self.id));
                    wait = bounds::NODE_RETRY;
                    match self.report(leave) {
                        Next::Leave => return self.leave(),
                        Next::End => return Ok(()),
                        Next::Register => continue,
                    }
                }
                Said::Never(_, why) => return Err(why),
                Said::Unregistered => {}
                Said::Later(why) => say(&format!("not registered yet: {why}")),
            }
            if pause(leave, wait) {
                return Ok(());
            }
            wait = (wait * 2).min(bounds::NODE_HEARTBEAT);
        }
    }

    fn register(&mut self) -> Said {
        let models = match self.models() {
            Ok(models) => models,
            Err(why) => return Said::Later(why),
        };
        let mut body = json!({ "version": env!("CARGO_PKG_VERSION"), "endpoint": self.endpoint, "models": models });
        if let Value::Object(fields) = &mut body {
            fields.extend(self.api_key.as_ref().map(|key| ("api_key".to_owned(), key.expose().into())));
            fields.extend(self.max_concurrency.map(|most| ("max_concurrency".to_owned(), most.into())));
        }
        self.call("register", &body)
    }

    /// Reports until the gateway wants another registration, or it is time to leave.
    fn report(&mut self, leave: &Receiver<()>) -> Next {
        let mut seq = 0;
        // Models that the gateway does not want to hear of: they are not told again until they are others.
        let mut refused: Option<Vec<Value>> = None;
        loop {
            seq += 1;
            // A server that does not answer can serve nobody; its models are asked for again with each report.
            let (status, models) = self.models().map_or(("error", None), |models| ("ready", Some(models)));
            let models = models.filter(|models| refused.as_ref() != Some(models));
            let mut said = self.heartbeat(seq, status, models.as_deref());
            if let (Said::Never(400 | 403, why), true) = (&said, models.is_some()) {
                say(&format!("the server's models are not told, those of before stay: {why}"));
                refused = models;
                seq += 1;
                said = self.heartbeat(seq, status, None);
            }
            match said {
                Said::Taken => {}
                Said::Unregistered => return Next::Register,
                Said::Later(why) => say(&format!("a report was not taken: {why}")),
                // Whether that is for good, a registration shows.
                Said::Never(_, why) => {
                    say(&format!("a report was refused: {why}"));
                    return if pause(leave, bounds::NODE_RETRY) { Next::Leave } else { Next::Register };
                }
            }
            if pause(leave, bounds::NODE_HEARTBEAT) {
                return self.drain(seq);
            }
        }
    }

    fn heartbeat(&mut self, seq: u64, status: &str, models: Option<&[Value]>) -> Said {
        let load = self.load().unwrap_or_default();
        let mut body = json!({ "seq": seq, "status": status, "running": load.running, "queued": load.queued });
        if let (Value::Object(fields), Some(models)) = (&mut body, models) {
            fields.insert("models".to_owned(), models.into());
        }
        self.call("heartbeat", &body)
    }

    /// Takes no new requests, and waits for those that it has: until there are none, or where that is not known for as long as it
    /// may. Ends at once where another process reports for the node by now.
    fn drain(&mut self, mut seq: u64) -> Next {
        let begun = self.clock.now();
        // Dropped at the end of the call: nobody tells it anything, so that waiting on it is waiting.
        let (_quiet, never) = channel::<()>();
        loop {
            seq += 1;
            match self.heartbeat(seq, "draining", None) {
                Said::Unregistered => {
                    say(&format!("{} is reported by another process: it stays registered", self.id));
                    return Next::End;
                }
                Said::Later(why) | Said::Never(_, why) => say(&format!("a report was not taken: {why}")),
                Said::Taken => {}
            }
            let idle = self.load().is_some_and(|load| load.running + load.queued == 0);
            let waited = Duration::try_from(self.clock.now().duration_since(begun)).unwrap_or(self.drain);
            if idle || waited >= self.drain {
                return Next::Leave;
            }
            pause(&never, bounds::NODE_RETRY);
        }
    }

    fn leave(&mut self) -> Result<(), String> {
        match self.call("deregister", &json!({})) {
            Said::Taken | Said::Unregistered => {
                say(&format!("{} has left", self.id));
                Ok(())
            }
            Said::Later(why) | Said::Never(_, why) => Err(format!("the gateway does not know that the node has left: {why}")),
        }
    }

    /// One callback. A 401 may be a matter of clocks: it is tried once more by the gateway's.
    fn call(&mut self, name: &str, body: &Value) -> Said {
        match self.send(name, body) {
            Ok((401, _, Some(date))) => {
                self.ahead = date.as_second() - self.clock.now().as_second();
                self.send(name, body).map_or_else(Said::Later, |(status, text, _)| judge(status, &text))
            }
            Ok((status, text, _)) => judge(status, &text),
            Err(why) => Said::Later(why),
        }
    }

    /// The status of the answer, its text, and its date.
    fn send(&self, name: &str, body: &Value) -> Result<(u16, String, Option<Timestamp>), String> {
        let (path, body, authority) = (format!("{}/v1/agent/{name}", self.gateway.path), body.to_string(), self.gateway.authority());
        let covered = Covered { method: &http::Method::POST, authority: &authority, path: &path, query: None };
        let signer = Signer { key: self.secret.expose().as_bytes(), node: self.id.as_str(), generation: self.generation };
        let created = self.clock.now().as_second() + self.ahead;
        let mut request = self.agent.post(url(&self.gateway, &path)).header("content-type", "application/json");
        for (name, value) in signer.sign(&covered, body.as_bytes(), created, &Random::System) {
            request = request.header(name, value);
        }
        let answer = request.send(body).map_err(|error| error.to_string())?;
        let date = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| rfc2822::parse(date).ok()).map(|date| date.timestamp());
        Ok((answer.status().as_u16(), text(answer.into_body())?, date))
    }

    /// `GET` from the server; the text of a good answer.
    fn ask(&self, path: &str) -> Result<String, String> {
        let mut request = self.agent.get(url(&self.upstream, path));
        if let Some(key) = &self.api_key {
            request = request.header("authorization", format!("Bearer {}", key.expose()));
        }
        let answer = request.call().map_err(|error| format!("the server cannot be asked: {error}"))?;
        let status = answer.status();
        if status.is_success() { text(answer.into_body()) } else { Err(format!("the server answered {status} to {path}")) }
    }

    /// What the server serves, as far as it is told of.
    fn models(&self) -> Result<Vec<Value>, String> {
        let path = format!("{}/models", self.upstream.clone().versioned().path);
        let answer: Value = serde_json::from_str(&self.ask(&path)?).map_err(|_| format!("the answer to {path} is not JSON"))?;
        let listed = answer.get("data").and_then(Value::as_array).ok_or_else(|| format!("the answer to {path} has no `data`"))?;
        Ok(listed.iter().filter_map(|model| described(model, &self.patterns)).take(bounds::NODE_MODELS).collect())
    }

    /// How busy the server is, where it says so.
    fn load(&self) -> Option<Load> {
        let root = self.upstream.path.trim_end_matches("/v1");
        self.ask(&format!("{root}/metrics")).ok().and_then(|metrics| read_load(&metrics))
    }
}

/// What comes after reports.
enum Next {
    Register,
    Leave,
    /// Without a word: the registration is another process's.
    End,
}

/// Waits; whether it was told to leave meanwhile.
fn pause(leave: &Receiver<()>, wait: Duration) -> bool {
    !matches!(leave.recv_timeout(wait), Err(RecvTimeoutError::Timeout))
}

fn url(base: &Base, path: &str) -> String {
    format!("{}://{}{path}", if base.tls { "https" } else { "http" }, base.authority())
}

fn text(body: ureq::Body) -> Result<String, String> {
    let mut text = String::new();
    let mut reader = body.into_with_config().limit(bounds::NODE_EVENTS_BODY as u64).reader();
    reader.read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

fn judge(status: u16, text: &str) -> Said {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let detail = body.get("detail").and_then(Value::as_str).unwrap_or_default();
    let refused = || format!("the gateway refused ({status}): {detail}");
    match status {
        200..=299 => Said::Taken,
        409 => Said::Unregistered,
        // Also where its secret was rotated: another one cannot come by itself.
        400 | 401 | 403 | 404 | 413 | 415 | 421 => Said::Never(status, refused()),
        _ => Said::Later(refused()),
    }
}

/// A model of the server's list that one of the patterns names, with its context where that is told (vLLM's `max_model_len`).
fn described(model: &Value, patterns: &[String]) -> Option<Value> {
    let id = model.get("id")?.as_str()?;
    if !patterns.is_empty() && !patterns.iter().any(|pattern| covers(pattern, id)) {
        return None;
    }
    let context = model.get("max_model_len").and_then(Value::as_u64);
    Some(context.map_or_else(|| json!({ "id": id }), |context| json!({ "id": id, "context": context })))
}

/// Sums of the gauges of vLLM and llama.cpp, in Prometheus' text format; none where neither says what is running.
fn read_load(metrics: &str) -> Option<Load> {
    let (mut load, mut known) = (Load::default(), false);
    for line in metrics.lines() {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let value = line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).filter(|value| (0.0..1e6).contains(value));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and a million
        let count = value.unwrap_or_default() as u64;
        match name {
            "vllm:num_requests_running" | "llamacpp:requests_processing" => {
                known |= value.is_some();
                load.running += count;
            }
            "vllm:num_requests_waiting" | "llamacpp:requests_deferred" => load.queued += count,
            _ => {}
        }
    }
    known.then_some(load)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_what_vllm_and_llama_cpp_say() {
        let load = |running, queued| Some(Load { running, queued });
        let vllm = "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\n\
            vllm:num_requests_running{model_name=\"a\"} 2.0\nvllm:num_requests_running{model_name=\"b\"} 1.0\nvllm:num_requests_waiting{model_name=\"a\"} 5.0\n";
        assert_eq!(read_load(vllm), load(3, 5));
        assert_eq!(read_load("llamacpp:requests_processing 1\nllamacpp:requests_deferred 4\n"), load(1, 4));
        assert_eq!(read_load("llamacpp:requests_processing 0\nllamacpp:requests_deferred -1\n"), load(0, 0));
        for unknown in ["vllm:num_requests_running NaN\nvllm:num_requests_waiting -1\nother 7\n", "{}", ""] {
            assert_eq!(read_load(unknown), None, "that nothing is known is not that nothing runs: {unknown}");
        }
    }

    #[test]
    fn models_come_with_their_context() {
        assert_eq!(described(&json!({"id": "q", "max_model_len": 4096}), &[]), Some(json!({"id": "q", "context": 4096})));
        assert_eq!((described(&json!({"id": "q"}), &[]), described(&json!({"name": "q"}), &[])), (Some(json!({"id": "q"})), None));
    }

    #[test]
    fn models_are_told_as_patterns_name_them() {
        let told = |id: &str| described(&json!({ "id": id }), &["qwen*".to_owned(), "llama".to_owned()]).is_some();
        assert_eq!([told("qwen-large"), told("llama"), told("llama-2"), told("embed")], [true, true, false, false]);
    }
}
