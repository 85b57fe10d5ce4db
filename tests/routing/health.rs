//! What a gateway learns of its targets: breakers, cool-downs, places, keys, retry budgets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::{client::Answer, envelope, until};

/// A gateway over these providers in order; `options` are keys of the first, in YAML's flow form.
async fn over(a: &Provider, b: &Provider, options: &str) -> (Gateway, Key) {
    let document = document(a, b, options);
    let gateway = Setup::new(&document).start().await;
    let key = gateway.create_key().await;
    (gateway, key)
}

fn document(a: &Provider, b: &Provider, options: &str) -> String {
    let first = format!("base_url: {}\n", a.url());
    in_order(&[("a", &a.url()), ("b", &b.url())], "").replacen(
        &first,
        &format!("{first}    {options}\n"),
        1,
    )
}

async fn chat(gateway: &Gateway, key: &Key) -> Answer {
    gateway.chat(key, chat_body("auto", false).as_bytes()).await
}

fn served(answer: &Answer) -> (Option<&str>, Option<&str>) {
    (answer.header("x-rerouter-provider"), answer.header("x-rerouter-attempts"))
}

/// What spoke against `a` in the decision of this answer.
async fn against_a(gateway: &Gateway, answer: &Answer) -> Value {
    gateway.capture(&answer.request_id()).await["decision"]["candidates"][0]["reason"].clone()
}

#[tokio::test]
async fn a_429_benches_the_target_for_as_long_as_it_asks() {
    let limited =
        scripted::answer(429, &[("retry-after", "60"), ("retry-after-ms", "1500")], b"{}");
    let a = Provider::start(
        move |_, n| if n == 0 { limited.clone() } else { scripted::completion("from a") },
    )
    .await;
    let b = Provider::always(scripted::completion("from b")).await;
    let (gateway, key) = over(&a, &b, "max_concurrency: 100").await;
    let start = Instant::now();
    assert_eq!(served(&chat(&gateway, &key).await), (Some("b"), Some("2")));
    let second = chat(&gateway, &key).await;
    let direct = gateway.chat(&key, chat_body("a/model", false).as_bytes()).await;
    if start.elapsed() < Duration::from_millis(1_500) {
        assert_eq!((served(&second), a.count()), ((Some("b"), Some("1")), 1));
        assert_eq!(against_a(&gateway, &second).await, "cooldown");
        envelope::openai(&direct, 429, "rate_limit_error", Some("rate_limit_exceeded"));
        let wait: u64 = direct.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=2).contains(&wait), "{wait}");
    }
    until("the target to be asked again", async || {
        let answer = chat(&gateway, &key).await;
        (served(&answer) == (Some("a"), Some("1"))).then_some(())
    })
    .await;
    assert!(start.elapsed() >= Duration::from_millis(1_500), "{:?}", start.elapsed());
}

#[tokio::test]
async fn an_open_breaker_stays_open_over_a_reload() {
    let a = Provider::always(scripted::failure(500, "broken")).await;
    let b = Provider::always(scripted::completion("from b")).await;
    let options = "breaker: { consecutive: 2, open: 60s }";
    let (gateway, key) = over(&a, &b, options).await;
    for attempts in ["2", "2", "1"] {
        assert_eq!(served(&chat(&gateway, &key).await), (Some("b"), Some(attempts)));
    }
    gateway
        .write_routing(&document(&a, &b, options).replace("aliases: {", "aliases: { other: main,"))
        .await;
    let answer = chat(&gateway, &key).await;
    assert_eq!(
        (served(&answer), against_a(&gateway, &answer).await),
        ((Some("b"), Some("1")), json!("breaker_open"))
    );
    let direct = gateway.chat(&key, chat_body("a/model", false).as_bytes()).await;
    envelope::openai(&direct, 503, "server_error", Some("no_target"));
    assert_eq!(a.count(), 2);
}

