//! What a gateway costs the database, and how many can share it.

use std::time::Instant;

use futures::future::join_all;
use serde_json::json;

use crate::support::fleet::{Member, fleet};
use crate::support::gateway::Key;
use crate::support::postgres::{self, Cluster};
use crate::support::{full, until};

use super::gateways::{BOUND, BUSY, LEASE, asked, revoke};

const OPEN: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

#[tokio::test]
async fn three_gateways_at_work_have_two_connections_each() {
    let cluster = Cluster::start(&["max_connections=20"]);
    let members = fleet(&cluster, 3, "10s", "").await;
    let keys: Vec<Key> = {
        let mut keys = Vec::new();
        for member in &members {
            keys.push(member.gateway.create_key().await);
        }
        keys
    };
    for (member, key) in members.iter().flat_map(|member| keys.iter().map(move |key| (member, key)))
    {
        assert_eq!(asked(&member.gateway, key, BUSY).await, Some(200));
        let usage = "/v1/router/usage?group_by=key";
        let admin = &member.gateway.admin_key;
        assert_eq!(member.gateway.manage("GET", usage, admin, None).await.status, 200);
        assert_eq!(member.gateway.manage("GET", "/v1/gateways", admin, None).await.status, 200);
    }
    assert_eq!(cluster.run("postgres", OPEN).await, ["6"]);
}

/// It writes usage each half second, and captures more often.
#[tokio::test]
async fn a_killed_gateway_loses_the_usage_and_the_captures_of_a_moment() {
    let url = Cluster::shared().database().await;
    let start = || Member::start(Cluster::shared(), &url, "10s", "");
    let (mut killed, other) = tokio::join!(start(), start());
    let (killed, other) = (&mut killed.gateway, &other.gateway);
    let key = killed.create_key().await;
    let chat = json!({ "model": "auto", "messages": [{ "role": "user", "content": "hello" }] });
    let (chat, began) = (chat.to_string(), Instant::now());
    let mut answered = Vec::new();
    while began.elapsed() < 2 * BUSY / 3 {
        assert_eq!(killed.chat(&key, chat.as_bytes()).await.status, 200);
        answered.push(Instant::now());
    }
    killed.kill_9();
    let end = Instant::now();
    let long_before = answered.iter().filter(|at| end - **at > BUSY / 3).count() as u64;
    let usage = other.manage("GET", "/v1/router/usage", &other.admin_key, None).await.json();
    let counted = usage["data"][0]["requests"].as_u64().unwrap();
    let captures = "SELECT count(*) FROM captures";
    let captured: u64 = postgres::run(&url, captures).await[0].parse().unwrap();
    for (what, kept) in [("usage", counted), ("captures", captured)] {
        assert!((long_before..=answered.len() as u64).contains(&kept), "{what}: {kept}");
    }
}

/// Six gateways; with `--full` forty, on the hundred connections that PostgreSQL has by default.
#[tokio::test]
async fn many_gateways_know_of_a_revoked_key_with_one_stopped_one_cut_off_and_one_far_away() {
    let (count, connections) = if full() { (40, 100) } else { (6, 20) };
    let cluster = Cluster::start(&[&format!("max_connections={connections}")]);
    let members = fleet(&cluster, count, &format!("{}s", LEASE.as_secs()), "").await;
    let [first, .., stopped, cut, far, last] = &members[..] else { unreachable!() };
    far.proxy.move_away(25);
    // What was said to all is known to all when the call returns.
    let statuses = async |members: &[&Member], key: &Key| {
        join_all(members.iter().map(|member| asked(&member.gateway, key, BUSY))).await
    };
    let all: Vec<&Member> = members.iter().collect();
    for _ in 0..3 {
        let key = first.gateway.create_key().await;
        assert_eq!(asked(&last.gateway, &key, BUSY).await, Some(200));
        assert_eq!(asked(&far.gateway, &key, BUSY).await, Some(200));
        revoke(&first.gateway, &key).await;
        assert_eq!(statuses(&all, &key).await, vec![Some(401); count]);
    }
    let open: usize = cluster.run("postgres", OPEN).await[0].parse().unwrap();
    assert!(open <= 2 * count, "{open} connections");

    let keys = [(); 2].map(|()| first.gateway.create_key());
    let [key, kept] = <[Key; 2]>::try_from(join_all(keys).await).ok().unwrap();
    stopped.freeze();
    cut.proxy.close();
    let took = revoke(&first.gateway, &key).await;
    assert!(took < BOUND + BUSY, "{took:?}");
    let reached: Vec<&Member> = all
        .iter()
        .copied()
        .filter(|member| !std::ptr::eq(*member, stopped) && !std::ptr::eq(*member, cut))
        .collect();
    assert_eq!(statuses(&reached, &key).await, vec![Some(401); count - 2]);
    assert_eq!(asked(&cut.gateway, &key, BUSY).await, Some(503), "it has no lease");
    stopped.thaw();
    let woken = asked(&stopped.gateway, &key, BUSY).await;
    assert!(matches!(woken, Some(401 | 503)), "{woken:?}");
    cut.proxy.open();
    for member in [stopped, cut] {
        until("it to serve again", async || {
            (asked(&member.gateway, &kept, BUSY).await == Some(200)).then_some(())
        })
        .await;
        assert_eq!(asked(&member.gateway, &key, BUSY).await, Some(401));
    }
}
