//! Rates, concurrency and budgets: never exceeded, returned however a request ends, and shown in
//! the headers that SDKs read. Also usage.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::client::Answer;
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::{envelope, until};

/// The scripted answer of seven and three tokens costs a cent.
const PRICED: &str = "models:\n  a/model: { input_per_mtok: 100, output_per_mtok: 3100 }\n";
/// This request reserves a token for each of its 84 bytes, and three for the answer: less than two
/// cents. If less is left, the reserve is smaller, but still more than one cent.
const BODY: &str =
    r#"{"model":"auto","messages":[{"role":"user","content":"Say a word."}],"max_tokens":3}"#;
const CENT: f64 = 0.01;

async fn over(provider: &Provider, extra: &str) -> Gateway {
    Gateway::start(&in_order(&[("a", &provider.url())], extra)).await
}

async fn key(gateway: &Gateway, maker: &str, limits: Value) -> Key {
    gateway.make_key("/v1/router/keys", maker, &json!({ "limits": limits })).await
}

async fn usage(gateway: &Gateway, credential: &str, query: &str) -> Vec<Value> {
    let answer = gateway.manage("GET", &format!("/v1/router/usage{query}"), credential, None).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["data"].as_array().unwrap().clone()
}

fn code(answer: &Answer) -> String {
    answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
}

/// Repeats the request until the answer is not one that asks to come back soon.
async fn patiently(gateway: &Gateway, key: &Key) -> Answer {
    until("an answer that is no `rate_limit_exceeded`", async || {
        let answer = gateway.chat(key, BODY.as_bytes()).await;
        let soon = answer.status == 429
            && answer.header("retry-after") == Some("1")
            && answer.header("x-should-retry").is_none();
        (!soon).then_some(answer)
    })
    .await
}

