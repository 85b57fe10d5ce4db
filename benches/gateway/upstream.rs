//! An upstream that answers with a fixed chat completion at once, or with an event stream at a
//! given pace. It is as cheap as possible, with a blocking thread per connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use memchr::memmem;

use crate::Result;
use crate::load::{content_length, head_end};

const BODY: &str = concat!(
    r#"{"id":"chatcmpl-bench","object":"chat.completion","created":1764000000,"model":"fixed","#,
    r#""choices":[{"index":0,"message":{"role":"assistant","content":"The quick brown fox jumps "#,
    r#"over the lazy dog, as it always did."},"finish_reason":"stop"}],"#,
    r#""usage":{"prompt_tokens":120,"completion_tokens":14,"total_tokens":134}}"#,
);
/// Limit on concurrent connections. A proxy's pool has about as many as the load.
const CONNECTIONS: usize = 8_192;
/// Stack size of each connection's thread, and of each client of a stream. Thousands of threads
/// have to fit.
pub const STACK: usize = 128 << 10;
/// The mark before and after the send time in an event.
pub const STAMP: &str = "@";
/// Number of digits of the send time, in nanoseconds since the upstream's start.
pub const DIGITS: usize = 16;

/// The upstream. Its threads end with their connections, or with the process.
#[derive(Clone)]
pub struct Upstream {
    address: SocketAddr,
    began: Instant,
    answered: Arc<AtomicU64>,
    shape: Arc<Mutex<Shape>>,
}

/// The number and pace of events in its streams.
#[derive(Clone, Copy)]
pub struct Shape {
    pub events: u32,
    pub gap: Duration,
}

impl Upstream {
    pub fn start() -> Result<Upstream> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let shape = Shape { events: 1, gap: Duration::ZERO };
        let upstream = Upstream {
            address: listener.local_addr()?,
            began: Instant::now(),
            answered: Arc::default(),
            shape: Arc::new(Mutex::new(shape)),
        };
        let (serving, open) = (upstream.clone(), Arc::<AtomicUsize>::default());
        std::thread::Builder::new().name("upstream".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
                    open.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (serving, open) = (serving.clone(), open.clone());
                let serve = move || {
                    // A proxy may close its connection at any time.
                    let _closed = serving.serve(stream);
                    open.fetch_sub(1, Ordering::Relaxed);
                };
                // Without a thread the connection is closed, so its request fails.
                if let Err(why) = std::thread::Builder::new().stack_size(STACK).spawn(serve) {
                    eprintln!("the upstream has no thread for a connection: {why}");
                }
            }
        })?;
        Ok(upstream)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of requests answered so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Acquire)
    }

    /// Sets the shape of streams that start from now on.
    pub fn set_shape(&self, shape: Shape) {
        *self.shape.lock().unwrap_or_else(PoisonError::into_inner) = shape;
    }

    /// The clock of the stamps.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: bench\r\n\
             content-length: {}\r\n\r\n{BODY}",
            BODY.len()
        );
        let mut buffer = vec![0; 64 << 10];
        // Bytes read of the current request, and its length if known.
        let (mut held, mut whole) = (0, None);
        loop {
            let room = buffer.get_mut(held..).unwrap_or_default();
            let n = stream.read(room)?;
            if n == 0 {
                return Ok(());
            }
            held += n;
            if whole.is_none() {
                let come = buffer.get(..held).unwrap_or_default();
                whole = head_end(come)
                    .map(|end| end + come.get(..end).and_then(content_length).unwrap_or(0));
            }
            match whole {
                // Proxies send one request at a time on a connection.
                Some(length) if held >= length => {
                    self.answered.fetch_add(1, Ordering::AcqRel);
                    // A request for a stream is small, so it is here as a whole.
                    let come = buffer.get(..held.min(4096)).unwrap_or_default();
                    if asks_for_stream(come) {
                        self.send_events(&mut stream)?;
                    } else {
                        stream.write_all(answer.as_bytes())?;
                    }
                    (held, whole) = (0, None);
                }
                // The body does not matter. Bytes that were read are counted and overwritten.
                Some(length) if held == buffer.len() => {
                    whole = Some(length - held);
                    held = 0;
                }
                _ => {}
            }
        }
    }

    /// Sends events of about 215 bytes, each with its send time as content.
    fn send_events(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                            transfer-encoding: chunked\r\n\r\n";
        const USAGE: &str =
            r#","usage":{"prompt_tokens":120,"completion_tokens":14,"total_tokens":134}"#;
        let Shape { events, gap } = *self.shape.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        stream.write_all(HEAD.as_bytes())?;
        for number in 0..events {
            std::thread::sleep((start + gap * number).saturating_duration_since(Instant::now()));
            let now = self.now().as_nanos();
            let content = format!("{STAMP}{now:0DIGITS$}{STAMP} the quick brown fox");
            stream.write_all(&event(&format!(r#"{{"content":"{content}"}}"#), "null", ""))?;
        }
        let mut end = event("{}", r#""stop""#, USAGE);
        end.extend_from_slice(&chunk("data: [DONE]\n\n"));
        end.extend_from_slice(b"0\r\n\r\n");
        stream.write_all(&end)
    }
}

/// Whether the request asks for a stream. Blanks may stand around the colon.
fn asks_for_stream(come: &[u8]) -> bool {
    let after = memmem::find(come, br#""stream""#).and_then(|at| come.get(at + 8..));
    let value = after.unwrap_or_default().iter().filter(|byte| !b": ".contains(byte));
    value.take(4).eq(b"true")
}

fn event(delta: &str, finish: &str, usage: &str) -> Vec<u8> {
    chunk(&format!(
        "data: {{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\
         \"created\":1764000000,\"model\":\"fixed\",\"choices\":[{{\"index\":0,\"delta\":{delta},\
         \"finish_reason\":{finish}}}]{usage}}}\n\n"
    ))
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}
