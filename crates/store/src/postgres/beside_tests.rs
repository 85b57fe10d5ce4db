//! Writes that wait for no mutation: usage, holds and last uses of several gateways at once.

use std::sync::mpsc;
use std::time::Instant;

use futures::future::join_all;

use super::servers::{self, Cluster};
use super::tests::{PostgresBed, session};
use crate::fixtures::key;
use crate::sql::Transaction;
use crate::tests::Bed;
use crate::{
    BatchNumber, HoldWrite, Since, Store, UsageBatch, UsageKey, UsageQuery, UsageSums,
    usage_interval_start,
};
use rerouter_base::clock::fixtures::at;
use rerouter_base::id::{Random, UserId};

const PERIOD: i64 = 20_261_101;
const LATER: Since = Since { month: 0, day: 0 };

fn usage_of(user: &str) -> UsageKey {
    UsageKey {
        at: usage_interval_start(at(0)),
        user: UserId::known(user),
        key: None,
        model: Some("p/m".into()),
        alias: None,
        recipe: "main".into(),
        rule: None,
        replay: false,
    }
}

fn batch(writer: i64, number: i64, users: impl Iterator<Item = usize>) -> UsageBatch {
    let sums = UsageSums { requests: 1, nano: 10, ..UsageSums::default() };
    let sums = users.map(|user| (usage_of(&format!("usr_{user}")), sums)).collect();
    UsageBatch { sums, number: Some(BatchNumber { writer, number }) }
}

fn hold(subject: &str, held: u64) -> HoldWrite {
    let key = (subject.to_owned(), PERIOD);
    HoldWrite { key, spent: 0, estimated: 0, held, least: 0, budget: 100 }
}

/// Runs `work` while another session is in a write that has run `locks`, which ends after it.
async fn while_locked<T>(url: &str, locks: &'static str, work: impl Future<Output = T>) -> T {
    while_open(url, "SELECT rev FROM state FOR UPDATE", locks, work).await
}

/// Runs `work` while another session is in a transaction that has run `first` and `locks`.
async fn while_open<T>(
    url: &str,
    first: &'static str,
    locks: &'static str,
    work: impl Future<Output = T>,
) -> T {
    let (locked, is_locked) = tokio::sync::oneshot::channel();
    let (end, ends) = mpsc::channel();
    let url = url.to_owned();
    let locker = tokio::spawn(async move {
        session(&url, move |session| {
            session.write_beside(|transaction: &Transaction<'_>| {
                transaction.batch(first)?;
                transaction.execute(locks, &[])?;
                locked.send(()).unwrap();
                // It is shorter than the time after which the server would end it.
                let _ended = ends.recv_timeout(std::time::Duration::from_millis(1_500));
                Ok::<_, crate::StoreError>(())
            })
        })
        .await
    });
    is_locked.await.unwrap();
    let done = work.await;
    let _gone = end.send(());
    locker.await.unwrap().unwrap();
    done
}

#[tokio::test]
async fn usage_holds_and_last_uses_wait_for_no_mutation() {
    let bed = PostgresBed::new().await;
    let store = bed.open().await;
    let row = key(&UserId::admin(), &Random::seeded(5));
    store.create_key(row.clone()).await.unwrap();
    store.open_holder(1).await.unwrap();
    let writes = async {
        store.write_usage(batch(1, 1, 0..3)).await.unwrap();
        store.write_recent_usage(batch(2, 1, 0..3)).await.unwrap();
        store.note_used(vec![(row.id.clone(), at(7))]).await.unwrap();
        let held = store.write_holds(1, vec![hold("key_1", 60)]).await.unwrap().unwrap();
        assert_eq!(held[0].held, 60);
        assert!(store.spend_news(1, "", LATER).await.unwrap().is_holder);
        store.close_holder(1).await.unwrap();
    };
    let began = Instant::now();
    while_locked(bed.url(), "UPDATE state SET rev = rev", writes).await;
    assert!(began.elapsed().as_millis() < 1_400, "{:?}", began.elapsed());
    assert_eq!(store.load().await.unwrap().keys[0].last_used_at, Some(at(7)));
}

