//! Measures many concurrent streams with a blocking thread each: transit time of events, CPU per
//! event, memory per stream. Load and upstream are in one process and share a clock.

use std::io::{Error, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use memchr::memmem;

use crate::Result;
use crate::figures::quantile;
use crate::load::{connect, ends_chunked, stream_bodies};
use crate::process::Process;
use crate::upstream::{DIGITS, STACK, STAMP, Shape, Upstream};

/// Bytes of each request.
const REQUEST: usize = 600;

/// A window of streams.
#[derive(Clone, Copy)]
pub struct Streams {
    pub count: usize,
    pub shape: Shape,
}

/// The results of a window of streams.
#[derive(Clone, Copy)]
pub struct Streamed {
    /// CPU microseconds of the process per event.
    pub cpu_us: f64,
    /// Transit time of events in microseconds, at the 50 % and 99.9 % quantiles.
    pub p50_us: f64,
    pub p999_us: f64,
    /// Growth of the process's memory per stream, in KiB.
    pub kib: f64,
}

impl Streams {
    /// Runs all streams. Their starts are spread over one gap between events. Fails unless each
    /// stream brings all events.
    pub fn run(&self, upstream: &Upstream, process: &Process) -> Result<Streamed> {
        let Streams { count, shape } = *self;
        upstream.set_shape(shape);
        let requests = process.requests(&stream_bodies(REQUEST));
        let captures = process.captures()?;
        let (cpu, memory) = (process.cpu()?, process.memory());
        let connections: Vec<TcpStream> =
            (0..count).map(|_| connect(process.address())).collect::<std::io::Result<_>>()?;
        let start = Instant::now();
        let (many, largest) = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            let connections = connections.into_iter().zip(requests.iter().cycle());
            for (number, (stream, request)) in connections.enumerate() {
                let due = start + shape.gap.mul_f64(number as f64 / count as f64);
                let run = move || {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    receive(stream, request, upstream)
                };
                let thread = std::thread::Builder::new().stack_size(STACK);
                threads.push(thread.spawn_scoped(scope, run)?);
            }
            // All streams are open in the last gap before the first stream ends.
            let late = start + shape.gap * (shape.events - 1);
            std::thread::sleep(late.saturating_duration_since(Instant::now()));
            let largest = process.memory().resident;
            let panicked = |_| Err(Error::other("a stream panicked"));
            let many = threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked));
            Ok::<_, Error>((many.collect::<std::io::Result<Vec<_>>>()?, largest))
        })?;
        let settled = process.settle(captures, count as u64)?;
        if process.captures && (settled.stored, settled.dropped) != (count as u64, 0) {
            return Err(format!("{} captures of {count} streams", settled.stored).into());
        }
        let spent = process.cpu()?.process - cpu.process;
        let mut transits = Vec::new();
        for one in many {
            if one.len() != shape.events as usize {
                return Err(format!("{} events of {} came", one.len(), shape.events).into());
            }
            transits.extend(one);
        }
        transits.sort_unstable();
        let micros = |part| quantile(&transits, part).as_nanos() as f64 / 1e3;
        Ok(Streamed {
            cpu_us: spent as f64 / 1e3 / transits.len() as f64,
            p50_us: micros(0.5),
            p999_us: micros(0.999),
            kib: largest.saturating_sub(memory.resident) as f64 / 1024.0 / count as f64,
        })
    }
}

/// Reads a stream to its end. Returns the transit time of each event.
fn receive(
    mut stream: TcpStream,
    request: &[u8],
    upstream: &Upstream,
) -> std::io::Result<Vec<Duration>> {
    const WHOLE: usize = DIGITS + 2 * STAMP.len();
    stream.write_all(request)?;
    let (mut transits, mut come, mut piece) = (Vec::new(), Vec::new(), [0; 4096]);
    loop {
        let n = stream.read(&mut piece)?;
        let now = upstream.now();
        come.extend_from_slice(piece.get(..n).unwrap_or_default());
        if transits.is_empty() && come.len() > 12 && !come.starts_with(b"HTTP/1.1 200") {
            return Err(Error::other(String::from_utf8_lossy(&come).into_owned()));
        }
        let mut done = 0;
        while let Some(at) = memmem::find(come.get(done..).unwrap_or_default(), STAMP.as_bytes())
            && let Some(whole) = come.get(done + at..done + at + WHOLE)
        {
            let digits = whole.get(STAMP.len()..STAMP.len() + DIGITS);
            let sent = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
            let sent = sent.ok_or_else(|| Error::other("a stamp without a time"))?;
            transits.push(now.saturating_sub(Duration::from_nanos(sent)));
            done += at + WHOLE;
        }
        if ends_chunked(&come) {
            return Ok(transits);
        }
        if n == 0 {
            return Err(Error::other(format!(
                "a stream broke off after {} events",
                transits.len()
            )));
        }
        // Bytes that may begin a stamp or the end of the body are kept.
        if transits.len() > 1 || done > 0 {
            come.drain(..done.max(come.len().saturating_sub(WHOLE)));
        }
    }
}
