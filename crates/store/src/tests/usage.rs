//! Spend and usage.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::sql::params;
use crate::{
    Hold, HoldWrite, LatencyCounts, OthersSpend, UsageInterval, UsageOrder, usage_interval_start,
};
use rerouter_base::usage_kind::UsageCountSums;

/// Usage at noon of a day.
fn usage_of(day: &str, user: &str, model: &str, replay: bool) -> UsageKey {
    let noon: Timestamp = format!("{day}T12:00:00Z").parse().unwrap();
    UsageKey {
        at: usage_interval_start(noon),
        user: UserId::known(user),
        key: (user == "usr_ann").then(|| KeyId::known("key_1")),
        model: (!model.is_empty()).then(|| model.into()),
        alias: (user == "usr_ann").then(|| "quick".into()),
        recipe: "auto".into(),
        rule: (user == "usr_ann").then(|| "code".into()),
        replay,
    }
}

/// Sums of this many requests.
fn sums(requests: u64) -> UsageSums {
    UsageSums {
        requests,
        prompt_tokens: 10 * requests,
        completion_tokens: 20 * requests,
        counts: UsageCountSums { cached_tokens: 5 * requests, ..UsageCountSums::default() },
        nano: 1_000 * requests,
        priced: requests,
        ..UsageSums::default()
    }
}

/// The values of each group, and its numbers of requests and of replays.
async fn groups(store: &Store, query: UsageQuery) -> Vec<(Vec<String>, u64, u64)> {
    let groups = store.usage(query).await.unwrap();
    let all = |sum: UsageSums| {
        assert_eq!(sum, sums(sum.requests));
        sum.requests
    };
    groups.into_iter().map(|group| (group.values, all(group.own), all(group.replays))).collect()
}

pub(crate) async fn usage_is_summed_by_a_label_of_its_key(bed: &impl Bed) {
    let (store, random) = (bed.open().await, Random::seeded(1));
    for (email, team, requests) in
        [("a@example.com", "blue", 1), ("b@example.com", "red's", 2), ("c@example.com", "blue", 4)]
    {
        let user = user(email, &random);
        store.create_user(user.clone()).await.unwrap();
        let mut made = key(&user.id, &random);
        made.labels = BTreeMap::from([("team.x".to_owned(), team.to_owned())]).into();
        store.create_key(made.clone()).await.unwrap();
        let at = usage_of("2026-11-01", "usr_ann", "m", false);
        let used = UsageKey { key: Some(made.id), user: user.id, ..at };
        store.write_usage(vec![(used, sums(requests))]).await.unwrap();
    }
    let gone = usage_of("2026-11-01", "usr_ann", "m", false);
    store.write_usage(vec![(gone, sums(8))]).await.unwrap();
    let by = |label: &str, order| UsageQuery {
        until: 20_261_103,
        limit: 10,
        group_by: vec![UsageColumn::Label],
        label: label.to_owned(),
        order,
        ..UsageQuery::default()
    };
    let named = |value: &str, own| (vec![value.to_owned()], own, 0);
    assert_eq!(
        groups(&store, by("team.x", Some(UsageOrder::Cost))).await,
        [named("", 8), named("blue", 5), named("red's", 2)]
    );
    assert_eq!(groups(&store, by("other", None)).await, [named("", 15)]);
}

