//! A provider without a model, inside the process, on a loopback port of its own: reached like any provider, so that
//! the demo, the tests and the first five minutes exercise the real path. The same request gets the same answer.
//!
//! `POST /{latency in ms}/v1/chat/completions`. Models: `echo` answers with the last user message; the faults `status-429` (with
//! `retry-after: 1`), `status-500`, `status-503`, `in-band-error` (a 200 whose stream begins with an error), `cut` (breaks off after the
//! first content), `hang` (never answers); every other name answers with a sentence that names it.

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
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::endpoint::Endpoint;
use super::openai::{self, ChatRequest};
use super::usage::Usage;
use crate::bounds;
use crate::error::{Error, Kind};

/// How a stream may end: as it should, or broken off.
type Frames = BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>;
type Answer = Response<StreamBody<Frames>>;

/// The mock provider, bound but not yet serving.
#[derive(Debug)]
pub struct Mock;

impl Mock {
    /// Takes a free loopback port.
    pub fn bind() -> std::io::Result<(std::net::TcpListener, SocketAddr)> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }
}

/// Serves until `shutdown` is done; connections then under way end with their tasks.
pub async fn serve(listener: std::net::TcpListener, shutdown: impl Future<Output = ()>) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(bounds::MOCK_CONNECTIONS));
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
            // Out of descriptors, most likely: let some connection end first.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        connections.spawn(async move {
            let _permit = permit;
            // Small writes (events) have to leave at once; failing that they are only late.
            let _slower = connection.set_nodelay(true);
            let service = hyper::service::service_fn(|request| async { Ok::<_, Infallible>(answer(request).await) });
            let mut server = hyper::server::conn::http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(bounds::KEEP_ALIVE);
            if let Err(error) = server.serve_connection(TokioIo::new(connection), service).await {
                log::debug!("mock provider: {error}");
            }
        });
    }
}

async fn answer(request: Request<Incoming>) -> Answer {
    match chat(request).await {
        Ok(answer) => answer,
        Err(error) => refusal(error.status(), error.detail(), error.kind().row().openai_type),
    }
}

async fn chat(request: Request<Incoming>) -> Result<Answer, Error> {
    let latency = request
        .uri()
        .path()
        .strip_suffix("/v1/chat/completions")
        .and_then(|rest| rest.strip_prefix('/'))
        .and_then(|millis| millis.parse().ok())
        .map(Duration::from_millis)
        .filter(|latency| *latency <= bounds::MOCK_LATENCY)
        .ok_or_else(|| Error::not_found("route"))?;
    if request.method() != Method::POST {
        return Err(Error::new(Kind::MethodNotAllowed, "Only POST is answered here."));
    }
    let body = match Limited::new(request.into_body(), bounds::MOCK_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Err(Error::new(Kind::PayloadTooLarge, "The body could not be read.").because(error)),
    };
    let asked = openai::read_request(&body, Endpoint::ChatCompletions)?;
    tokio::time::sleep(latency).await;
    Ok(match asked.model.as_str() {
        "status-429" => {
            let mut answer = refusal(StatusCode::TOO_MANY_REQUESTS, "The mock provider is told to refuse.", "rate_limit_error");
            answer.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
            answer
        }
        "status-500" => refusal(StatusCode::INTERNAL_SERVER_ERROR, "The mock provider is told to fail.", "server_error"),
        "status-503" => refusal(StatusCode::SERVICE_UNAVAILABLE, "The mock provider is told to be overloaded.", "server_error"),
        "hang" => std::future::pending().await,
        _ if asked.stream => respond(StatusCode::OK, "text/event-stream", events(&Completion::of(&body, &asked), &asked)),
        "in-band-error" => refusal(StatusCode::INTERNAL_SERVER_ERROR, "The mock provider is told to fail.", "server_error"),
        "cut" => broken(whole(&Completion::of(&body, &asked), &asked)),
        _ => respond(StatusCode::OK, "application/json", vec![Ok(whole(&Completion::of(&body, &asked), &asked))]),
    })
}