/// Spends the rest of a key's budget, one request after another. Returns the number of answers.
async fn spend(gateway: &Gateway, key: &Key) -> usize {
    let mut answered = 0;
    loop {
        let answer = patiently(gateway, key).await;
        if answer.status == 429 {
            assert_eq!(code(&answer), "insufficient_quota", "{}", answer.text());
            assert_eq!(answer.header("x-should-retry"), Some("false"));
            assert!(answer.header("retry-after").is_some());
            return answered;
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        answered += 1;
    }
}

#[tokio::test]
async fn many_clients_at_once_never_spend_more_than_the_budget() {
    let provider = Provider::always(scripted::completion("a word")).await;
    let mut gateway = over(&provider, PRICED).await;
    let key =
        key(&gateway, &gateway.admin_key, json!({"budget": {"usd": 20.0 * CENT, "per": "month"}}))
            .await;
    let answered: usize =
        futures::future::join_all((0..64).map(|_| spend(&gateway, &key))).await.into_iter().sum();
    // Requests are answered as long as their reserve fits.
    assert!((18..=20).contains(&answered), "{answered}");
    assert_eq!(provider.count(), answered);
    let used = usage(&gateway, &gateway.admin_key, "?group_by=key").await;
    let sum = |pointer: &str| used[0].pointer(pointer).unwrap().as_u64().unwrap() as usize;
    assert_eq!(used[0]["key"], json!(key.id));
    assert_eq!(sum("/requests") - sum("/refused/limit"), answered, "{used:?}");
    let cost = used[0]["cost_usd"].as_f64().unwrap();
    assert!((cost - answered as f64 * CENT).abs() < 1e-9, "{cost}");

    let refused = gateway.chat(&key, BODY.as_bytes()).await;
    envelope::openai(&refused, 429, "rate_limit_error", Some("insufficient_quota"));
    let heads = "/v1/router/replay?refused=limit";
    let heads = gateway.answers(200, "GET", heads, &gateway.admin_key, None).await.json();
    let head = &heads["data"][0];
    assert_eq!(
        (&head["state"], &head["decision"], &head["status"], &head["not_replayable"]),
        (&json!("refused"), &Value::Null, &json!(429), &json!("not_captured"))
    );

    gateway.restart().await;
    assert_eq!(spend(&gateway, &key).await, 0, "a restart gives no money back");
    assert_eq!(
        usage(&gateway, &gateway.admin_key, "?group_by=key").await[0]["cost_usd"],
        used[0]["cost_usd"],
        "nor forgets what was used"
    );
}

#[tokio::test]
async fn a_crash_makes_no_budget_larger_and_a_restart_none_smaller() {
    let provider = Provider::always(scripted::completion("a word")).await;
    let mut gateway = over(&provider, PRICED).await;
    let key =
        key(&gateway, &gateway.admin_key, json!({"budget": {"usd": 50.0 * CENT, "per": "month"}}))
            .await;
    for _ in 0..3 {
        assert_eq!(patiently(&gateway, &key).await.status, 200);
    }
    gateway.kill_9();
    gateway.start_again().await;
    for _ in 0..3 {
        assert_eq!(patiently(&gateway, &key).await.status, 200);
    }
    gateway.restart().await;
    let left = spend(&gateway, &key).await;
    // The process that was killed held a reserve of about two cents, and what was spent in two
    // seconds.
    assert!((50 - 3 - 3 - 6..=44).contains(&left), "{left}");
}

#[tokio::test]
async fn whatever_the_way_out_everything_comes_back() {
    let provider = Provider::start(|_, number| match number {
        0 | 3 => vec![Step::Hang],
        1 => scripted::failure(500, "broken"),
        2 => vec![
            scripted::stream_head(),
            Step::Chunk(scripted::role_event().into_bytes()),
            Step::Cut,
        ],
        _ => scripted::completion("a word"),
    })
    .await;
    let document =
        in_order(&[("a", &provider.url())], PRICED).replace("first_byte: 20s", "first_byte: 1s");
    let gateway = Gateway::start(&document).await;
    let limits = json!({"concurrency": 1, "budget": {"usd": 5.0 * CENT, "per": "day"}});
    let key = key(&gateway, &gateway.admin_key, limits).await;
    let request = gateway.chat_request(&key, BODY.as_bytes());
    let mut leaving = gateway.connect().await;
    leaving.send(&request).await;
    until("the provider to be asked", async || (provider.count() == 1).then_some(())).await;
    let second = gateway.chat(&key, BODY.as_bytes()).await;
    envelope::openai(&second, 429, "rate_limit_error", Some("rate_limit_exceeded"));
    assert_eq!(second.header("retry-after"), Some("1"));
    leaving.abandon();
    provider.abandoned(0).await;
    for status in [500, 502, 502] {
        let answer = patiently(&gateway, &key).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    assert_eq!(provider.count(), 4);
    // Four cents are spent, and less than a reserve is left.
    assert_eq!(spend(&gateway, &key).await, 4);
}

#[tokio::test]
async fn rates_are_told_as_openai_tells_them() {
    let steps = scripted::answer(
        200,
        &[
            ("content-type", "application/json"),
            ("x-ratelimit-limit-requests", "9999"),
            ("x-ratelimit-reset-tokens", "9s"),
        ],
        scripted::completion_body("a word").to_string().as_bytes(),
    );
    let provider = Provider::always(steps).await;
    let gateway = over(&provider, "").await;
    let key = key(&gateway, &gateway.admin_key, json!({"rpm": 3, "tpm": 5000})).await;
    let number = |answer: &Answer, name: &str| {
        answer.header(name).unwrap_or_else(|| panic!("{name}: {answer:?}")).parse::<u64>().unwrap()
    };
    for left in [2, 1, 0] {
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header_lines("x-ratelimit-limit-requests"), ["3"]);
        assert_eq!(number(&answer, "x-ratelimit-remaining-requests"), left);
        assert_eq!(number(&answer, "x-ratelimit-limit-tokens"), 5000);
        // About a thousand tokens are reserved for the answer. The reserves of earlier answers came
        // back.
        assert!(
            (3_900..3_980).contains(&number(&answer, "x-ratelimit-remaining-tokens")),
            "{answer:?}"
        );
        for reset in ["x-ratelimit-reset-requests", "x-ratelimit-reset-tokens"] {
            let text = answer.header(reset).unwrap();
            assert!(
                text.ends_with('s') && text.starts_with(|first: char| first.is_ascii_digit()),
                "{reset}: {text}"
            );
        }
    }
    let refused = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    envelope::openai(&refused, 429, "rate_limit_error", Some("rate_limit_exceeded"));
    assert!((1..=21).contains(&number(&refused, "retry-after")), "{refused:?}");
    assert_eq!(number(&refused, "x-ratelimit-remaining-requests"), 0);
    assert_eq!(provider.count(), 3);
    let capture = gateway.capture(&refused.request_id()).await;
    assert_eq!((&capture["state"], &capture["decision"]), (&json!("refused"), &Value::Null));
    assert!(
        gateway
            .chat(&gateway.create_key().await, BODY.as_bytes())
            .await
            .header_lines("x-ratelimit-limit-requests")
            == ["9999"]
    );
}

#[tokio::test]
async fn a_request_that_can_never_fit_says_so_and_a_child_draws_on_its_maker() {
    let provider = Provider::always(scripted::completion("a word")).await;
    let gateway = over(&provider, "").await;
    let small = key(&gateway, &gateway.admin_key, json!({"tpm": 1000})).await;
    let answer = gateway.chat(&small, chat_body("auto", false).as_bytes()).await;
    envelope::openai(&answer, 429, "rate_limit_error", Some("rate_limit_exceeded"));
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    assert_eq!(gateway.chat(&small, BODY.as_bytes()).await.status, 200);

    let maker = key(&gateway, &gateway.admin_key, json!({"rpm": 2})).await;
    let child = key(&gateway, &maker.secret, json!({"rpm": 2})).await;
    assert_eq!(gateway.chat(&child, BODY.as_bytes()).await.status, 200);
    assert_eq!(gateway.chat(&maker, BODY.as_bytes()).await.status, 200);
    for key in [&child, &maker] {
        assert_eq!(gateway.chat(key, BODY.as_bytes()).await.status, 429);
    }
}

#[tokio::test]
async fn a_reroute_is_paid_by_who_asks_for_it() {
    let provider = Provider::always(scripted::completion("a word")).await;
    let gateway = over(&provider, PRICED).await;
    let free = gateway.create_key().await;
    let original = gateway.chat(&free, BODY.as_bytes()).await.request_id();
    gateway.capture(&original).await;
    // Two dry runs and one reroute.
    let payer = json!({"limits": {"rpm": 3}, "scopes": ["inference", "replay:all"]});
    let payer = gateway.make_key("/v1/router/keys", &gateway.admin_key, &payer).await;
    let target = format!("/v1/router/replay/{original}/reroute");
    for _ in 0..2 {
        let dry =
            gateway.manage("POST", &format!("{target}?dry_run=true"), &payer.secret, None).await;
        assert_eq!(dry.status, 200, "{}", dry.text());
    }
    assert_eq!(gateway.manage("POST", &target, &payer.secret, None).await.status, 200);
    let refused = gateway.manage("POST", &target, &payer.secret, None).await;
    envelope::management(&refused, 429, "rate_limited");
    assert!(refused.header("retry-after").is_some());
    let dry = gateway.manage("POST", &format!("{target}?dry_run=true"), &payer.secret, None).await;
    envelope::management(&dry, 429, "rate_limited");
    let evaluate = "/v1/router/replay/evaluate";
    let evaluated = gateway.manage("POST", evaluate, &payer.secret, Some(&json!({}))).await;
    envelope::management(&evaluated, 429, "rate_limited");
    let chat = serde_json::from_str(BODY).unwrap();
    let decided = gateway.manage("POST", "/v1/router/decide", &payer.secret, Some(&chat)).await;
    envelope::management(&decided, 429, "rate_limited");
    let used = usage(&gateway, &gateway.admin_key, "?group_by=key,model,alias,recipe,rule").await;
    let of = |key: &Key| {
        used.iter().find(|row| row["key"] == key.id.as_str()).unwrap_or_else(|| panic!("{used:?}"))
    };
    assert_eq!((&of(&free)["requests"], &of(&free)["replays"]["requests"]), (&json!(1), &json!(0)));
    assert_eq!(
        (&of(&payer)["requests"], &of(&payer)["replays"]["requests"]),
        (&json!(0), &json!(1))
    );
    let ways = ["model", "alias", "recipe", "rule"].map(|name| &of(&payer)[name]);
    assert_eq!(ways, ["a/model", "auto", "main", "default"]);
    assert_eq!(of(&payer)["replays"]["cost_usd"], json!(CENT));
}

#[tokio::test]
async fn a_cost_that_is_not_known_is_null_and_no_budget_is_spent_blindly() {
    let provider = Provider::always(scripted::completion("a word")).await;
    let gateway = Setup::new(&in_order(&[("a", &provider.url())], ""))
        .server("pin: { registration: open }")
        .start()
        .await;
    let unlimited = gateway.create_key().await;
    assert_eq!(gateway.chat(&unlimited, BODY.as_bytes()).await.status, 200);
    let paid = key(&gateway, &gateway.admin_key, json!({"budget": {"usd": 5, "per": "day"}})).await;
    let refused = gateway.chat(&paid, BODY.as_bytes()).await;
    envelope::openai(&refused, 403, "permission_error", Some("forbidden"));
    assert!(refused.text().contains("a/model"), "{}", refused.text());
    assert_eq!(provider.count(), 1);
    let used = usage(&gateway, &gateway.admin_key, "?group_by=day,user").await;
    assert_eq!(used.len(), 1);
    let tokens =
        ["requests", "prompt_tokens", "completion_tokens", "total_tokens", "unpriced_requests"]
            .map(|name| used[0][name].as_u64().unwrap());
    assert_eq!(
        (tokens, &used[0]["cost_usd"], &used[0]["user"]),
        ([2, 7, 3, 10, 1], &Value::Null, &json!("usr_admin"))
    );
    assert_eq!(used[0]["refused"]["request"], 1);
    let day = used[0]["day"].as_str().unwrap();
    for since in [day.to_owned(), format!("{day}T00:00:00Z"), format!("{day}T02:00:00%2B02:00")] {
        assert_eq!(
            usage(&gateway, &gateway.admin_key, &format!("?since={since}&group_by=day"))
                .await
                .len(),
            1,
            "{since}"
        );
        assert!(
            usage(&gateway, &gateway.admin_key, &format!("?until={since}&group_by=day"))
                .await
                .is_empty(),
            "{since}"
        );
    }

    let token = gateway.session("ann@example.com").await;
    let own = usage(&gateway, &token, "").await;
    assert_eq!((own.len(), &own[0]["requests"]), (1, &json!(0)), "nobody sees what others use");
    for within in [format!("since={day}T23:00:00Z"), format!("until={day}T00:00:00.000001Z")] {
        let refused =
            gateway.manage("GET", &format!("/v1/router/usage?{within}"), &token, None).await;
        envelope::management(&refused, 400, "invalid_request");
        assert!(
            refused.text().contains("start of a day in UTC"),
            "a part of a day is not known: {}",
            refused.text()
        );
    }
    for bad in [
        "?group_by=colour",
        "?since=yesterday",
        "?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z",
        "?limit=0",
    ] {
        let answer = gateway.manage("GET", &format!("/v1/router/usage{bad}"), &token, None).await;
        envelope::management(&answer, 400, "invalid_request");
    }
}

#[tokio::test]
async fn who_waits_for_the_answer_finds_the_slot_free() {
    let provider = Provider::start(|request, _| {
        if request.json()["stream"] == true {
            scripted::stream("a word")
        } else {
            scripted::completion("a word")
        }
    })
    .await;
    let gateway = over(&provider, "").await;
    let key = key(&gateway, &gateway.admin_key, json!({"concurrency": 1})).await;
    for round in 0..200 {
        let answer = gateway.chat(&key, chat_body("auto", round % 2 == 0).as_bytes()).await;
        assert_eq!(answer.status, 200, "round {round}: {}", answer.text());
    }
}

#[tokio::test]
async fn an_attempt_that_was_not_served_costs_nothing() {
    let used = "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[],\
        \"usage\":{\"prompt_tokens\":20,\"completion_tokens\":0,\"total_tokens\":20}}\n\n";
    let error =
        "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\",\"code\":503}}\n\n";
    let events = [scripted::role_event(), used.to_owned(), error.to_owned(), String::new()];
    let steps = std::iter::once(scripted::stream_head())
        .chain(events.into_iter().map(|event| Step::Chunk(event.into_bytes())));
    let a = Provider::always(steps.collect()).await;
    let b = Provider::always(scripted::completion("a word")).await;
    let priced = "models:\n  a/model: { input_per_mtok: 1000, output_per_mtok: 1000 }\n  \
        b/model: { input_per_mtok: 1000, output_per_mtok: 1000 }\n";
    let gateway = Gateway::start(&in_order(&[("a", &a.url()), ("b", &b.url())], priced)).await;
    let key =
        key(&gateway, &gateway.admin_key, json!({"budget": {"usd": 15.0 * CENT, "per": "day"}}))
            .await;
    // Each answer costs a cent, whatever the failing provider counted before. In the end, less than
    // a reserve is left.
    let spent = spend(&gateway, &key).await;
    assert!((5..=8).contains(&spent), "{spent}");
    assert_eq!(b.count(), spent);
    assert!(a.count() > 1, "it was tried until its breaker opened");
    let rows = usage(&gateway, &gateway.admin_key, "?group_by=model").await;
    let rows: Vec<_> = rows
        .iter()
        .filter(|row| row["refused"]["limit"] == 0)
        .map(|row| {
            (
                row["model"].as_str().unwrap(),
                row["requests"].as_u64().unwrap(),
                row["total_tokens"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(rows, [("b/model", spent as u64, spent as u64 * 10)]);
}

#[tokio::test]
async fn slots_are_held_as_long_as_their_requests() {
    let gate = Arc::new(tokio::sync::Notify::new());
    let waits = Arc::clone(&gate);
    let provider = Provider::start(move |_, _| {
        [vec![Step::Wait(Arc::clone(&waits))], scripted::completion("a word")].concat()
    })
    .await;
    let gateway = over(&provider, "").await;
    let key = key(&gateway, &gateway.admin_key, json!({"concurrency": 4})).await;
    let done = AtomicUsize::new(0);
    let many = futures::future::join_all((0..4).map(async |_| {
        let answer = gateway.chat(&key, BODY.as_bytes()).await;
        done.fetch_add(1, Ordering::SeqCst);
        answer
    }));
    let (answers, ()) = tokio::join!(many, async {
        until("four to be under way", async || (provider.count() == 4).then_some(())).await;
        assert_eq!(gateway.chat(&key, BODY.as_bytes()).await.status, 429);
        until("four answers", async || {
            gate.notify_waiters();
            (done.load(Ordering::SeqCst) == 4).then_some(())
        })
        .await;
    });
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    assert_eq!(provider.count(), 4);
}