#[tokio::test]
async fn half_open_lets_exactly_one_through() {
    let gate = Arc::new(Notify::new());
    let waits = [Step::Wait(gate.clone())]
        .into_iter()
        .chain(scripted::completion("from a"))
        .collect::<Vec<_>>();
    let a = Provider::start(move |_, n| match n {
        0 => scripted::failure(500, "broken"),
        1 => waits.clone(),
        _ => scripted::completion("from a"),
    })
    .await;
    let b = Provider::always(scripted::completion("from b")).await;
    let (gateway, key) = over(&a, &b, "breaker: { consecutive: 1, open: 300ms }").await;
    let gateway = Arc::new(gateway);
    let key = Arc::new(key);
    assert_eq!(served(&chat(&gateway, &key).await), (Some("b"), Some("2")));
    // Whichever of these is the probe waits; the others are answered by `b`.
    let asked = std::sync::Mutex::new(Vec::new());
    until("a probe", async || {
        let (gateway, key) = (gateway.clone(), key.clone());
        asked.lock().unwrap().push(tokio::spawn(async move { chat(&gateway, &key).await }));
        (a.count() == 2).then_some(())
    })
    .await;
    for _ in 0..5 {
        assert_eq!(served(&chat(&gateway, &key).await), (Some("b"), Some("1")));
    }
    assert_eq!(a.count(), 2, "one at a time");
    gate.notify_one();
    let mut by_a = 0;
    for task in asked.into_inner().unwrap() {
        by_a += usize::from(task.await.unwrap().header("x-rerouter-provider") == Some("a"));
    }
    assert_eq!(by_a, 1);
    assert_eq!(served(&chat(&gateway, &key).await), (Some("a"), Some("1")), "it has proved itself");
}

#[tokio::test]
async fn what_clients_ask_wrongly_opens_no_breaker() {
    let a = Provider::start(|_, n| scripted::failure([400, 404, 413, 422][n % 4], "your mistake"))
        .await;
    let b = Provider::always(scripted::completion("from b")).await;
    let (gateway, key) =
        over(&a, &b, "breaker: { consecutive: 1, error_rate: 1%, min_requests: 1 }").await;
    for number in 1..=5 {
        assert!((400..500).contains(&chat(&gateway, &key).await.status));
        assert_eq!((a.count(), b.count()), (number, 0));
    }
}

#[tokio::test]
async fn nor_does_what_a_stream_says_of_it() {
    let error = "data: {\"error\":{\"message\":\"too long\",\"code\":400}}\n\n";
    let events =
        [scripted::content_event("half").into_bytes(), error.into(), Vec::new()].map(Step::Chunk);
    let a =
        Provider::always(std::iter::once(scripted::stream_head()).chain(events).collect()).await;
    let b = Provider::always(scripted::stream("from b")).await;
    let (gateway, key) = over(&a, &b, "breaker: { consecutive: 1 }").await;
    for _ in 0..4 {
        assert!(
            gateway.chat(&key, chat_body("auto", true).as_bytes()).await.text().ends_with(error)
        );
    }
    assert_eq!((a.count(), b.count()), (4, 0));
}

#[tokio::test]
async fn a_reroute_that_fails_opens_no_breaker() {
    let a = Provider::start(|_, n| {
        if n == 0 { scripted::completion("from a") } else { scripted::failure(500, "broken") }
    })
    .await;
    let b = Provider::always(scripted::completion("from b")).await;
    let (gateway, key) = over(&a, &b, "breaker: { consecutive: 1 }").await;
    let id = chat(&gateway, &key).await.request_id();
    gateway.capture(&id).await;
    for number in 1..=3 {
        let answer = gateway.reroute(&id, &gateway.admin_key).await;
        assert_eq!((answer.status, a.count(), b.count()), (200, number + 1, number));
    }
    chat(&gateway, &key).await;
    assert_eq!(a.count(), 5, "live traffic still goes there");
}

