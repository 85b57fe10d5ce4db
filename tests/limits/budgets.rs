//! Limits explain themselves: the text of refusals, the remaining amounts in headers and keys,
//! first requests on small budgets, and refusals that cost nothing.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::client::Answer;
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::{envelope, until};

const KEYS: &str = "/v1/router/keys";
/// A token of an answer costs a hundredth of a cent, and a token of a prompt a tenth of that. The
/// scripted answer of 7 and 3 tokens costs 0.00037 USD. An answer of 1,024 tokens would cost more
/// than 0.1 USD.
const PRICED: &str = "models:\n  a/model: { input_per_mtok: 10, output_per_mtok: 100 }\n";
const COST: f64 = 0.000_37;
/// A request without `max_tokens`.
const OPEN: &[u8] = br#"{"model":"auto","messages":[{"role":"user","content":"Say a word."}]}"#;
/// A request that reserves its prompt and three tokens.
const SHORT: &[u8] =
    br#"{"model":"auto","messages":[{"role":"user","content":"Say a word."}],"max_tokens":3}"#;
/// A request that reserves its prompt and 0.1 USD for the answer.
const LONG: &[u8] =
    br#"{"model":"auto","messages":[{"role":"user","content":"Say a word."}],"max_tokens":1000}"#;

async fn over(provider: &Provider) -> Gateway {
    Gateway::start(&in_order(&[("a", &provider.url())], PRICED)).await
}

async fn key(gateway: &Gateway, maker: &str, body: Value) -> Key {
    gateway.make_key(KEYS, maker, &body).await
}

/// The usage in the key's record.
async fn usage(gateway: &Gateway, key: &Key) -> Value {
    let shown =
        gateway.manage("GET", &format!("{KEYS}/{}", key.id), &gateway.admin_key, None).await;
    assert_eq!(shown.status, 200, "{}", shown.text());
    shown.json()["usage"].clone()
}

fn message(answer: &Answer) -> String {
    answer.json()["error"]["message"]
        .as_str()
        .unwrap_or_else(|| panic!("{}", answer.text()))
        .to_owned()
}

