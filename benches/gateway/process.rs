//! A process under measure: its address, what CPU and memory it took, what it has stored. It ends
//! with its value, and all that it started with it, by their own ids.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Result;
use crate::load::{Answer, CHAT, connect, exchange};

/// Captures that one call evaluates: few enough to end soon after its window.
const EVALUATED: u32 = 20_000;
/// Longest that a process may take to serve, and the gateway to store what a window left.
const PATIENCE: Duration = Duration::from_secs(60);
/// A capture waits that long for company, and something for the write.
const LINGER: Duration = Duration::from_millis(250);

/// A proxy as a process.
pub struct Process {
    child: Child,
    address: SocketAddr,
    /// Its configuration, and where it writes.
    _dir: TempDir,
    /// What it is called in a table.
    name: &'static str,
    /// Name of its data-path threads, where a name tells them.
    pub data_path: Option<&'static str>,
    /// The credential that its requests show.
    pub credential: String,
    /// More header lines of its requests.
    pub headers: String,
    /// Where the gateway tells of its captures.
    pub metrics: Option<SocketAddr>,
    /// Whether it keeps captures.
    pub captures: bool,
}

/// CPU time taken, in nanoseconds.
#[derive(Clone, Copy, Default)]
pub struct Cpu {
    pub data_path: u64,
    /// Of the threads whose names speak of captures.
    pub captures: u64,
    pub process: u64,
}

/// Bytes of memory, at present and at most.
#[derive(Clone, Copy, Default)]
pub struct Memory {
    pub resident: u64,
    pub peak: u64,
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
    pub fn start(
        name: &'static str,
        command: &mut Command,
        address: SocketAddr,
        dir: TempDir,
    ) -> Result<Process> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        Ok(Process {
            child,
            address,
            _dir: dir,
            name,
            data_path: None,
            credential: String::new(),
            headers: String::new(),
            metrics: None,
            captures: false,
        })
    }

    pub fn wait_until(&mut self, serves: impl Fn(&Process) -> bool) -> Result<()> {
        let start = Instant::now();
        while !serves(self) {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("{} left with {status} instead of serving", self.name).into());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("{} does not serve", self.name).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// What it is called in a table.
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The same requests for any side: chat completions with a credential.
    pub fn requests(&self, bodies: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.requests_to(CHAT, bodies)
    }

    /// The same at any path.
    pub fn requests_to(&self, path: &str, bodies: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let (address, credential) = (self.address, &self.credential);
        let request = |body| head("POST", path, address, credential, &self.headers, body);
        bodies.iter().map(|body| request(body.as_slice())).collect()
    }

    /// One of them, with any credential.
    pub fn request_by(&self, credential: &str, body: &[u8]) -> Vec<u8> {
        head("POST", CHAT, self.address, credential, &self.headers, body)
    }

    /// Asks for a page of the gateway's own.
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        to: SocketAddr,
        credential: &str,
        body: Option<&Value>,
    ) -> Result<Answer> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = head(method, path, to, credential, "", body.as_bytes());
        Ok(exchange(&mut connect(to)?, &request)?)
    }

    /// Has the gateway decide its captures again; how many those were.
    pub fn evaluate(&self) -> Result<u64> {
        let asked = json!({ "limit": EVALUATED, "health": "healthy" });
        let path = "/v1/router/replay/evaluate";
        let answer = self.ask("POST", path, self.address, crate::sides::ADMIN, Some(&asked))?;
        let report: Value = serde_json::from_slice(&answer.body)?;
        report
            .get("evaluated")
            .and_then(Value::as_u64)
            .ok_or_else(|| format!("no evaluation: {report}").into())
    }

    /// Its own id and those of all that descend from it.
    fn family(&self) -> Vec<u32> {
        let mut family = vec![self.child.id()];
        let mut next = 0;
        while let Some(id) = family.get(next) {
            family.extend(children(*id));
            next += 1;
        }
        family
    }

    /// CPU time of all its threads up to now.
    pub fn cpu(&self) -> Result<Cpu> {
        let mut cpu = Cpu::default();
        for id in self.family() {
            let Ok(tasks) = std::fs::read_dir(format!("/proc/{id}/task")) else { continue };
            for task in tasks {
                let task = task?.path();
                // A thread may end between the listing and the look; the pools of all sides keep
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
                match self.data_path {
                    Some(of) if name.trim_end() == of && !task.ends_with(id.to_string()) => {
                        cpu.data_path += spent;
                    }
                    None => cpu.data_path += spent,
                    _ if name.contains("capture") => cpu.captures += spent,
                    _ => {}
                }
            }
        }
        Ok(cpu)
    }

    /// Memory of all its processes; what they share counts more than once.
    pub fn memory(&self) -> Memory {
        let mut memory = Memory::default();
        for id in self.family() {
            let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
            let bytes = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
                kib.unwrap_or(0) << 10
            };
            memory.resident += bytes("VmRSS:");
            memory.peak += bytes("VmHWM:");
        }
        memory
    }

    /// Captures stored and dropped so far; others than the gateway have none.
    pub fn captures(&self) -> Result<Captures> {
        let Some(metrics) = self.metrics else { return Ok(Captures::default()) };
        let text = String::from_utf8(self.ask("GET", "/metrics", metrics, "", None)?.body)?;
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
        // Any of them may have ended already.
        for id in self.family() {
            let id = i32::try_from(id).ok().and_then(Pid::from_raw);
            let _killed = id.map(|id| kill_process(id, Signal::KILL));
        }
        let _ended = self.child.wait();
    }
}

/// The ids of what this process started.
fn children(id: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{id}/task")) else { return Vec::new() };
    let lines =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    lines
        .flat_map(|line| {
            line.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<u32>>()
        })
        .collect()
}

fn head(
    method: &str,
    path: &str,
    host: SocketAddr,
    credential: &str,
    more: &str,
    body: &[u8],
) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {credential}\r\n\
         user-agent: bench\r\naccept: */*\r\n{more}content-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// An address for a process that cannot be handed a socket; below the ephemeral range, so that no
/// outgoing connection takes it meanwhile.
pub fn free_address() -> Result<SocketAddr> {
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