#[tokio::test]
async fn a_provider_gets_no_more_at_once_than_it_may() {
    let gate = Arc::new(Notify::new());
    let waits = [Step::Wait(gate.clone())]
        .into_iter()
        .chain(scripted::completion("from a"))
        .collect::<Vec<_>>();
    let a = Provider::start(
        move |_, n| if n == 0 { waits.clone() } else { scripted::completion("from a") },
    )
    .await;
    let b = Provider::always(scripted::completion("from b")).await;
    let (gateway, key) = over(&a, &b, "max_concurrency: 1").await;
    let (first, ()) = tokio::join!(chat(&gateway, &key), async {
        until("the first request upstream", async || (a.count() == 1).then_some(())).await;
        let second = chat(&gateway, &key).await;
        assert_eq!(
            (served(&second), against_a(&gateway, &second).await),
            ((Some("b"), Some("1")), json!("concurrency"))
        );
        let direct = gateway.chat(&key, chat_body("a/model", false).as_bytes()).await;
        envelope::openai(&direct, 429, "rate_limit_error", Some("rate_limit_exceeded"));
        assert_eq!(direct.header("retry-after"), Some("1"));
        gate.notify_one();
    });
    assert_eq!(served(&first), (Some("a"), Some("1")));
    assert_eq!(
        served(&chat(&gateway, &key).await),
        (Some("a"), Some("1")),
        "the place is free again"
    );
}

#[tokio::test]
async fn a_place_that_is_gone_when_its_turn_comes_is_an_attempt_with_its_error() {
    let (slow, held) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let slow_failure = [Step::Wait(slow.clone())]
        .into_iter()
        .chain(scripted::failure(500, "the last words"))
        .collect::<Vec<_>>();
    let holding = [Step::Wait(held.clone())]
        .into_iter()
        .chain(scripted::completion("from b"))
        .collect::<Vec<_>>();
    let a = Provider::always(slow_failure).await;
    let b = Provider::always(holding).await;
    let text = document(&a, &b, "max_concurrency: 100");
    let second = format!("base_url: {}\n", b.url());
    let gateway =
        Setup::new(&text.replacen(&second, &format!("{second}    max_concurrency: 1\n"), 1))
            .start()
            .await;
    let key = gateway.create_key().await;
    let (answer, _) = tokio::join!(chat(&gateway, &key), async {
        until("the request at a", async || (a.count() == 1).then_some(())).await;
        let direct = chat_body("b/model", false);
        tokio::join!(gateway.chat(&key, direct.as_bytes()), async {
            until("the request at b", async || (b.count() == 1).then_some(())).await;
            slow.notify_one();
            until("the failed attempt", async || {
                (gateway.metric("rerouter_inflight", &["provider=\"a\""]).await == 0.0)
                    .then_some(())
            })
            .await;
            held.notify_one();
        })
    });
    assert_eq!((answer.status, b.count()), (500, 1), "{}", answer.text());
    assert!(answer.text().contains("the last words"));
    let capture = gateway.capture(&answer.request_id()).await;
    let errors: Vec<&Value> = capture["decision"]["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| &attempt["error"])
        .collect();
    assert_eq!(errors, ["server_error", "concurrency"]);
    assert_eq!(gateway.metric("rerouter_inflight", &[]).await, 0.0);
}

#[tokio::test]
async fn a_budget_that_is_used_up_passes_the_last_answer_on() {
    let a = Provider::always(scripted::failure(500, "the words of a")).await;
    let b = Provider::always(scripted::completion("from b")).await;
    let text = document(&a, &b, "breaker: { consecutive: 1000, min_requests: 1000 }")
        .replace("5xx] }", "5xx], budget: 10% }");
    let gateway = Setup::new(&text).start().await;
    let key = gateway.create_key().await;
    let start = Instant::now();
    let mut over = None;
    // Thirty retries in ten seconds are always there, and every request fails at `a`.
    for number in 0..60 {
        let answer = chat(&gateway, &key).await;
        if answer.status != 200 {
            over = Some((number, answer));
            break;
        }
    }
    let (number, answer) = over.expect("the budget ends");
    if start.elapsed() < Duration::from_secs(9) {
        assert_eq!(number, 30);
    }
    assert_eq!((answer.status, served(&answer)), (500, (Some("a"), Some("1"))));
    assert!(answer.text().contains("the words of a"));
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    let streamed = gateway.chat(&key, chat_body("auto", true).as_bytes()).await;
    assert_eq!((streamed.status, streamed.text()), (500, answer.text()));
    let direct = gateway.chat(&key, chat_body("b/model", false).as_bytes()).await;
    assert_eq!(direct.status, 200, "first attempts are none of its business");
}

#[tokio::test]
async fn an_error_event_without_a_budget_for_more_is_the_answer() {
    let error = "data: {\"error\":{\"message\":\"overloaded\",\"code\":503}}\n\n";
    let event = vec![scripted::stream_head(), Step::Chunk(error.into()), Step::Chunk(Vec::new())];
    let a = Provider::start(
        move |_, n| if n < 30 { scripted::failure(500, "broken") } else { event.clone() },
    )
    .await;
    let b = Provider::always(scripted::stream("from b")).await;
    let text = document(&a, &b, "breaker: { consecutive: 1000, min_requests: 1000 }")
        .replace("5xx] }", "5xx], budget: 0% }");
    let gateway = Setup::new(&text).start().await;
    let key = gateway.create_key().await;
    let start = Instant::now();
    for _ in 0..30 {
        assert_eq!(
            served(&gateway.chat(&key, chat_body("auto", true).as_bytes()).await),
            (Some("b"), Some("2"))
        );
    }
    let answer = gateway.chat(&key, chat_body("auto", true).as_bytes()).await;
    if start.elapsed() < Duration::from_secs(9) {
        assert_eq!(
            (answer.status, answer.text().as_str(), served(&answer)),
            (200, error, (Some("a"), Some("1")))
        );
    }
}

/// A provider that tells by its credential: the answer of each key, in turn.
async fn by_key(answers: &'static [(&'static str, u16)]) -> Provider {
    Provider::start(move |request, _| {
        let key = request.header("authorization").unwrap().trim_start_matches("Bearer ").to_owned();
        match answers.iter().find(|(known, _)| *known == key).map(|(_, status)| *status) {
            Some(200) => scripted::completion(&key),
            Some(429) => scripted::answer(429, &[("retry-after", "60")], b"{}"),
            Some(status) => scripted::failure(status, "no"),
            None => panic!("an unknown key {key}"),
        }
    })
    .await
}

