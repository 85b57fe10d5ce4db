//! The two processes under measure: how they start, what CPU they took, what the gateway has
//! stored. Each ends with its value, by its own id.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::load::{Answer, connect, exchange};
use crate::{Result, bare};

const ADMIN: &str = "bench-admin-0123456789abcdef0123456789abcdef";
/// Captures that one call evaluates: few enough to end soon after its window.
const EVALUATED: u32 = 20_000;
/// Longest that a process may take to serve, and the gateway to store what a window left.
const PATIENCE: Duration = Duration::from_secs(60);
/// A capture waits that long for company, and something for the write.
const LINGER: Duration = Duration::from_millis(250);

/// How a process is started.
pub enum Start {
    Plain,
    /// Under a program, such as an instrument, with its arguments.
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

/// A proxy as a process.
pub struct Process {
    child: Child,
    address: SocketAddr,
    /// Name of its data-path threads: Pingora names them by their service.
    data_path: &'static str,
    gateway: Option<Stores>,
    captures: bool,
    /// What it is called in a table.
    name: &'static str,
}

/// What only the gateway has.
struct Stores {
    _dir: TempDir,
    metrics: SocketAddr,
    key: String,
}

/// CPU time taken, in nanoseconds.
#[derive(Clone, Copy)]
pub struct Cpu {
    pub data_path: u64,
    pub process: u64,
}

/// Captures since the gateway began.
#[derive(Clone, Copy, Default)]
pub struct Captures {
    stored: u64,
    dropped: u64,
}

/// What became of the captures of a window, and how long after it.
pub struct Settled {
    pub stored: u64,
    pub dropped: u64,
    pub took: Duration,
}

impl Process {
    /// Bare Pingora in front of `upstream`.
    pub fn bare(start: &Start, upstream: SocketAddr, threads: u16) -> Result<Process> {
        let address = free_address()?;
        let mut command = start.command(&std::env::current_exe()?);
        command.args([
            bare::ROLE,
            &address.to_string(),
            &upstream.to_string(),
            &threads.to_string(),
        ]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let mut process = Process {
            child,
            address,
            data_path: bare::ROLE,
            gateway: None,
            captures: false,
            name: "bare",
        };
        process.wait_for(|_| connect(address).is_ok())?;
        Ok(process)
    }

    /// The gateway with its defaults, but perhaps for captures, in front of `upstream`.
    pub fn gateway(
        start: &Start,
        binary: &Path,
        upstream: SocketAddr,
        threads: u16,
        captures: bool,
    ) -> Result<Process> {
        let dir = tempfile::Builder::new().prefix("rerouter-bench-").tempdir()?;
        let (address, metrics) = (free_address()?, free_address()?);
        write_documents(dir.path(), (address, metrics, upstream), threads, captures)?;
        let mut command = start.command(binary);
        command.arg("serve").arg("--config").arg(dir.path().join("rerouter.yaml")).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("ADMIN_API_KEY", ADMIN).env("AGENT_CLOUD_API_KEY", ADMIN);
        // The access log is written, as it is by default, but kept by nobody.
        let child =
            command.env("RUST_LOG", "error").stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let stores = Stores { _dir: dir, metrics, key: String::new() };
        let mut process = Process {
            child,
            address,
            data_path: "rerouter",
            gateway: Some(stores),
            captures,
            name: "rerouter",
        };
        process.wait_for(|process| {
            process.ask("GET", "/health", address, None).is_ok_and(|answer| answer.status == 200)
        })?;
        let made =
            process.ask("POST", "/v1/router/keys", address, Some(&json!({ "name": "bench" })))?;
        let made: Value = serde_json::from_slice(&made.body)?;
        let key = made
            .get("key")
            .and_then(Value::as_str)
            .ok_or_else(|| format!("no key was made: {made}"))?;
        if let Some(stores) = &mut process.gateway {
            stores.key = key.to_owned();
        }
        Ok(process)
    }

    fn wait_for(&mut self, serves: impl Fn(&Process) -> bool) -> Result<()> {
        let start = Instant::now();
        while !serves(self) {
            if let Some(status) = self.child.try_wait()? {
                return Err(
                    format!("{} left with {status} instead of serving", self.data_path).into()
                );
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("{} does not serve", self.data_path).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// What it is called in a table.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The same under another name.
    pub fn called(mut self, name: &'static str) -> Process {
        self.name = name;
        self
    }

    /// Has the gateway decide its captures again; how many those were.
    pub fn evaluate(&self) -> Result<u64> {
        let asked = json!({ "limit": EVALUATED, "health": "healthy" });
        let answer = self.ask("POST", "/v1/router/replay/evaluate", self.address, Some(&asked))?;
        let report: Value = serde_json::from_slice(&answer.body)?;
        report
            .get("evaluated")
            .and_then(Value::as_u64)
            .ok_or_else(|| format!("no evaluation: {report}").into())
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it keeps captures.
    pub fn captures_requests(&self) -> bool {
        self.captures
    }

    /// The same request for either side: a chat completion with a credential.
    pub fn request(&self, body: &[u8]) -> Vec<u8> {
        let key = self.gateway.as_ref().map_or(ADMIN, |stores| stores.key.as_str());
        head("POST", "/v1/chat/completions", self.address, key, body)
    }

    fn ask(
        &self,
        method: &str,
        path: &str,
        to: SocketAddr,
        body: Option<&Value>,
    ) -> Result<Answer> {
        let body = body.map(Value::to_string).unwrap_or_default();
        Ok(exchange(&mut connect(to)?, &head(method, path, to, ADMIN, body.as_bytes()))?)
    }

    /// CPU time of all its threads up to now.
    pub fn cpu(&self) -> Result<Cpu> {
        let id = self.child.id();
        let mut cpu = Cpu { data_path: 0, process: 0 };
        for task in std::fs::read_dir(format!("/proc/{id}/task"))? {
            let task = task?.path();
            // A thread may end between the listing and the look; the pools of both sides keep
            // theirs for longer than a window.
            let (Ok(name), Ok(spent)) = (
                std::fs::read_to_string(task.join("comm")),
                std::fs::read_to_string(task.join("schedstat")),
            ) else {
                continue;
            };
            let spent: u64 = spent.split(' ').next().unwrap_or_default().parse()?;
            cpu.process += spent;
            // The main thread may have the same name, and serves nothing.
            if name.trim_end() == self.data_path && !task.ends_with(id.to_string()) {
                cpu.data_path += spent;
            }
        }
        Ok(cpu)
    }

    /// Captures stored and dropped so far; bare Pingora has none.
    pub fn captures(&self) -> Result<Captures> {
        let Some(stores) = &self.gateway else { return Ok(Captures::default()) };
        let text = String::from_utf8(self.ask("GET", "/metrics", stores.metrics, None)?.body)?;
        let count = |outcome: &str| {
            let series = format!("rerouter_captures_total{{outcome=\"{outcome}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&series)).map_or(Ok(0), str::parse)
        };
        Ok(Captures {
            stored: count("stored")?,
            dropped: count("dropped_full")? + count("dropped_store")?,
        })
    }

    /// Waits until the captures of `answered` requests since `before` are durable or dropped, and
    /// gives what became of them.
    pub fn settle(&self, before: Captures, answered: u64) -> Result<Settled> {
        let start = Instant::now();
        loop {
            std::thread::sleep(LINGER);
            let now = self.captures()?;
            let settled = Settled {
                stored: now.stored - before.stored,
                dropped: now.dropped - before.dropped,
                took: start.elapsed(),
            };
            if !self.captures || settled.stored + settled.dropped >= answered {
                return Ok(settled);
            }
            if settled.took > PATIENCE {
                return Err(format!(
                    "{answered} requests were answered, {} captures stored, {} dropped",
                    settled.stored, settled.dropped
                )
                .into());
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn write_documents(
    dir: &Path,
    addresses: (SocketAddr, SocketAddr, SocketAddr),
    threads: u16,
    captures: bool,
) -> Result<()> {
    let (address, metrics, upstream) = addresses;
    let server = format!(
        "listeners: [ {{ address: \"{address}\" }} ]\nmetrics: {{ address: \"{metrics}\" }}\nthreads: {threads}\n\
         capture: {{ enabled: {captures} }}\ndata_dir: {}\nrouting: {{ file: {} }}\n",
        json!(dir.join("data")),
        json!(dir.join("routing.yaml")),
    );
    let routing = format!(
        "providers: {{ up: {{ protocol: openai, base_url: \"http://{upstream}/v1\", api_key: sk-bench }} }}\n\
         recipes: {{ main: {{ rules: [ {{ name: default, targets: [ {{ target: up/fixed }} ] }} ] }} }}\naliases: {{ auto: main }}\n"
    );
    std::fs::write(dir.join("rerouter.yaml"), server)?;
    Ok(std::fs::write(dir.join("routing.yaml"), routing)?)
}

fn head(method: &str, path: &str, host: SocketAddr, credential: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {credential}\r\nuser-agent: bench\r\naccept: */*\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// An address for a process that cannot be handed a socket; below the ephemeral range, so that no
/// outgoing connection takes it meanwhile.
fn free_address() -> Result<SocketAddr> {
    const FIRST: u32 = 10_240;
    const SPAN: u32 = 22_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..SPAN {
        let offset = (std::process::id() * 53 + NEXT.fetch_add(1, Ordering::Relaxed)) % SPAN;
        let address = SocketAddr::from(([127, 0, 0, 1], u16::try_from(FIRST + offset)?));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err("no free port".into())
}
