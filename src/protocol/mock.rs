//! A provider without a model, inside the process, on a loopback port. The demo and the tests reach
//! it like any provider. The same request gets the same answer.
//!
//! `POST /{latency in ms}/v1/…` serves every endpoint of the data plane, in the protocol of OpenAI
//! or Anthropic. The model `echo` answers with the last user message. Faults are models too:
//! `status-429` (with `retry-after: 1`), `status-500`, `status-503`, `in-band-error` (a 200 whose
//! stream begins with an error), `cut` (breaks off after the first content) and `hang` (never
//! answers). Every other model answers with a sentence that names it. Embeddings have no meaning,
//! but equal texts have equal ones.

mod answers;

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
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::endpoint::Endpoint;
use super::request;
use crate::bounds;
use crate::error::{Error, Kind};
use answers::MockAnswer;

/// How a stream may end: as it should, or broken off.
type Frames = BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>;
type MockResponse = Response<StreamBody<Frames>>;

/// The mock provider, bound but not yet serving.
#[derive(Debug)]
pub(crate) struct Mock;

impl Mock {
    /// Takes a free loopback port.
    pub(crate) fn bind() -> std::io::Result<(std::net::TcpListener, SocketAddr)> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }
}

/// Serves until `shutdown` is done; connections then under way end with their tasks.
pub(crate) async fn serve(
    listener: std::net::TcpListener,
    shutdown: impl Future<Output = ()>,
) -> std::io::Result<()> {
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
    let asked_for = asked_for(request.uri().path());
    let endpoint = asked_for.map(|(endpoint, _)| endpoint);
    match say(request, asked_for).await {
        Ok(answer) => answer,
        Err(error) => {
            refusal(endpoint, error.status(), error.detail(), error.kind().row().openai_type)
        }
    }
}

/// The endpoint that a path names, and how long its answers take.
fn asked_for(path: &str) -> Option<(Endpoint, Duration)> {
    let (millis, path) = path.strip_prefix('/')?.split_once("/v1/")?;
    let latency = Duration::from_millis(millis.parse().ok()?);
    let endpoint = Endpoint::ALL
        .into_iter()
        .find(|endpoint| endpoint.path().strip_prefix('/') == Some(path))?;
    (latency <= bounds::MOCK_LATENCY).then_some((endpoint, latency))
}

async fn say(
    request: Request<Incoming>,
    asked_for: Option<(Endpoint, Duration)>,
) -> Result<MockResponse, Error> {
    let (endpoint, latency) = asked_for.ok_or_else(|| Error::not_found("route"))?;
    if request.method() != Method::POST {
        return Err(Error::new(Kind::MethodNotAllowed, "Only POST is answered here."));
    }
    let body = match Limited::new(request.into_body(), bounds::MOCK_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            return Err(
                Error::new(Kind::PayloadTooLarge, "The body could not be read.").because(error)
            );
        }
    };
    let asked = request::read_request(&body, endpoint)?;
    tokio::time::sleep(latency).await;
    let refusal = |status, message, kind| refusal(Some(endpoint), status, message, kind);
    let whole = || -> Result<Bytes, Error> {
        let said = match endpoint {
            Endpoint::Embeddings => answers::embeddings(&body, &asked)?,
            Endpoint::CountTokens => serde_json::json!({ "input_tokens": asked.prompt_tokens }),
            _ => MockAnswer::to(endpoint, &body, &asked).whole(),
        };
        Ok(said.to_string().into())
    };
    Ok(match &*asked.model {
        "status-429" => {
            let mut answer = refusal(
                StatusCode::TOO_MANY_REQUESTS,
                "The mock provider is told to refuse.",
                "rate_limit_error",
            );
            answer.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
            answer
        }
        "status-500" => refusal(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The mock provider is told to fail.",
            "server_error",
        ),
        "status-503" => refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "The mock provider is told to be overloaded.",
            "server_error",
        ),
        "hang" => std::future::pending().await,
        model if asked.stream => {
            let events = events(endpoint, model, MockAnswer::to(endpoint, &body, &asked).events());
            respond(StatusCode::OK, "text/event-stream", events)
        }
        "in-band-error" => refusal(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The mock provider is told to fail.",
            "server_error",
        ),
        "cut" => broken(whole()?),
        _ => respond(StatusCode::OK, "application/json", vec![Ok(whole()?)]),
    })
}

