//! A provider that does as the test says, over real sockets: each request gets a script of steps,
//! and what came in is kept.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};

use super::client::find;
use super::until;

/// One step of an answer.
#[derive(Clone)]
pub enum Step {
    /// These bytes as they are.
    Write(Vec<u8>),
    /// One chunk of a chunked body.
    Chunk(Vec<u8>),
    /// These bytes after a while.
    Later(Duration, Vec<u8>),
    /// Nothing until the test opens the gate or the gateway closes the connection.
    Wait(Arc<Notify>),
    /// Nothing until the gateway closes the connection.
    Hang,
    /// Close the connection here.
    Cut,
    /// Reset it here: what is on its way may be lost.
    Reset,
}

/// A request as it came in.
#[derive(Debug)]
pub struct Received {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Set when the gateway closed the connection before the answer was written.
    pub gone: Mutex<bool>,
}

impl Received {
    /// The value of a header, lines of one name joined.
    pub fn header(&self, name: &str) -> Option<String> {
        let lines: Vec<&str> =
            self.headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str()).collect();
        (!lines.is_empty()).then(|| lines.join(", "))
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

type Script = dyn Fn(&Received, usize) -> Vec<Step> + Send + Sync;

/// A listening provider; it stops with the value.
pub struct Provider {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Arc<Received>>>>,
    accepting: JoinHandle<()>,
    /// Its connections; none are taken any more when it was killed.
    open: Arc<Mutex<Option<Vec<AbortHandle>>>>,
}

impl Provider {
    /// Answers each request with the steps that `script` gives for it and its number, from 0.
    pub async fn start(
        script: impl Fn(&Received, usize) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        Provider::start_at(([127, 0, 0, 1], 0).into(), script).await
    }

    /// The same at this address.
    pub async fn start_at(
        address: SocketAddr,
        script: impl Fn(&Received, usize) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(Mutex::new(Some(Vec::<AbortHandle>::new())));
        let received = Arc::new(Mutex::new(Vec::new()));
        let (script, kept, count): (Arc<Script>, _, _) =
            (Arc::new(script), Arc::clone(&received), Arc::new(AtomicUsize::new(0)));
        let connections = Arc::clone(&open);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let serving =
                    serve(stream, Arc::clone(&script), Arc::clone(&kept), Arc::clone(&count));
                if let Some(open) = connections.lock().unwrap().as_mut() {
                    open.retain(|connection| !connection.is_finished());
                    open.push(tokio::spawn(serving).abort_handle());
                }
            }
        });
        Provider { address, received, accepting, open }
    }

    /// Ends as a process that is killed: nobody listens any more, and every connection is gone,
    /// whatever was on it.
    pub async fn kill(&self) {
        self.accepting.abort();
        let open = self.open.lock().unwrap().take().unwrap_or_default();
        open.iter().for_each(AbortHandle::abort);
        until("its connections to end", async || {
            open.iter().all(AbortHandle::is_finished).then_some(())
        })
        .await;
        until("nobody to listen", async || {
            TcpStream::connect(self.address).await.is_err().then_some(())
        })
        .await;
    }

    /// Answers every request with the same steps.
    pub async fn always(steps: Vec<Step>) -> Self {
        Provider::start(move |_, _| steps.clone()).await
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its `base_url`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// How many requests came in.
    pub fn count(&self) -> usize {
        self.received.lock().unwrap().len()
    }

    /// The request of that number.
    pub fn request(&self, number: usize) -> Arc<Received> {
        let received = self.received.lock().unwrap();
        Arc::clone(
            received.get(number).unwrap_or_else(|| panic!("{} requests came in", received.len())),
        )
    }

    /// The newest request.
    pub fn last(&self) -> Arc<Received> {
        self.request(self.count() - 1)
    }

    /// Waits until the gateway has closed the connection of that request before it was answered.
    pub async fn abandoned(&self, number: usize) {
        until("the gateway to close the upstream connection", async || {
            let request = self.received.lock().unwrap().get(number).map(Arc::clone)?;
            let gone = *request.gone.lock().unwrap();
            gone.then_some(())
        })
        .await;
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    script: Arc<Script>,
    kept: Arc<Mutex<Vec<Arc<Received>>>>,
    count: Arc<AtomicUsize>,
) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        let request = Arc::new(request);
        kept.lock().unwrap().push(Arc::clone(&request));
        let steps = script(&request, count.fetch_add(1, Ordering::SeqCst));
        for step in steps {
            let alive = match step {
                Step::Write(bytes) => stream.write_all(&bytes).await.is_ok(),
                Step::Chunk(bytes) => {
                    let framed =
                        [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes.as_slice(), b"\r\n"]
                            .concat();
                    stream.write_all(&framed).await.is_ok()
                }
                Step::Later(pause, bytes) => {
                    tokio::time::sleep(pause).await;
                    stream.write_all(&bytes).await.is_ok()
                }
                Step::Wait(gate) => tokio::select! {
                    () = gate.notified() => true,
                    () = closed(&mut stream) => false,
                },
                Step::Hang => {
                    closed(&mut stream).await;
                    false
                }
                Step::Cut => return,
                Step::Reset => return stream.set_zero_linger().unwrap(),
            };
            if !alive {
                *request.gone.lock().unwrap() = true;
                return;
            }
        }
    }
}

