//! A measured process: its address, CPU, memory and stored captures. On drop it is killed by its
//! id, with all processes that it started.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Result;
use crate::load::{Answer, CHAT, connect, exchange};

/// Captures per evaluation, few enough to end soon after a window.
const EVALUATED: u32 = 20_000;
/// Timeout for a process to serve, and for the gateway to store the captures of a window.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval at which stored captures are counted. It covers the wait for a batch and the write.
const LINGER: Duration = Duration::from_millis(250);

/// A proxy as a process.
pub struct Process {
    child: Child,
    address: SocketAddr,
    /// The directory of its configuration and files.
    dir: TempDir,
    /// Its name in tables.
    name: &'static str,
    /// Name of its data-path threads, if they have a name.
    pub data_path: Option<&'static str>,
    /// The credential in its requests.
    pub credential: String,
    /// Additional header lines of its requests.
    pub headers: String,
    /// The address of the gateway's metrics.
    pub metrics: Option<SocketAddr>,
    /// Whether it keeps captures.
    pub captures: bool,
}

/// CPU time taken, in nanoseconds.
#[derive(Clone, Copy, Default)]
pub struct Cpu {
    pub data_path: u64,
    /// CPU time of the threads whose names contain `captures`.
    pub captures: u64,
    pub process: u64,
    /// Parts of the process's time, in the kernel's ticks.
    pub user: u64,
    pub kernel: u64,
    /// How often its threads were switched away from.
    pub switches: u64,
}

/// Memory in bytes.
#[derive(Clone, Copy, Default)]
pub struct Memory {
    pub resident: u64,
    pub peak: u64,
}

/// Captures since the gateway's start.
#[derive(Clone, Copy, Default)]
pub struct Captures {
    stored: u64,
    dropped: u64,
}

