//! A provider behind TLS that speaks HTTP/2 or HTTP/1.1 as the client prefers, and says in its
//! answer which it was.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::client::Tls;
use super::provider::{completion_body, stream_body};

/// A listening provider for `localhost`; it stops with the value.
pub struct TlsProvider {
    dir: TempDir,
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl TlsProvider {
    /// Answers every chat with the version of HTTP that it came by, and every GET with a list of
    /// one model, `qwen`.
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Tls::make(dir.path());
        let cert = CertificateDer::from_pem_file(dir.path().join("cert.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(dir.path().join("key.pem")).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut config = builder.with_single_cert(vec![cert], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(acceptor.clone(), stream));
            }
        });
        TlsProvider { dir, address, accepting }
    }

    /// Its `base_url`.
    pub fn url(&self) -> String {
        format!("https://localhost:{}/v1", self.address.port())
    }

    /// The certificate of the authority that vouches for it.
    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }
}

impl Drop for TlsProvider {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Larger bodies are refused before they are read.
const TOO_LONG: u64 = 1 << 20;

fn refusal() -> http::Response<Full<Bytes>> {
    let body = r#"{"error":{"message":"the body is too long","type":"invalid_request_error"}}"#;
    let builder = http::Response::builder().status(413).header("content-type", "application/json");
    builder.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap()
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let two = stream.get_ref().1.alpn_protocol() == Some(&b"h2"[..]);
    let service =
        hyper::service::service_fn(async |request: http::Request<hyper::body::Incoming>| {
            let said = format!("{:?} {}", request.version(), request.uri().path());
            let is_list = request.method() == http::Method::GET;
            if hyper::body::Body::size_hint(request.body()).lower() > TOO_LONG {
                return Ok(refusal());
            }
            let body = request.into_body().collect().await?.to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            let (kind, text) = match body["stream"] == true {
                true => ("text/event-stream", stream_body(&said)),
                false if is_list => (
                    "application/json",
                    r#"{"object":"list","data":[{"id":"qwen","object":"model"}]}"#.to_owned(),
                ),
                false => ("application/json", completion_body(&said).to_string()),
            };
            Ok::<_, hyper::Error>(
                http::Response::builder()
                    .header("content-type", kind)
                    .body(Full::new(Bytes::from(text)))
                    .unwrap(),
            )
        });
    let stream = TokioIo::new(stream);
    // The gateway closes connections as it likes.
    if two {
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(stream, service)
            .await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await;
    }
}