/// A change reads the row of a key, the last use is noted, and the change writes the row.
#[tokio::test]
async fn a_change_of_a_key_does_not_undo_a_last_use_that_was_noted_meanwhile() {
    let bed = PostgresBed::new().await;
    let store = bed.open().await;
    let row = key(&UserId::admin(), &Random::seeded(6));
    store.create_keys(vec![row.clone()]).await.unwrap();
    store.note_used(vec![(row.id.clone(), at(7))]).await.unwrap();
    store.write(move |transaction| crate::rows::update(transaction, &row)).await.unwrap();
    assert_eq!(store.load().await.unwrap().keys[0].last_used_at, Some(at(7)));
}

#[tokio::test]
async fn a_last_use_of_a_key_that_is_being_changed_waits_for_the_next_time() {
    let bed = PostgresBed::new().await;
    let store = bed.open().await;
    let random = Random::seeded(6);
    let keys = [(); 2].map(|()| key(&UserId::admin(), &random));
    store.create_keys(keys.to_vec()).await.unwrap();
    let used: Vec<_> = keys.iter().map(|key| (key.id.clone(), at(7))).collect();
    let locks = "UPDATE keys SET name = name WHERE id = (SELECT min(id) FROM keys)";
    while_locked(bed.url(), locks, async { store.note_used(used.clone()).await.unwrap_err() })
        .await;
    let noted = async || {
        let keys = store.load().await.unwrap().keys;
        keys.iter().filter(|key| key.last_used_at == Some(at(7))).count()
    };
    assert_eq!(noted().await, 1);
    store.note_used(used.clone()).await.unwrap();
    assert_eq!(noted().await, 2);
    store.note_used(used).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_hold_and_spend_the_same_budgets_at_once_stay_within_them() {
    let url = Cluster::shared().database().await;
    let stores: Vec<Store> = join_all((0..4).map(|_| PostgresBed::on(&url))).await;
    let ways = stores.iter().enumerate().map(async |(at, store)| {
        let holder = 1 + at as i64;
        store.open_holder(holder).await.unwrap();
        for round in 0..30_u64 {
            // Each in another order.
            let budgets = (0..8).map(|step| (step * (2 * at + 1) + round as usize) % 8);
            let holds = budgets.map(|one| hold(&format!("key_{one}"), (7 * round + 11) % 90));
            let held = store.write_holds(holder, holds.collect()).await.unwrap().unwrap();
            for one in held {
                assert!(one.held + one.others.total() <= 100, "{one:?}");
            }
            store.write_usage(batch(holder, round as i64 + 1, 0..20)).await.unwrap();
        }
    });
    join_all(ways).await;
    let most = "SELECT count(*) FROM (SELECT sum(held) AS all_held FROM holds GROUP BY subject)
        AS sums WHERE all_held > 100";
    assert_eq!(servers::run(&url, most).await, ["0"]);
    let query = UsageQuery { until: i64::MAX, limit: 1, ..UsageQuery::default() };
    assert_eq!(stores[0].usage(query).await.unwrap()[0].own.requests, 4 * 30 * 20);
    assert_eq!(servers::run(&url, "SELECT sum(requests) FROM usage").await, ["2400"]);
}

/// Of two writes at once, the one with the smaller number commits last.
#[tokio::test]
async fn a_write_that_commits_late_is_news_though_a_later_one_was_read() {
    // Transactions in other databases of a cluster count too.
    let cluster = Cluster::start(&[]);
    let url = cluster.database().await;
    let store = PostgresBed::on(&url).await;
    for holder in [1, 2, 3] {
        store.open_holder(holder).await.unwrap();
        store.write_holds(holder, vec![hold(&format!("key_{holder}"), 5)]).await.unwrap().unwrap();
    }
    let first = store.spend_news(3, "", LATER).await.unwrap();
    assert_eq!(first.changed.len(), 3, "its own too");
    assert!(store.spend_news(3, &first.seen, LATER).await.unwrap().changed.is_empty());
    let between = async {
        store.write_holds(2, vec![hold("key_2", 6)]).await.unwrap().unwrap();
        let news = store.spend_news(3, &first.seen, LATER).await.unwrap();
        let next = store.spend_news(3, &news.seen, LATER).await.unwrap();
        assert!(next.changed.is_empty(), "told once, however long others take: {next:?}");
        news
    };
    let late = "UPDATE holds SET held = 7,
        rev = CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT) WHERE holder = 1";
    let news = while_locked(&url, late, between).await;
    assert_eq!(news.changed.len(), 1, "{news:?}");
    let news = store.spend_news(3, &news.seen, LATER).await.unwrap();
    assert!(news.changed.iter().any(|(key, sums)| key.0 == "key_1" && sums.held == 7), "{news:?}");
    assert!(store.spend_news(3, &news.seen, LATER).await.unwrap().changed.is_empty());
    // Numbers of another database are larger than any here, and no news.
    servers::run(&url, "UPDATE spend SET rev = CAST(1 AS BIGINT) << 40").await;
    assert!(store.spend_news(3, &news.seen, LATER).await.unwrap().changed.is_empty());
    let far = "1099511627781:1099511627785:1099511627781";
    let all = store.spend_news(3, far, LATER).await.unwrap();
    assert_eq!(all.seen, "", "from the start, the next time");
}

