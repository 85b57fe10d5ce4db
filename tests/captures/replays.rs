//! Captures compared, deleted and rerouted over the API: who may do it, what the answers say, that
//! a deletion is final, and that a reroute is paid once.

use std::sync::Arc;
use std::time::Duration;

use rerouter::internals::bounds;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::client::{Answer, request};
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::{envelope, until};

const DOCUMENT: &str = "providers:\n  demo: { protocol: mock }\nrecipes:\n  main:\n    \
    rules: [ { name: only, targets: [ { target: demo/echo } ] } ]\naliases: { auto: main }\n";

/// A key of a new user.
async fn stranger(gateway: &Gateway) -> Key {
    let token = gateway.session("stranger@example.org").await;
    gateway.make_key("/v1/router/keys", &token, &json!({})).await
}

fn row<'a>(compared: &'a Value, field: &str) -> &'a Value {
    let rows = compared["fields"].as_array().expect("fields");
    rows.iter()
        .find(|row| row["field"] == field)
        .unwrap_or_else(|| panic!("no {field} in {compared}"))
}

#[tokio::test]
async fn a_stream_and_its_replay_side_by_side() {
    let gateway = Gateway::start(DOCUMENT).await;
    let key = gateway.create_key().await;
    let answer = gateway.chat(&key, chat_body("auto", true).as_bytes()).await;
    let id = answer.request_id();
    gateway.capture(&id).await;
    let rerouted = gateway.reroute(&id, &key.secret).await.json();
    let other = rerouted["new_id"].as_str().expect("new_id").to_owned();
    gateway.capture(&other).await;
    let path = format!("/v1/router/replay/{id}/compare/{other}");
    let compared = gateway.answers(200, "GET", &path, &key.secret, None).await;
    let compared = compared.json();
    assert_eq!((&compared["a"], &compared["b"]), (&json!(id), &json!(other)));
    assert_eq!(
        row(&compared, "text"),
        &json!({"field": "text", "a": "Say a word.", "b": "Say a word.", "equal": true})
    );
    for (field, value) in [
        ("decision.model", json!("echo")),
        ("status", json!(200)),
        ("finish_reason", json!("stop")),
        ("tool_calls", Value::Null),
    ] {
        assert_eq!(
            row(&compared, field),
            &json!({"field": field, "a": value, "b": value, "equal": true})
        );
    }

    let strange = stranger(&gateway).await;
    let own = gateway.chat(&strange, chat_body("auto", false).as_bytes()).await.request_id();
    gateway.capture(&own).await;
    for path in [
        path,
        format!("/v1/router/replay/{own}/compare/{other}"),
        format!("/v1/router/replay/{other}/compare/{own}"),
    ] {
        envelope::management(
            &gateway.manage("GET", &path, &strange.secret, None).await,
            404,
            "not_found",
        );
    }
}

#[tokio::test]
async fn a_deletion_right_after_the_answer_wins_and_holds() {
    let mut gateway = Gateway::start(DOCUMENT).await;
    let key = gateway.create_key().await;
    let mut gone = Vec::new();
    for stream in [false, true, false, true, false, true] {
        let id = gateway.chat(&key, chat_body("auto", stream).as_bytes()).await.request_id();
        let deleted =
            gateway.manage("DELETE", &format!("/v1/router/replay/{id}"), &key.secret, None).await;
        assert_eq!((deleted.status, deleted.body.len()), (204, 0), "{}", deleted.text());
        gone.push(id);
    }
    let kept = gateway.chat(&key, chat_body("auto", false).as_bytes()).await.request_id();
    // Captures are written in order, so everything before this capture is written too.
    gateway.capture(&kept).await;
    gateway.kill_9();
    gateway.start_again().await;
    for id in gone {
        let path = format!("/v1/router/replay/{id}");
        envelope::management(
            &gateway.manage("GET", &path, &key.secret, None).await,
            404,
            "not_found",
        );
        envelope::management(
            &gateway.manage("DELETE", &path, &key.secret, None).await,
            404,
            "not_found",
        );
        envelope::management(
            &gateway.manage("POST", &format!("{path}/reroute"), &key.secret, None).await,
            404,
            "not_found",
        );
    }
    let list = gateway.manage("GET", "/v1/router/replay", &key.secret, None).await.json();
    assert_eq!(list["data"].as_array().unwrap().len(), 1, "{list}");
}

