//! Sums of usage, on their way to the store.

use super::*;
use crate::limits::ledger::{USAGE_DAYS, USAGE_RECENT_INTERVAL_S};
use rerouter_store::Reach;
use rerouter_store::{UsageInterval, usage_interval_start};

#[tokio::test]
async fn usage_is_summed_by_day_and_survives_a_failing_store() {
    let world = World::new(Limits::default()).await;
    let limiter = world.start().await;
    let key = |model: Option<&str>, replay: bool| UsageKey {
        at: usage_interval_start(at(0)),
        user: world.user.id.clone(),
        key: None,
        model: model.map(Arc::from),
        alias: None,
        recipe: "main".into(),
        rule: None,
        replay,
    };
    fn day_of(micros: i64) -> i64 {
        super::super::day(at(micros))
    }
    let sums = UsageSums {
        requests: 1,
        prompt_tokens: 7,
        completion_tokens: 3,
        nano: 5,
        priced: 1,
        ..UsageSums::default()
    };
    world.faults.fail_writes(1);
    limiter.used(key(Some("a/m"), false), &sums);
    assert!(limiter.write(&world.store, at(0)).await.is_err());
    limiter.used(key(Some("a/m"), false), &sums);
    limiter.used(key(Some("a/m"), true), &sums);
    limiter.used(key(None, false), &UsageSums { requests: 1, ..UsageSums::default() });
    limiter.write(&world.store, at(0)).await.unwrap();
    limiter.used(key(Some("a/m"), false), &sums);
    limiter.write(&world.store, at(0)).await.unwrap();
    let query = UsageQuery {
        since: day_of(0),
        until: day_of(86_400_000_000),
        group_by: vec![UsageColumn::Model],
        limit: 10,
        ..UsageQuery::default()
    };
    let groups = world.store.usage(query.clone()).await.unwrap();
    assert_eq!(groups.len(), 2);
    assert_eq!((groups[0].values[0].as_str(), groups[0].own.requests), ("", 1));
    assert_eq!(
        (groups[1].values[0].as_str(), groups[1].own.requests, groups[1].own.nano),
        ("a/m", 3, 15)
    );
    assert_eq!(groups[1].replays, sums);
    let other = UsageQuery {
        reach: Reach::Owner(UserId::known("usr_other")),
        group_by: Vec::new(),
        ..query.clone()
    };
    assert_eq!(world.store.usage(other).await.unwrap()[0].own, UsageSums::default());
    limiter.trim(&world.store, at(86_400_000_000 * (USAGE_DAYS + 1))).await.unwrap();
    assert!(world.store.usage(query).await.unwrap().is_empty());
}

/// The sums of the last hours are written less often than those of days, and all the same found by
/// whoever asks.
#[tokio::test]
async fn recent_usage_follows_that_of_days() {
    let world = World::new(Limits::default()).await;
    let limiter = world.start().await;
    let key = || UsageKey {
        at: usage_interval_start(at(0)),
        user: world.user.id.clone(),
        key: None,
        model: None,
        alias: None,
        recipe: "main".into(),
        rule: None,
        replay: false,
    };
    let one = UsageSums { requests: 1, errors: 1, ..UsageSums::default() };
    let found = async |interval| {
        let query = UsageQuery { interval, until: i64::MAX, limit: 1, ..UsageQuery::default() };
        world.store.usage(query).await.unwrap()[0].own.errors
    };
    limiter.write(&world.store, at(0)).await.unwrap();
    limiter.used(key(), &one);
    limiter.write(&world.store, at(0)).await.unwrap();
    assert_eq!((found(UsageInterval::Day).await, found(UsageInterval::Hour).await), (1, 0));
    world.faults.fail_writes(1);
    let due = at(USAGE_RECENT_INTERVAL_S * 1_000_000);
    limiter.write(&world.store, due).await.unwrap_err();
    limiter.write(&world.store, due).await.unwrap();
    limiter.used(key(), &one);
    limiter.write_usage(&world.store, Some(&UserId::known("usr_other"))).await.unwrap();
    assert_eq!(found(UsageInterval::Hour).await, 1);
    limiter.write_usage(&world.store, Some(&world.user.id)).await.unwrap();
    assert_eq!(found(UsageInterval::FiveMinutes).await, 2);
    // The clock is set back.
    limiter.used(key(), &one);
    limiter.write(&world.store, at(-3_600_000_000)).await.unwrap();
    assert_eq!(found(UsageInterval::FiveMinutes).await, 3);
    limiter.used(key(), &one);
    limiter.close(&world.store).await.unwrap();
    assert_eq!((found(UsageInterval::Day).await, found(UsageInterval::FiveMinutes).await), (4, 4));
}

/// A provider may say anything of the tokens that it took. Were the sums refused, so would be every
/// row in the same batch.
#[tokio::test]
async fn usage_beyond_measure_holds_nothing_up() {
    let world = World::new(Limits::default()).await;
    let limiter = world.start().await;
    let paid = world.key(None, limits(60, day(1_000))).await;
    let most = u64::MAX;
    for model in ["a/m", "a/m", "b/m"] {
        let key = UsageKey {
            at: usage_interval_start(at(0)),
            user: world.user.id.clone(),
            key: None,
            model: Some(model.into()),
            alias: None,
            recipe: "main".into(),
            rule: None,
            replay: false,
        };
        let sums = UsageSums {
            requests: 1,
            prompt_tokens: most,
            completion_tokens: most,
            nano: most,
            priced: 1,
            ..UsageSums::default()
        };
        limiter.used(key, &sums);
        limiter.write(&world.store, at(0)).await.unwrap();
    }
    drop(pay(&limiter, &world, &world.draws(&paid), Reserve::exactly(10)).await.unwrap());
    let query = UsageQuery { until: i64::MAX, limit: 10, ..UsageQuery::default() };
    let sum = world.store.usage(query).await.unwrap()[0].own;
    assert_eq!(sum.requests, 3);
    assert!(sum.prompt_tokens > 1 << 50 && sum.nano > 1 << 50, "{sum:?}");
}
