//! Costs in evaluations equal the billed costs, for random traffic with every outcome that a
//! request can have. The gateway's clock belongs to the test, so the traffic covers days.

use std::time::Duration;

use jiff::Timestamp;
use rerouter::internals::clock::Clock;
use rerouter::internals::store::Faults;
use serde_json::{Value, json};

use crate::process::plugin::{ADMIN, Extras, Host};
use crate::support::client::{Answer, Connection, request};
use crate::support::documents::provider;
use crate::support::provider::{self as scripted, Provider, Received, Step};
use crate::support::{count, until};

/// Prices in ten-thousandths of a dollar per million tokens: input, cached input, output.
type Prices = [u64; 3];

/// Random numbers, which are the same for the same seed.
pub(super) struct Draws(pub(super) u64);

impl Draws {
    pub(super) fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % most
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[usize::try_from(self.below(words.len() as u64)).unwrap()]
    }

    /// Draws how a provider ends a request. Most ends are good.
    fn end(&mut self) -> String {
        match self.below(10) {
            0..=4 => format!(
                "usage-{}-{}-{}",
                100 + self.below(5_000),
                self.below(3_000),
                self.below(100)
            ),
            5 => "silent".to_owned(),
            6 => "cut".to_owned(),
            7 => "early".to_owned(),
            _ => format!("status-{}", self.of(&["400", "401", "404", "429", "500", "503"])),
        }
    }
}

/// A document in which `first` has the highest weight, with these prices.
fn document(url: &str, first: &str, small: Prices, large: Prices) -> String {
    let price = |[input, cached, output]: Prices| {
        let text = |price: u64| format!("{}.{:04}", price / 10_000, price % 10_000);
        format!(
            "{{ input_per_mtok: {}, cached_input_per_mtok: {}, output_per_mtok: {} }}",
            text(input),
            text(cached),
            text(output)
        )
    };
    let providers = ["a", "b", "s"].map(|name| provider(name, url, "${ANY_API_KEY}")).concat();
    let claude =
        provider("n", url, "${ANY_API_KEY}").replace("protocol: openai", "protocol: anthropic");
    let target =
        |name: &str| format!("{{ target: {name}, weight: {} }}", if name == first { 4 } else { 1 });
    let mixed = ["a/small", "b/large", "a/unpriced"].map(target).join(", ");
    format!(
        "providers:\n{providers}{claude}models:\n  a/small: {}\n  b/large: {}\n  n/claude: {}\n\
         recipes:\n  main:\n    rules:\n      \
         - {{ name: long, when: \"prompt_tokens > 180\", targets: [ {{ target: b/large }}, \
         {{ target: a/small }} ] }}\n      \
         - {{ name: default, strategy: weighted, targets: [ {mixed} ] }}\n    \
         shadow: {{ target: s/copy, percent: 20 }}\n    \
         retry: {{ attempts: 3, on: [connect, timeout, 429, 5xx], budget: 100% }}\n  claude:\n    \
         rules: [ {{ name: only, targets: [ {{ target: n/claude }}, \
         {{ target: a/unpriced }} ] }} ]\naliases: {{ auto: main, claude: claude }}\n",
        price(small),
        price(large),
        price(CLAUDE),
    )
}

const SMALL: Prices = [1_500, 375, 6_003];
const LARGE: Prices = [12_345, 12_345, 75_000];
const CLAUDE: Prices = [30_000, 3_000, 150_000];

/// The end that a request's text asks of this provider. The text begins with `a=…;b=…`.
fn end_of(text: &str, provider: &str) -> String {
    let ends = text
        .split_whitespace()
        .next()
        .unwrap()
        .split(';')
        .find_map(|end| end.strip_prefix(provider)?.strip_prefix('='));
    ends.unwrap_or("usage-7-3-0").to_owned()
}

/// The usage that a provider reports: prompt, cached, completion.
fn told(end: &str) -> Option<[u64; 3]> {
    let mut counts = end.strip_prefix("usage-")?.split('-').map(|count| count.parse().unwrap());
    let (prompt, completion, cached) = (counts.next()?, counts.next()?, counts.next()?);
    Some([prompt, cached, completion])
}