fn keys_of(provider: &Provider) -> Vec<String> {
    (0..provider.count())
        .map(|n| {
            provider
                .request(n)
                .header("authorization")
                .unwrap()
                .trim_start_matches("Bearer ")
                .to_owned()
        })
        .collect()
}

/// A document whose provider `a` has these keys.
fn keyed(a: &Provider, b: &Provider, keys: &str) -> String {
    let only = "    api_key: \"${UPSTREAM_API_KEY:-sk-upstream}\"\n";
    document(a, b, &format!("api_keys: [{keys}]")).replacen(only, "", 1)
}

async fn with_keys(a: &Provider, b: &Provider, keys: &str) -> (Gateway, Key) {
    let gateway = Setup::new(&keyed(a, b, keys)).env("SECOND_API_KEY", "sk-second").start().await;
    let key = gateway.create_key().await;
    (gateway, key)
}

#[tokio::test]
async fn several_keys_take_turns() {
    let a = by_key(&[("sk-first", 200), ("sk-second", 200)]).await;
    let b = Provider::always(scripted::completion("from b")).await;
    let (gateway, key) = with_keys(&a, &b, "sk-first, \"${SECOND_API_KEY}\"").await;
    for _ in 0..4 {
        assert_eq!(served(&chat(&gateway, &key).await), (Some("a"), Some("1")));
    }
    assert_eq!(keys_of(&a), ["sk-first", "sk-second", "sk-first", "sk-second"]);
}

