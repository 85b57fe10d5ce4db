//! Commits of several gateways succeed, but their answers are lost. Usage still counts exactly
//! once, and no budget is lost.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::join_all;
use serde_json::json;

use crate::support::documents::in_order;
use crate::support::fleet::{MASTER_KEY, pause};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::postgres::{self, Cluster};
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

/// An answer with seven tokens in and three out costs ten cents.
const PRICED: &str = "models:\n  a/model: { input_per_mtok: 1000, output_per_mtok: 31000 }\n";
const BODY: &[u8] =
    br#"{"model":"auto","messages":[{"role":"user","content":"Say a word."}],"max_tokens":3}"#;

/// Decides whether answers to commits are lost: each commit then waits for a standby that does not
/// exist.
async fn answers(cluster: &Cluster, lost: bool) {
    let standbys = if lost { "*" } else { "" };
    let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{standbys}'");
    for statement in [set.as_str(), "SELECT pg_reload_conf()"] {
        cluster.run("postgres", statement).await;
    }
}

/// Ends the connections with waiting commits. The commits are then visible. Returns the number of
/// connections.
async fn cut(cluster: &Cluster) -> usize {
    let waiting = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE wait_event = 'SyncRep'";
    cluster.run("postgres", waiting).await.len()
}

/// Sends requests until told to end, and counts the answers.
async fn ask(gateway: &Gateway, key: &Key, ended: &AtomicBool, answered: &AtomicUsize) {
    while !ended.load(Ordering::Acquire) {
        match gateway.chat(key, BODY).await.status {
            200 => _ = answered.fetch_add(1, Ordering::AcqRel),
            // The gateway waits for a grant, or for its lease.
            429 | 503 => {}
            other => panic!("status {other}"),
        }
        pause(100).await;
    }
}

/// The number of requests in usage, and their cost in cents.
async fn used(gateway: &Gateway, interval: &str) -> (u64, u64) {
    let path = format!("/v1/router/usage?group_by=model&interval={interval}");
    let told = gateway.manage("GET", &path, &gateway.admin_key, None).await.json();
    let all = told["data"].as_array().cloned().unwrap_or_default();
    let row = all.iter().find(|row| row["model"] == "a/model");
    row.map_or((0, 0), |row| {
        let cost = row["cost_usd"].as_f64().unwrap();
        (row["requests"].as_u64().unwrap(), (cost * 100.0).round() as u64)
    })
}

#[tokio::test]
async fn what_was_committed_without_an_answer_counts_once_and_no_budget_is_lost() {
    let a = Provider::always(scripted::completion("a word")).await;
    let cluster = Cluster::start(&[]);
    let url = cluster.database().await;
    let routing = in_order(&[("a", &a.url())], PRICED);
    let on = async || {
        let store = format!("store: {{ url: '{url}', lease: 30s }}\n");
        Setup::new(&routing).server(&store).env("REROUTER_MASTER_KEY", MASTER_KEY).start().await
    };
    let (one, two) = tokio::join!(on(), on());
    let mut gateways = [one, two];
    let key = gateways[0].limited_key(json!({"budget": {"usd": 100, "per": "month"}})).await;
    let (ended, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let clients = (0..4).map(|n| ask(&gateways[n % 2], &key, &ended, &answered));
    let harm = async {
        let lost = Cell::new(0);
        for _ in 0..3 {
            until("answers", async || (answered.load(Ordering::Acquire) >= 8).then_some(())).await;
            answers(&cluster, true).await;
            let enough = lost.get() + 10;
            until("answers to be lost", async || {
                lost.set(lost.get() + cut(&cluster).await);
                (lost.get() >= enough).then_some(())
            })
            .await;
            answers(&cluster, false).await;
            cut(&cluster).await;
            let before = answered.load(Ordering::Acquire);
            until("more answers", async || {
                (answered.load(Ordering::Acquire) > before + 8).then_some(())
            })
            .await;
        }
        ended.store(true, Ordering::Release);
        lost.get()
    };
    let (lost, _) = tokio::join!(harm, join_all(clients));
    let answered = answered.load(Ordering::Acquire);
    eprintln!("{answered} answers, {lost} commits without one");
    assert_eq!(a.count(), answered);
    for interval in ["1d", "1h", "5m"] {
        for gateway in &gateways {
            until("the usage of all", async || {
                (used(gateway, interval).await.0 >= answered as u64).then_some(())
            })
            .await;
        }
        let wanted = (answered as u64, 10 * answered as u64);
        for gateway in &gateways {
            assert_eq!(used(gateway, interval).await, wanted, "{interval}");
        }
    }
    for gateway in &mut gateways {
        gateway.stop().await;
    }
    let spent = postgres::run(&url, "SELECT sum(spent) FROM spend").await;
    assert_eq!(spent, [(answered * 100_000_000).to_string()], "of {answered} answers");
    // A gateway that starts again reads the same sum.
    gateways[0].start_again().await;
    let path = format!("/v1/router/keys/{}", key.id);
    let shown = gateways[0].manage("GET", &path, &gateways[0].admin_key, None).await.json();
    let spent = shown["usage"]["budget"]["spent_usd"].as_f64().unwrap();
    assert_eq!((spent * 100.0).round() as usize, answered * 10, "{shown}");
}
