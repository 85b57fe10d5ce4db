use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Sender, channel, sync_channel};

use http::HeaderMap;
use ureq::unversioned::resolver::DefaultResolver;

use super::*;
use crate::capture::record::Head;
use crate::telemetry::{TRACE_QUEUE, Telemetry};
use rerouter_base::clock::fixtures::at;
use rerouter_base::id::UserId;
use rerouter_base::trace_context::TraceContext;

/// A collector that sends these answers one after another, each on its own connection, and passes
/// on the requests that it gets.
fn collector(answers: Vec<String>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let (sent, received) = channel();
    std::thread::spawn(move || answers.iter().for_each(|answer| take(&listener, answer, &sent)));
    (url, received)
}

fn take(listener: &TcpListener, answer: &str, sent: &Sender<String>) {
    let (mut stream, _) = listener.accept().unwrap();
    let (mut request, mut piece) = (Vec::new(), [0; 4096]);
    let is_whole = |request: &[u8]| {
        let text = String::from_utf8_lossy(request);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
        (body.len() == length.parse::<usize>().ok()?).then_some(())
    };
    while is_whole(&request).is_none() {
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&request));
        request.extend_from_slice(&piece[..n]);
    }
    stream.write_all(answer.as_bytes()).unwrap();
    // The test may have ended.
    let _gone = sent.send(String::from_utf8(request).unwrap());
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}

fn settings(url: &str) -> OtlpSettings {
    let mut secret = HeaderValue::from_static("collector-canary");
    secret.set_sensitive(true);
    let headers = vec![(HeaderName::from_static("x-token"), secret)];
    OtlpSettings { url: url.to_owned(), headers, sample: 1.0 }
}

fn call() -> CallTrace {
    let random = Random::seeded(5);
    let id = RequestId::new(at(0), &random);
    CallTrace {
        context: Arc::new(TraceContext::of(&HeaderMap::new(), &random, 1.0)),
        head: Head::new(id, at(0), UserId::admin(), "chat.completions"),
        model: "auto".into(),
        began: Instant::now(),
        took: Duration::from_millis(3),
        steps: Vec::new(),
    }
}

fn counted(metrics: &Metrics, outcome: &str) -> u64 {
    let text = metrics.render();
    let series = format!("rerouter_spans_total{{outcome=\"{outcome}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&series)).unwrap().parse().unwrap()
}

fn exporter(url: &str) -> (Exporter, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new().unwrap());
    let resolver = DefaultResolver::default();
    (Exporter::new(&settings(url), metrics.clone(), &Random::seeded(6), resolver), metrics)
}

#[test]
fn a_batch_is_sent_again_while_the_collector_is_busy() {
    let again = "retry-after: 0\r\n";
    let (url, received) = collector(vec![
        answer("503 Busy", again, ""),
        answer("429 Slower", again, ""),
        answer("200 OK", "content-type: application/json\r\n", "{}"),
    ]);
    let (exporter, metrics) = exporter(&url);
    exporter.send(&[call(), call()]);
    let sent: Vec<String> = (0..3).map(|_| received.recv().unwrap()).collect();
    assert!(sent[0].starts_with("POST /v1/traces HTTP/1.1\r\n"), "{}", sent[0]);
    assert!(sent[0].contains("content-type: application/json\r\n"), "{}", sent[0]);
    assert!(sent[0].contains("x-token: collector-canary\r\n"), "{}", sent[0]);
    assert!(sent.iter().all(|one| one == &sent[0]), "the same batch each time");
    assert_eq!((counted(&metrics, "sent"), counted(&metrics, "dropped_unsent")), (2, 0));
}

#[test]
fn what_a_collector_refuses_is_counted_and_not_sent_again() {
    let partial = r#"{"partialSuccess":{"rejectedSpans":"1","errorMessage":"no"}}"#;
    let (url, _received) =
        collector(vec![answer("400 Bad", "", ""), answer("200 OK", "", partial)]);
    let (exporter, metrics) = exporter(&url);
    exporter.send(&[call()]);
    assert_eq!((counted(&metrics, "sent"), counted(&metrics, "dropped_unsent")), (0, 1));
    exporter.send(&[call(), call(), call()]);
    assert_eq!((counted(&metrics, "sent"), counted(&metrics, "dropped_unsent")), (2, 2));
    for (answer, refused) in [("{}", 0), (r#"{"partialSuccess":{"rejectedSpans":7}}"#, 7), ("", 0)]
    {
        assert_eq!(refused_spans(answer.as_bytes()), refused, "{answer}");
    }
}

#[test]
fn why_a_collector_is_not_reached_does_not_say_where_it_is() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (exporter, _) = exporter(&format!("http://{free}/secret-canary/v1/traces"));
    let Err(ExportError::Later(why, None)) = exporter.post(b"{}") else { panic!("it was taken") };
    assert!(!why.contains("canary") && !why.contains(&free.port().to_string()), "{why}");
}

#[test]
fn a_full_queue_drops_and_counts_and_nobody_waits() {
    // The listener accepts connections and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let metrics = Arc::new(Metrics::new().unwrap());
    let telemetry =
        Telemetry::start(&settings(&url), &metrics, &Random::seeded(7), DefaultResolver::default());
    let telemetry = telemetry.unwrap();
    let most = TRACE_QUEUE + TRACE_BATCH;
    (0..most + 100).for_each(|_| telemetry.offer(call()));
    assert!(counted(&metrics, "dropped_full") >= 100 - 1, "{}", metrics.render());
    let (began, patience) = (Instant::now(), Duration::from_millis(20));
    telemetry.flush(patience);
    assert!(began.elapsed() >= patience && began.elapsed() < TRACE_SEND_TIME);
    let off = Telemetry::off();
    off.offer(call());
    assert!(off.begin(&HeaderMap::new(), &Random::System).is_none());
}

#[test]
fn a_flush_ends_the_wait_for_a_batch() {
    let (sender, calls) = sync_channel(8);
    let (done, _flushed) = sync_channel(1);
    for message in [TraceMessage::Call(Box::new(call())), TraceMessage::Flush(done)] {
        sender.send(message).unwrap();
    }
    let began = Instant::now();
    let (batch, flushed) = gather(calls.recv().unwrap(), &calls);
    assert_eq!((batch.len(), flushed.is_some()), (1, true));
    assert!(began.elapsed() < TRACE_LINGER);
}
