//! Spend and usage.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::spend::SpendRow;
use crate::{
    BudgetGrant, BudgetShare, LatencyCounts, SpendWish, UsageInterval, UsageOrder,
    usage_interval_start,
};

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
        cached_tokens: 5 * requests,
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
        store.write_spend_and_usage(Vec::new(), usage.to_vec()).await.unwrap();
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
    store.trim_spend_and_usage(0, 20_261_102).await.unwrap();
    assert_eq!(groups(&store, all()).await, [named(&[], 24, 0)]);
    store.trim_spend_and_usage(0, 20_261_103).await.unwrap();
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
        store.write_spend_and_usage(Vec::new(), usage).await.unwrap();
        let query = UsageQuery { until: i64::MAX, limit: 1, ..UsageQuery::default() };
        assert_eq!(store.usage(query).await.unwrap()[0].own.nano, expected);
    }
}

pub(crate) async fn spend_is_replaced_with_its_usage_or_not_at_all(bed: &impl Bed) {
    let faults = Faults::default();
    let store = bed.open().await.with_faults(faults.clone());
    let row = |subject: &str, period: i64, counted: u64| SpendRow {
        subject: subject.into(),
        period,
        counted,
    };
    let wish = |subject: &str, period: i64, counted: u64| SpendWish {
        subject: subject.into(),
        period,
        share: BudgetShare {
            wanted: counted,
            budget: u64::MAX,
            others: Some(0),
            ..BudgetShare::default()
        },
        recalls: false,
        reserved: 0,
    };
    let usage = || vec![(usage_of("2026-11-01", "usr_ann", "m", false), sums(1))];
    store.write_spend_and_usage(vec![wish("key_1", 20_261_101, 7)], usage()).await.unwrap();
    faults.fail_writes(1);
    store.write_spend_and_usage(vec![wish("key_1", 20_261_101, 99)], usage()).await.unwrap_err();
    let query = UsageQuery { until: i64::MAX, limit: 1, ..UsageQuery::default() };
    assert_eq!(groups(&store, query).await, [(Vec::new(), 1, 0)]);
    assert_eq!(store.spend(0).await.unwrap(), [row("key_1", 20_261_101, 7)]);
    let next =
        vec![wish("key_1", 20_261_101, 9), wish("key_1", 20_261_100, 9), wish("usr_1", 1, 5)];
    store.write_spend_and_usage(next, Vec::new()).await.unwrap();
    let spend = async |since: i64| {
        let mut rows = store.spend(since).await.unwrap();
        rows.sort_by_key(|row| std::cmp::Reverse(row.period));
        rows
    };
    let month = [row("key_1", 20_261_101, 9), row("key_1", 20_261_100, 9)];
    assert_eq!(spend(2).await, month);
    store.trim_spend_and_usage(20_261_101, 0).await.unwrap();
    assert_eq!(spend(0).await, month[..1]);
}

pub(crate) async fn all_that_hold_of_a_budget_hold_no_more_than_it(bed: &impl Bed) {
    let store = bed.open().await;
    let ask = async |holder, held, wanted, least| {
        let share = BudgetShare { holder, held, wanted, least, budget: 100, others: None };
        let (subject, period) = ("key_1".into(), 20_261_101);
        let wish = SpendWish { subject, period, share, recalls: false, reserved: 0 };
        store.write_spend_and_usage(vec![wish], Vec::new()).await.unwrap()[0]
    };
    // Two processes; each says what it holds.
    assert_eq!(ask(1, 0, 60, 0).await, BudgetGrant { held: 60, others: 0, reserved: 0 });
    assert_eq!(ask(2, 0, 60, 0).await, BudgetGrant { held: 40, others: 60, reserved: 0 });
    assert_eq!(ask(1, 60, 100, 10).await, BudgetGrant { held: 60, others: 40, reserved: 0 });
    // The first gives back what it does not use, and the second has room.
    assert_eq!(ask(1, 60, 10, 10).await, BudgetGrant { held: 10, others: 40, reserved: 0 });
    assert_eq!(ask(2, 40, 90, 40).await, BudgetGrant { held: 90, others: 10, reserved: 0 });
    // Spend beyond the budget counts.
    assert_eq!(ask(1, 10, 10, 25).await, BudgetGrant { held: 25, others: 90, reserved: 0 });
    assert_eq!(store.spend(0).await.unwrap()[0].counted, 115);
}