pub(crate) async fn usage_is_summed_by_any_columns(bed: &impl Bed) {
    let store = bed.open().await;
    for _ in 0..2 {
        let usage = [
            (usage_of("2026-11-01", "usr_ann", "openai/gpt-5", false), 1),
            (usage_of("2026-11-01", "usr_ann", "openai/gpt-5", true), 2),
            (usage_of("2026-11-02", "usr_ann", "", false), 4),
            (usage_of("2026-11-02", "usr_Bob", "openai/gpt-5", false), 8),
        ];
        let usage = usage.map(|(key, requests)| (key, sums(requests)));
        store.write_usage(usage.to_vec()).await.unwrap();
    }
    let all = || UsageQuery { until: 20_261_103, limit: 10, ..UsageQuery::default() };
    let by = |group_by: &[UsageColumn]| UsageQuery { group_by: group_by.to_vec(), ..all() };
    let named = |values: &[&str], own, replays| {
        (values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>(), own, replays)
    };
    use UsageColumn::{Alias, Day, Key, Model, Recipe, Rule, User};
    assert_eq!(groups(&store, all()).await, [named(&[], 26, 4)]);
    // Values are in the order of their bytes, and the latest day comes first.
    let of_users = [named(&["usr_Bob"], 16, 0), named(&["usr_ann"], 10, 4)];
    assert_eq!(groups(&store, by(&[User])).await, of_users);
    let of_days = [named(&["20261102", ""], 8, 0), named(&["20261102", "openai/gpt-5"], 16, 0)];
    let all_of_days = [&of_days[..], &[named(&["20261101", "openai/gpt-5"], 2, 4)]].concat();
    assert_eq!(groups(&store, by(&[Day, Model])).await, all_of_days);
    let of_keys = [named(&["", "auto"], 16, 0), named(&["key_1", "auto"], 10, 4)];
    assert_eq!(groups(&store, by(&[Key, Recipe])).await, of_keys);
    let of_rules = [named(&["", "auto", ""], 16, 0), named(&["quick", "auto", "code"], 10, 4)];
    assert_eq!(groups(&store, by(&[Alias, Recipe, Rule])).await, of_rules);
    let first = UsageQuery { limit: 2, ..by(&[Day, Model]) };
    assert_eq!(groups(&store, first).await, of_days);
    // The groups with the largest sums are summed in full.
    let largest = UsageQuery { order: Some(UsageOrder::Requests), limit: 1, ..by(&[Day, User]) };
    assert_eq!(groups(&store, largest).await, [named(&["20261102", "usr_Bob"], 16, 0)]);
    let ann = UsageQuery { reach: Reach::Owner(UserId::known("usr_ann")), ..by(&[User]) };
    assert_eq!(groups(&store, ann).await, of_users[1..]);
    let line = |user: &str, keys: &[&str]| UsageQuery {
        reach: Reach::Line(
            UserId::known(user),
            Arc::new(keys.iter().map(|key| KeyId::known(key)).collect()),
        ),
        ..by(&[Key])
    };
    let of_line = [named(&["key_1"], 10, 4)];
    assert_eq!(groups(&store, line("usr_ann", &["key_0", "key_1"])).await, of_line);
    let largest =
        UsageQuery { order: Some(UsageOrder::Cost), ..line("usr_ann", &["key_1", "key_2"]) };
    assert_eq!(groups(&store, largest).await, of_line);
    for (user, keys) in [("usr_Bob", &["key_1"][..]), ("usr_Bob", &[""]), ("usr_ann", &[])] {
        let own = matches!(keys, [""]);
        assert_eq!(groups(&store, line(user, keys)).await.is_empty(), !own, "{user} {keys:?}");
    }
    let one_day = UsageQuery { since: 20_261_101, until: 20_261_102, ..all() };
    assert_eq!(groups(&store, one_day).await, [named(&[], 2, 4)]);
    store.trim_spend(Since::default(), 20_261_102).await.unwrap();
    assert_eq!(groups(&store, all()).await, [named(&[], 24, 0)]);
    store.trim_spend(Since::default(), 20_261_103).await.unwrap();
    assert_eq!(groups(&store, all()).await, [named(&[], 0, 0)]);
    assert_eq!(groups(&store, by(&[User])).await, []);
}