/// The number in a header, without its unit.
fn number(answer: &Answer, name: &str) -> f64 {
    let text = answer.header(name).unwrap_or_else(|| panic!("no {name}: {answer:?}"));
    text.parse().unwrap_or_else(|_| panic!("{name}: {text}"))
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

/// The number before these words in a message.
fn sum_before(text: &str, words: &str) -> f64 {
    let before = text.split(words).next().filter(|before| before.len() < text.len());
    let before = before.unwrap_or_else(|| panic!("no {words:?} in {text}"));
    before
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap_or_else(|_| panic!("no sum before {words:?} in {text}"))
}

/// A provider whose answers wait until the test opens a gate.
async fn waiting() -> (Provider, Arc<Notify>) {
    let gate = Arc::new(Notify::new());
    let waits = Arc::clone(&gate);
    let script = move |_: &scripted::Received, _| {
        [vec![Step::Wait(Arc::clone(&waits))], scripted::completion("a word")].concat()
    };
    (Provider::start(script).await, gate)
}

/// A provider bills no error, whatever its status.
#[tokio::test]
async fn an_error_with_a_status_of_success_costs_nothing() {
    let error = json!({"error": {"message": "It broke.", "code": 500}});
    let event = Step::Chunk(format!("data: {error}\n\n").into_bytes());
    let streamed = vec![scripted::stream_head(), event, Step::Chunk(Vec::new())];
    let provider = Provider::start(move |request, _| match request.json()["stream"] == true {
        true => streamed.clone(),
        false => scripted::json_answer(200, &error),
    })
    .await;
    let gateway = over(&provider).await;
    let key = gateway.limited_key(json!({"budget": {"usd": 5, "per": "day"}})).await;
    for stream in [false, true] {
        let answer = gateway.chat(&key, chat_body("auto", stream).as_bytes()).await;
        assert!(answer.status == 200 && answer.text().contains("It broke."), "{answer:?}");
        let left = &usage(&gateway, &key).await["budget"];
        assert_eq!(
            (&left["spent_usd"], &left["reserved_usd"]),
            (&json!(0.0), &json!(0.0)),
            "{left}"
        );
    }
}

#[tokio::test]
async fn a_refusal_by_a_budget_names_what_is_spent_reserved_and_needed() {
    let gate = Arc::new(Notify::new());
    let waits = Arc::clone(&gate);
    let provider = Provider::start(move |_, n| match n {
        0 => scripted::completion("a word"),
        _ => [vec![Step::Wait(Arc::clone(&waits))], scripted::completion("a word")].concat(),
    })
    .await;
    let gateway = over(&provider).await;
    let key = gateway.limited_key(json!({"budget": {"usd": 0.05, "per": "day"}})).await;
    let first = gateway.chat(&key, SHORT).await;
    assert_eq!(
        (first.status, first.header("x-ratelimit-limit-budget")),
        (200, Some("0.05")),
        "{}",
        first.text()
    );
    assert!((0.048..0.05).contains(&number(&first, "x-ratelimit-remaining-budget")), "{first:?}");
    assert!(first.header("x-ratelimit-reset-budget").is_some_and(|text| text.ends_with('s')));

    let (_, refused) = tokio::join!(gateway.chat(&key, SHORT), async {
        until("the second to be asked", async || (provider.count() == 2).then_some(())).await;
        let now = jiff::Timestamp::now();
        let refused = gateway.chat(&key, LONG).await;
        let shown = usage(&gateway, &key).await;
        gate.notify_waiters();
        envelope::openai(&refused, 429, "rate_limit_error", Some("insufficient_quota"));
        assert_eq!(refused.header("x-should-retry"), Some("false"));
        // The wait lasts until the end of the day.
        let left = 86_400 - now.as_second().rem_euclid(86_400);
        let wait = number(&refused, "retry-after") as i64;
        assert!(
            (wait - left).abs() <= 30 || left <= 30,
            "{wait} s where {left} are left of the day"
        );
        let budget = &shown["budget"];
        assert_eq!(
            (&budget["of"], &budget["per"], &budget["limit_usd"]),
            (&json!("key"), &json!("day"), &json!(0.05))
        );
        assert!(near(budget["spent_usd"].as_f64().unwrap(), COST), "{budget}");
        let text = message(&refused);
        assert!(
            near(sum_before(&text, " USD is reserved"), budget["reserved_usd"].as_f64().unwrap()),
            "{text} {budget}"
        );
        let sums = ["spent_usd", "reserved_usd", "remaining_usd"]
            .map(|name| budget[name].as_f64().unwrap());
        assert!(sums[1] > 0.0 && near(sums.iter().sum(), 0.05), "{budget}");
        let midnight = budget["resets_at"].as_str().unwrap();
        assert!(
            midnight.ends_with("T00:00:00.000000Z") && text.contains(&midnight[..10]),
            "{text} {midnight}"
        );
        refused
    });
    let text = message(&refused);
    assert!(text.contains("budget of your key, 0.05 USD a day"), "{text}");
    assert!(near(sum_before(&text, " USD is spent"), COST), "{text}");
    let needed = text
        .split("would reserve ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|sum| sum.parse::<f64>().ok());
    assert!(needed.is_some_and(|needed| (0.1..0.101).contains(&needed)), "{text}");
}

#[tokio::test]
async fn a_refusal_says_whose_limit_it_is_and_no_id() {
    let provider = Provider::always(scripted::completion("a word")).await;
    let gateway = over(&provider).await;
    let admin = gateway.admin_key.clone();
    let account = json!({
        "email": "ann@example.com", "password": "correct horse",
        "limits": {"budget": {"usd": 0.03, "per": "month"}}
    });
    let ann =
        gateway.manage("POST", "/v1/users", &admin, Some(&account)).await.json()["id"].clone();
    let scopes = json!(["admin", "keys", "inference"]);
    let budget = json!({"budget": {"usd": 0.04, "per": "day"}});
    let above = key(&gateway, &admin, json!({"scopes": scopes, "limits": budget})).await;
    let below = key(&gateway, &above.secret, json!({"limits": {"rpm": 50}})).await;
    // A limit from the parent key counts as the key's own. After usage by a sibling, the parent has
    // less left.
    let beside = key(&gateway, &above.secret, json!({})).await;
    assert_eq!(gateway.chat(&beside, SHORT).await.status, 200);
    let of_user = key(&gateway, &admin, json!({"owner": ann})).await;
    for (asks, whose, of) in [
        (&below, "a key above yours, 0.04 USD a day", "key_above"),
        (&of_user, "your user, 0.03 USD a month", "user"),
    ] {
        let refused = gateway.chat(asks, LONG).await;
        envelope::openai(&refused, 429, "rate_limit_error", Some("insufficient_quota"));
        let text = message(&refused);
        assert!(text.contains(whose), "{text}");
        assert!(["key_", "usr_", "rtr_", "ann"].iter().all(|told| !text.contains(told)), "{text}");
        assert_eq!(usage(&gateway, asks).await["budget"]["of"], of);
    }
    let month = gateway.chat(&of_user, LONG).await;
    let wait = number(&month, "retry-after") as i64;
    let now = jiff::Timestamp::now();
    let then = now
        .checked_add(jiff::SignedDuration::from_secs(wait))
        .unwrap()
        .to_zoned(jiff::tz::TimeZone::UTC);
    // The start of a month, give or take some seconds.
    assert!(
        (then.day() == 1 && then.hour() == 0)
            || (then.tomorrow().unwrap().day() == 1 && then.hour() == 23),
        "{then}"
    );
}

#[tokio::test]
async fn other_limits_explain_themselves_too() {
    let (provider, gate) = waiting().await;
    let gateway = over(&provider).await;
    let key = gateway.limited_key(json!({"rpm": 9, "tpm": 2500, "concurrency": 1})).await;
    let (_, ()) = tokio::join!(gateway.chat(&key, SHORT), async {
        until("it to be asked", async || (provider.count() == 1).then_some(())).await;
        let full = message(&gateway.chat(&key, SHORT).await);
        assert!(
            full.contains("your key, 1 request at once") && full.contains("1 is under way"),
            "{full}"
        );
        let shown = usage(&gateway, &key).await;
        assert_eq!(
            shown["concurrency"],
            json!({"of": "key", "limit": 1, "in_use": 1, "remaining": 0})
        );
        assert_eq!(
            (&shown["requests"]["limit"], &shown["requests"]["remaining"]),
            (&json!(9), &json!(8))
        );
        let tokens = &shown["tokens"];
        let part = |name: &str| tokens[name].as_u64().unwrap_or_else(|| panic!("{name}: {tokens}"));
        assert!((10..30).contains(&part("reserved")) && part("used") == 0, "{tokens}");
        assert_eq!(part("remaining") + part("reserved"), 2500, "{tokens}");
        assert_eq!(shown["budget"], Value::Null);
        gate.notify_waiters();
    });
    let key = gateway.limited_key(json!({"tpm": 1500})).await;
    let (_, ()) = tokio::join!(gateway.chat(&key, LONG), async {
        until("it to be asked", async || (provider.count() == 2).then_some(())).await;
        let refused = gateway.chat(&key, LONG).await;
        envelope::openai(&refused, 429, "rate_limit_error", Some("rate_limit_exceeded"));
        let text = message(&refused);
        assert!(
            text.contains("your key, 1500 tokens a minute") && text.contains("0 are used"),
            "{text}"
        );
        assert!(
            (1000.0..1030.0).contains(&sum_before(&text, " are reserved by requests under way")),
            "{text}"
        );
        assert!(text.contains("would reserve 10"), "{text}");
        gate.notify_waiters();
    });
    // The request reserves more than the key has in a minute.
    let never = gateway.chat(&gateway.limited_key(json!({"tpm": 500})).await, OPEN).await;
    let text = message(&never);
    assert!(
        text.contains("your key, 500 tokens a minute") && text.contains("would reserve 10"),
        "{text}"
    );
    let quick = Provider::always(scripted::completion("a word")).await;
    let gateway = over(&quick).await;
    let key = gateway.limited_key(json!({"rpm": 1})).await;
    assert_eq!(gateway.chat(&key, SHORT).await.status, 200);
    let text = message(&gateway.chat(&key, SHORT).await);
    assert!(text.contains("your key, 1 request a minute") && text.contains("1 is used"), "{text}");
    // If a price is missing, the refusal says whose budget needs it.
    let bare = Gateway::start(&in_order(&[("a", &quick.url())], "")).await;
    let refused = bare
        .chat(&bare.limited_key(json!({"budget": {"usd": 5, "per": "day"}})).await, SHORT)
        .await;
    envelope::openai(&refused, 403, "permission_error", Some("forbidden"));
    let text = message(&refused);
    assert!(text.contains("budget of your key, 5 USD a day") && text.contains("a/model"), "{text}");
}

#[tokio::test]
async fn a_refusal_draws_on_no_other_limit() {
    let (provider, gate) = waiting().await;
    let gateway = over(&provider).await;
    let key = gateway
        .limited_key(
            json!({"rpm": 2, "tpm": 5000, "concurrency": 1, "budget": {"usd": 0.05, "per": "day"}}),
        )
        .await;
    let untouched = usage(&gateway, &key).await;
    assert_eq!(
        (&untouched["requests"]["remaining"], &untouched["tokens"]["remaining"]),
        (&json!(2), &json!(5000))
    );
    // More tries than requests per minute: the budget refuses each of them.
    for round in 0..4 {
        let refused = gateway.chat(&key, LONG).await;
        envelope::openai(&refused, 429, "rate_limit_error", Some("insufficient_quota"));
        assert_eq!(number(&refused, "x-ratelimit-remaining-requests"), 2.0, "round {round}");
        assert_eq!(number(&refused, "x-ratelimit-remaining-tokens"), 5000.0, "round {round}");
        assert_eq!(number(&refused, "x-ratelimit-remaining-budget"), 0.05, "round {round}");
    }
    // Leaves out what changes only with time.
    let left = async || {
        let mut left = usage(&gateway, &key).await;
        left["requests"]["resets_at"] = Value::Null;
        let tokens = left["tokens"].take();
        (left, tokens["used"].as_u64().unwrap() + tokens["reserved"].as_u64().unwrap())
    };
    let (answered, ()) = tokio::join!(gateway.chat(&key, SHORT), async {
        until("it to be asked", async || (provider.count() == 1).then_some(())).await;
        let (before, used) = left().await;
        assert_eq!(
            (&before["requests"]["remaining"], &before["concurrency"]["in_use"]),
            (&json!(1), &json!(1))
        );
        for _ in 0..4 {
            // Too many concurrent requests.
            assert_eq!(gateway.chat(&key, SHORT).await.status, 429);
        }
        let after = left().await;
        assert!(after.0 == before && after.1 <= used, "{after:?} {before} {used}");
        gate.notify_waiters();
    });
    assert_eq!(answered.status, 200, "{}", answered.text());
    let (last, ()) = tokio::join!(gateway.chat(&key, SHORT), async {
        until("it to be asked", async || (provider.count() == 2).then_some(())).await;
        gate.notify_waiters();
    });
    assert_eq!(last.status, 200, "{}", last.text());
    let (before, used) = left().await;
    assert!(near(before["budget"]["spent_usd"].as_f64().unwrap(), 2.0 * COST), "{before}");
    for _ in 0..4 {
        // No requests are left in this minute.
        let refused = gateway.chat(&key, SHORT).await;
        envelope::openai(&refused, 429, "rate_limit_error", Some("rate_limit_exceeded"));
        assert!(number(&refused, "retry-after") > 1.0, "{refused:?}");
    }
    let after = left().await;
    assert!(after.0 == before && after.1 <= used, "{after:?} {before} {used}");
    assert_eq!(provider.count(), 2);
    // A name without a target reaches no provider.
    let key = gateway.limited_key(json!({"rpm": 1})).await;
    for _ in 0..3 {
        assert_eq!(gateway.chat(&key, br#"{"model":"nothing","messages":[]}"#).await.status, 404);
    }
    assert_eq!(usage(&gateway, &key).await["requests"]["remaining"], 1);
}

#[tokio::test]
async fn a_fresh_budget_takes_a_first_small_request_and_its_overdraft_is_charged() {
    let long = json!({"prompt_tokens": 7, "completion_tokens": 400, "total_tokens": 407});
    let provider = Provider::start(move |_, n| {
        let mut body = scripted::completion_body("a word");
        if n == 3 {
            body["usage"] = long.clone();
        }
        scripted::json_answer(200, &body)
    })
    .await;
    let mut gateway = over(&provider).await;
    let key = gateway.limited_key(json!({"budget": {"usd": 0.01, "per": "day"}})).await;
    // A reserve of 1,024 tokens would be ten times the budget.
    for n in 1..=3 {
        let answer = gateway.chat(&key, OPEN).await;
        assert_eq!(
            (answer.status, number(&answer, "x-ratelimit-remaining-budget")),
            (200, 0.0),
            "{n}: {}",
            answer.text()
        );
        let shown = usage(&gateway, &key).await;
        assert!(
            near(shown["budget"]["spent_usd"].as_f64().unwrap(), f64::from(n) * COST),
            "{shown}"
        );
        assert_eq!(shown["budget"]["reserved_usd"], 0.0, "{shown}");
    }
    // This answer has more tokens than were left. It is answered and charged.
    assert_eq!(gateway.chat(&key, OPEN).await.status, 200);
    let budget = usage(&gateway, &key).await["budget"].clone();
    assert!(near(budget["spent_usd"].as_f64().unwrap(), 3.0 * COST + 0.040_07), "{budget}");
    assert_eq!(budget["remaining_usd"], 0.0, "{budget}");
    for _ in 0..2 {
        for body in [OPEN, SHORT] {
            let refused = gateway.chat(&key, body).await;
            envelope::openai(&refused, 429, "rate_limit_error", Some("insufficient_quota"));
            assert!(
                near(sum_before(&message(&refused), " USD is spent"), 3.0 * COST + 0.040_07),
                "{}",
                message(&refused)
            );
        }
        gateway.restart().await;
    }
    assert_eq!(provider.count(), 4);
}

#[tokio::test]
async fn of_many_at_once_one_has_what_remains() {
    let (provider, gate) = waiting().await;
    let gateway = over(&provider).await;
    let above = gateway.limited_key(json!({"budget": {"usd": 0.01, "per": "month"}})).await;
    let below = [
        key(&gateway, &above.secret, json!({})).await,
        key(&gateway, &above.secret, json!({})).await,
    ];
    let ask = async |n: usize| {
        let asker = [&above, &below[0], &below[1]][n % 3];
        let answer = gateway.chat(asker, OPEN).await;
        if answer.status == 429 {
            assert_eq!(answer.json()["error"]["code"], "rate_limit_exceeded", "{}", answer.text());
            assert_eq!(answer.header("retry-after"), Some("1"));
            assert!(
                near(sum_before(&message(&answer), " USD is reserved"), 0.01),
                "{}",
                message(&answer)
            );
        }
        answer.status
    };
    let mut held = Box::pin(ask(0));
    tokio::select! {
        status = &mut held => panic!("{status} before the provider answered"),
        () = until("the first to be asked", async || (provider.count() == 1).then_some(())) => {}
    }
    let others = futures::future::join_all((0..12).map(ask)).await;
    assert!(others.iter().all(|status| *status == 429), "{others:?}");
    assert_eq!(provider.count(), 1);
    gate.notify_waiters();
    assert_eq!(held.await, 200);
    let (again, ()) = tokio::join!(ask(1), async {
        until("the next to be asked", async || (provider.count() == 2).then_some(())).await;
        gate.notify_waiters();
    });
    assert_eq!(again, 200, "what it did not use is there again");
}

#[tokio::test]
async fn what_remains_is_shown_of_live_keys_to_those_who_may_see_them() {
    let provider = Provider::always(scripted::completion("a word")).await;
    let gateway = over(&provider).await;
    let free = gateway.limited_key(json!({})).await;
    let nothing = json!({"requests": null, "tokens": null, "concurrency": null, "budget": null});
    assert_eq!(usage(&gateway, &free).await, nothing);
    let key = gateway.limited_key(json!({"rpm": 60, "budget": {"usd": 1, "per": "month"}})).await;
    assert_eq!(gateway.chat(&key, SHORT).await.status, 200);
    // The key's own record shows the same.
    let own = gateway.manage("GET", &format!("{KEYS}/{}", key.id), &key.secret, None).await.json();
    let requests = &own["usage"]["requests"];
    assert_eq!(
        (&requests["of"], &requests["used"], &requests["remaining"]),
        (&json!("key"), &json!(1), &json!(59))
    );
    let resets = requests["resets_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(
        resets <= jiff::Timestamp::now().checked_add(jiff::SignedDuration::from_secs(2)).unwrap(),
        "{requests}"
    );
    assert!(near(own["usage"]["budget"]["spent_usd"].as_f64().unwrap(), COST), "{own}");
    for (path, made) in [("/v1/apikeys", true), (KEYS, false)] {
        let listed = gateway.manage("GET", path, &gateway.admin_key, None).await.json();
        assert!(
            listed["data"].as_array().unwrap().iter().all(|key| key.get("usage").is_none()),
            "{listed}"
        );
        if made {
            let pin = gateway.manage("POST", path, &gateway.admin_key, None).await.json();
            let shown = gateway
                .manage(
                    "GET",
                    &format!("{path}/{}", pin["id"].as_str().unwrap()),
                    &gateway.admin_key,
                    None,
                )
                .await;
            assert!(shown.json().get("usage").is_none(), "{}", shown.text());
        }
    }
    assert_eq!(
        gateway
            .manage("DELETE", &format!("{KEYS}/{}", key.id), &gateway.admin_key, None)
            .await
            .status,
        204
    );
    assert_eq!(usage(&gateway, &key).await, Value::Null);
}

#[tokio::test]
async fn a_translated_request_reserves_the_limit_that_it_asks_for() {
    let claude = crate::translation::dialects::provider("anthropic").await;
    let plain = crate::translation::dialects::document(&[("a", "anthropic", &claude.url())]);
    let price = "output_per_mtok: 10.0 }";
    let longest = plain.replace(price, "output_per_mtok: 10.0, longest_answer: 32000 }");
    // A token of an answer costs ten dollars per million.
    for (document, body, limit, reserved) in [
        (&plain, OPEN, 8_192, 0.081_92),
        (&plain, LONG, 1_000, 0.01),
        (&longest, OPEN, 32_000, 0.32),
        (&longest, LONG, 1_000, 0.01),
    ] {
        let (gateway, _) = crate::translation::dialects::gateway(document).await;
        let key = gateway.limited_key(json!({"budget": {"usd": 1, "per": "day"}})).await;
        let before = usage(&gateway, &key).await["budget"]["spent_usd"].as_f64().unwrap();
        let answer = gateway.chat(&key, body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(claude.last().json()["max_tokens"], limit);
        let held = 1.0 - before - number(&answer, "x-ratelimit-remaining-budget");
        assert!((reserved..reserved + 0.001).contains(&held), "{held}: {answer:?}");
    }
}