#[tokio::test]
async fn a_limited_or_refused_key_gives_way_to_the_next_and_rests() {
    for status in [429, 401] {
        let answers: &[(&str, u16)] = if status == 429 {
            &[("sk-x", 429), ("sk-y", 200)]
        } else {
            &[("sk-x", 401), ("sk-y", 200)]
        };
        let a = by_key(Box::leak(answers.to_vec().into_boxed_slice())).await;
        let b = Provider::always(scripted::completion("from b")).await;
        let (gateway, key) = with_keys(&a, &b, "sk-x, sk-y").await;
        for attempts in ["2", "1", "1", "1"] {
            assert_eq!(
                served(&chat(&gateway, &key).await),
                (Some("a"), Some(attempts)),
                "{status}"
            );
        }
        assert_eq!(keys_of(&a), ["sk-x", "sk-y", "sk-y", "sk-y", "sk-y"]);
        assert_eq!(b.count(), 0);
    }
}

#[tokio::test]
async fn when_every_key_rests_so_does_the_target() {
    let a = by_key(&[("sk-x", 429), ("sk-y", 429)]).await;
    let b = Provider::always(scripted::completion("from b")).await;
    let (gateway, key) = with_keys(&a, &b, "sk-x, sk-y").await;
    let text = keyed(&a, &b, "sk-x, sk-y").replace("attempts: 2", "attempts: 3");
    gateway.write_routing(&text).await;
    assert_eq!(served(&chat(&gateway, &key).await), (Some("b"), Some("3")));
    let next = chat(&gateway, &key).await;
    assert_eq!(
        (served(&next), against_a(&gateway, &next).await),
        ((Some("b"), Some("1")), json!("cooldown"))
    );
    let log = gateway.log();
    assert!(!log.contains("sk-x") && !log.contains("sk-y"));
}

/// What a moderation refuses with 403 says nothing of the keys.
#[tokio::test]
async fn a_request_that_every_key_is_refused_for_leaves_the_target_to_others() {
    let a = Provider::start(|request, _| {
        match String::from_utf8_lossy(&request.body).contains("flagged") {
            true => scripted::failure(403, "flagged by moderation"),
            false => scripted::completion("from a"),
        }
    })
    .await;
    let b = Provider::always(scripted::failure(500, "broken")).await;
    let (gateway, key) = with_keys(&a, &b, "sk-x, sk-y").await;
    assert_eq!(served(&chat(&gateway, &key).await), (Some("a"), Some("1")));
    let flagged = chat_body("auto", false).replace("\"content\":\"", "\"content\":\"flagged ");
    assert_eq!(gateway.chat(&key, flagged.as_bytes()).await.status, 502);
    for _ in 0..3 {
        assert_eq!(served(&chat(&gateway, &key).await), (Some("a"), Some("1")));
    }
}

/// The limited key comes back, whatever the refused one says.
#[tokio::test]
async fn a_refused_key_beside_a_limited_one_opens_no_breaker() {
    let a = Provider::start(|request, _| {
        match request.header("authorization").as_deref() == Some("Bearer sk-x") {
            true => scripted::answer(429, &[("retry-after", "2")], b"{}"),
            false => scripted::failure(401, "no"),
        }
    })
    .await;
    let b = Provider::always(scripted::completion("from b")).await;
    let (gateway, key) = with_keys(&a, &b, "sk-x, sk-y").await;
    for _ in 0..8 {
        chat(&gateway, &key).await;
    }
    assert!(a.count() <= 4 && !gateway.log().contains("the breaker of"), "{}", gateway.log());
}

/// A limit that is over before the other key was asked.
#[tokio::test]
async fn no_key_is_asked_twice_for_a_request() {
    let limited = scripted::answer(429, &[("retry-after", "0")], b"{}");
    let a = Provider::always(limited).await;
    let b = Provider::always(scripted::completion("from b")).await;
    let (gateway, key) = with_keys(&a, &b, "sk-x, sk-y").await;
    let text = keyed(&a, &b, "sk-x, sk-y").replace("attempts: 2", "attempts: 3");
    gateway.write_routing(&text).await;
    assert_eq!(served(&chat(&gateway, &key).await), (Some("b"), Some("3")));
    assert_eq!(keys_of(&a), ["sk-x", "sk-y"]);
}