pub(crate) async fn usage_is_summed_by_hour_and_by_five_minutes(bed: &impl Bed) {
    let store = bed.open().await;
    let at = |time: &str| format!("2026-11-01T{time}Z").parse::<Timestamp>().unwrap();
    let used = |time: &str, user: &str, requests: u64, took: u64| {
        let key = UsageKey {
            at: usage_interval_start(at(time)),
            ..usage_of("2026-11-01", user, "m", false)
        };
        let took = LatencyCounts::one(Duration::from_millis(took));
        (key, UsageSums { took, first_token: took, ..sums(requests) })
    };
    let all = [
        used("11:59:59", "usr_ann", 1, 10),
        used("12:00:00", "usr_Bob", 2, 40),
        used("12:04:59", "usr_ann", 4, 40),
        used("12:05:00", "usr_ann", 8, 800),
    ];
    store.write_recent_usage(all.to_vec()).await.unwrap();
    store.write_recent_usage(all.to_vec()).await.unwrap();
    let query = |interval: UsageInterval, group_by: &[UsageColumn]| UsageQuery {
        interval,
        since: at("11:00:00").as_second(),
        until: at("13:00:00").as_second(),
        group_by: group_by.to_vec(),
        limit: 10,
        ..UsageQuery::default()
    };
    let found = async |query: UsageQuery| {
        let groups = store.usage(query).await.unwrap();
        let group = |group: UsageGroup| (group.values, group.own.requests);
        groups.into_iter().map(group).collect::<Vec<_>>()
    };
    let group = |time: &str, requests| (vec![at(time).as_second().to_string()], requests);
    use UsageColumn::{Time, User};
    use UsageInterval::{FiveMinutes, Hour};
    let hours = [group("12:00:00", 28), group("11:00:00", 2)];
    assert_eq!(found(query(Hour, &[Time])).await, hours);
    let slots = [group("12:05:00", 16), group("12:00:00", 12), group("11:55:00", 2)];
    assert_eq!(found(query(FiveMinutes, &[Time])).await, slots);
    let users = [(vec!["usr_ann".to_owned()], 26), (vec!["usr_Bob".to_owned()], 4)];
    let by_size = UsageQuery { order: Some(UsageOrder::Tokens), ..query(Hour, &[User]) };
    assert_eq!(found(by_size).await, users);
    let bob = vec!["usr_Bob".to_owned(), "usr_none".to_owned()];
    let only = UsageQuery { only: vec![(User, bob)], ..query(Hour, &[Time]) };
    assert_eq!(found(only).await, [group("12:00:00", 4)]);
    let late = UsageQuery { since: at("12:05:00").as_second(), ..query(FiveMinutes, &[]) };
    assert_eq!(found(late).await, [(Vec::new(), 16)]);
    let own = store.usage(query(Hour, &[])).await.unwrap()[0].own;
    assert_eq!(own.took, own.first_token);
    assert_eq!(own.took.quantile_ms(0.5), Some(37.5));
    // The sums of all users together equal the sum over all users.
    for interval in [Hour, FiveMinutes] {
        let [all, each] = [&[Time][..], &[Time, User]].map(|columns| query(interval, columns));
        let (all, each) = (store.usage(all).await.unwrap(), store.usage(each).await.unwrap());
        for group in all {
            let of_time = each.iter().filter(|one| one.values[0] == group.values[0]);
            let mut sums = UsageSums::default();
            of_time.for_each(|one| sums.add(&one.own));
            assert_eq!(sums, group.own);
        }
    }
    // Sums of hours and of five minutes are deleted at different ages.
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
    store.trim_recent_usage(at("12:06:00"), hour, minute).await.unwrap();
    assert_eq!(found(query(FiveMinutes, &[Time])).await, slots[..1]);
    assert_eq!(found(query(Hour, &[Time])).await, hours[..1]);
    assert_eq!(found(query(Hour, &[User])).await.len(), 2);
    store.trim_recent_usage(at("14:00:00"), minute, minute).await.unwrap();
    for columns in [&[Time][..], &[User]] {
        assert_eq!(found(query(Hour, columns)).await, []);
    }
}

pub(crate) async fn a_sum_stops_at_its_bound(bed: &impl Bed) {
    let store = bed.open().await;
    let most = 1 << 53;
    for (nano, expected) in [(most - 1, most - 1), (1, most), (u64::MAX, most)] {
        let added = UsageSums { nano, requests: 1, ..UsageSums::default() };
        let usage = vec![(usage_of("2026-11-01", "usr_ann", "m", false), added)];
        store.write_usage(usage).await.unwrap();
        let query = UsageQuery { until: i64::MAX, limit: 1, ..UsageQuery::default() };
        assert_eq!(store.usage(query).await.unwrap()[0].own.nano, expected);
    }
}

const PERIOD: i64 = 20_261_101;

fn hold(subject: &str, spent: u64, held: u64, least: u64) -> HoldWrite {
    HoldWrite { key: (subject.into(), PERIOD), spent, estimated: 0, held, least, budget: 100 }
}

/// Writes one hold. Returns what is held, what others spent, what they hold and what is lost;
/// `None` if nothing was written.
async fn write(store: &Store, holder: i64, hold: HoldWrite) -> Option<[u64; 4]> {
    let written = store.write_holds(holder, vec![hold]).await.unwrap()?;
    let Hold { held, others: OthersSpend { spent, held: theirs, lost, .. } } = written[0];
    Some([held, spent, theirs, lost])
}

