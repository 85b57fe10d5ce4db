//! The load: a blocking thread a connection, each sending one request after another and timing its
//! answer.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use memchr::memmem;

use crate::Result;

/// An answer that takes longer is a failure of the run.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests of one connection in a window: bounds what latencies are kept.
const REQUESTS: usize = 4_000_000;

/// Open connections.
pub struct Load {
    connections: Vec<TcpStream>,
}

/// What a window brought.
pub struct Ran {
    /// Of each answer, sorted.
    pub latencies: Vec<Duration>,
    pub elapsed: Duration,
}

impl Ran {
    pub fn answered(&self) -> u64 {
        self.latencies.len() as u64
    }

    /// The latency below which `part` of the answers came.
    pub fn quantile(&self, part: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * part).round() as usize).copied().unwrap_or_default()
    }
}

impl Load {
    pub fn open(address: SocketAddr, connections: usize) -> Result<Load> {
        let connections =
            (0..connections).map(|_| connect(address)).collect::<std::io::Result<_>>()?;
        Ok(Load { connections })
    }

    /// Sends for that long, `pace` requests a second in all or as many as are answered. Fails
    /// unless each answer is a 200.
    pub fn run(&mut self, request: &[u8], time: Duration, pace: Option<f64>) -> Result<Ran> {
        let gap = pace.map(|pace| Duration::from_secs_f64(self.connections.len() as f64 / pace));
        let start = Instant::now();
        let many: Vec<std::io::Result<Vec<Duration>>> = std::thread::scope(|scope| {
            let sending =
                |stream| scope.spawn(move || send(stream, request, start, start + time, gap));
            let threads: Vec<_> = self.connections.iter_mut().map(sending).collect();
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

    /// Sends so many, one after another on the first connection. Fails unless each answer is a 200.
    pub fn repeat(&mut self, request: &[u8], requests: u64) -> Result<()> {
        let stream = self.connections.first_mut().ok_or("no connection")?;
        for _ in 0..requests {
            let answer = exchange(stream, request)?;
            if answer.status != 200 {
                let body = String::from_utf8_lossy(&answer.body);
                return Err(format!("{} {body}", answer.status).into());
            }
        }
        Ok(())
    }
}

fn send(
    stream: &mut TcpStream,
    request: &[u8],
    mut next: Instant,
    until: Instant,
    gap: Option<Duration>,
) -> std::io::Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    while Instant::now() < until && latencies.len() < REQUESTS {
        if let Some(gap) = gap {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            next += gap;
        }
        let start = Instant::now();
        let answer = exchange(stream, request)?;
        latencies.push(start.elapsed());
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

/// A response with a content-length.
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

/// Sends a request and reads its answer whole; the connection stays.
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
            let length = content_length(head)
                .ok_or_else(|| Error::other("an answer without content-length"))?;
            let status = head
                .get(9..12)
                .and_then(|status| std::str::from_utf8(status).ok())
                .and_then(|status| status.parse().ok());
            whole = Some((
                status.ok_or_else(|| Error::other("not an HTTP/1.1 answer"))?,
                end,
                end + length,
            ));
        }
        if let Some((status, end, length)) = whole
            && come.len() >= length
        {
            return Ok(Answer { status, body: come.get(end..length).unwrap_or_default().to_vec() });
        }
    }
}

/// Where the head ends, when all of it is there.
pub fn head_end(bytes: &[u8]) -> Option<usize> {
    memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

/// The content-length that a head tells.
pub fn content_length(head: &[u8]) -> Option<usize> {
    let line = |line: &[u8]| {
        let (name, value) = line.split_at_checked(15)?;
        name.eq_ignore_ascii_case(b"content-length:")
            .then(|| std::str::from_utf8(value).ok()?.trim().parse().ok())?
    };
    head.split(|byte| *byte == b'\n').find_map(line)
}

/// A chat request of exactly `bytes`, of words that are not all the same.
pub fn chat_body(bytes: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "the", "gateway", "routes", "a", "request", "to", "some", "model", "and", "keeps", "what",
        "went", "through", "for", "later", "replay",
    ];
    let mut body =
        br#"{"model":"auto","temperature":0.2,"messages":[{"role":"user","content":""#.to_vec();
    let end = br#""}]}"#;
    let mut state = 1_u32;
    while body.len() + end.len() < bytes {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let word = WORDS.get((state >> 28) as usize).copied().unwrap_or_default();
        let room = bytes - body.len() - end.len();
        body.extend(word.bytes().chain(*b" ").take(room));
    }
    body.extend_from_slice(end);
    body
}
