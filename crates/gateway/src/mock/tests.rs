use http_body_util::Full;
use hyper::client::conn::http1;

use serde_json::{Value, json};

use super::*;
use rerouter_dialect::recorded_answer::assemble;
use rerouter_dialect::stream::{StreamTally, StreamVerdict};

/// Returns status, headers, body and whether the body broke off. A broken body is as much as came.
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
    let messages = json!([
        {"role": "user", "content": "first"}, {"role": "assistant", "content": "x"},
        {"role": "user", "content": "say héllo twice"},
    ]);
    json!({
        "model": model, "messages": messages, "stream": stream,
        "stream_options": { "include_usage": true },
    })
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
    for field in ["/choices/0/message/content", "/choices/0/finish_reason", "/model", "/object"] {
        assert_eq!(assembled.pointer(field), whole.pointer(field), "{field}");
    }
    assert_eq!(assembled["usage"]["total_tokens"], whole["usage"]["total_tokens"]);
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
    let mut tally = StreamTally::default();
    tally.feed(&stream);
    assert_eq!(
        (status, broken, tally.verdict(), tally.finished()),
        (200, true, StreamVerdict::Answer, false)
    );
    let (status, _, stream, _) = post("/0/v1/chat/completions", ask("in-band-error", true)).await;
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
        ("/0/v1/messages", ask("echo", false), 404),
        ("/99999999/v1/chat/completions", ask("echo", false), 404),
        ("/0/v1/chat/completions", json!({}), 400),
    ] {
        let (got, _, body, _) = post(path, body).await;
        assert_eq!(got, status, "{path}");
        assert!(serde_json::from_slice::<Value>(&body).unwrap()["error"]["message"].is_string());
    }
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
        ask(json!([[1, 2], [3]]), json!({"encoding_format": "base64", "dimensions": 4})).await.2,
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