#[tokio::test]
async fn only_its_owner_deletes_a_capture_and_its_replays() {
    let gateway = Gateway::start(DOCUMENT).await;
    let (key, strange) = (gateway.create_key().await, stranger(&gateway).await);
    let id = gateway.chat(&strange, chat_body("auto", false).as_bytes()).await.request_id();
    gateway.capture(&id).await;
    let reroute = async |id: &str| {
        let answer = gateway.reroute(id, &strange.secret).await.json();
        answer["new_id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let replay = reroute(&id).await;
    gateway.capture(&replay).await;
    let (of_replay, kept) = (
        reroute(&replay).await,
        gateway.chat(&strange, chat_body("auto", false).as_bytes()).await.request_id(),
    );
    gateway.capture(&kept).await;
    let path = format!("/v1/router/replay/{id}");
    envelope::management(
        &gateway.manage("DELETE", &format!("{path}?replays=true"), &key.secret, None).await,
        404,
        "not_found",
    );
    envelope::management(
        &gateway.manage("DELETE", &format!("{path}?replays=maybe"), &strange.secret, None).await,
        400,
        "invalid_request",
    );
    envelope::management(
        &gateway.manage("DELETE", &format!("{path}?replay=true"), &strange.secret, None).await,
        400,
        "invalid_request",
    );
    for id in [&id, &replay, &of_replay] {
        gateway.capture(id).await;
    }
    gateway.answers(204, "DELETE", &format!("{path}?replays=true"), &strange.secret, None).await;
    let list = gateway.manage("GET", "/v1/router/replay", &strange.secret, None).await.json();
    let left: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["id"].as_str().unwrap())
        .collect();
    assert_eq!(left, [kept.as_str()]);
    // An admin deletes a capture of another user.
    gateway
        .answers(204, "DELETE", &format!("/v1/router/replay/{kept}"), &gateway.admin_key, None)
        .await;
}

#[tokio::test]
async fn a_replay_of_a_replay_under_way_goes_with_the_first() {
    let gate = Arc::new(Notify::new());
    let waits = Step::Wait(Arc::clone(&gate));
    let provider = Provider::start(move |_, number| match number {
        0 | 1 => scripted::completion("well"),
        _ => std::iter::once(waits.clone()).chain(scripted::completion("late")).collect(),
    })
    .await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let key = gateway.create_key().await;
    let id = gateway.chat(&key, chat_body("auto", false).as_bytes()).await.request_id();
    gateway.capture(&id).await;
    let reroute = async |id: &str| gateway.reroute(id, &key.secret).await.json();
    let replay = reroute(&id).await["new_id"].as_str().unwrap().to_owned();
    gateway.capture(&replay).await;
    let deleting = async {
        until("the replay to be under way", async || (provider.count() == 3).then_some(())).await;
        let path = format!("/v1/router/replay/{id}?replays=true");
        let deleted = gateway.manage("DELETE", &path, &key.secret, None).await;
        gate.notify_one();
        deleted.status
    };
    let (last, deleted) = tokio::join!(reroute(&replay), deleting);
    assert_eq!(
        (deleted, &last["response"]["choices"][0]["message"]["content"]),
        (204, &json!("late")),
        "{last}"
    );
    let kept = gateway.manage("GET", "/v1/router/replay", &key.secret, None).await.json();
    assert_eq!(kept["data"], json!([]), "{kept}");
}

#[tokio::test]
async fn a_reroute_with_an_idempotency_key_is_paid_once() {
    let gate = Arc::new(Notify::new());
    let waits = Step::Wait(Arc::clone(&gate));
    let provider = Provider::start(move |_, number| match number {
        0 | 1 => scripted::completion("well"),
        2 => scripted::failure(500, "broken"),
        4 => std::iter::once(waits.clone()).chain(scripted::completion("late")).collect(),
        number => scripted::completion(&format!("answer {number}")),
    })
    .await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let key = gateway.create_key().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(gateway.chat(&key, chat_body("auto", false).as_bytes()).await.request_id());
        gateway.capture(&ids[ids.len() - 1]).await;
    }
    let reroute = async |id: &str, query: &str, secret: &str, name: &str| {
        let bearer = format!("Bearer {secret}");
        let headers = [("authorization", bearer.as_str()), ("idempotency-key", name)];
        gateway
            .send("POST", &format!("/v1/router/replay/{id}/reroute{query}"), &headers, None)
            .await
    };
    // A failed reroute can be repeated under its `Idempotency-Key`. A successful one returns the
    // same answer without asking the provider.
    assert_eq!((reroute(&ids[0], "", &key.secret, "one").await.status, provider.count()), (502, 3));
    let first = reroute(&ids[0], "", &key.secret, "one").await;
    assert_eq!((first.status, provider.count()), (200, 4), "{}", first.text());
    gateway.capture(first.json()["new_id"].as_str().unwrap()).await;
    let again = reroute(&ids[0], "", &key.secret, "one").await;
    assert_eq!((again.status, again.text(), provider.count()), (200, first.text(), 4));
    assert_ne!(again.request_id(), first.request_id());
    envelope::management(&reroute(&ids[1], "", &key.secret, "one").await, 409, "conflict");
    let dry = reroute(&ids[1], "?dry_run=true", &key.secret, "one").await;
    assert_eq!(
        (dry.status, &dry.json()["new_id"], provider.count()),
        (200, &Value::Null, 4),
        "{}",
        dry.text()
    );
    // While the first reroute runs, the second is refused. Another caller's key of the same name is
    // another call.
    let meanwhile = async {
        until("the call to be under way", async || (provider.count() == 5).then_some(())).await;
        envelope::management(&reroute(&ids[0], "", &key.secret, "two").await, 409, "conflict");
        let other = reroute(&ids[0], "", &gateway.admin_key, "two").await;
        assert_eq!((other.status, provider.count()), (200, 6), "{}", other.text());
        gate.notify_one();
    };
    let (late, ()) = tokio::join!(reroute(&ids[0], "", &key.secret, "two"), meanwhile);
    assert_eq!(
        late.json()["response"]["choices"][0]["message"]["content"],
        "late",
        "{}",
        late.text()
    );
    // A deleted reroute is not returned again, nor one that the caller may not see.
    gateway.capture(late.json()["new_id"].as_str().unwrap()).await;
    let path = format!("/v1/router/replay/{}", late.json()["new_id"].as_str().unwrap());
    gateway.answers(204, "DELETE", &path, &key.secret, None).await;
    envelope::management(&reroute(&ids[0], "", &key.secret, "two").await, 404, "not_found");
    gateway
        .answers(204, "DELETE", &format!("/v1/router/replay/{}", ids[0]), &key.secret, None)
        .await;
    envelope::management(&reroute(&ids[0], "", &key.secret, "one").await, 404, "not_found");
    envelope::management(
        &reroute(&ids[1], "", &stranger(&gateway).await.secret, "one").await,
        404,
        "not_found",
    );
    for bad in ["", "two words", &"k".repeat(300)] {
        let refused = reroute(&ids[1], "", &key.secret, bad).await;
        envelope::management(&refused, 400, "invalid_request");
        assert_eq!(refused.json()["field"], "Idempotency-Key");
    }
    assert_eq!(provider.count(), 6);
}