pub(crate) async fn holds_are_written_all_or_none(bed: &impl Bed) {
    let faults = Faults::default();
    let store = bed.open().await.with_faults(faults.clone());
    store.open_holder(1).await.unwrap();
    store.write_holds(1, vec![hold("key_1", 7, 0, 0)]).await.unwrap().unwrap();
    faults.fail_writes(1);
    store.write_holds(1, vec![hold("usr_1", 99, 0, 0), hold("key_1", 99, 0, 0)]).await.unwrap_err();
    let since = |day| Since { month: 20_261_100, day };
    let spent = async |seen: &str| store.spend_news(2, seen, since(PERIOD)).await.unwrap();
    let first = spent("").await;
    let of = |subject: &str, spent| {
        ((subject.to_owned(), PERIOD), OthersSpend { spent, ..OthersSpend::default() })
    };
    assert_eq!((first.is_holder, &first.changed), (false, &vec![of("key_1", 7)]));
    store.write_holds(1, vec![hold("usr_1", 5, 0, 0)]).await.unwrap();
    let mut next = spent(&first.seen).await;
    assert!(next.changed.contains(&of("usr_1", 5)), "{next:?}");
    // It is told again while transactions of others, that began before it, are under way.
    while !next.changed.is_empty() {
        next = spent(&next.seen).await;
    }
    // In order it ends with the sums of all, once.
    store.close_holder(1).await.unwrap();
    store.close_holder(1).await.unwrap();
    assert_eq!(spent(&next.seen).await.changed, [of("key_1", 7), of("usr_1", 5)]);
    store.open_holder(3).await.unwrap();
    store.write_holds(3, vec![hold("key_1", 2, 9, 0)]).await.unwrap();
    assert_eq!(store.spend_news(2, "", since(PERIOD + 1)).await.unwrap().changed, []);
    // What it still holds at its end is lost.
    store.close_holder(3).await.unwrap();
    store.trim_spend(since(PERIOD), 0).await.unwrap();
    let kept = spent("").await.changed;
    assert_eq!((kept.len(), kept[0].1.spent, kept[0].1.lost), (2, 9, 9));
    store.trim_spend(since(PERIOD + 1), 0).await.unwrap();
    assert_eq!(spent("").await.changed, []);
}

pub(crate) async fn all_that_hold_of_a_budget_hold_no_more_than_it(bed: &impl Bed) {
    let faults = Faults::default();
    let store = bed.open().await.with_faults(faults.clone());
    assert_eq!(write(&store, 1, hold("key_1", 0, 60, 0)).await, None, "nobody knows of it");
    for holder in [1, 2] {
        add_holder(&store, holder).await;
    }
    assert_eq!(write(&store, 1, hold("key_1", 0, 60, 0)).await, Some([60, 0, 0, 0]));
    assert_eq!(write(&store, 2, hold("key_1", 0, 60, 0)).await, Some([40, 0, 60, 0]));
    let wanted = store.spend_news(1, "", Since::default()).await.unwrap().wanted;
    assert_eq!(wanted, [("key_1".to_owned(), PERIOD)]);
    // What is written again is there once.
    for _ in 0..2 {
        assert_eq!(write(&store, 1, hold("key_1", 20, 60, 10)).await, Some([40, 0, 40, 0]));
    }
    // The first gives back what it does not use, and the second has room.
    assert_eq!(write(&store, 1, hold("key_1", 20, 10, 10)).await, Some([10, 0, 40, 0]));
    assert_eq!(write(&store, 2, hold("key_1", 5, 90, 40)).await, Some([65, 20, 10, 0]));
    // What is reserved is held also beyond the budget.
    assert_eq!(write(&store, 1, hold("key_1", 20, 25, 25)).await, Some([25, 5, 65, 0]));
    // One dies: what it spent stays spent, and what it held is lost, until it is there again.
    store.end_other_holders(2).await.unwrap();
    assert_eq!(write(&store, 2, hold("key_1", 5, 1, 1)).await, Some([1, 20, 0, 25]));
    assert_eq!(write(&store, 1, hold("key_1", 21, 0, 0)).await, None);
    add_holder(&store, 1).await;
    assert_eq!(write(&store, 1, hold("key_1", 21, 30, 0)).await, Some([30, 5, 1, 0]));
    write(&store, 1, hold("key_1", 21, 0, 0)).await.unwrap();
    store.close_holder(1).await.unwrap();
    assert_eq!(write(&store, 2, hold("key_1", 5, 90, 0)).await, Some([74, 21, 0, 0]));
}

/// Adds a process beside the others.
async fn add_holder(store: &Store, holder: i64) {
    let add = move |transaction: &Transaction<'_>| {
        let add = "INSERT INTO holders (holder, process, name) VALUES (?1, '', '')";
        transaction.execute(add, &params![holder])
    };
    store.write(add).await.unwrap();
}