/// Answers as any of the providers, according to `model`.
fn answer(received: &Received) -> Vec<Step> {
    let body = received.json();
    if received.target.ends_with("/count_tokens") {
        return scripted::json_answer(200, &json!({ "input_tokens": 41 }));
    }
    let text =
        body["messages"][0]["content"].as_str().or(body["input"].as_str()).unwrap().to_owned();
    let end = end_of(
        &text,
        match body["model"].as_str().unwrap() {
            "small" | "unpriced" => "a",
            "large" => "b",
            "claude" => "n",
            _ => "s",
        },
    );
    let (streams, messages) = (body["stream"] == true, received.target.ends_with("/messages"));
    let usage = told(&end).map(|[prompt, cached, completion]| match messages {
        true => json!({
            "input_tokens": prompt - cached, "cache_read_input_tokens": cached,
            "output_tokens": completion
        }),
        false => json!({
            "prompt_tokens": prompt, "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": { "cached_tokens": cached },
        }),
    });
    match (end.strip_prefix("status-"), end.as_str()) {
        (Some(status), _) => scripted::failure(status.parse().unwrap(), "scripted"),
        (None, "cut") if streams => {
            let events = [scripted::role_event(), scripted::content_event("half of")];
            let chunks = events.map(|event| Step::Chunk(event.into_bytes()));
            [vec![scripted::stream_head()], chunks.to_vec(), vec![Step::Cut]].concat()
        }
        (None, "cut") => {
            vec![
                Step::Write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                content-length: 999\r\n\r\n{"
                        .to_vec(),
                ),
                Step::Cut,
            ]
        }
        // An error before any content, although the provider has counted tokens.
        (None, "early") if streams => {
            let counted = json!({
                "id": "x", "choices": [],
                "usage": { "prompt_tokens": 900, "completion_tokens": 0, "total_tokens": 900 }
            });
            let error = json!({
                "error": { "message": "overloaded", "type": "server_error", "code": 503 }
            });
            let events = [
                scripted::role_event(),
                format!("data: {counted}\n\n"),
                format!("data: {error}\n\n"),
                String::new(),
            ];
            [
                vec![scripted::stream_head()],
                events.map(|event| Step::Chunk(event.into_bytes())).to_vec(),
            ]
            .concat()
        }
        (None, "early") => vec![Step::Cut],
        (None, "hang") if streams => {
            let events = [scripted::role_event(), scripted::content_event("never whole")];
            [
                vec![scripted::stream_head()],
                events.map(|event| Step::Chunk(event.into_bytes())).to_vec(),
                vec![Step::Hang],
            ]
            .concat()
        }
        _ if streams => {
            let last = usage
                .map(|usage| {
                    format!("data: {}\n\n", json!({ "id": "x", "choices": [], "usage": usage }))
                })
                .unwrap_or_default();
            let events = [
                scripted::role_event(),
                scripted::content_event("well said"),
                last + &scripted::last_events(),
                String::new(),
            ];
            [
                vec![scripted::stream_head()],
                events.map(|event| Step::Chunk(event.into_bytes())).to_vec(),
            ]
            .concat()
        }
        _ => {
            let mut said = match messages {
                true => {
                    json!({
                        "id": "msg_1", "type": "message", "role": "assistant",
                        "content": [{ "type": "text", "text": "well" }], "stop_reason": "end_turn"
                    })
                }
                false => scripted::completion_body("well said"),
            };
            said.as_object_mut().unwrap().remove("usage");
            said.as_object_mut().unwrap().extend(usage.map(|usage| ("usage".to_owned(), usage)));
            scripted::json_answer(200, &said)
        }
    }
}

struct World {
    host: Host,
    clock: Clock,
    key: String,
    limited: String,
    draws: Draws,
    /// Ids of every request that was sent.
    ids: Vec<String>,
    replays: u64,
    // Kept so that the provider stays up.
    _provider: Provider,
    url: String,
}