/// Begins a reroute, and disconnects once the provider has received its call number `at.1`.
async fn leave(gateway: &Gateway, path: &str, headers: &[(&str, &str)], at: (&Provider, usize)) {
    let mut connection = gateway.connect().await;
    connection.send(&request("POST", path, &gateway.host(), headers, None)).await;
    until("the call to be under way", async || (at.0.count() == at.1).then_some(())).await;
    connection.abandon();
}

/// Repeats a reroute until it no longer runs.
async fn repeat(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> Answer {
    until("the call to end", async || {
        let answer = gateway.send("POST", path, headers, None).await;
        (answer.status != 409).then_some(answer)
    })
    .await
}

#[tokio::test]
async fn a_reroute_with_an_idempotency_key_goes_on_when_its_client_leaves() {
    let [never, gate] = [Arc::new(Notify::new()), Arc::new(Notify::new())];
    let waits = [&never, &gate].map(|gate| Step::Wait(Arc::clone(gate)));
    let provider = Provider::start(move |_, number| {
        let after = |step: usize, answer| std::iter::once(waits[step].clone()).chain(answer);
        match number {
            1 => after(0, scripted::completion("never")).collect(),
            2 | 5 => after(1, scripted::completion("late")).collect(),
            3 => after(1, scripted::failure(500, "broken")).collect(),
            _ => scripted::completion("well"),
        }
    })
    .await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let key = gateway.create_key().await;
    let id = gateway.chat(&key, chat_body("auto", false).as_bytes()).await.request_id();
    gateway.capture(&id).await;
    let (path, bearer) =
        (format!("/v1/router/replay/{id}/reroute"), format!("Bearer {}", key.secret));
    let named = |name| [("authorization", bearer.as_str()), ("idempotency-key", name)];
    // Without an `Idempotency-Key`, the call ends with its client.
    leave(&gateway, &path, &named("none")[..1], (&provider, 2)).await;
    until("the call to end", async || {
        (gateway.metric("rerouter_inflight", &[]).await == 0.0).then_some(())
    })
    .await;
    leave(&gateway, &path, &named("one"), (&provider, 3)).await;
    let refused = gateway.send("POST", &path, &named("one"), None).await;
    envelope::management(&refused, 409, "conflict");
    assert_eq!(refused.header("retry-after"), Some("1"));
    gate.notify_one();
    let answer = repeat(&gateway, &path, &named("one")).await;
    assert_eq!((answer.status, provider.count()), (200, 3), "{}", answer.text());
    let told = answer.json();
    assert_eq!(told["response"]["choices"][0]["message"]["content"], "late", "{told}");
    let replay = gateway.capture(told["new_id"].as_str().unwrap()).await;
    assert_eq!((&replay["state"], &replay["status"]), (&json!("completed"), &json!(200)));
    // A failed reroute can be repeated.
    leave(&gateway, &path, &named("two"), (&provider, 4)).await;
    gate.notify_one();
    let answer = repeat(&gateway, &path, &named("two")).await;
    assert_eq!((answer.status, provider.count()), (200, 5), "{}", answer.text());
    // A drain waits for the reroute.
    leave(&gateway, &path, &named("three"), (&provider, 6)).await;
    let opens = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        gate.notify_one();
    };
    tokio::join!(gateway.restart(), opens);
    // After the restart, its `Idempotency-Key` is new.
    assert_eq!(provider.count(), 6);
    let answer = repeat(&gateway, &path, &named("three")).await;
    assert_eq!((answer.status, provider.count()), (200, 7), "{}", answer.text());
}

