//! A day of a small team, for the pictures of the console in README and docs. If
//! `REROUTER_PICTURES` names a folder, the pictures are written to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rerouter::internals::id::{KeyId, UserId};
use rerouter::internals::store::{LatencyCounts, Store, UsageKey, UsageSums, usage_interval_start};
use serde_json::json;

use crate::support::browser::{EMAIL, account, drive};
use crate::support::documents::provider;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider, Received, Step};

/// Requests of the team, each with the number of its key.
const ASKED: [(usize, &str); 12] = [
    (0, "A customer asks how to move an invoice to another address. Write a short answer."),
    (1, "Refactor this loop so that it does not allocate: for name in names { out.push(name) }"),
    (2, "Summarise the night: 14 alerts, 2 pages, one outage of the billing service."),
    (0, "Is the refund of order 4711 on its way?"),
    (1, "Explain this stack trace: index out of bounds: the len is 3 but the index is 3"),
    (0, "Translate into German: Your parcel leaves our warehouse today."),
    (2, "Name the three slowest queries of yesterday and what they have in common."),
    (0, "A customer wants to cancel within the trial. What do we say?"),
    (1, "Write a test for a parser of durations such as 1h30m."),
    (0, "Thank a customer for a bug report, in two sentences."),
    (2, "Which of these incidents belong together? Timeouts in checkout, retries in billing."),
    (0, "How long do we keep the data of closed accounts?"),
];

const KEYS: [&str; 3] = ["support desk", "code review", "night report"];

fn document(urls: [&str; 3]) -> String {
    let names = ["openai", "anthropic", "mistral"];
    let providers: String =
        names.iter().zip(urls).map(|(name, url)| provider(name, url, "${DEMO_API_KEY}")).collect();
    format!(
        r#"providers:
{providers}models:
  openai/gpt-5: {{ input_per_mtok: 1.25, output_per_mtok: 10 }}
  anthropic/claude-sonnet-5: {{ input_per_mtok: 3, output_per_mtok: 15 }}
  mistral/mistral-small: {{ input_per_mtok: 0.1, output_per_mtok: 0.3 }}
keywords:
  code: [refactor, stack trace, parser]
recipes:
  balanced:
    rules:
      - name: code
        when: "'code' in keywords"
        targets: [ {{ target: anthropic/claude-sonnet-5 }}, {{ target: openai/gpt-5 }} ]
      - name: short
        when: "prompt_tokens < 33"
        targets: [ {{ target: mistral/mistral-small }}, {{ target: openai/gpt-5 }} ]
      - name: default
        targets: [ {{ target: openai/gpt-5 }}, {{ target: anthropic/claude-sonnet-5 }} ]
    retry: {{ attempts: 2, on: [connect, timeout, 429, 5xx] }}
aliases:
  auto: balanced
"#
    )
}

/// An answer whose length and delay depend on `number`.
fn answer(opening: &str, number: usize) -> Vec<Step> {
    let mut body = scripted::completion_body(&format!(
        "{opening} Your request is noted, and you hear from us within {} hours. Nothing else is \
         needed from you.",
        2 + number % 5
    ));
    let (prompt, completion) = (96 + number * 7 % 20, 40 + number * 31 % 160);
    body["usage"] = json!({
        "prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion,
    });
    let took = Duration::from_millis(500 + number as u64 * 137 % 900);
    later(took, scripted::json_answer(200, &body))
}

/// The same steps, with the first write delayed.
fn later(after: Duration, steps: Vec<Step>) -> Vec<Step> {
    let late = |step| match step {
        Step::Write(bytes) => Step::Later(after, bytes),
        other => other,
    };
    steps.into_iter().map(late).collect()
}

/// Three providers whose answers begin differently. The first one fails once, on the first request
/// about an outage.
async fn providers() -> [Provider; 3] {
    let is_outage = |request: &Received| request.json().to_string().contains("outage");
    let (is_full, full) = (AtomicBool::new(true), "The model is overloaded.");
    let first = Provider::start(move |request, number| {
        match is_outage(request) && is_full.swap(false, Ordering::SeqCst) {
            true => later(Duration::from_millis(400), scripted::failure(503, full)),
            false => answer("Thanks for reaching out.", number),
        }
    });
    let second = Provider::start(|_, number| answer("Here is what I would do.", number));
    let third = Provider::start(|_, number| answer("Of course.", number));
    [first.await, second.await, third.await]
}