/// The captures of a window, and the time until they were stored or dropped.
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
            dir,
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

    /// Writes a file of its directory.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(std::fs::write(self.dir.path().join(name), text)?)
    }

    /// The name in tables.
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Chat completions with these bodies and the side's credential.
    pub fn requests(&self, bodies: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.requests_to(CHAT, bodies)
    }

    /// Requests with these bodies at any path.
    pub fn requests_to(&self, path: &str, bodies: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let (address, credential) = (self.address, &self.credential);
        let request = |body| head("POST", path, address, credential, &self.headers, body);
        bodies.iter().map(|body| request(body.as_slice())).collect()
    }

    /// A chat completion with another credential.
    pub fn request_by(&self, credential: &str, body: &[u8]) -> Vec<u8> {
        head("POST", CHAT, self.address, credential, &self.headers, body)
    }

    /// Requests a page of the gateway.
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

    /// Makes the gateway evaluate its captures. Returns their number.
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

    /// The ids of the process and all its descendants.
    fn family(&self) -> Vec<u32> {
        let mut family = vec![self.child.id()];
        let mut next = 0;
        while let Some(id) = family.get(next) {
            family.extend(children(*id));
            next += 1;
        }
        family
    }

    /// CPU time of all threads so far.
    pub fn cpu(&self) -> Result<Cpu> {
        let mut cpu = Cpu::default();
        for id in self.family() {
            let [user, kernel] = ticks(&std::fs::read_to_string(format!("/proc/{id}/stat"))?);
            (cpu.user, cpu.kernel) = (cpu.user + user, cpu.kernel + kernel);
            let Ok(tasks) = std::fs::read_dir(format!("/proc/{id}/task")) else { continue };
            for task in tasks {
                let task = task?.path();
                // A thread may end before its files are read. Thread pools of all sides keep their
                // threads for longer than a window.
                let (Ok(name), Ok(spent), Ok(status)) = (
                    std::fs::read_to_string(task.join("comm")),
                    std::fs::read_to_string(task.join("schedstat")),
                    std::fs::read_to_string(task.join("status")),
                ) else {
                    continue;
                };
                cpu.switches += counts(&status, "voluntary_ctxt_switches:");
                cpu.switches += counts(&status, "nonvoluntary_ctxt_switches:");
                let spent: u64 = spent.split(' ').next().unwrap_or_default().parse()?;
                cpu.process += spent;
                // The main thread may have the same name, but serves nothing.
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

    /// Lets all threads run on this processor only.
    pub fn pin(&self, processor: usize) -> Result<()> {
        let mut only = CpuSet::new();
        only.set(processor);
        for id in self.family() {
            for task in std::fs::read_dir(format!("/proc/{id}/task"))? {
                let thread = task?.file_name().to_string_lossy().parse().ok();
                sched_setaffinity(thread.and_then(Pid::from_raw), &only)?;
            }
        }
        Ok(())
    }

    /// System calls a second of all processes within `time`, counted by perf.
    pub fn system_calls(&self, time: Duration) -> Result<f64> {
        let family: Vec<String> = self.family().iter().map(u32::to_string).collect();
        let counted = Command::new("perf")
            .args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p", &family.join(",")])
            .args(["sleep", &time.as_secs_f64().to_string()])
            .output()?;
        let said = String::from_utf8_lossy(&counted.stderr);
        let count = said.lines().find_map(|line| line.split(',').next()?.parse::<f64>().ok());
        Ok(count.ok_or_else(|| format!("perf counts no system calls: {said}"))?
            / time.as_secs_f64())
    }

    /// Memory of all processes. Shared memory counts several times.
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

    /// Captures stored and dropped so far; zeros for other proxies.
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

    /// Waits until the captures of `answered` requests since `before` are durable or dropped.
    /// Returns their counts.
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

/// Time of all processors in ticks of the kernel, since the machine's start.
#[derive(Clone, Copy)]
pub struct Machine {
    all: u64,
    /// What processes and the kernel used.
    busy: u64,
    /// What the hypervisor gave to others.
    stolen: u64,
    /// What this process and the measured ones used.
    ours: u64,
}

impl Machine {
    pub fn now(sides: [&Process; 2]) -> Result<Machine> {
        let stat = std::fs::read_to_string("/proc/stat")?;
        let first = stat.lines().next().unwrap_or_default();
        let ticks_of = |field: &str| field.parse::<u64>().ok();
        // proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal.
        let times: Vec<u64> = first.split_whitespace().filter_map(ticks_of).take(8).collect();
        let [user, nice, system, idle, waiting, irq, softirq, stolen] = times[..] else {
            return Err("/proc/stat has other fields".into());
        };
        let busy = user + nice + system + irq + softirq;
        let mut ours: u64 = ticks(&std::fs::read_to_string("/proc/self/stat")?).iter().sum();
        for side in sides {
            let cpu = side.cpu()?;
            ours += cpu.user + cpu.kernel;
        }
        Ok(Machine { all: busy + idle + waiting + stolen, busy, stolen, ours })
    }

    /// The shares of the machine's time since `before` that others used, and that were stolen.
    pub fn others_since(&self, before: &Machine) -> [f64; 2] {
        let all = (self.all - before.all).max(1) as f64;
        let others = (self.busy - before.busy).saturating_sub(self.ours - before.ours);
        [others as f64 / all, (self.stolen - before.stolen) as f64 / all]
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Some processes may have ended already.
        for id in self.family() {
            let id = i32::try_from(id).ok().and_then(Pid::from_raw);
            let _killed = id.map(|id| kill_process(id, Signal::KILL));
        }
        let _ended = self.child.wait();
    }
}

/// User and kernel time of `/proc/ID/stat`, in ticks. The name in it may contain spaces.
fn ticks(stat: &str) -> [u64; 2] {
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let field = |at| fields.split_whitespace().nth(at).and_then(|field| field.parse().ok());
    [field(11).unwrap_or_default(), field(12).unwrap_or_default()]
}

/// A count of `/proc/ID/status`.
fn counts(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or_default()
}

/// The ids of the processes that a process started.
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

/// A free address for a process that cannot inherit a socket. Its port is below the ephemeral
/// range, so no outgoing connection takes it before the process does.
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
