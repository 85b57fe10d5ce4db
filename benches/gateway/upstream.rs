//! An upstream that answers a fixed chat completion at once, as cheaply as it can: a blocking
//! thread a connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::Result;
use crate::load::{content_length, head_end};

const BODY: &str = r#"{"id":"chatcmpl-bench","object":"chat.completion","created":1764000000,"model":"fixed","choices":[{"index":0,"message":{"role":"assistant","content":"The quick brown fox jumps over the lazy dog, as it always did."},"finish_reason":"stop"}],"usage":{"prompt_tokens":120,"completion_tokens":14,"total_tokens":134}}"#;
/// Connections served at once; a proxy pools about as many as the load has.
const CONNECTIONS: usize = 2_048;

/// The upstream; its threads end with their connections, and with the process.
pub struct Upstream {
    address: SocketAddr,
    answered: Arc<AtomicU64>,
}

impl Upstream {
    pub fn start() -> Result<Upstream> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let answered = Arc::<AtomicU64>::default();
        let (counted, open) = (answered.clone(), Arc::<AtomicUsize>::default());
        std::thread::Builder::new().name("upstream".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
                    open.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (counted, open) = (counted.clone(), open.clone());
                std::thread::spawn(move || {
                    // A proxy that closes its connection is no failure.
                    let _closed = serve(stream, &counted);
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        })?;
        Ok(Upstream { address, answered })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests answered so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Acquire)
    }
}

fn serve(mut stream: TcpStream, answered: &AtomicU64) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: bench\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let mut buffer = vec![0; 256 << 10];
    // Bytes of the request at hand that have come, and what is known of its length.
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
            // One request at a time comes on a connection of a proxy.
            Some(length) if held >= length => {
                answered.fetch_add(1, Ordering::AcqRel);
                stream.write_all(answer.as_bytes())?;
                (held, whole) = (0, None);
            }
            // The body itself is not looked at: what has been read is counted and overwritten.
            Some(length) if held == buffer.len() => {
                whole = Some(length - held);
                held = 0;
            }
            _ => {}
        }
    }
}