/// How many sessions wait for a row.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'";

#[tokio::test]
async fn what_a_process_held_that_dies_during_a_settlement_stays_lost() {
    let url = Cluster::shared().database().await;
    let store = PostgresBed::on(&url).await;
    for holder in [1, 2] {
        store.open_holder(holder).await.unwrap();
        store.write_holds(holder, vec![hold("key_1", 20 * holder as u64)]).await.unwrap();
    }
    store.close_holder(1).await.unwrap();
    let other = PostgresBed::on(&url).await;
    let settle = async {
        let settle = store.settle_lost(("key_1".into(), PERIOD), 5);
        let die = async {
            while servers::run(&url, WAITING).await != ["1"] {}
            other.close_holder(2).await
        };
        tokio::join!(settle, die)
    };
    // The settlement has read what is lost, and waits for the budget.
    let (settled, died) = while_open(&url, "", "UPDATE spend SET spent = spent", settle).await;
    assert!(settled.unwrap());
    died.unwrap();
    let lost = other.lost_holds(9).await.unwrap();
    assert_eq!(lost.iter().map(|lost| lost.held).collect::<Vec<_>>(), [40]);
}

/// Also prints how many rows a second: `benches/run fleet` asks for more rounds.
// The bench asks for more rounds by the environment, and the rate is its result.
#[allow(clippy::disallowed_methods, clippy::print_stdout)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_usage_a_second() {
    let rounds = std::env::var("REROUTER_USAGE_ROUNDS").map_or(1, |told| told.parse().unwrap());
    for gateways in [1, 4] {
        let url = Cluster::shared().database().await;
        let stores: Vec<Store> = join_all((0..gateways).map(|_| PostgresBed::on(&url))).await;
        let began = Instant::now();
        let ways = stores.iter().enumerate().map(async |(at, store)| {
            for round in 1..=rounds {
                let users = 1_000 * at..1_000 * (at + 1);
                store.write_usage(batch(at as i64, round, users)).await.unwrap();
            }
        });
        join_all(ways).await;
        let rows = 1_000 * rounds * gateways as i64;
        let rate = rows as f64 / began.elapsed().as_secs_f64();
        println!("{gateways} gateways: {rate:.0} rows/s");
        let stored = servers::run(&url, "SELECT sum(requests) FROM usage").await;
        assert_eq!(stored, [rows.to_string()]);
    }
}
