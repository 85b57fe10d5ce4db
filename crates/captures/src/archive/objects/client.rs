//! The HTTP client for object stores: that of the command line, on threads that may block.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use rerouter_base::blocking::blocking;

/// Largest answer of an object store, in bytes.
const OBJECT_ANSWER: u64 = 160 << 20;
/// Longest time to connect to an object store.
const OBJECT_CONNECT: Duration = Duration::from_secs(5);
/// Longest time of one request to an object store, retries included.
pub(super) const OBJECT_REQUEST: Duration = Duration::from_secs(30);

/// Makes clients that trust the authorities of the system.
#[derive(Debug)]
pub(super) struct ObjectConnector(RootCerts);

impl ObjectConnector {
    pub(super) fn new() -> Self {
        let found = rustls_native_certs::load_native_certs().unwrap_or_default();
        let found: Vec<Certificate<'static>> =
            found.iter().map(|found| Certificate::from_der(found).to_owned()).collect();
        // A container may have no authorities of its own.
        ObjectConnector(match found.is_empty() {
            true => RootCerts::WebPki,
            false => RootCerts::Specific(Arc::new(found)),
        })
    }
}

impl HttpConnector for ObjectConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp);
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .https_only(allow_http.as_deref() != Some("true"))
            // A signature is valid for one host only.
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(OBJECT_CONNECT))
            .timeout_global(Some(OBJECT_REQUEST))
            .user_agent(concat!("rerouter/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(self.0.clone()).build())
            .build();
        Ok(HttpClient::new(ObjectClient(Agent::new_with_config(config))))
    }
}

#[derive(Debug)]
struct ObjectClient(Agent);

#[async_trait]
impl HttpService for ObjectClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let agent = self.0.clone();
        let sent = blocking(move || send(&agent, Request::from_parts(head, body)));
        sent.await.map_err(|lost| HttpError::new(HttpErrorKind::Unknown, lost))?
    }
}

fn send(agent: &Agent, request: Request<Bytes>) -> Result<HttpResponse, HttpError> {
    let (head, body) = request.into_parts();
    let answer = match body.is_empty() && !head.method.as_str().starts_with('P') {
        true => agent.run(Request::from_parts(head, ())),
        false => agent.run(Request::from_parts(head, &*body)),
    };
    let (head, mut body) = answer.map_err(|error| failed(&error))?.into_parts();
    let body = body.with_config().limit(OBJECT_ANSWER).read_to_vec();
    Ok(HttpResponse::from_parts(head, body.map_err(|error| failed(&error))?.into()))
}

/// A connection error by its kind: the full text may hold the URL.
fn failed(error: &ureq::Error) -> HttpError {
    let (kind, told) = match error {
        ureq::Error::Timeout(_) => (HttpErrorKind::Timeout, "no answer in time".to_owned()),
        ureq::Error::HostNotFound => (HttpErrorKind::Connect, "its host is not found".to_owned()),
        ureq::Error::ConnectionFailed => {
            (HttpErrorKind::Connect, "it cannot be reached".to_owned())
        }
        ureq::Error::Io(error) => (HttpErrorKind::Request, error.kind().to_string()),
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => (HttpErrorKind::Unknown, "no TLS".into()),
        ureq::Error::RequireHttpsOnly(_) => {
            (HttpErrorKind::Unknown, "http:// is not allowed".to_owned())
        }
        _ => (HttpErrorKind::Unknown, "its answer cannot be read".to_owned()),
    };
    HttpError::new(kind, io::Error::other(told))
}