/// The peer sends nothing while it waits for an answer: any end of reading is its going away.
async fn closed(stream: &mut TcpStream) {
    let mut piece = [0; 1];
    if matches!(stream.read(&mut piece).await, Ok(n) if n > 0) {
        panic!("bytes after the request");
    }
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Received> {
    let end = loop {
        if let Some(at) = find(buffer, b"\r\n\r\n") {
            break at;
        }
        more(stream, buffer).await?;
    };
    let head = String::from_utf8(buffer.drain(..end + 4).collect()).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let mut first = lines.next()?.split(' ').map(str::to_owned);
    let (method, target) = (first.next()?, first.next()?);
    let field = |line: &str| {
        line.split_once(':')
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers: Vec<(String, String)> = lines.filter_map(field).collect();
    let mut request =
        Received { method, target, headers, body: Vec::new(), gone: Mutex::new(false) };
    if request.header("transfer-encoding").is_some() {
        loop {
            let line = loop {
                if let Some(at) = find(buffer, b"\r\n") {
                    break at;
                }
                more(stream, buffer).await?;
            };
            let size =
                usize::from_str_radix(std::str::from_utf8(&buffer[..line]).unwrap(), 16).unwrap();
            while buffer.len() < line + 2 + size + 2 {
                more(stream, buffer).await?;
            }
            request.body.extend_from_slice(&buffer[line + 2..line + 2 + size]);
            buffer.drain(..line + 2 + size + 2);
            if size == 0 {
                return Some(request);
            }
        }
    }
    let length = request.header("content-length").map_or(0, |text| text.parse::<usize>().unwrap());
    while buffer.len() < length {
        more(stream, buffer).await?;
    }
    request.body = buffer.drain(..length).collect();
    Some(request)
}

async fn more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut piece = vec![0; 64 << 10];
    let n = stream.read(&mut piece).await.ok().filter(|n| *n > 0)?;
    buffer.extend_from_slice(&piece[..n]);
    Some(())
}

/// An answer of known length.
pub fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<Step> {
    let mut head = format!("HTTP/1.1 {status} Scripted\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    vec![Step::Write([head.as_bytes(), b"\r\n", body].concat())]
}

/// An answer in JSON.
pub fn json_answer(status: u16, body: &Value) -> Vec<Step> {
    answer(status, &[("content-type", "application/json")], body.to_string().as_bytes())
}

/// An error as OpenAI words it.
pub fn failure(status: u16, message: &str) -> Vec<Step> {
    json_answer(
        status,
        &json!({
            "error": {"message": message, "type": "server_error", "param": null, "code": null}
        }),
    )
}

/// A chat completion that says `text`.
pub fn completion(text: &str) -> Vec<Step> {
    json_answer(200, &completion_body(text))
}

/// The body of it.
pub fn completion_body(text: &str) -> Value {
    json!({
        "id": "chatcmpl-scripted", "object": "chat.completion", "created": 1_764_000_000,
        "model": "scripted",
        "choices": [{
            "index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"
        }],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    })
}

/// The head of an event stream.
pub fn stream_head() -> Step {
    Step::Write(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec(),
    )
}

/// The first event of a chat stream: a role and no content.
pub fn role_event() -> String {
    event(&json!({"role": "assistant", "content": ""}), None)
}

/// An event with a piece of content.
pub fn content_event(text: &str) -> String {
    event(&json!({ "content": text }), None)
}

/// The event that ends the choice, and `[DONE]`.
pub fn last_events() -> String {
    format!("{}data: [DONE]\n\n", event(&json!({}), Some("stop")))
}

fn event(delta: &Value, finish: Option<&str>) -> String {
    let chunk = json!({
        "id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1_764_000_000,
        "model": "scripted",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    });
    format!("data: {chunk}\n\n")
}

/// A whole chat stream that says `text`, one chunk an event.
pub fn stream(text: &str) -> Vec<Step> {
    let events = [role_event(), content_event(text), last_events()];
    let chunks = events.into_iter().map(|event| Step::Chunk(event.into_bytes()));
    std::iter::once(stream_head()).chain(chunks).chain([Step::Chunk(Vec::new())]).collect()
}

/// The bytes of the body of [`stream`].
pub fn stream_body(text: &str) -> String {
    [role_event(), content_event(text), last_events()].concat()
}

/// The fixtures are tried on each other, so that a failing test of the gateway is about the
/// gateway.
#[tokio::test]
async fn the_client_sees_what_the_provider_writes_and_the_other_way_round() {
    use super::client::{Connection, chunked_request, request};
    let gate = Arc::new(Notify::new());
    let waits = Step::Wait(Arc::clone(&gate));
    let provider = Provider::start(move |_, n| match n {
        0 => completion("hello"),
        1 => stream("well"),
        2 => vec![stream_head(), Step::Chunk(b"half".to_vec()), Step::Cut],
        _ => vec![
            stream_head(),
            Step::Chunk(b"first".to_vec()),
            waits.clone(),
            Step::Chunk(b"second".to_vec()),
            Step::Hang,
        ],
    })
    .await;
    let mut connection = Connection::try_open(provider.address).await.unwrap();
    let body = b"x".repeat(100_000);
    let plain =
        connection.exchange(&request("POST", "/v1/x", "h", &[("a", "b")], Some(&body))).await;
    assert!(plain.whole && plain.status == 200 && plain.json() == completion_body("hello"));
    let streamed =
        connection.exchange(&chunked_request("POST", "/v1/y", "h", &[], &body, 999)).await;
    assert!(streamed.whole && streamed.text() == stream_body("well"));
    for number in 0..2 {
        assert!(provider.request(number).body == body);
    }
    assert_eq!(
        (provider.request(0).header("a").as_deref(), provider.last().target.as_str()),
        (Some("b"), "/v1/y")
    );
    let cut = connection.exchange(&request("POST", "/", "h", &[], None)).await;
    assert_eq!((cut.whole, cut.text().as_str()), (false, "half"));
    let mut connection = Connection::try_open(provider.address).await.unwrap();
    connection.send(&request("POST", "/", "h", &[], None)).await;
    assert_eq!(connection.head().await.unwrap().status, 200);
    assert_eq!(connection.piece().await.unwrap(), b"first");
    gate.notify_one();
    assert_eq!(connection.piece().await.unwrap(), b"second");
    connection.abandon();
    provider.abandoned(3).await;
}