/// Whatever requests met at the address or with the key before says nothing of those after.
#[tokio::test]
async fn another_address_or_key_of_a_provider_starts_afresh() {
    let a = by_key(&[("sk-x", 429), ("sk-y", 200)]).await;
    let elsewhere = by_key(&[("sk-x", 200)]).await;
    let b = Provider::always(scripted::completion("from b")).await;
    let text = document(&a, &b, "api_key: sk-x").replacen(
        "    api_key: \"${UPSTREAM_API_KEY:-sk-upstream}\"\n",
        "",
        1,
    );
    let gateway = Setup::new(&text).start().await;
    let key = gateway.create_key().await;
    assert_eq!(served(&chat(&gateway, &key).await), (Some("b"), Some("2")));
    for other in [
        text.replace(&a.url(), &elsewhere.url()),
        text.replace("api_key: sk-x", "api_key: sk-y"),
        text.replace("api_key: sk-x", "headers: { authorization: \"Bearer sk-y\" }"),
    ] {
        let limited = chat(&gateway, &key).await;
        assert_eq!(
            (served(&limited), against_a(&gateway, &limited).await),
            ((Some("b"), Some("1")), json!("cooldown"))
        );
        gateway.write_routing(&other).await;
        assert_eq!(served(&chat(&gateway, &key).await), (Some("a"), Some("1")));
        gateway.write_routing(&text).await;
        assert_eq!(
            served(&chat(&gateway, &key).await),
            (Some("b"), Some("2")),
            "it has been left, and is asked anew"
        );
    }
}

#[tokio::test]
async fn a_reroute_that_is_limited_keeps_no_live_request_out() {
    let limited = scripted::answer(429, &[("retry-after", "60")], b"{}");
    let unavailable = scripted::answer(503, &[("retry-after", "60")], b"{}");
    let a = Provider::start(move |_, n| match n {
        1 => limited.clone(),
        3 => unavailable.clone(),
        _ => scripted::completion("from a"),
    })
    .await;
    let b = Provider::always(scripted::completion("from b")).await;
    let (gateway, key) = over(&a, &b, "breaker: { consecutive: 1 }").await;
    let id = chat(&gateway, &key).await.request_id();
    gateway.capture(&id).await;
    for asked in [2, 4] {
        let answer = gateway.reroute(&id, &gateway.admin_key).await;
        assert_eq!(
            (answer.status, &answer.json()["decision"]["attempts"][1]["provider"], a.count()),
            (200, &json!("b"), asked)
        );
        assert_eq!(served(&chat(&gateway, &key).await), (Some("a"), Some("1")));
    }
}

#[tokio::test]
async fn a_change_of_a_breaker_is_logged_once() {
    let a = Provider::start(|_, n| {
        if n < 3 { scripted::failure(500, "broken") } else { scripted::completion("from a") }
    })
    .await;
    let b = Provider::always(scripted::completion("from b")).await;
    let (gateway, key) = over(&a, &b, "breaker: { consecutive: 2, open: 300ms }").await;
    until("the target to answer again", async || {
        let answer = chat(&gateway, &key).await;
        (served(&answer) == (Some("a"), Some("1"))).then_some(())
    })
    .await;
    for _ in 0..5 {
        assert_eq!(served(&chat(&gateway, &key).await), (Some("a"), Some("1")));
    }
    let log = gateway.log();
    let told: Vec<&str> = log
        .lines()
        .filter_map(|line| line.split("the breaker of a/model is ").nth(1)?.split('"').next())
        .collect();
    let expected = [
        "open for 300ms: 2 errors in a row, the last: server_error",
        "half-open: one request probes it",
        "open for 600ms: its probe failed: server_error",
        "half-open: one request probes it",
        "closed: it answers again",
    ];
    assert_eq!(told, expected);
}
