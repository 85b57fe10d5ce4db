//! Clients that show what is on the wire: exact bytes over HTTP/1.1, and HTTP/2 over TLS.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::PATIENCE;

/// A response as it came.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the body ended as its framing says, rather than by a cut.
    pub whole: bool,
}

impl Answer {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Every header line of that name.
    pub fn header_lines(&self, name: &str) -> Vec<&str> {
        self.headers
            .iter()
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {} {}", self.status, self.text()))
    }

    /// Our id of the request.
    pub fn request_id(&self) -> String {
        self.header("x-request-id")
            .unwrap_or_else(|| panic!("no x-request-id: {self:?}"))
            .to_owned()
    }
}

/// Headers as [`request`] takes them.
pub fn pairs<'a>(headers: &'a [(&'a str, String)]) -> Vec<(&'a str, &'a str)> {
    headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// A request whose body, if any, has a content-length.
pub fn request(
    method: &str,
    target: &str,
    host: &str,
    headers: &[(&str, &str)],
    body: Option<&[u8]>,
) -> Vec<u8> {
    let mut out = head(method, target, host, headers);
    if let Some(body) = body {
        out.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        out.extend_from_slice(body);
    } else {
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// A request whose body goes in chunks of `size`.
pub fn chunked_request(
    method: &str,
    target: &str,
    host: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    size: usize,
) -> Vec<u8> {
    let mut out = head(method, target, host, headers);
    out.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
    for chunk in body.chunks(size) {
        out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

fn head(method: &str, target: &str, host: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut out = format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\n");
    for (name, value) in headers {
        out.push_str(&format!("{name}: {value}\r\n"));
    }
    out.into_bytes()
}

/// How much of a body is still to come.
enum Framing {
    Length(usize),
    Chunked,
    UntilClosed,
    Done { whole: bool },
}

/// One HTTP/1.1 connection.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    framing: Framing,
}

impl Connection {
    /// Connects, if somebody listens.
    pub async fn try_open(address: SocketAddr) -> Option<Self> {
        TcpStream::connect(address).await.ok().map(Connection::over)
    }

    /// The same, from an address of this machine.
    pub async fn try_open_from(from: IpAddr, address: SocketAddr) -> Option<Self> {
        let socket =
            if from.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.unwrap();
        socket.bind((from, 0).into()).unwrap();
        socket.connect(address).await.ok().map(Connection::over)
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Connection { stream, buffer: Vec::new(), framing: Framing::Done { whole: true } }
    }

    /// Sends these bytes.
    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends these bytes; false when the other side is gone.
    pub async fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// Sends these bytes and reads the answer; the connection stays open if the other side keeps
    /// it.
    pub async fn exchange(&mut self, bytes: &[u8]) -> Answer {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
        self.try_exchange(bytes)
            .await
            .unwrap_or_else(|| panic!("closed without an answer to {shown}"))
    }

    /// As [`Connection::exchange`]; `None` when the other side closes without an answer. Writes
    /// while it reads: an early refusal may come, and the connection close, before all is written.
    pub async fn try_exchange(&mut self, bytes: &[u8]) -> Option<Answer> {
        let mut sent = 0;
        while sent < bytes.len() {
            let ready = self.stream.ready(Interest::READABLE | Interest::WRITABLE).await.ok()?;
            let mut piece = [0; 4096];
            match ready.is_readable().then(|| self.stream.try_read(&mut piece)) {
                Some(Ok(0)) => break,
                Some(Ok(n)) => self.buffer.extend_from_slice(&piece[..n]),
                Some(Err(error)) if error.kind() != ErrorKind::WouldBlock => break,
                _ => {}
            }
            match ready.is_writable().then(|| self.stream.try_write(&bytes[sent..])) {
                Some(Ok(n)) => sent += n,
                Some(Err(error)) if error.kind() != ErrorKind::WouldBlock => break,
                _ => {}
            }
        }
        if bytes.starts_with(b"HEAD ") {
            // Its answer says how long a body would be, and has none.
            let mut answer = self.head().await?;
            self.framing = Framing::Done { whole: true };
            answer.whole = true;
            return Some(answer);
        }
        self.answer().await
    }

    /// Reads a whole response.
    pub async fn answer(&mut self) -> Option<Answer> {
        let mut answer = self.head().await?;
        while let Some(piece) = self.piece().await {
            answer.body.extend_from_slice(&piece);
        }
        answer.whole = matches!(self.framing, Framing::Done { whole: true });
        Some(answer)
    }

    /// Reads a response head (an interim one too) and leaves its body for [`Connection::piece`].
    pub async fn head(&mut self) -> Option<Answer> {
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at;
            }
            if !self.more().await {
                return None;
            }
        };
        let text = String::from_utf8(self.buffer.drain(..end + 4).collect()).unwrap();
        let mut lines = text.trim_end().split("\r\n");
        let first = lines.next().unwrap();
        assert!(first.starts_with("HTTP/1.1 "), "not a response: {first}");
        let status: u16 = first[9..12].parse().unwrap();
        let field = |line: &str| {
            line.split_once(':')
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        let headers = lines
            .map(|line| field(line).unwrap_or_else(|| panic!("not a header: {line}")))
            .collect();
        let answer = Answer { status, headers, body: Vec::new(), whole: false };
        self.framing = if status < 200 || status == 204 || status == 304 {
            Framing::Done { whole: true }
        } else if answer.header("transfer-encoding").is_some() {
            Framing::Chunked
        } else if let Some(length) = answer.header("content-length") {
            Framing::Length(length.parse().unwrap())
        } else {
            Framing::UntilClosed
        };
        Some(answer)
    }

    /// The next bytes of the body as they come; `None` at its end.
    pub async fn piece(&mut self) -> Option<Vec<u8>> {
        loop {
            let found = match &mut self.framing {
                Framing::Done { .. } => return None,
                Framing::Length(0) => None,
                Framing::Length(left) if !self.buffer.is_empty() => {
                    let n = self.buffer.len().min(*left);
                    *left -= n;
                    return Some(self.buffer.drain(..n).collect());
                }
                Framing::Chunked => match take_chunk(&mut self.buffer) {
                    Some(chunk) if chunk.is_empty() => None,
                    Some(chunk) => return Some(chunk),
                    None => Some(()),
                },
                Framing::UntilClosed if !self.buffer.is_empty() => {
                    return Some(std::mem::take(&mut self.buffer));
                }
                _ => Some(()),
            };
            if found.is_none() {
                self.framing = Framing::Done { whole: true };
            } else if !self.more().await {
                self.framing =
                    Framing::Done { whole: matches!(self.framing, Framing::UntilClosed) };
            }
        }
    }

    /// The rest of a streamed body, each piece with the instant at which it came.
    pub async fn pieces(&mut self) -> (Vec<(Instant, Vec<u8>)>, bool) {
        let mut pieces = Vec::new();
        while let Some(piece) = self.piece().await {
            pieces.push((Instant::now(), piece));
        }
        (pieces, matches!(self.framing, Framing::Done { whole: true }))
    }

    async fn more(&mut self) -> bool {
        let mut piece = vec![0; 64 << 10];
        let read = timeout(PATIENCE, self.stream.read(&mut piece))
            .await
            .expect("no bytes within the bound");
        let n = read.unwrap_or(0);
        self.buffer.extend_from_slice(&piece[..n]);
        n > 0
    }

    /// Whether the other side closes now: an end or a reset before any other byte, within a short
    /// bound. To show that a connection was kept, use it for another request instead.
    pub async fn is_closed(&mut self) -> bool {
        let mut piece = [0; 64];
        match timeout(Duration::from_secs(5), self.stream.read(&mut piece)).await {
            Ok(Ok(n)) => n == 0 && self.buffer.is_empty(),
            Ok(Err(_)) => true,
            Err(_) => false,
        }
    }

    /// Drops the connection with what has not been read, as a client that goes away does.
    pub fn abandon(self) {
        drop(self.stream);
    }
}

fn take_chunk(buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    let line = find(buffer, b"\r\n")?;
    let size = std::str::from_utf8(&buffer[..line]).unwrap();
    let size = usize::from_str_radix(size.split(';').next().unwrap().trim(), 16).unwrap();
    let end = line + 2 + size + 2;
    if buffer.len() < end {
        return None;
    }
    assert_eq!(&buffer[end - 2..end], b"\r\n", "a chunk ends with CRLF");
    let chunk = buffer[line + 2..end - 2].to_vec();
    buffer.drain(..end);
    Some(chunk)
}

/// Where `needle` begins in `hay`.
pub fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(hay, needle)
}

const CURVE: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -batch";

/// Runs the `openssl` command in a directory.
fn openssl(dir: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    command.args(arguments.split(' ')).current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().expect("the openssl command").success(), "openssl {arguments}");
}

/// A certificate for `localhost` under a test CA, made by the `openssl` command, and the trust in
/// it.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    fn make_leaf(dir: &Path, days: u32) {
        openssl(dir, &format!("req {CURVE} -keyout key.pem -out leaf.csr -subj /CN=localhost"));
        openssl(
            dir,
            &format!(
                "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days {days} \
                 -extfile leaf.cnf -out cert.pem"
            ),
        );
    }

    /// Writes `cert.pem` and `key.pem` into `dir`, for two days.
    pub fn make(dir: &Path) -> Self {
        std::fs::write(
            dir.join("leaf.cnf"),
            "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n",
        )
        .unwrap();
        openssl(
            dir,
            &format!("req -x509 {CURVE} -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca"),
        );
        Tls::make_leaf(dir, 2);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(dir.join("ca.pem")).unwrap()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        // Each connection sees the certificate: a resumed session shows none.
        config.resumption = Resumption::disabled();
        Tls(Arc::new(config))
    }

    /// Replaces `cert.pem` and `key.pem` in `dir` by others of the same CA, for three days; the new
    /// certificate.
    pub fn renew(dir: &Path) -> CertificateDer<'static> {
        let next = tempfile::tempdir_in(dir).unwrap();
        for file in ["ca.pem", "ca.key", "leaf.cnf"] {
            std::fs::copy(dir.join(file), next.path().join(file)).unwrap();
        }
        Tls::make_leaf(next.path(), 3);
        for file in ["key.pem", "cert.pem"] {
            std::fs::rename(next.path().join(file), dir.join(file)).unwrap();
        }
        CertificateDer::from_pem_file(dir.join("cert.pem")).unwrap()
    }

    /// The certificate that the other side shows to a new connection.
    pub async fn shown(&self, address: SocketAddr) -> CertificateDer<'static> {
        let stream = self.dial(address, b"http/1.1").await.expect("a TLS handshake");
        stream.get_ref().1.peer_certificates().expect("a certificate")[0].clone().into_owned()
    }

    /// A connection that has negotiated this protocol and said nothing yet; `None` when the other
    /// side ends the handshake.
    pub async fn dial(&self, address: SocketAddr, protocol: &[u8]) -> Option<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await.ok()?;
        let mut config = ClientConfig::clone(&self.0);
        config.alpn_protocols = vec![protocol.to_vec()];
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.ok()
    }
}

