//! Generates load with a blocking thread per connection. Each thread sends one request after
//! another, and times the answers. With a pace, requests are due at fixed times, and latency counts
//! from the due time, so that a slow side cannot hide delays.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use memchr::memmem;

use crate::Result;
use crate::prose::Prose;

/// Timeout of an answer. It fails the run.
const PATIENCE: Duration = Duration::from_secs(30);
/// Limit on the requests of a connection in a window, and so on kept latencies.
const REQUESTS: usize = 4_000_000;
/// The path of chat completions.
pub const CHAT: &str = "/v1/chat/completions";
/// Bytes of all different bodies together.
const BODIES: usize = 8 << 20;

/// The open connections.
pub struct Load {
    connections: Vec<TcpStream>,
}

/// The results of a window.
pub struct Ran {
    /// Latencies of all answers, sorted.
    pub latencies: Vec<Duration>,
    pub elapsed: Duration,
}

impl Ran {
    pub fn answered(&self) -> u64 {
        self.latencies.len() as u64
    }
}

impl Load {
    pub fn open(address: SocketAddr, connections: usize) -> Result<Load> {
        let connections =
            (0..connections).map(|_| connect(address)).collect::<std::io::Result<_>>()?;
        Ok(Load { connections })
    }

    /// Sends the requests in turn for `time`. The rate is `pace` requests per second in total, or
    /// else as many as are answered. Fails unless each answer is a 200.
    pub fn run(&mut self, requests: &[Vec<u8>], time: Duration, pace: Option<f64>) -> Result<Ran> {
        let gap = pace.map(|pace| Duration::from_secs_f64(self.connections.len() as f64 / pace));
        let start = Instant::now();
        let many: Vec<std::io::Result<Vec<Duration>>> = std::thread::scope(|scope| {
            let sending = |(number, stream)| {
                let first = start + pace.map_or(Duration::ZERO, |pace| turn(number, pace));
                // Each connection starts at another request.
                let requests = requests.iter().cycle().skip(number * 17 % requests.len().max(1));
                scope.spawn(move || send(stream, requests, first, start + time, gap))
            };
            let threads: Vec<_> = self.connections.iter_mut().enumerate().map(sending).collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|_| Err(Error::other("a sender panicked")))
                })
                .collect()
        });
        let elapsed = start.elapsed();
        let mut latencies = Vec::new();
        for one in many {
            latencies.extend(one?);
        }
        latencies.sort_unstable();
        Ok(Ran { latencies, elapsed })
    }

    /// Sends `count` requests one after another on the first connection. Fails unless each answer
    /// is a 200.
    pub fn repeat(&mut self, requests: &[Vec<u8>], count: u64) -> Result<()> {
        let stream = self.connections.first_mut().ok_or("no connection")?;
        for request in requests.iter().cycle().take(usize::try_from(count)?) {
            let answer = exchange(stream, request)?;
            if answer.status != 200 {
                let body = String::from_utf8_lossy(&answer.body);
                return Err(format!("{} {body}", answer.status).into());
            }
        }
        Ok(())
    }
}

/// Delay of the first request of a connection, by which all connections together send evenly.
fn turn(number: usize, pace: f64) -> Duration {
    Duration::from_secs_f64(number as f64 / pace)
}

/// Sleeps until shortly before `due`, then spins: the kernel wakes threads later than a proxy takes
/// for a request.
pub fn wait_for(due: Instant) {
    const EARLY: Duration = Duration::from_micros(150);
    std::thread::sleep(due.saturating_duration_since(Instant::now()).saturating_sub(EARLY));
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}