/// The answer, before it is written in one of two ways.
struct Completion {
    id: String,
    content: String,
    usage: Usage,
}

impl Completion {
    fn of(body: &Bytes, asked: &ChatRequest) -> Self {
        let content = match asked.model.as_str() {
            "echo" => openai::last_user_text(body, asked),
            model => format!("This is the mock provider's answer from {model}."),
        };
        let usage = Usage::estimate(asked.prompt_tokens, content.len() as u64);
        Completion { id: format!("chatcmpl-mock-{:016x}", xxhash_rust::xxh3::xxh3_64(body)), content, usage }
    }

    fn usage(&self) -> Value {
        let Usage { prompt_tokens, completion_tokens, total_tokens, .. } = self.usage;
        json!({ "prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total_tokens })
    }
}

fn whole(completion: &Completion, asked: &ChatRequest) -> Bytes {
    let choice = json!({ "index": 0, "message": { "role": "assistant", "content": completion.content }, "finish_reason": "stop" });
    let object = json!({
        "id": completion.id, "object": "chat.completion", "created": 0, "model": asked.model, "choices": [choice], "usage": completion.usage(),
    });
    object.to_string().into()
}

fn events(completion: &Completion, asked: &ChatRequest) -> Vec<Result<Bytes, std::io::Error>> {
    let event = |value: &Value| Ok(Bytes::from(format!("data: {value}\n\n")));
    if asked.model == "in-band-error" {
        return vec![event(&json!({ "error": { "message": "The mock provider is told to fail.", "type": "server_error", "code": 500 } }))];
    }
    let chunk = |choices: Value| json!({ "id": completion.id, "object": "chat.completion.chunk", "created": 0, "model": asked.model, "choices": choices });
    let delta = |delta: Value, finish: Value| chunk(json!([{ "index": 0, "delta": delta, "finish_reason": finish }]));
    let mut events = vec![event(&delta(json!({ "role": "assistant", "content": "" }), Value::Null))];
    for word in completion.content.split_inclusive(' ') {
        events.push(event(&delta(json!({ "content": word }), Value::Null)));
        if asked.model == "cut" {
            events.push(Err(std::io::Error::other("told to break off")));
            return events;
        }
    }
    events.push(event(&delta(json!({}), "stop".into())));
    if asked.include_usage {
        let mut last = chunk(json!([]));
        if let Some(last) = last.as_object_mut() {
            last.insert("usage".into(), completion.usage());
        }
        events.push(event(&last));
    }
    events.push(Ok(Bytes::from_static(b"data: [DONE]\n\n")));
    events
}

/// An answer that breaks off in its middle.
fn broken(whole: Bytes) -> Answer {
    let half = whole.slice(..whole.len() / 2);
    respond(StatusCode::OK, "application/json", vec![Ok(half), Err(std::io::Error::other("told to break off"))])
}

fn refusal(status: StatusCode, message: &str, kind: &str) -> Answer {
    let body = json!({ "error": { "message": message, "type": kind, "param": null, "code": null } });
    respond(status, "application/json", vec![Ok(body.to_string().into())])
}

fn respond(status: StatusCode, content_type: &'static str, parts: Vec<Result<Bytes, std::io::Error>>) -> Answer {
    let length = match parts.as_slice() {
        [Ok(only)] if content_type == "application/json" => Some(only.len()),
        _ => None,
    };
    // Each part leaves before the next is made, as with a model that thinks.
    let frames = stream::iter(parts).then(|part| async {
        tokio::task::yield_now().await;
        part.map(Frame::data)
    });
    let mut answer = Response::new(StreamBody::new(frames.boxed()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    if let Some(length) = length {
        answer.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    answer
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use hyper::client::conn::http1;

    use super::super::stream::{Tally, Verdict, assemble};
    use super::*;

    /// Status, headers and body; the body is what came when it broke off.
    async fn post(path: &str, body: Value) -> (u16, http::HeaderMap, Vec<u8>, bool) {
        let (listener, address) = Mock::bind().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(serve(listener, async {
            let _asked = stopped.await;
        }));
        let connection = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(connection)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::post(path).header("host", "mock").body(Full::new(Bytes::from(body.to_string()))).unwrap();
        let (head, mut frames) = sender.send_request(request).await.unwrap().into_parts();
        let (mut received, mut broken) = (Vec::new(), false);
        while let Some(frame) = frames.frame().await {
            match frame {
                Ok(frame) => received.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Err(_) => {
                    broken = true;
                    break;
                }
            }
        }
        stop.send(()).unwrap();
        server.await.unwrap().unwrap();
        (head.status.as_u16(), head.headers, received, broken)
    }

    fn ask(model: &str, stream: bool) -> Value {
        let messages = json!([{"role": "user", "content": "first"}, {"role": "assistant", "content": "x"}, {"role": "user", "content": "say héllo twice"}]);
        json!({ "model": model, "messages": messages, "stream": stream, "stream_options": { "include_usage": true } })
    }

    #[tokio::test]
    async fn a_stream_amounts_to_the_whole_answer() {
        let (status, _, whole, _) = post("/0/v1/chat/completions", ask("echo", false)).await;
        let whole: Value = serde_json::from_slice(&whole).unwrap();
        assert_eq!((status, &whole["choices"][0]["message"]["content"]), (200, &json!("say héllo twice")));
        let (_, headers, stream, broken) = post("/1/v1/chat/completions", ask("echo", true)).await;
        assert_eq!(headers["content-type"], "text/event-stream");
        assert!(!broken);
        let assembled = assemble(Endpoint::ChatCompletions, &stream);
        for field in ["choices", "usage", "model", "object"] {
            assert_eq!(assembled[field], whole[field], "{field}");
        }
        let (_, _, again, _) = post("/0/v1/chat/completions", ask("echo", true)).await;
        assert_eq!(again, stream);
    }

    #[tokio::test]
    async fn faults_are_what_they_are_called() {
        for (model, status) in [("status-429", 429), ("status-500", 500), ("status-503", 503)] {
            let (got, headers, body, _) = post("/0/v1/chat/completions", ask(model, true)).await;
            assert_eq!((got, headers.contains_key("retry-after")), (status, status == 429));
            assert!(serde_json::from_slice::<Value>(&body).unwrap()["error"]["message"].is_string());
        }
        let (status, _, stream, broken) = post("/0/v1/chat/completions", ask("cut", true)).await;
        let mut tally = Tally::default();
        tally.feed(&stream);
        assert_eq!((status, broken, tally.verdict(), tally.finished()), (200, true, Verdict::Answer, false));
        let (status, _, stream, _) = post("/0/v1/chat/completions", ask("in-band-error", true)).await;
        let mut tally = Tally::default();
        tally.feed(&stream);
        assert_eq!((status, tally.verdict()), (200, Verdict::Error));
        assert!(post("/0/v1/chat/completions", ask("cut", false)).await.3);
        let hang = tokio::time::timeout(Duration::from_millis(100), post("/0/v1/chat/completions", ask("hang", false)));
        assert!(hang.await.is_err());
    }

    #[tokio::test]
    async fn other_requests_are_refused_in_the_envelope() {
        for (path, body, status) in [
            ("/0/v1/models", ask("echo", false), 404),
            ("/99999999/v1/chat/completions", ask("echo", false), 404),
            ("/0/v1/chat/completions", json!({}), 400),
        ] {
            let (got, _, body, _) = post(path, body).await;
            assert_eq!(got, status, "{path}");
            assert!(serde_json::from_slice::<Value>(&body).unwrap()["error"]["message"].is_string());
        }
    }
}