/// The body of an HTTP/2 request: of known length (then there is a content-length), or in frames of
/// unknown number.
type H2Body = Either<
    Full<Bytes>,
    StreamBody<futures::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>,
>;

/// Whether the other side sent a GOAWAY that leaves the request out: it was not begun, and clients
/// send it again (RFC 9113 section 6.8).
fn was_told_to_go(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|it| it.downcast_ref::<h2::Error>());
    cause.is_some_and(|it| it.is_go_away() && it.reason() == Some(h2::Reason::NO_ERROR))
}

/// One HTTP/2 connection over TLS; a clone sends on the same.
#[derive(Clone)]
pub struct H2 {
    sender: hyper::client::conn::http2::SendRequest<H2Body>,
    authority: String,
}

impl H2 {
    /// Connects and negotiates `h2`.
    pub async fn open(to: (SocketAddr, &Tls)) -> Self {
        H2::try_open(to).await.expect("a TLS handshake")
    }

    /// The same, if the other side's certificate is trusted.
    pub async fn try_open((address, tls): (SocketAddr, &Tls)) -> Option<Self> {
        let stream = TcpStream::connect(address).await.unwrap();
        // Else the end of each window of a long body waits 40 ms for an acknowledgement.
        stream.set_nodelay(true).unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&tls.0));
        let stream =
            connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.ok()?;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        Some(H2 { sender, authority: format!("localhost:{}", address.port()) })
    }

    /// One request; `framed` sends the body in frames without a content-length.
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        framed: bool,
    ) -> Answer {
        let sent = self.try_send(method, path, headers, body, framed).await;
        sent.expect("the connection takes requests")
    }

    /// The same; `None` where the connection takes no more requests, and this one was not begun.
    pub async fn try_send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        framed: bool,
    ) -> Option<Answer> {
        let mut builder = http::Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.authority));
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let body = if framed {
            let frames: Vec<_> = body
                .chunks(10_000)
                .map(|chunk| Ok(Frame::data(Bytes::copy_from_slice(chunk))))
                .collect();
            Either::Right(StreamBody::new(futures::stream::iter(frames)))
        } else {
            Either::Left(Full::new(Bytes::copy_from_slice(body)))
        };
        let sending = self.sender.send_request(builder.body(body).unwrap());
        let response = match timeout(PATIENCE, sending).await.expect("an answer within the bound") {
            Err(error) if error.is_canceled() || was_told_to_go(&error) => return None,
            response => response.expect("an HTTP/2 answer"),
        };
        let (head, body) = response.into_parts();
        let headers = head
            .headers
            .iter()
            .map(|(n, v)| (n.to_string(), String::from_utf8_lossy(v.as_bytes()).into_owned()))
            .collect();
        let body = timeout(PATIENCE, body.collect()).await.expect("a body within the bound");
        let whole = body.is_ok();
        let body = body.map(|all| all.to_bytes().to_vec()).unwrap_or_default();
        Some(Answer { status: head.status.as_u16(), headers, body, whole })
    }
}

