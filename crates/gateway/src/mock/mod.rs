//! A provider without a model, inside the process, on a loopback port. The demo and the tests reach
//! it like any provider. Equal requests get equal answers.
//!
//! `POST /{latency in ms}/v1/…` serves chat completions and embeddings in OpenAI's format; the
//! gateway translates calls of other endpoints to these. The model `echo` answers with the last
//! user message. Some models are faults: `status-429` (with `retry-after: 1`), `status-500`,
//! `status-503`, `in-band-error` (a 200 whose stream begins with an error), `cut` (breaks off after
//! the first content) and `hang` (never answers). Every other model answers with a sentence that
//! names it. Embeddings have no meaning, but equal texts have equal embeddings.

mod chat;
mod embeddings;

use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use self::chat::MockAnswer;
use rerouter_base::bounds;
use rerouter_base::error::{Error, Kind};
use rerouter_dialect::chat::errors;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::protocol::Protocol;
use rerouter_dialect::request::{self, ModelRequest};
use rerouter_dialect::usage::Usage;

/// Largest request body of the mock provider, in bytes.
const MOCK_BODY: usize = 32 << 20;
/// Most concurrent connections of the mock provider; more wait to be accepted.
const MOCK_CONNECTIONS: usize = 1_024;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// The frames of a body, which ends regularly or breaks off with an error.
type Frames = BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>;
type MockResponse = Response<StreamBody<Frames>>;

#[derive(Debug)]
pub struct Mock;

impl Mock {
    /// Binds a free loopback port.
    pub fn bind() -> std::io::Result<(std::net::TcpListener, SocketAddr)> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }
}

/// Serves until `shutdown` resolves. Open connections end with their tasks.
pub async fn serve(
    listener: std::net::TcpListener,
    shutdown: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(MOCK_CONNECTIONS));
    let mut connections = tokio::task::JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accept = async {
            let permit = Arc::clone(&room).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = &mut shutdown => return Ok(()),
            accepted = accept => accepted,
        };
        while connections.try_join_next().is_some() {}
        let Ok((connection, _)) = accepted else {
            // Most likely the process is out of descriptors: wait until some connection ends.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        connections.spawn(async move {
            let _permit = permit;
            // Small writes, such as events, must be sent at once. If this fails they are only late.
            let _slower = connection.set_nodelay(true);
            let service = hyper::service::service_fn(|request| async {
                Ok::<_, Infallible>(answer(request).await)
            });
            let mut server = hyper::server::conn::http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(bounds::KEEP_ALIVE);
            if let Err(error) = server.serve_connection(TokioIo::new(connection), service).await {
                log::debug!("mock provider: {error}");
            }
        });
    }
}

async fn answer(request: Request<Incoming>) -> MockResponse {
    say(request).await.unwrap_or_else(|error| {
        let body = errors::envelope(&error).to_string();
        let mut answer = respond(error.status(), JSON, vec![Ok(body.into())]);
        if error.kind() == Kind::RateLimited {
            answer.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        answer
    })
}

/// The endpoint that a path names, and the latency of its answers.
fn asked_for(path: &str) -> Option<(Endpoint, Duration)> {
    let (millis, path) = path.strip_prefix('/')?.split_once("/v1/")?;
    let latency = Duration::from_millis(millis.parse().ok()?);
    let mut endpoints = Protocol::Mock.endpoints().iter();
    let endpoint = endpoints.find(|endpoint| endpoint.path().strip_prefix('/') == Some(path))?;
    (latency <= bounds::MOCK_LATENCY).then_some((*endpoint, latency))
}

async fn say(request: Request<Incoming>) -> Result<MockResponse, Error> {
    let (endpoint, latency) =
        asked_for(request.uri().path()).ok_or_else(|| Error::not_found("route"))?;
    if request.method() != Method::POST {
        return Err(Error::new(Kind::MethodNotAllowed, "Only POST is answered here."));
    }
    let body = match Limited::new(request.into_body(), MOCK_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            return Err(
                Error::new(Kind::PayloadTooLarge, "The body could not be read.").because(error)
            );
        }
    };
    let asked = request::read_request(&body, endpoint)?;
    tokio::time::sleep(latency).await;
    let told = |kind, what| Error::new(kind, format!("The mock provider is told to {what}."));
    let failure = told(Kind::Internal, "fail");
    match &*asked.model {
        "status-429" => return Err(told(Kind::RateLimited, "refuse")),
        "status-500" => return Err(failure),
        "status-503" => return Err(told(Kind::Unavailable, "be overloaded")),
        "hang" => return std::future::pending().await,
        _ => {}
    }
    let answer = answer_to(&body, &asked);
    let is_cut = &*asked.model == "cut";
    let broken_off = is_cut.then(|| Err(std::io::Error::other("told to break off")));
    let (content_type, parts): (_, Vec<Bytes>) = match (&*asked.model, asked.stream) {
        ("in-band-error", false) => return Err(failure),
        ("in-band-error", true) => (EVENTS, vec![errors::event(&failure, "", 0).into()]),
        (_, true) => {
            let mut events = answer.events();
            events.truncate(if is_cut { chat::UNTIL_FIRST_WORD } else { events.len() });
            (EVENTS, events.into_iter().map(Bytes::from).collect())
        }
        (_, false) => {
            let whole = match endpoint {
                Endpoint::Embeddings => embeddings::whole(&answer, &body)?,
                _ => answer.whole(),
            };
            let whole = Bytes::from(whole.to_string());
            let most = if is_cut { whole.len() / 2 } else { whole.len() };
            (JSON, vec![whole.slice(..most)])
        }
    };
    let parts = parts.into_iter().map(Ok).chain(broken_off).collect();
    Ok(respond(StatusCode::OK, content_type, parts))
}

fn answer_to<'a>(body: &Bytes, asked: &'a ModelRequest) -> MockAnswer<'a> {
    let content = match &*asked.model {
        "echo" => request::last_user_text(body, asked),
        model => format!("This is the mock provider's answer from {model}."),
    };
    MockAnswer {
        model: &asked.model,
        mark: format!("{:016x}", xxhash_rust::xxh3::xxh3_64(body)),
        usage: Usage::estimate(asked.prompt_tokens, content.len() as u64),
        content,
        include_usage: asked.include_usage,
    }
}

fn respond(
    status: StatusCode,
    content_type: &'static str,
    parts: Vec<Result<Bytes, std::io::Error>>,
) -> MockResponse {
    let length = match parts.as_slice() {
        [Ok(only)] if content_type == JSON => Some(only.len()),
        _ => None,
    };
    // Each part is sent before the next is made, as by a model that generates.
    let frames = stream::iter(parts).then(|part| async {
        tokio::task::yield_now().await;
        part.map(Frame::data)
    });
    let mut answer = Response::new(StreamBody::new(frames.boxed()));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    if let Some(length) = length {
        answer.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    answer
}

#[cfg(test)]
mod tests;