impl World {
    async fn start(dir: &std::path::Path, first: &str) -> World {
        let provider = Provider::start(|received, _| answer(received)).await;
        let (clock, url) = (Clock::manual("2026-11-20T21:00:00Z".parse().unwrap()), provider.url());
        let extras = Extras {
            clock: clock.clone(),
            variables: &[("ANY_API_KEY", "k")],
            ..Extras::default()
        };
        let text = document(&url, first, SMALL, LARGE);
        let host =
            Host::start_with(dir, provider.address(), &text, Faults::default(), extras).await;
        let make = async |limits: &str| {
            let made = host
                .ask(
                    "POST",
                    "/v1/router/keys",
                    Some(ADMIN),
                    Some(&format!(
                        r#"{{"name":"x","scopes":["inference","replay"],"limits":{limits}}}"#
                    )),
                )
                .await;
            made.json()["key"].as_str().unwrap().to_owned()
        };
        let (key, limited) = (make("{}").await, make(r#"{"rpm":1}"#).await);
        let draws = Draws(count("REROUTER_SEED", 1));
        World {
            host,
            clock,
            key,
            limited,
            draws,
            ids: Vec::new(),
            replays: 0,
            _provider: provider,
            url,
        }
    }

    async fn manage(&self, method: &str, target: &str, body: Option<&Value>) -> Answer {
        self.host.ask(method, target, Some(ADMIN), body.map(Value::to_string).as_deref()).await
    }

    async fn put(&self, text: &str) {
        let (bearer, host) = (format!("Bearer {ADMIN}"), self.host.address());
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/yaml")];
        let mut connection = Connection::try_open(host).await.unwrap();
        let answer = connection
            .exchange(&request(
                "PUT",
                "/v1/router/config",
                &host.to_string(),
                &headers,
                Some(text.as_bytes()),
            ))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Sends a request, with any outcome.
    async fn ask(&mut self) {
        let (a, b, n, s) = (self.draws.end(), self.draws.end(), self.draws.end(), self.draws.end());
        let (words, streams) = (
            "word ".repeat(usize::try_from(self.draws.below(200)).unwrap()),
            self.draws.below(3) == 0,
        );
        let text = format!("a={a};b={b};n={n};s={s} {words}");
        let chat = |model: &str, streams: bool, text: &str| {
            let message = json!({ "role": "user", "content": text });
            json!({ "model": model, "stream": streams, "messages": [message] })
        };
        let (endpoint, body) = match self.draws.below(20) {
            0 => (
                "/v1/embeddings",
                json!({ "model": self.draws.of(&["a/small", "b/large"]), "input": text }),
            ),
            1 | 2 => (
                "/v1/messages",
                json!({
                    "max_tokens": 9, "model": "claude",
                    "messages": [{ "role": "user", "content": text }]
                }),
            ),
            3 | 4 => (
                "/v1/messages/count_tokens",
                json!({ "model": "claude", "messages": [{ "role": "user", "content": text }] }),
            ),
            5 | 6 => (
                "/v1/chat/completions",
                chat(self.draws.of(&["a/small", "b/large", "a/unpriced"]), streams, &text),
            ),
            7 => ("/v1/chat/completions", chat("nobody", streams, &text)),
            8 => {
                return self
                    .leave(&chat("auto", true, &format!("a=hang;b=hang;s={s} {words}")))
                    .await;
            }
            9 => {
                let answer = self
                    .host
                    .ask(
                        "POST",
                        "/v1/chat/completions",
                        Some(&self.limited),
                        Some(&chat("auto", streams, &text).to_string()),
                    )
                    .await;
                return self.ids.push(answer.request_id());
            }
            _ => ("/v1/chat/completions", chat("auto", streams, &text)),
        };
        let answer =
            self.host.ask("POST", endpoint, Some(&self.key), Some(&body.to_string())).await;
        self.ids.push(answer.request_id());
    }

    /// A client that disconnects in the middle of its answer.
    async fn leave(&mut self, body: &Value) {
        let (host, bearer) = (self.host.address(), format!("Bearer {}", self.key));
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let mut connection = Connection::try_open(host).await.unwrap();
        let request = request(
            "POST",
            "/v1/chat/completions",
            &host.to_string(),
            &headers,
            Some(body.to_string().as_bytes()),
        );
        connection.send(&request).await;
        let head = connection.head().await.unwrap();
        self.ids.push(head.request_id());
        if head.status == 200 {
            connection.piece().await;
        }
        connection.abandon();
    }

    /// Sends this many requests, minutes apart, and a few replays.
    async fn traffic(&mut self, requests: u64) {
        for _ in 0..requests {
            self.ask().await;
            if self.draws.below(20) == 0 {
                let at = usize::try_from(self.draws.below(self.ids.len() as u64)).unwrap();
                let again = self
                    .manage("POST", &format!("/v1/router/replay/{}/reroute", self.ids[at]), None)
                    .await;
                self.replays += u64::from(again.json()["new_id"].is_string());
            }
            self.clock.advance(Duration::from_secs(60 * self.draws.below(30)));
        }
    }

    /// The captures of all requests, once they exist. By then each request has been counted.
    async fn captures(&self) -> Vec<Value> {
        let mut captures = Vec::new();
        for id in &self.ids {
            let capture = until("its capture", async || {
                let found = self.manage("GET", &format!("/v1/router/replay/{id}"), None).await;
                (found.status == 200).then(|| found.json())
            });
            captures.push(capture.await);
        }
        captures
    }

    async fn usage(&self, query: &str) -> Value {
        let answer = self.manage("GET", &format!("/v1/router/usage{query}"), None).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["data"][0].clone()
    }

    async fn evaluate(&self, body: &Value) -> Value {
        let answer = self.manage("POST", "/v1/router/replay/evaluate", Some(body)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// Evaluates the live document on a span of days. With either baseline, the cost must be the
    /// billed cost in usage.
    async fn costs_what_it_cost(&self, span: Option<(&str, &str)>, captures: &[&Value]) {
        let (filter, query) = match span {
            None => (json!({}), String::new()),
            Some((since, until)) => {
                let time = |day: &str| format!("{day}T00:00:00Z");
                (
                    json!({ "since": time(since), "until": time(until) }),
                    format!("?since={since}&until={until}"),
                )
            }
        };
        let usage = self.usage(&query).await;
        let billed: u64 = captures.iter().map(|capture| nano(&capture["cost_usd"])).sum();
        assert_eq!(nano(&usage["cost_usd"]), billed, "{span:?}: {usage}");
        let estimated: u64 = captures
            .iter()
            .filter(|capture| capture["usage"]["estimated"] == true)
            .map(|capture| nano(&capture["cost_usd"]))
            .sum();
        let unpriced = captures
            .iter()
            .filter(|capture| capture["cost_usd"].is_null() && !capture["usage"].is_null())
            .count();
        let untold = captures.iter().filter(|capture| tells_no_usage(capture)).count();
        assert_eq!(usage["unpriced_requests"], unpriced, "{span:?}: {usage}");
        for baseline in ["recorded", "current"] {
            let report = self.evaluate(&json!({ "filter": filter, "baseline": baseline })).await;
            let cost = &report["cost"];
            assert_eq!(
                (&report["changed"], report["evaluated"].as_u64()),
                (&json!(0), Some(decided(captures))),
                "{report:#}"
            );
            assert_eq!(
                cost["before"].as_f64(),
                Some(usage["cost_usd"].as_f64().unwrap_or(0.0)),
                "{span:?} {baseline}: {cost} and {usage}"
            );
            assert_eq!(cost["after"], cost["before"], "{cost}");
            assert_eq!(
                (nano(&cost["estimated"]["before"]), &cost["estimated"]["after"]),
                (estimated, &cost["estimated"]["before"]),
                "{cost}"
            );
            assert_eq!(
                (&cost["unpriced"], &cost["skipped"]),
                (&json!(unpriced + untold), &json!(0.0)),
                "{cost}"
            );
        }
    }
}

fn nano(usd: &Value) -> u64 {
    (usd.as_f64().unwrap_or(0.0) * 1e9).round() as u64
}

/// Captures that have a decision, or that the document refused.
fn decided(captures: &[&Value]) -> u64 {
    let is_decided = |capture: &&&Value| {
        !capture["decision"].is_null()
            || ["target", "model"].map(Value::from).contains(&capture["refused"])
    };
    captures.iter().filter(is_decided).count() as u64
}

/// Whether a successful answer has no usage.
fn tells_no_usage(capture: &Value) -> bool {
    let good = capture["state"] == "completed" && capture["status"] == 200;
    good && capture["usage"].is_null() && capture["endpoint"] != "messages.count_tokens"
}

/// The cost of tokens at a target in nano-dollars, calculated with integers only.
fn priced(target: &str, usage: &Value, small: Prices, large: Prices) -> Option<u64> {
    let [input, cached_input, output] = match target {
        "a/small" => small,
        "b/large" => large,
        "n/claude" => CLAUDE,
        _ => return None,
    };
    let of = |name: &str| usage[name].as_u64().unwrap_or(0);
    let (prompt, cached) = (of("prompt_tokens"), of("cached_tokens"));
    Some(
        ((prompt - cached) * input + cached * cached_input + of("completion_tokens") * output)
            .div_ceil(10),
    )
}

fn target(of: &Value) -> String {
    format!("{}/{}", of["provider"].as_str().unwrap_or("-"), of["model"].as_str().unwrap_or("-"))
}

/// Asserts that a capture has the usage that its provider reported, with the prices of its time,
/// and that nothing is billed without usage.
fn check(capture: &Value, small: Prices, large: Prices) {
    let (served, usage) = (target(&capture["served"]), &capture["usage"]);
    let asked: Value = serde_json::from_str(capture["request"]["body"].as_str().unwrap()).unwrap();
    let text = asked["messages"][0]["content"].as_str().or(asked["input"].as_str()).unwrap();
    let last = capture["decision"]["attempts"].as_array().and_then(|tries| tries.last());
    let good = capture["served"].is_object() && last.is_some_and(|last| last["status"] == 200);
    if capture["endpoint"] == "messages.count_tokens" || !good {
        assert!(usage.is_null() && capture["cost_usd"].is_null(), "{capture:#}");
        return;
    }
    let end = end_of(text, served.split('/').next().unwrap());
    // If no target is left to try, an error inside the answer becomes the answer.
    let counts = if end == "early" { Some([900, 0, 0]) } else { told(&end) };
    if let Some([prompt, cached, completion]) = counts {
        let expected = [Some(prompt), Some(cached).filter(|_| end != "early"), Some(completion)];
        let found = ["prompt_tokens", "cached_tokens", "completion_tokens"]
            .map(|name| usage[name].as_u64());
        assert_eq!((found, &usage["estimated"]), (expected, &json!(false)), "{capture:#}");
    }
    assert!(usage.is_null() || usage["estimated"] == counts.is_none(), "{capture:#}");
    let expected = if usage.is_null() { None } else { priced(&served, usage, small, large) };
    assert_eq!(
        capture["cost_usd"].as_f64().map(|_| nano(&capture["cost_usd"])),
        expected,
        "{capture:#}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_evaluations_say_of_costs_is_what_was_billed() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::start(dir.path(), "a/small").await;
    let rounds = count("REROUTER_ROUNDS", 200);
    world.traffic(rounds / 2).await;
    let first = world.captures().await;
    first.iter().for_each(|capture| check(capture, SMALL, LARGE));
    world.costs_what_it_cost(None, &first.iter().collect::<Vec<_>>()).await;

    // From the next day on, another document with other prices is live.
    let noon = |at: Timestamp| at.to_string().get(..10).unwrap().to_owned();
    world.clock.advance(Duration::from_secs(86_400));
    let until_midnight = 86_400 - world.clock.now().as_second() % 86_400;
    world.clock.advance(Duration::from_secs(until_midnight.try_into().unwrap()));
    let (small, large, began) =
        ([2_001, 2_001, 9_999], [10_000, 5_000, 40_007], noon(world.clock.now()));
    world.put(&document(&world.url, "b/large", small, large)).await;
    let sent = world.ids.len();
    world.traffic(rounds / 2).await;
    world.clock.advance(Duration::from_secs(86_400));
    let captures = world.captures().await;
    captures[sent..].iter().for_each(|capture| check(capture, small, large));
    let all: Vec<&Value> = captures.iter().collect();
    world.costs_what_it_cost(Some((&began, &noon(world.clock.now()))), &all[sent..]).await;
    let ends: std::collections::BTreeSet<String> =
        all.iter().map(|capture| format!("{} {}", capture["state"], capture["status"])).collect();
    let failovers = all
        .iter()
        .filter(|capture| {
            capture["decision"]["attempts"].as_array().is_some_and(|tries| tries.len() > 1)
        })
        .count();
    assert!(
        ends.len() > 8 && failovers > all.len() / 20 && world.replays > 0,
        "a mixed run: {ends:?}, {failovers}, {}",
        world.replays
    );

    // Whatever is live now, the captures of each day cost what was billed that day.
    let mut days: Vec<&str> = all
        .iter()
        .map(|capture| capture["created_at"].as_str().unwrap().get(..10).unwrap())
        .collect();
    days.dedup();
    assert!(days.len() > 2, "{days:?}");
    let billed = async |filter: Value, query: String| {
        let (report, usage) =
            (world.evaluate(&json!({ "filter": filter })).await, world.usage(&query).await);
        assert_eq!(
            report["cost"]["before"].as_f64(),
            Some(usage["cost_usd"].as_f64().unwrap_or(0.0)),
            "{query}: {report:#} and {usage}"
        );
        nano(&report["cost"]["before"])
    };
    let mut sum = 0;
    for day in days.windows(2).chain([[*days.last().unwrap(), "2027-01-01"].as_slice()]) {
        let filter = json!({
            "since": format!("{}T00:00:00Z", day[0]), "until": format!("{}T00:00:00Z", day[1])
        });
        sum += billed(filter, format!("?since={}&until={}", day[0], day[1])).await;
    }
    assert_eq!(sum, billed(json!({}), String::new()).await);

    // Under another document, requests that move are priced by it, and others cost what they did.
    let (cheap, dear) = ([5_000, 5_000, 5_000], [77, 7, 777_777]);
    let candidate = document(&world.url, "b/large", cheap, dear)
        .replace("{ target: a/small, weight: 1 }, ", "")
        .replace(", { target: a/unpriced, weight: 1 }", "");
    let report = world.evaluate(&json!({ "document": candidate })).await;
    let expected = |is_cold: bool| -> u64 {
        all.iter()
            .filter(|capture| !capture["usage"].is_null() && capture["cost_usd"].is_number())
            .map(|capture| {
                let moved = capture["model"] == "auto"
                    && ![&capture["decision"], &capture["served"]]
                        .into_iter()
                        .any(|of| target(of) == "b/large");
                let mut usage = capture["usage"].clone();
                if is_cold {
                    usage["cached_tokens"] = Value::Null;
                }
                match moved {
                    true => priced("b/large", &usage, cheap, dear).unwrap(),
                    false => nano(&capture["cost_usd"]),
                }
            })
            .sum()
    };
    let cost = |name: &str| nano(&report["cost"][name]);
    assert_eq!((cost("after"), cost("after_warm")), (expected(false), expected(false)));
    assert_eq!(cost("after_cold"), expected(true), "{report:#}");
    assert!(cost("after_cold") > cost("after"), "{report:#}");
    assert!(report["changed"].as_u64().unwrap() > rounds / 20, "{report:#}");
    world.host.stop().await;
}