/// A provider that answers its first call at once, and each of the next ones when its gate opens.
async fn gated() -> (Provider, Vec<Arc<Notify>>) {
    let gates: Vec<Arc<Notify>> = (0..bounds::REROUTES_SHARE).map(|_| Arc::default()).collect();
    let waits: Vec<Step> = gates.iter().cloned().map(Step::Wait).collect();
    let provider = Provider::start(move |_, number| {
        let wait = number.checked_sub(1).and_then(|at| waits.get(at)).cloned();
        wait.into_iter().chain(scripted::completion("well")).collect()
    })
    .await;
    (provider, gates)
}

#[tokio::test]
async fn a_key_revoked_while_its_reroute_waits_for_a_turn_spends_nothing() {
    let (provider, gates) = gated().await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let key = gateway.create_key().await;
    let id = gateway.chat(&key, chat_body("auto", false).as_bytes()).await.request_id();
    gateway.capture(&id).await;
    let path = format!("/v1/router/replay/{id}/reroute");
    let share = bounds::REROUTES_SHARE;
    let calls = (0..=share).map(|_| gateway.manage("POST", &path, &key.secret, None));
    let meanwhile = async {
        until("as many as the key may have to be under way", async || {
            (provider.count() == 1 + share).then_some(())
        })
        .await;
        let revoke = format!("/v1/router/keys/{}", key.id);
        let revoked = gateway.manage("DELETE", &revoke, &gateway.admin_key, None).await;
        assert!(matches!(revoked.status, 200 | 204), "{}", revoked.text());
        gates.iter().for_each(|gate| gate.notify_one());
    };
    let (answers, ()) = tokio::join!(futures::future::join_all(calls), meanwhile);
    let refused = answers.iter().filter(|answer| answer.status == 403).count();
    assert_eq!((refused, provider.count()), (1, 1 + share));
}

