//! A budget that a hundred keys share through their common ancestor is never exceeded, however many
//! ask at once: also with new secrets, with a changed parent, after a stop and after a kill.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::documents::in_order;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

const KEYS: &str = "/v1/router/keys";
/// An answer of seven and three tokens costs ten cents.
const PRICED: &str = "models:\n  a/model: { input_per_mtok: 1000, output_per_mtok: 31000 }\n";
const BODY: &[u8] =
    br#"{"model":"auto","messages":[{"role":"user","content":"Say a word."}],"max_tokens":3}"#;

async fn make(gateway: &Gateway, by: &str, body: Value) -> Key {
    gateway.make_key(KEYS, by, &body).await
}

async fn rotate(gateway: &Gateway, key: &mut Key) {
    let rotated = gateway
        .manage("POST", &format!("{KEYS}/{}/rotate", key.id), &gateway.admin_key, None)
        .await;
    assert_eq!(rotated.status, 200, "{}", rotated.text());
    key.secret = rotated.json()["key"].as_str().unwrap().to_owned();
}

async fn patch(gateway: &Gateway, key: &Key, body: Value) -> Value {
    let patched = gateway
        .manage("PATCH", &format!("{KEYS}/{}", key.id), &gateway.admin_key, Some(&body))
        .await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    patched.json()
}

/// A key with ten dollars, and ninety-nine keys below it, three levels deep. All belong to one user
/// without limits. A user may have a hundred keys.
async fn family(gateway: &Gateway) -> (Key, Vec<Key>) {
    let account = json!({"email": "ann@example.com", "password": "correct horse"});
    let ann = gateway.manage("POST", "/v1/users", &gateway.admin_key, Some(&account)).await.json()
        ["id"]
        .clone();
    let budget = json!({"budget": {"usd": 10, "per": "month"}});
    let top = make(
        gateway,
        &gateway.admin_key,
        json!({"scopes": ["admin", "keys", "inference"], "limits": budget}),
    )
    .await;
    let mut below: Vec<Key> = Vec::new();
    for n in 0..99 {
        let made = match n % 3 {
            // An own budget as large as the parent's adds no money.
            0 => {
                make(
                    gateway,
                    &top.secret,
                    json!({"owner": ann, "scopes": ["inference", "keys"], "limits": budget}),
                )
                .await
            }
            _ => {
                make(gateway, &below[n - 1].secret, json!({"scopes": ["inference", "keys"]})).await
            }
        };
        below.push(made);
    }
    (top, below)
}

/// All keys ask at once. Each asks until the budget is spent, or `each` times. Returns the number
/// of answers.
async fn spend(gateway: &Gateway, keys: &[Key], each: usize) -> usize {
    let answered = AtomicUsize::new(0);
    let one = async |key: &Key| {
        for _ in 0..each {
            let done = until("an answer or the end of the money", async || {
                let answer = gateway.chat(key, BODY).await;
                match answer.status {
                    200 => Some(true),
                    _ if answer.json()["error"]["code"] == "insufficient_quota" => Some(false),
                    429 => None,
                    other => panic!("{other} {}", answer.text()),
                }
            })
            .await;
            match done {
                true => _ = answered.fetch_add(1, Ordering::Relaxed),
                false => return,
            }
        }
    };
    futures::future::join_all(keys.iter().map(one)).await;
    answered.load(Ordering::Relaxed)
}

#[tokio::test]
async fn ten_dollars_stay_ten_dollars_with_new_secrets_another_parent_and_another_process() {
    let a = Provider::always(scripted::completion("a word")).await;
    let mut gateway = Setup::new(&in_order(&[("a", &a.url())], PRICED)).threads(2).start().await;
    let (mut top, mut below) = family(&gateway).await;
    let mut answered = spend(&gateway, &below[..15], 1).await;
    assert_eq!(answered, 15);
    // New secrets do not change the keys.
    rotate(&gateway, &mut top).await;
    for key in &mut below[..30] {
        rotate(&gateway, key).await;
    }
    answered += spend(&gateway, &below[..15], 1).await;
    assert_eq!(answered, 30);
    // Other changes of the parent do not affect its budget. Neither does a budget that is smaller
    // for a while, or removed and set again.
    patch(
        &gateway,
        &top,
        json!({"name": "another", "metadata": {"a": "b"}, "limits": {"rpm": 100_000}}),
    )
    .await;
    patch(&gateway, &top, json!({"status": "inactive"})).await;
    patch(&gateway, &top, json!({"status": "active"})).await;
    patch(&gateway, &top, json!({"limits": {"budget": {"usd": 1}}})).await;
    assert_eq!(spend(&gateway, &below[..10], 1).await, 0, "three dollars were spent of one");
    let wider = patch(&gateway, &top, json!({"limits": {"budget": {"usd": 10}}})).await;
    assert_eq!(wider["limits"]["budget"], json!({"usd": 10.0, "per": "month"}));
    // The budgets below became smaller with the parent's, and stay so until they are changed.
    for key in below.iter().step_by(3) {
        patch(&gateway, key, json!({"limits": {"budget": {"usd": 10}}})).await;
    }
    for (n, key) in below.iter().enumerate().filter(|(n, _)| n % 3 > 0) {
        let widened = patch(&gateway, key, json!({"limits": {"budget": {"usd": 10}}})).await;
        assert_eq!(widened["limits"]["budget"]["usd"], 10.0, "{n}");
    }
    // The budget is removed and set again, without requests in between. What was spent before stays
    // spent.
    let none = patch(&gateway, &top, json!({"limits": {"budget": null}})).await;
    assert_eq!(none["limits"]["budget"], Value::Null);
    patch(&gateway, &top, json!({"limits": {"budget": {"usd": 10, "per": "month"}}})).await;
    answered += spend(&gateway, &below[30..45], 1).await;
    gateway.restart().await;
    answered += spend(&gateway, &below[45..60], 1).await;
    assert_eq!(answered, 60, "of ten cents each");
    gateway.kill_9();
    gateway.start_again().await;
    // A new key below gets only what is left.
    let child = make(&gateway, &below[0].secret, json!({"scopes": ["inference"]})).await;
    below.push(child);
    let rest = spend(&gateway, &below, 100).await;
    // What the process that was killed held is gone: what was reserved at once and spent in the
    // last two seconds, at most eighteen cents of each of fifteen. And of the last eighteen cents
    // one answer may be left over.
    let gone = (15 * 18_usize).div_ceil(10) + 1;
    assert!((100 - 60 - gone..=100 - answered).contains(&rest), "{answered} and {rest}");
    assert_eq!(a.count(), answered + rest);
    for key in &mut below {
        rotate(&gateway, key).await;
    }
    assert_eq!(spend(&gateway, &below, 1).await, 0, "nor is there more by other secrets");
}
