//! Sixteen ways in which providers fail, after Failover Bench (S01 to S16). Right means each time:
//! no content twice, no clean end of a truncated answer, the usage of who served, and a status that
//! says what happened.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::client::Answer;
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::{full, until};

/// How long a provider may be silent here.
const SHORT: Duration = Duration::from_secs(1);

/// A time as it is here; in the larger tier as long as such times are in service, thirty times
/// that.
fn real(time: Duration) -> Duration {
    if full() { time * 30 } else { time }
}

/// [`real`] as a document spells it.
fn spell(time: Duration) -> String {
    format!("{}ms", real(time).as_millis())
}

/// A request that a provider has had for long may have been billed.
#[tokio::test]
async fn a_provider_that_closes_a_reused_connection_late_is_not_asked_again() {
    let provider = Provider::start(|_, number| match number {
        0 => scripted::completion("well"),
        1 => vec![Step::Later(Duration::from_millis(1_100), Vec::new()), Step::Cut],
        _ => scripted::completion("again"),
    })
    .await;
    let gateway = Setup::new(&in_order(&[("a", &provider.url())], "")).start().await;
    let key = gateway.create_key().await;
    let ask = async || gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    assert_eq!(ask().await.status, 200);
    let answer = ask().await;
    assert_eq!((answer.status, provider.count()), (502, 2), "{}", answer.text());
    assert_eq!(ask().await.status, 200);
}

/// Two providers in order behind a gateway; the second speaks of `b` and has usage of its own.
struct Bench {
    gateway: Gateway,
    key: Key,
    a: Provider,
    b: Provider,
}

/// A stream of `count` tokens with its usage at the end.
fn tokens(who: &str, count: usize) -> Vec<Step> {
    let events = (0..count).map(|n| scripted::content_event(&format!("{who}{n} ")));
    let usage = json!({
        "choices": [], "usage": {
            "prompt_tokens": 11, "completion_tokens": count, "total_tokens": 11 + count
        }
    });
    let end =
        scripted::last_events().replace("data: [DONE]", &format!("data: {usage}\n\ndata: [DONE]"));
    let chunks = std::iter::once(scripted::role_event())
        .chain(events)
        .chain([end])
        .map(|event| Step::Chunk(event.into_bytes()));
    std::iter::once(scripted::stream_head())
        .chain(chunks)
        .chain([Step::Chunk(Vec::new())])
        .collect()
}

/// What a client reads of it.
fn text_of(steps: &[Step]) -> String {
    let bytes = steps.iter().filter_map(|step| {
        if let Step::Chunk(bytes) = step { Some(bytes.as_slice()) } else { None }
    });
    String::from_utf8(bytes.collect::<Vec<_>>().concat()).unwrap()
}

/// The first `count` tokens of forty and no more.
fn cut_after(count: usize, then: Step) -> Vec<Step> {
    tokens("a", 40).into_iter().take(2 + count).chain([then]).collect()
}

impl Bench {
    /// `first` answers the requests at the first provider by number; deadlines are short.
    async fn start(first: impl Fn(usize) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let a = Provider::start(move |_, n| first(n)).await;
        Bench::of(
            a,
            Provider::start(|request, _| answer_of_b(request.json()["stream"] == true)).await,
        )
        .await
    }

    async fn of(a: Provider, b: Provider) -> Self {
        let document = in_order(&[("a", &a.url()), ("b", &b.url())], "");
        let (short, total) = (spell(SHORT), spell(SHORT * 10));
        let document = document.replace(
            "first_byte: 20s, idle: 20s, total: 60s",
            &format!("first_byte: {short}, idle: {short}, total: {total}"),
        );
        let gateway = Setup::new(&document.replace("connect: 2s", "connect: 1s")).start().await;
        let key = gateway.create_key().await;
        Bench { gateway, key, a, b }
    }

    async fn chat(&self, stream: bool) -> Answer {
        self.gateway.chat(&self.key, chat_body("auto", stream).as_bytes()).await
    }