/// The events of a stream as they are written, with the fault that the model is called after.
fn events(
    endpoint: Endpoint,
    model: &str,
    events: Vec<String>,
) -> Vec<Result<Bytes, std::io::Error>> {
    if model == "in-band-error" {
        return vec![Ok(
            answers::error_event(endpoint, "The mock provider is told to fail.").into()
        )];
    }
    let most = if model == "cut" { answers::until_first_word(endpoint) } else { events.len() };
    let mut events: Vec<_> =
        events.into_iter().take(most).map(|event| Ok(Bytes::from(event))).collect();
    if model == "cut" {
        events.push(Err(std::io::Error::other("told to break off")));
    }
    events
}

/// An answer that breaks off in its middle.
fn broken(whole: Bytes) -> MockResponse {
    let half = whole.slice(..whole.len() / 2);
    respond(
        StatusCode::OK,
        "application/json",
        vec![Ok(half), Err(std::io::Error::other("told to break off"))],
    )
}

fn refusal(
    endpoint: Option<Endpoint>,
    status: StatusCode,
    message: &str,
    kind: &str,
) -> MockResponse {
    let body: Value = answers::refusal(endpoint, status.as_u16(), message, kind);
    respond(status, "application/json", vec![Ok(body.to_string().into())])
}

fn respond(
    status: StatusCode,
    content_type: &'static str,
    parts: Vec<Result<Bytes, std::io::Error>>,
) -> MockResponse {
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
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    if let Some(length) = length {
        answer.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    answer
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use hyper::client::conn::http1;

    use serde_json::json;

    use super::super::stream::{StreamTally, StreamVerdict, assemble};
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
        let request = Request::post(path)
            .header("host", "mock")
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
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
        assert_eq!(
            (status, &whole["choices"][0]["message"]["content"]),
            (200, &json!("say héllo twice"))
        );
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
            assert!(
                serde_json::from_slice::<Value>(&body).unwrap()["error"]["message"].is_string()
            );
        }
        let (status, _, stream, broken) = post("/0/v1/chat/completions", ask("cut", true)).await;
        let mut tally = StreamTally::default();
        tally.feed(&stream);
        assert_eq!(
            (status, broken, tally.verdict(), tally.finished()),
            (200, true, StreamVerdict::Answer, false)
        );
        let (status, _, stream, _) =
            post("/0/v1/chat/completions", ask("in-band-error", true)).await;
        let mut tally = StreamTally::default();
        tally.feed(&stream);
        assert_eq!((status, tally.verdict()), (200, StreamVerdict::Error));
        assert!(post("/0/v1/chat/completions", ask("cut", false)).await.3);
        let hang = tokio::time::timeout(
            Duration::from_millis(100),
            post("/0/v1/chat/completions", ask("hang", false)),
        );
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
            assert!(
                serde_json::from_slice::<Value>(&body).unwrap()["error"]["message"].is_string()
            );
        }
    }

    /// The data of each event.
    fn data(stream: &[u8]) -> Vec<Value> {
        let text = std::str::from_utf8(stream).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    #[tokio::test]
    async fn responses_and_messages_stream_what_they_say_whole() {
        let ask = |field: &str, stream: bool| json!({ "model": "echo", field: [{"role": "user", "content": "say héllo twice"}], "max_tokens": 9, "stream": stream });
        let whole = |body: Vec<u8>| serde_json::from_slice::<Value>(&body).unwrap();
        let response = whole(post("/0/v1/responses", ask("input", false)).await.2);
        assert_eq!(response["output"][0]["content"][0]["text"], "say héllo twice");
        let events = data(&post("/0/v1/responses", ask("input", true)).await.2);
        assert!(events.iter().enumerate().all(|(n, event)| event["sequence_number"] == n));
        let said: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
        let last = events.last().unwrap();
        assert_eq!(
            (said.as_str(), &last["type"]),
            ("say héllo twice", &json!("response.completed"))
        );
        assert_eq!(
            (&last["response"]["output"][0]["content"], &last["response"]["usage"]),
            (&response["output"][0]["content"], &response["usage"])
        );

        let message = whole(post("/0/v1/messages", ask("messages", false)).await.2);
        assert_eq!(
            (&message["content"][0]["text"], &message["stop_reason"]),
            (&json!("say héllo twice"), &json!("end_turn"))
        );
        let events = data(&post("/0/v1/messages", ask("messages", true)).await.2);
        let said: String =
            events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
        assert_eq!(
            (said.as_str(), &events[0]["type"]),
            ("say héllo twice", &json!("message_start"))
        );
        assert_eq!(events[0]["message"]["usage"]["input_tokens"], message["usage"]["input_tokens"]);
        assert_eq!(
            events[events.len() - 2]["usage"]["output_tokens"],
            message["usage"]["output_tokens"]
        );
        let count = whole(post("/0/v1/messages/count_tokens", ask("messages", false)).await.2);
        assert_eq!(count["input_tokens"], message["usage"]["input_tokens"]);
        for path in ["/0/v1/responses", "/0/v1/messages"] {
            let (_, _, cut, broken) = post(path, json!({"model": "cut", "stream": true})).await;
            assert!(broken && String::from_utf8(cut).unwrap().contains("This "), "{path}");
            let (_, _, failed, _) =
                post(path, json!({"model": "in-band-error", "stream": true})).await;
            assert!(failed.starts_with(b"event: error\n"), "{path}");
        }
        let (status, _, refused, _) = post("/0/v1/messages", json!({"model": "status-429"})).await;
        assert_eq!((status, &whole(refused)["error"]["type"]), (429, &json!("rate_limit_error")));
    }

    #[tokio::test]
    async fn the_same_text_has_the_same_embedding_of_length_one() {
        let ask = |input: Value, more: Value| {
            let mut body = json!({ "model": "any", "input": input });
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            post("/0/v1/embeddings", body)
        };
        let data = |body: Vec<u8>| serde_json::from_slice::<Value>(&body).unwrap()["data"].clone();
        let two = data(ask(json!(["one", "two"]), json!({})).await.2);
        let numbers = |n: usize| {
            two[n]["embedding"]
                .as_array()
                .unwrap()
                .iter()
                .map(|x| x.as_f64().unwrap())
                .collect::<Vec<f64>>()
        };
        assert_eq!((numbers(0).len(), two[1]["index"].as_u64()), (256, Some(1)));
        assert!((numbers(0).iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-5);
        assert_ne!(numbers(0), numbers(1));
        assert_eq!(data(ask(json!("two"), json!({})).await.2)[0]["embedding"], two[1]["embedding"]);
        let packed = data(
            ask(json!([[1, 2], [3]]), json!({"encoding_format": "base64", "dimensions": 4}))
                .await
                .2,
        );
        assert_eq!(
            (packed[0]["embedding"].as_str().unwrap().len(), packed.as_array().unwrap().len()),
            (24, 2)
        );
        for (input, more) in [
            (json!([]), json!({})),
            (json!({}), json!({})),
            (json!("x"), json!({"dimensions": 0})),
            (json!("x"), json!({"dimensions": 1u64 << 40})),
        ] {
            assert_eq!(ask(input, more).await.0, 400);
        }
    }
}