#[tokio::test]
async fn a_reroute_is_refused_for_names_that_are_gone_and_waits_its_turn_behind_the_caller_s_own() {
    let (provider, gates) = gated().await;
    let document = in_order(&[("a", &provider.url())], "");
    let gateway = Gateway::start(&document).await;
    let key = gateway.create_key().await;
    let id = gateway.chat(&key, chat_body("auto", false).as_bytes()).await.request_id();
    gateway.capture(&id).await;
    let path = format!("/v1/router/replay/{id}/reroute");
    let narrow = json!({
        "name": "narrow", "scopes": ["replay:all"], "limits": { "models": ["other"] }
    });
    let narrow =
        gateway.manage("POST", "/v1/router/keys", &gateway.admin_key, Some(&narrow)).await.json();
    envelope::management(
        &gateway.manage("POST", &path, narrow["key"].as_str().unwrap(), None).await,
        403,
        "forbidden",
    );

    let other = json!({"scopes": ["replay:all", "inference"]});
    let other = gateway.make_key("/v1/router/keys", &gateway.admin_key, &other).await;
    let share = bounds::REROUTES_SHARE;
    let calls = (0..=share).map(|_| gateway.manage("POST", &path, &key.secret, None));
    let calls = futures::future::join_all(calls);
    let meanwhile = async {
        let under_way = async || (provider.count() == 1 + share).then_some(());
        until("as many as the key may have to be under way", under_way).await;
        let theirs = gateway.manage("POST", &path, &other.secret, None).await;
        assert_eq!((theirs.status, provider.count()), (200, 2 + share), "another caller's turn");
        let dry = gateway.manage("POST", &format!("{path}?dry_run=true"), &key.secret, None).await;
        assert_eq!(dry.status, 200, "what asks no provider needs no turn: {}", dry.text());
        gates.iter().for_each(|gate| gate.notify_one());
    };
    let (answers, ()) = tokio::join!(calls, meanwhile);
    assert!(
        answers.iter().all(|answer| answer.status == 200),
        "{:?}",
        answers.iter().map(|answer| answer.status).collect::<Vec<_>>()
    );
    gateway.write_routing(&document.replace("auto:", "another:")).await;
    envelope::management(&gateway.manage("POST", &path, &key.secret, None).await, 503, "no_target");
}