fn send<'r>(
    stream: &mut TcpStream,
    requests: impl Iterator<Item = &'r Vec<u8>>,
    mut due: Instant,
    until: Instant,
    gap: Option<Duration>,
) -> std::io::Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    for request in requests.take(REQUESTS) {
        match gap {
            Some(_) if due < until => wait_for(due),
            None if Instant::now() < until => due = Instant::now(),
            _ => break,
        }
        let answer = exchange(stream, request)?;
        latencies.push(due.elapsed());
        due += gap.unwrap_or_default();
        if answer.status != 200 {
            return Err(Error::other(format!(
                "{} {}",
                answer.status,
                String::from_utf8_lossy(&answer.body)
            )));
        }
    }
    Ok(latencies)
}

pub fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A response. A chunked body includes the chunk sizes.
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

/// Sends a request and reads its whole answer. The connection stays open.
pub fn exchange(stream: &mut TcpStream, request: &[u8]) -> std::io::Result<Answer> {
    stream.write_all(request)?;
    let mut come = Vec::with_capacity(2048);
    let mut whole = None;
    loop {
        let mut piece = [0; 8192];
        let n = stream.read(&mut piece)?;
        if n == 0 {
            return Err(Error::new(
                ErrorKind::UnexpectedEof,
                format!("closed within an answer: {}", String::from_utf8_lossy(&come)),
            ));
        }
        come.extend_from_slice(piece.get(..n).unwrap_or_default());
        if whole.is_none()
            && let Some(end) = head_end(&come)
        {
            let head = come.get(..end).unwrap_or_default();
            let length = match content_length(head) {
                Some(length) => Some(end + length),
                None if is_chunked(head) => None,
                None => return Err(Error::other("an answer of unknown length")),
            };
            let status = head
                .get(9..12)
                .and_then(|status| std::str::from_utf8(status).ok())
                .and_then(|status| status.parse().ok());
            whole =
                Some((status.ok_or_else(|| Error::other("not an HTTP/1.1 answer"))?, end, length));
        }
        if let Some((status, end, length)) = whole
            && length.map_or_else(|| ends_chunked(&come), |length| come.len() >= length)
        {
            return Ok(Answer { status, body: come.split_off(end) });
        }
    }
}

/// The length of the head, if it is complete.
pub fn head_end(bytes: &[u8]) -> Option<usize> {
    memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

/// The value of `content-length` in a head.
pub fn content_length(head: &[u8]) -> Option<usize> {
    value_of(head, "content-length:")?.parse().ok()
}

fn is_chunked(head: &[u8]) -> bool {
    value_of(head, "transfer-encoding:").is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
}

/// Whether the bytes end a chunked body. No answer of the bench contains them earlier.
pub fn ends_chunked(come: &[u8]) -> bool {
    come.ends_with(b"\r\n0\r\n\r\n")
}

fn value_of<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let line = |line: &'a [u8]| {
        let (before, value) = line.split_at_checked(name.len())?;
        let is_it = before.eq_ignore_ascii_case(name.as_bytes());
        is_it.then(|| std::str::from_utf8(value).ok().map(str::trim))?
    };
    head.split(|byte| *byte == b'\n').find_map(line)
}

/// Chat requests of exactly `bytes` bytes with different texts, so that the compression of captures
/// cannot find a repetition.
pub fn chat_bodies(bytes: usize) -> Vec<Vec<u8>> {
    const BEGIN: &str =
        r#"{"model":"auto","temperature":0.2,"messages":[{"role":"user","content":""#;
    several(bytes, BEGIN)
}

/// The same requests as streams.
pub fn stream_bodies(bytes: usize) -> Vec<Vec<u8>> {
    several(bytes, r#"{"model":"auto","stream":true,"messages":[{"role":"user","content":""#)
}

/// Bodies with this beginning, which ends before the text of a message.
pub fn several(bytes: usize, begin: &str) -> Vec<Vec<u8>> {
    const END: &str = r#""}]}"#;
    let mut prose = Prose::new(1);
    let text = bytes.saturating_sub(begin.len() + END.len());
    let count = (BODIES / bytes.max(1)).clamp(16, 256);
    (0..count).map(|_| [begin, &prose.text(text), END].concat().into_bytes()).collect()
}