    /// The first provider fails with `error`, before content: both kinds of request are answered by
    /// the second, once.
    async fn second_serves(&self, error: &str) {
        for stream in [false, true] {
            let asked = (self.a.count(), self.b.count());
            let answer = self.chat(stream).await;
            assert_eq!((answer.status, answer.whole), (200, true), "{}", answer.text());
            assert_eq!(answer.header("x-rerouter-provider"), Some("b"));
            let wanted =
                if stream { text_of(&answer_of_b(true)) } else { completion_of_b().to_string() };
            assert_eq!(answer.text(), wanted, "whole, once, and nothing of the first");
            assert_eq!((self.a.count(), self.b.count()), (asked.0 + 1, asked.1 + 1));
            self.served_by_b(&answer, error).await;
        }
    }

    /// The capture of an answer of the second provider: its usage only, and the first's failure as
    /// an attempt.
    async fn served_by_b(&self, answer: &Answer, error: &str) {
        let capture = self.gateway.capture(&answer.request_id()).await;
        assert_eq!(
            (&capture["state"], &capture["served"]["provider"]),
            (&json!("completed"), &json!("b"))
        );
        assert_eq!(
            (&capture["usage"]["prompt_tokens"], &capture["usage"]["completion_tokens"]),
            (&json!(11), &json!(5)),
            "{capture}"
        );
        assert_eq!(capture["usage"]["estimated"], false);
        let decision = &capture["decision"];
        assert_eq!(decision["provider"], "a", "the decision is not overwritten: {capture}");
        let attempts: Vec<_> = decision["attempts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|attempt| (&attempt["provider"], &attempt["error"]))
            .collect();
        let wanted = [(&json!("a"), &json!(error)), (&json!("b"), &Value::Null)];
        assert_eq!(attempts, wanted, "{capture}");
        let named = ["model", "attempts"].map(|n| answer.header(&format!("x-rerouter-{n}")));
        assert_eq!(named, [Some("model"), Some("2")]);
    }

    /// The first provider's stream breaks after content: what came stays, an error event follows,
    /// no `[DONE]`, no second.
    async fn says_that_it_broke(&self, shown: &str, error: &str) {
        let answer = self.chat(true).await;
        assert_eq!((answer.status, answer.whole), (200, true), "the body ends as its framing says");
        let text = answer.text();
        let rest =
            text.strip_prefix(shown).unwrap_or_else(|| panic!("what came is changed: {text}"));
        let event: Value = serde_json::from_str(
            rest.trim().strip_prefix("data: ").unwrap_or_else(|| panic!("{rest}")),
        )
        .unwrap();
        assert!(
            event["error"]["message"].is_string() && event["error"]["type"].is_string(),
            "{event}"
        );
        assert!(!text.contains("[DONE]"), "{event}");
        assert_eq!(self.b.count(), 0, "content would come twice");
        let capture = self.gateway.capture(&answer.request_id()).await;
        let told = (
            &capture["state"],
            &capture["served"]["provider"],
            &capture["decision"]["attempts"][0]["error"],
        );
        assert_eq!(told, (&json!("failed"), &json!("a"), &json!(error)));
    }
}

fn completion_of_b() -> Value {
    let mut body = scripted::completion_body("from b");
    body["usage"] = json!({"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16});
    body
}

fn answer_of_b(stream: bool) -> Vec<Step> {
    if stream { tokens("b", 5) } else { scripted::json_answer(200, &completion_of_b()) }
}

fn limited(retry_after: &str) -> Vec<Step> {
    scripted::answer(
        429,
        &[("retry-after", retry_after), ("content-type", "application/json")],
        b"{\"error\":{\"message\":\"slow down\"}}",
    )
}

#[tokio::test]
async fn s01_a_429_once() {
    let bench = Bench::start(|n| if n == 0 { limited("1") } else { answer_of_b(false) }).await;
    let answer = bench.chat(false).await;
    assert_eq!((answer.status, answer.header("x-rerouter-provider")), (200, Some("b")));
    bench.served_by_b(&answer, "rate_limited").await;
    let body = completion_of_b().to_string();
    assert_eq!((answer.text(), bench.b.count()), (body, 1), "once");
    until("the first provider, once it may be asked again", async || {
        let answer = bench.chat(false).await;
        assert_eq!(answer.status, 200);
        (answer.header("x-rerouter-provider") == Some("a")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn s02_a_429_for_good() {
    let bench = Bench::start(|_| limited("60")).await;
    for attempts in ["2", "1", "1", "1"] {
        let answer = bench.chat(true).await;
        assert_eq!((answer.status, answer.header("x-rerouter-attempts")), (200, Some(attempts)));
        assert_eq!(answer.text(), text_of(&answer_of_b(true)));
    }
    assert_eq!(bench.a.count(), 1, "it is left alone for as long as it asks");
    // Where both are limited, the client learns when to come back.
    let both =
        Bench::of(Provider::always(limited("60")).await, Provider::always(limited("30")).await)
            .await;
    let last = both.chat(false).await;
    assert_eq!(
        (last.status, last.header("retry-after"), last.header("x-should-retry")),
        (429, Some("30"), Some("false"))
    );
    let next = both.chat(false).await;
    let wait: u64 = next.header("retry-after").unwrap().parse().unwrap();
    assert!(next.status == 429 && (20..=30).contains(&wait), "the soonest of the two: {wait}");
    assert_eq!((both.a.count(), both.b.count()), (1, 1));
}

#[tokio::test]
async fn s03_a_500_once() {
    let bench = Bench::start(|n| {
        if n == 0 { scripted::failure(500, "once") } else { scripted::completion("from a") }
    })
    .await;
    let answer = bench.chat(false).await;
    bench.served_by_b(&answer, "server_error").await;
    assert_eq!(
        bench.chat(false).await.header("x-rerouter-provider"),
        Some("a"),
        "one error is no reason to stay away"
    );
}

#[tokio::test]
async fn s04_a_503_for_good() {
    let bench = Bench::start(|_| scripted::failure(503, "overloaded")).await;
    bench.second_serves("server_error").await;
    for _ in 0..6 {
        assert_eq!(bench.chat(true).await.text(), text_of(&answer_of_b(true)));
    }
    assert_eq!(bench.a.count(), 5, "after that the breaker is open");
}

#[tokio::test]
async fn s05_a_reset_before_the_head() {
    Bench::start(|_| vec![Step::Cut]).await.second_serves("cut").await;
    Bench::start(|_| vec![Step::Reset]).await.second_serves("cut").await;
    // Another protocol is no answer.
    let switch = b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nraw";
    let switch = vec![Step::Write(switch.to_vec()), Step::Hang];
    Bench::start(move |_| switch.clone()).await.second_serves("cut").await;
}

#[tokio::test]
async fn s06_no_response() {
    let bench = Bench::start(|_| vec![Step::Hang]).await;
    let start = Instant::now();
    bench.second_serves("timeout").await;
    // Two requests wait for it.
    assert!(
        start.elapsed() < real(SHORT) * 2 + Duration::from_secs(10),
        "the first is waited for as long as its timeouts say: {:?}",
        start.elapsed()
    );
    bench.a.abandoned(0).await;
}

#[tokio::test]
async fn s07_a_first_token_that_is_long_in_coming() {
    // A head, a role and comments in time, but no content: none of these is an answer.
    let late = |who: &str| {
        let mut steps = tokens(who, 3);
        let comment = format!("{:x}\r\n: still here\n\n\r\n", ": still here\n\n".len());
        steps.splice(
            2..2,
            [(); 8].map(|()| {
                Step::Later(real(Duration::from_millis(400)), comment.clone().into_bytes())
            }),
        );
        steps
    };
    let steps = late("a");
    let bench = Bench::start(move |_| steps.clone()).await;
    let answer = bench.chat(true).await;
    assert_eq!(answer.text(), text_of(&answer_of_b(true)));
    bench.served_by_b(&answer, "timeout").await;
}

#[tokio::test]
async fn a_break_before_content() {
    let (half, role) = (scripted::content_event("lost"), scripted::role_event());
    let half = half[..half.len() - 2].to_owned();
    let overloaded =
        "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\",\"code\":503}}\n\n";
    for (events, end, error) in [
        (vec![": ping\n\n", &role, overloaded, ""], None, "in_band_error"),
        (vec![&role], Some(Step::Cut), "cut"),
        // An event is content only when it is whole.
        (vec![&role, &half], Some(Step::Cut), "cut"),
    ] {
        let events = events.into_iter().map(|event| Step::Chunk(event.as_bytes().to_vec()));
        let steps: Vec<Step> =
            std::iter::once(scripted::stream_head()).chain(events).chain(end).collect();
        let bench = Bench::start(move |_| steps.clone()).await;
        let answer = bench.chat(true).await;
        assert_eq!(answer.text(), text_of(&answer_of_b(true)));
        bench.served_by_b(&answer, error).await;
    }
}

#[tokio::test]
async fn a_refusal_of_our_credential() {
    let bench = Bench::start(|_| scripted::failure(401, "bad key")).await;
    bench.second_serves("unauthorized").await;
}

#[tokio::test]
async fn s08_a_cut_after_forty_tokens() {
    let bench = Bench::start(|_| cut_after(38, Step::Cut)).await;
    bench.says_that_it_broke(&text_of(&cut_after(38, Step::Cut)), "cut").await;
    let bench = Bench::start(|_| cut_after(38, Step::Reset)).await;
    // What a reset destroys on its way is lost; what came is not changed, and the end is no clean
    // one.
    let answer = bench.chat(true).await;
    assert!(
        !answer.text().contains("[DONE]")
            && (answer.header("x-rerouter-provider") == Some("b")
                || answer.text().contains("\"error\""))
    );
}

#[tokio::test]
async fn s09_a_stall_between_tokens() {
    let bench = Bench::start(|_| cut_after(10, Step::Hang)).await;
    bench.says_that_it_broke(&text_of(&cut_after(10, Step::Hang)), "timeout").await;
    bench.a.abandoned(0).await;
}

#[tokio::test]
async fn s10_a_malformed_chunk() {
    // Before content the framing is broken: another provider answers.
    let broken =
        || vec![scripted::stream_head(), Step::Write(b"zz\r\nnot a chunk\r\n".to_vec()), Step::Cut];
    let bench = Bench::start(move |_| broken()).await;
    let answer = bench.chat(true).await;
    assert_eq!(answer.text(), text_of(&answer_of_b(true)));
    bench.served_by_b(&answer, "cut").await;
    // After content it is a cut.
    let bench =
        Bench::start(|_| cut_after(5, Step::Write(b"zz\r\nnot a chunk\r\n".to_vec()))).await;
    bench.says_that_it_broke(&text_of(&cut_after(5, Step::Cut)), "cut").await;
    // An event that is no JSON, in good framing, is the provider's word: it goes through, and the
    // stream with it.
    let mut steps = tokens("a", 5);
    steps.insert(4, Step::Chunk(b"data: {\"choices\":[{\"delta\":\n\n".to_vec()));
    let wanted = text_of(&steps);
    let bench = Bench::start(move |_| steps.clone()).await;
    assert_eq!(bench.chat(true).await.text(), wanted);
}

#[tokio::test]
async fn s11_no_done() {
    // Neither a finish nor `[DONE]`: it was cut, however properly the body ends.
    let ended = || cut_after(6, Step::Chunk(Vec::new()));
    let bench = Bench::start(move |_| ended()).await;
    bench.says_that_it_broke(&text_of(&ended()), "cut").await;
}

#[tokio::test]
async fn s12_a_400_of_context_length() {
    let words = json!({
        "error": {
            "message": "too long", "type": "invalid_request_error", "param": "messages",
            "code": "context_length_exceeded"
        }
    });
    passes_as_it_is(400, &words.to_string()).await;
}

#[tokio::test]
async fn s13_a_400_of_a_content_filter() {
    let words = json!({
        "error": {"message": "filtered", "type": null, "param": "prompt", "code": "content_filter"}
    });
    passes_as_it_is(400, &words.to_string()).await;
}

#[tokio::test]
async fn other_refusals_are_the_clients_too() {
    for status in [400, 404, 413, 422] {
        passes_as_it_is(status, "{ \"error\" : {\"message\":\"no such thing\"} }\n").await;
    }
}

/// A refusal of what the client asked: its status and bytes, no second provider, nothing held
/// against the first.
async fn passes_as_it_is(status: u16, words: &str) {
    let said = scripted::answer(status, &[("content-type", "application/json")], words.as_bytes());
    let bench = Bench::start(move |_| said.clone()).await;
    for stream in [false, true].repeat(4) {
        let answer = bench.chat(stream).await;
        assert_eq!((answer.status, answer.text().as_str()), (status, words));
        assert_eq!(answer.header("x-rerouter-attempts"), Some("1"));
    }
    assert_eq!((bench.a.count(), bench.b.count()), (8, 0));
}

#[tokio::test]
async fn s14_a_cut_when_the_second_would_not_go_on_from_there() {
    // Nobody is asked to continue half an answer: the second sees no request, with a prefill or
    // without.
    let bench = Bench::of(
        Provider::always(cut_after(12, Step::Cut)).await,
        Provider::start(|request, _| {
            let last = request.json()["messages"]
                .as_array()
                .and_then(|messages| messages.last().cloned())
                .unwrap_or_default();
            if last["role"] == "assistant" {
                scripted::failure(400, "no prefill")
            } else {
                answer_of_b(true)
            }
        })
        .await,
    )
    .await;
    bench.says_that_it_broke(&text_of(&cut_after(12, Step::Cut)), "cut").await;
}

#[tokio::test]
async fn s15_a_provider_that_comes_and_goes() {
    let a = Provider::start(|_, n| {
        if n / 6 % 2 == 0 { scripted::failure(500, "gone") } else { scripted::completion("from a") }
    })
    .await;
    let b = Provider::start(|_, _| answer_of_b(false)).await;
    let document = in_order(&[("a", &a.url()), ("b", &b.url())], "");
    let options =
        format!("    breaker: {{ consecutive: 3, open: {} }}\n", spell(Duration::from_millis(100)));
    let gateway = Arc::new(
        Setup::new(&document.replacen(
            "protocol: openai\n",
            &format!("protocol: openai\n{options}"),
            1,
        ))
        .start()
        .await,
    );
    let key = gateway.create_key().await;
    let (mut answered, mut by_a) = (0, 0);
    let start = Instant::now();
    // Until it has been down, up, and down again.
    while a.count() < 14 {
        assert!(
            start.elapsed() < real(Duration::from_secs(20)),
            "{} requests at the first",
            a.count()
        );
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        assert_eq!((answer.status, answer.whole), (200, true), "no client notices");
        answered += 1;
        by_a += usize::from(answer.header("x-rerouter-provider") == Some("a"));
    }
    assert_eq!((by_a, b.count()), (6, answered - 6), "each request is served once");
    assert!(answered > 14, "while it is down it is mostly left alone");
}

#[tokio::test]
async fn s16_the_usage_of_who_served() {
    // The first says usage in an answer that fails: in a stream before its error, and in the body
    // of a 500.
    let usage = json!({"prompt_tokens": 900, "completion_tokens": 900, "total_tokens": 1800});
    let in_band = [
        Step::Chunk(format!("data: {}\n\n", json!({"choices": [], "usage": usage})).into_bytes()),
        Step::Chunk(b"data: {\"error\":{\"message\":\"overloaded\"}}\n\n".to_vec()),
        Step::Chunk(Vec::new()),
    ];
    let streamed: Vec<Step> = std::iter::once(scripted::stream_head()).chain(in_band).collect();
    let bench = Bench::start(move |n| match n {
        0 => scripted::json_answer(500, &json!({"error": {"message": "x"}, "usage": usage})),
        _ => streamed.clone(),
    })
    .await;
    for (stream, error) in [(false, "server_error"), (true, "in_band_error")] {
        bench.served_by_b(&bench.chat(stream).await, error).await;
    }
    let tokens = async |provider: &str| {
        bench
            .gateway
            .metric(
                "rerouter_tokens_total",
                &[&format!("provider=\"{provider}\""), "kind=\"completion\""],
            )
            .await
    };
    assert_eq!((tokens("a").await, tokens("b").await), (0.0, 10.0));
}