/// As in `provider.rs`: certificate, trust and HTTP/2 fit together, with a known and an unknown
/// length.
#[tokio::test]
async fn the_http2_client_is_understood_over_tls() {
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;
    let dir = tempfile::tempdir().unwrap();
    let tls = Tls::make(dir.path());
    let cert = CertificateDer::from_pem_file(dir.path().join("cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(dir.path().join("key.pem")).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(vec![cert], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let stream = tokio_rustls::TlsAcceptor::from(Arc::new(config))
            .accept(listener.accept().await.unwrap().0)
            .await
            .unwrap();
        let echo =
            hyper::service::service_fn(async |request: http::Request<hyper::body::Incoming>| {
                let length = request.headers().get("content-length").cloned();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let known = if length.is_some() { "known" } else { "unknown" };
                http::Response::builder().header("length", known).body(Full::new(body))
            });
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), echo)
            .await;
    });
    let mut client = H2::open((address, &tls)).await;
    for (framed, length) in [(false, "known"), (true, "unknown")] {
        let answer = client.send("POST", "/x", &[("a", "b")], &[7; 200_000], framed).await;
        assert_eq!(
            (answer.status, answer.header("length"), answer.whole),
            (200, Some(length), true)
        );
        assert!(answer.body == [7; 200_000]);
    }
    serving.abort();
}