/// Hourly usage of the two days before: quiet nights, busy afternoons, and one bad hour.
async fn fill_usage(gateway: &Gateway, keys: &[Key], users: &[String], now: Timestamp) {
    let store = Store::open(&gateway.dir().join("data")).await.unwrap();
    let ways = [
        ("openai/gpt-5", "default", 2_600, 0.001_9),
        ("anthropic/claude-sonnet-5", "code", 3_800, 0.003_4),
        ("mistral/mistral-small", "short", 700, 0.000_04),
    ];
    let mut rows = Vec::new();
    for hour in 1..48_i64 {
        let at = now - SignedDuration::from_hours(hour);
        let time = at.to_zoned(jiff::tz::TimeZone::UTC).hour();
        let busy: u64 = match time {
            0..=6 => 6,
            7..=9 | 19..=23 => 30,
            _ => 70,
        };
        for (which, (model, rule, took, cost)) in ways.iter().enumerate() {
            let requests = busy * [5, 3, 4][which] / 4 + (hour as u64 * 7 + which as u64 * 5) % 9;
            let failed = if hour == 5 && which == 0 { requests / 3 } else { 0 };
            for (key, user) in keys.iter().zip(users) {
                let requests = requests / 3;
                let (mut latencies, mut first_token) =
                    (LatencyCounts::default(), LatencyCounts::default());
                for one in 0..requests {
                    let spread = Duration::from_millis(took * (60 + one * 37 % 130) / 100);
                    latencies.add(&LatencyCounts::one(spread));
                    first_token.add(&LatencyCounts::one(spread / 4));
                }
                let key = UsageKey {
                    at: usage_interval_start(at),
                    user: UserId::known(user),
                    key: Some(KeyId::known(&key.id)),
                    model: Some((*model).into()),
                    alias: Some("auto".into()),
                    recipe: "balanced".into(),
                    rule: Some((*rule).into()),
                    replay: false,
                };
                let sums = UsageSums {
                    requests,
                    prompt_tokens: requests * 420,
                    completion_tokens: requests * 150,
                    nano: requests * (cost * 1e9) as u64,
                    priced: requests,
                    errors: failed.min(requests / 2),
                    took: latencies,
                    first_token,
                    ..UsageSums::default()
                };
                rows.push((key, sums));
            }
        }
    }
    store.write_usage(rows.clone()).await.unwrap();
    store.write_recent_usage(rows).await.unwrap();
}

#[tokio::test]
async fn a_day_can_be_looked_at() {
    let providers = providers().await;
    let urls = providers.each_ref().map(Provider::url);
    let document = document(urls.each_ref().map(String::as_str));
    let mut gateway = Setup::new(&document).env("DEMO_API_KEY", "sk-demo").start().await;
    let mut given = account(&gateway, EMAIL, "admin").await;
    let admin = gateway.admin_key.clone();
    let (mut keys, mut users) = (Vec::new(), Vec::new());
    for (name, person) in KEYS.iter().zip(["ada", "grace", "linus"]) {
        let email = format!("{person}@example.com");
        account(&gateway, &email, "user").await;
        let all = gateway.manage("GET", "/v1/users", &admin, None).await.json();
        let user = all["data"].as_array().unwrap().iter().find(|user| user["email"] == *email);
        let user = user.unwrap()["id"].as_str().unwrap().to_owned();
        let wanted = json!({"name": name, "owner": user, "limits": {"budget": {"usd": 40, "per":
            "month"}}});
        keys.push(gateway.make_key("/v1/router/keys", &admin, &wanted).await);
        users.push(user);
    }
    gateway.stop().await;
    fill_usage(&gateway, &keys, &users, Timestamp::now()).await;
    gateway.start_again().await;
    let ask = async |(key, text): (usize, &str)| {
        let body = json!({"model": "auto", "messages": [
            {"role": "system", "content": "You are brief and kind."},
            {"role": "user", "content": text}]});
        let answer = gateway.chat(&keys[key], body.to_string().as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.request_id()
    };
    // The night report went to the second provider. A replay goes to the first.
    let failed_over = ask(ASKED[2]).await;
    futures::future::join_all(ASKED.repeat(4).into_iter().map(ask)).await;
    let capture = gateway.capture(&failed_over).await;
    assert_eq!(capture["served"]["provider"], "anthropic", "{capture}");
    let path = format!("/v1/router/replay/{failed_over}/reroute");
    let again = gateway.manage("POST", &path, &admin, None).await.json();
    let again = again["new_id"].as_str().unwrap().to_owned();
    gateway.capture(&again).await;
    given["capture"] = json!(failed_over);
    given["again"] = json!(again);
    let code = "[ { target: anthropic/claude-sonnet-5 }, { target: openai/gpt-5 } ]";
    let changes =
        [("prompt_tokens < 33", "prompt_tokens < 37"), (code, "[ { target: openai/gpt-5 } ]")];
    let cheaper = changes.iter().fold(document.clone(), |text, (from, to)| {
        assert!(text.contains(from), "{text}");
        text.replace(from, to)
    });
    given["cheaper"] = json!(cheaper);
    drive("pictures", given).await;
}
