//! The sides of a comparison that this repository builds: bare Pingora and the gateway.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rerouter_bare::ROLE;
use serde_json::{Value, json};

use crate::Result;
use crate::load::connect;
use crate::process::{Process, free_address};

pub const ADMIN: &str = "bench-admin-0123456789abcdef0123456789abcdef";

/// The gateway that is timed: the one that `benches/run` built as a release is, or else the one
/// that was built with this bench.
pub fn timed() -> PathBuf {
    let released = std::env::var_os("REROUTER_BINARY");
    released.unwrap_or_else(|| env!("CARGO_BIN_EXE_rerouter").into()).into()
}

/// How to start a process.
pub enum Start {
    Plain,
    /// As an argument of a program such as an instrument.
    Under(&'static str, Vec<String>),
}

impl Start {
    fn command(&self, binary: &Path) -> Command {
        match self {
            Start::Under(program, arguments) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(binary);
                command
            }
            Start::Plain => Command::new(binary),
        }
    }
}

/// Starts bare Pingora in front of `upstream`: one service, as it comes, or one a thread.
pub fn bare(
    start: &Start,
    name: &'static str,
    upstream: SocketAddr,
    threads: u16,
    services: u16,
) -> Result<Process> {
    let address = free_address()?;
    let mut command = start.command(&std::env::current_exe()?);
    command.args([ROLE, &address.to_string(), &upstream.to_string()]);
    command.args([threads.to_string(), services.to_string()]);
    let mut process = Process::start(name, &mut command, address, tempfile::tempdir()?)?;
    process.data_path = Some(ROLE);
    process.credential = ADMIN.to_owned();
    process.wait_until(|_| connect(address).is_ok())?;
    Ok(process)
}

/// Starts the gateway in front of `upstream` with its defaults, or without captures.
pub fn gateway(
    start: &Start,
    name: &'static str,
    binary: &Path,
    upstream: SocketAddr,
    threads: u16,
    captures: bool,
) -> Result<Process> {
    gateway_with(start, name, binary, upstream, (threads, captures), "")
}

/// Starts the gateway with additional lines in its server document.
pub fn gateway_with(
    start: &Start,
    name: &'static str,
    binary: &Path,
    upstream: SocketAddr,
    sizes: (u16, bool),
    more: &str,
) -> Result<Process> {
    gateway_limited(start, name, binary, upstream, sizes, (more, &json!({})))
}

/// Starts the gateway with limits of its key. With limits the target has a price.
pub fn gateway_limited(
    start: &Start,
    name: &'static str,
    binary: &Path,
    upstream: SocketAddr,
    (threads, captures): (u16, bool),
    (more, limits): (&str, &Value),
) -> Result<Process> {
    let dir = tempfile::Builder::new().prefix("rerouter-bench-").tempdir()?;
    let (address, metrics) = (free_address()?, free_address()?);
    write_documents(dir.path(), (address, metrics, upstream), (threads, captures), more)?;
    if limits.get("budget").is_some() {
        let path = dir.path().join("routing.yaml");
        let priced = "models: { up/fixed: { input_per_mtok: 1, output_per_mtok: 1 } }\n";
        std::fs::write(&path, std::fs::read_to_string(&path)? + priced)?;
    }
    let mut command = start.command(binary);
    command.arg("serve").arg("--config").arg(dir.path().join("rerouter.yaml")).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("ADMIN_API_KEY", ADMIN).env("AGENT_CLOUD_API_KEY", ADMIN);
    // The access log is written as by default, but nobody reads it.
    command.env("RUST_LOG", "error");
    let mut process = Process::start(name, &mut command, address, dir)?;
    process.data_path = Some("rerouter");
    process.metrics = Some(metrics);
    process.captures = captures;
    process.wait_until(|process| {
        let health = process.ask("GET", "/health", address, ADMIN, None);
        health.is_ok_and(|answer| answer.status == 200)
    })?;
    let named = json!({ "name": "bench", "limits": limits });
    let made = process.ask("POST", "/v1/router/keys", address, ADMIN, Some(&named))?;
    let made: Value = serde_json::from_slice(&made.body)?;
    let key = made.get("key").and_then(Value::as_str);
    process.credential = key.ok_or_else(|| format!("no key was made: {made}"))?.to_owned();
    Ok(process)
}

fn write_documents(
    dir: &Path,
    addresses: (SocketAddr, SocketAddr, SocketAddr),
    (threads, captures): (u16, bool),
    more: &str,
) -> Result<()> {
    let (address, metrics, upstream) = addresses;
    let server = format!(
        "listeners: [ {{ address: \"{address}\" }} ]\nmetrics: {{ address: \"{metrics}\" }}\n\
         threads: {threads}\ncapture: {{ enabled: {captures} }}\ndata_dir: {}\n\
         routing: {{ file: {} }}\n{more}",
        json!(dir.join("data")),
        json!(dir.join("routing.yaml")),
    );
    let routing = format!(
        "providers: {{ up: {{ protocol: openai, base_url: \"http://{upstream}/v1\", \
         api_key: sk-bench }} }}\n\
         recipes: {{ main: {{ rules: [ {{ name: default, \
         targets: [ {{ target: up/fixed }} ] }} ] }} }}\naliases: {{ auto: main }}\n"
    );
    std::fs::write(dir.join("rerouter.yaml"), server)?;
    Ok(std::fs::write(dir.join("routing.yaml"), routing)?)
}
