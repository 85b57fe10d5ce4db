//! Usage: requests, errors, latencies, tokens and cost. It comes from sums by time, not from
//! captures.

use jiff::Timestamp;
use jiff::civil::Date;

use super::call::{Answer, Call};
use rerouter_access::limits::day;
use rerouter_base::clock::rfc3339;
use rerouter_base::error::{Error, Result};
use rerouter_base::id::{KeyId, UserId};
use rerouter_base::interface::Interface;
use rerouter_base::money::{dollars, nano_usd};
use rerouter_records::page::{ListObject, Page};
use rerouter_records::usage::{
    LatencyQuantiles, LostHoldObject, LostHoldRecord, Settlement, UsageList, UsageParameters,
    UsageRecord, UsageSpan, is_label_name,
};
use rerouter_store::{
    Action, LatencyCounts, LostHold, StoreError, UsageColumn, UsageGroup, UsageInterval, UsageQuery,
};

/// Most holds of dead processes in one answer.
const LOST_HOLDS: usize = 1_000;
/// Most values of one column in a filter.
const USAGE_VALUES: usize = 20;

/// `GET /v1/router/usage`: the usage in the caller's reach. It is summed by intervals in UTC, so
/// `since` and `until` must be starts of intervals.
pub(super) async fn get(call: Call<'_>, query: UsageParameters) -> Result<Answer<UsageList>> {
    let (app, now, interval, limit) = (call.app, call.now(), query.interval, query.limit);
    let since = bound("since", query.since.as_deref(), interval)?;
    let until = bound("until", query.until.as_deref(), interval)?;
    if since.zip(until).is_some_and(|(since, until)| since >= until) {
        return Err(Error::invalid("until", "until must be after since."));
    }
    let (group_by, label) = columns(&query.group_by)?;
    if group_by.contains(&UsageColumn::Day) && interval != UsageInterval::Day {
        return Err(Error::invalid("group_by", "The column of other intervals than 1d is time."));
    }
    let end = until.unwrap_or_else(|| end_of(now, interval));
    let unit = |at: Timestamp| match interval {
        UsageInterval::Day => day(at),
        UsageInterval::Hour | UsageInterval::FiveMinutes => at.as_second(),
    };
    let reach = app.auth.reach(call.who);
    let wanted = UsageQuery {
        reach: reach.clone(),
        interval,
        since: since.map_or(0, unit),
        until: unit(end),
        only: filters(&query)?,
        group_by: group_by.clone(),
        label,
        order: query.order,
        limit: limit + 1,
    };
    // Write pending sums first: the answer covers every request that has ended.
    app.limits.write_usage(&app.store, reach.owner()).await?;
    let mut groups = app.store.usage(wanted).await?;
    let has_more = groups.len() > limit;
    groups.truncate(limit);
    let mut data: Vec<UsageRecord> = groups.iter().map(|group| show(group, &group_by)).collect();
    data.iter_mut().for_each(|record| add_names(&call, record));
    let span = UsageSpan { since: since.map(Into::into), until: end.into() };
    Ok(UsageList { object: ListObject::It, data, has_more, next: None, span }.into())
}

/// `GET /v1/router/usage/lost`: what dead processes held of budgets, the latest first.
pub(super) async fn lost(call: Call<'_>) -> Result<Answer<Page<LostHoldRecord>>> {
    let found = call.app.store.lost_holds(LOST_HOLDS + 1).await?;
    let record = |lost: LostHold| LostHoldRecord {
        object: LostHoldObject::It,
        period: period_text(lost.period),
        held_usd: dollars(lost.held),
        held_at: Timestamp::from_microsecond(lost.at).ok().map(Into::into),
        gateway: Some(lost.name).filter(|name| !name.is_empty()),
        subject: lost.subject,
    };
    let mut page = Page::of(found.into_iter().map(record).collect(), LOST_HOLDS, |_| String::new());
    // What is settled leaves the list.
    page.next = None;
    Ok(page.into())
}

/// `PATCH /v1/router/usage`: settles what dead processes held of a budget.
pub(super) async fn settle(call: Call<'_>, body: Settlement) -> Result<Answer<()>> {
    let Settlement { subject, period, spent_usd } = body;
    let Some(number) = period_number(&period) else {
        return Err(Error::invalid("period", "period must be a day or a month, as in 2026-11."));
    };
    if !spent_usd.is_finite() || spent_usd < 0.0 {
        return Err(Error::invalid("spent_usd", "spent_usd must be a sum of money."));
    }
    let kind = if subject.starts_with(UserId::PREFIX) { "user" } else { "key" };
    let store = call.noting(Action::UsageSettle, kind, &subject);
    let settled = store.settle_lost((subject, number), nano_usd(spent_usd)).await;
    let settled = settled.map_err(|error| match error {
        StoreError::Conflict => Error::conflict("A process that was dead has come back."),
        other => other.into(),
    })?;
    if !settled {
        let why = "Dead processes held less than spent_usd of this budget in this period.";
        return Err(Error::conflict(why).at("spent_usd"));
    }
    if let Err(error) = call.app.limits.refresh(&call.app.store, call.now()).await {
        log::warn!("settled usage could not be read, retrying: {error}");
    }
    Ok(().into())
}

/// A day as `yyyymmdd`, or a month as `yyyymm00`.
fn period_number(text: &str) -> Option<i64> {
    let (month, day) = text.split_at_checked("yyyy-mm".len())?;
    let date: Date = format!("{month}{}", if day.is_empty() { "-01" } else { day }).parse().ok()?;
    let number = i64::from(date.year()) * 10_000 + i64::from(date.month()) * 100;
    Some(number + if day.is_empty() { 0 } else { i64::from(date.day()) })
}

fn period_text(number: i64) -> String {
    let (year, month, day) = (number / 10_000, number / 100 % 100, number % 100);
    let month = format!("{year:04}-{month:02}");
    if day == 0 { month } else { format!("{month}-{day:02}") }
}

/// The values that columns are filtered by, each a comma-separated list.
fn filters(query: &UsageParameters) -> Result<Vec<(UsageColumn, Vec<String>)>> {
    let most = USAGE_VALUES;
    let asked = [
        (UsageColumn::Key, &query.key),
        (UsageColumn::User, &query.user),
        (UsageColumn::Model, &query.model),
        (UsageColumn::Recipe, &query.recipe),
    ];
    let given = asked.into_iter().filter_map(|(column, text)| Some((column, text.as_ref()?)));
    given
        .map(|(column, text)| {
            let values: Vec<String> = text.split(',').map(str::to_owned).collect();
            if values.len() > most {
                let name = column.as_str();
                return Err(Error::invalid(name, format!("{name} may have up to {most} values.")));
            }
            Ok((column, values))
        })
        .collect()
}

/// Reads the start of an interval in UTC: a time or, for days, a date.
fn bound(name: &str, text: Option<&str>, interval: UsageInterval) -> Result<Option<Timestamp>> {
    let Some(text) = text else { return Ok(None) };
    let is_date = interval == UsageInterval::Day && text.len() == DATE;
    let written = if is_date { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let begins = |at: &Timestamp| begin_of(*at, interval) == *at;
    let at = written.parse::<Timestamp>().ok().filter(begins);
    let (unit, like) = match interval {
        UsageInterval::Day => ("a day", "2026-11-21 or 2026-11-21T00:00:00Z"),
        UsageInterval::Hour => ("an hour", "2026-11-21T15:00:00Z"),
        UsageInterval::FiveMinutes => ("five minutes", "2026-11-21T15:05:00Z"),
    };
    let why = || format!("{name} must be the start of {unit} in UTC, like {like}.");
    at.map(Some).ok_or_else(|| Error::invalid(name, why()))
}

/// Length of a date like 2026-11-21.
const DATE: usize = 10;

/// Reads a comma-separated list without duplicates. Also returns the name of the label in it.
fn columns(text: &str) -> Result<(Vec<UsageColumn>, String)> {
    let refused = || {
        Error::invalid(
            "group_by",
            "group_by must be a comma-separated list of key, user, model, alias, recipe, rule, \
             label:NAME, day and time, each once.",
        )
    };
    let (mut columns, mut label) = (Vec::new(), String::new());
    for word in text.split(',').map(str::trim).filter(|_| !text.is_empty()) {
        let (word, name) = word.split_once(':').unwrap_or((word, ""));
        let column = UsageColumn::parse(word).ok_or_else(refused)?;
        if columns.contains(&column) || (column == UsageColumn::Label) == name.is_empty() {
            return Err(refused());
        }
        if !name.is_empty() && !is_label_name(name) {
            let why = "The name of a label in group_by may have letters, digits and - _ . /";
            return Err(Error::invalid("group_by", why));
        }
        label.push_str(name);
        columns.push(column);
    }
    Ok((columns, label))
}

/// Adds the names that the key and the user have today. Who has a user's key is not told the
/// address of the user.
fn add_names(call: &Call<'_>, record: &mut UsageRecord) {
    let app = call.app;
    record.key_name = record.key.as_ref().map(|id| {
        let id = KeyId::known(id.as_deref()?);
        app.auth.key(Interface::Router, &id).map(|key| key.row().name.to_string())
    });
    record.user_email = record.user.as_ref().filter(|_| call.who.is_admin()).map(|id| {
        let id = UserId::known(id.as_deref()?);
        app.auth.user(&id).map(|user| user.email.clone()).filter(|email| !email.is_empty())
    });
}

fn begin_of(at: Timestamp, interval: UsageInterval) -> Timestamp {
    Timestamp::from_second(interval.begin(at.as_second())).unwrap_or(at)
}

fn end_of(at: Timestamp, interval: UsageInterval) -> Timestamp {
    let end = interval.begin(at.as_second()).saturating_add(interval.seconds());
    Timestamp::from_second(end).unwrap_or(at)
}

fn show(group: &UsageGroup, columns: &[UsageColumn]) -> UsageRecord {
    let mut shown = UsageRecord {
        sums: (&group.own).into(),
        latency_ms: quantiles(&group.own.took),
        first_token_ms: quantiles(&group.own.first_token),
        replays: (&group.replays).into(),
        ..UsageRecord::default()
    };
    for (column, value) in columns.iter().zip(&group.values) {
        let known = Some(value.clone()).filter(|value| !value.is_empty());
        let (place, value) = match column {
            UsageColumn::Key => (&mut shown.key, known),
            UsageColumn::User => (&mut shown.user, known),
            UsageColumn::Model => (&mut shown.model, known),
            UsageColumn::Alias => (&mut shown.alias, known),
            UsageColumn::Recipe => (&mut shown.recipe, known),
            UsageColumn::Rule => (&mut shown.rule, known),
            UsageColumn::Label => (&mut shown.label, known),
            UsageColumn::Day => {
                (&mut shown.day, known.and_then(|day| Some(period_text(day.parse().ok()?))))
            }
            UsageColumn::Time => (&mut shown.time, known.and_then(|at| time(&at))),
        };
        *place = Some(value);
    }
    shown
}

/// The start of an interval of the store, which is a day, or seconds since the epoch.
fn time(value: &str) -> Option<String> {
    let at = match value.len() {
        DAY => format!("{}T00:00:00Z", period_text(value.parse().ok()?)).parse().ok()?,
        _ => Timestamp::from_second(value.parse().ok()?).ok()?,
    };
    Some(rfc3339(at))
}

/// Length of a day in the store. Seconds since the epoch are longer.
const DAY: usize = 8;

/// The 50th and the 95th percentile of the durations.
fn quantiles(counts: &LatencyCounts) -> Option<LatencyQuantiles> {
    let rounded = |share| counts.quantile_ms(share).map(f64::round);
    Some(LatencyQuantiles { p50: rounded(0.5)?, p95: rounded(0.95)? })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use rerouter_records::read::read_query;
    use rerouter_records::usage::UsageTotals;
    use rerouter_store::UsageSums;

    #[test]
    fn columns_are_known_and_there_once() {
        assert_eq!(columns("").unwrap().0, []);
        assert_eq!(columns("day,key").unwrap().0, [UsageColumn::Day, UsageColumn::Key]);
        let team = columns("key,label:team").unwrap();
        assert_eq!(team, (vec![UsageColumn::Key, UsageColumn::Label], "team".to_owned()));
        let quoted = "label:a'b";
        for bad in
            ["days", "key,key", "key,", ",", "label", "label:", quoted, "label:a,label:b", "key:x"]
        {
            assert_eq!(columns(bad).unwrap_err().field(), Some("group_by"), "{bad}");
        }
    }

    #[test]
    fn an_unknown_cost_is_null() {
        let mut used =
            UsageSums { requests: 2, prompt_tokens: 7, unpriced: 1, ..UsageSums::default() };
        let total = UsageTotals::from(&used);
        assert_eq!((total.cost_usd, total.unpriced_requests), (None, 1));
        used.priced = 1;
        assert_eq!(UsageTotals::from(&used).cost_usd, Some(0.0));
        let group = UsageGroup {
            values: vec!["20261121".into(), String::new()],
            own: used,
            replays: UsageSums::default(),
        };
        let shown = show(&group, &[UsageColumn::Day, UsageColumn::Model]);
        let shown = serde_json::to_value(shown).unwrap();
        assert!(shown.get("key").is_none() && shown["requests"] == 2);
        assert_eq!(
            (&shown["day"], &shown["model"], &shown["replays"]["requests"]),
            (&json!("2026-11-21"), &Value::Null, &json!(0))
        );
    }

    #[test]
    fn a_bound_is_the_beginning_of_a_day() {
        let read = |text: &str| bound("since", Some(text), UsageInterval::Day);
        let day = "2026-11-21T00:00:00.000000Z";
        for text in ["2026-11-21", "2026-11-21T00:00:00Z", "2026-11-21T02:00:00+02:00"] {
            assert_eq!(read(text).unwrap().map(rfc3339).as_deref(), Some(day), "{text}");
        }
        for bad in [
            "2026-11-21T00:00:01Z",
            "2026-11-21T12:34:56Z",
            "2026-11-21T00:00:00+02:00",
            "2026-11-31",
            "20261121",
            "yesterday",
            "",
        ] {
            assert_eq!(read(bad).unwrap_err().field(), Some("since"), "{bad}");
        }
        let at: Timestamp = "2026-11-21T12:34:56Z".parse().unwrap();
        for (interval, end) in [
            (UsageInterval::Day, "2026-11-22T00:00:00.000000Z"),
            (UsageInterval::Hour, "2026-11-21T13:00:00.000000Z"),
            (UsageInterval::FiveMinutes, "2026-11-21T12:35:00.000000Z"),
        ] {
            assert_eq!(rfc3339(end_of(at, interval)), end);
        }
    }

    #[test]
    fn intervals_and_filters_are_checked() {
        let all = |text: &str| {
            let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
            let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let query: UsageParameters = read_query(pairs.collect())?;
            bound("since", query.since.as_deref(), query.interval)?;
            Ok::<_, Error>((query.limit, filters(&query)?))
        };
        let good = all("interval=5m&since=2026-11-21T15:05:00Z&order=cost_usd&limit=5&key=a,b");
        let keys = vec![(UsageColumn::Key, vec!["a".to_owned(), "b".to_owned()])];
        assert_eq!(good.unwrap(), (5, keys));
        let many = format!("model={}", vec!["m"; USAGE_VALUES + 1].join(","));
        for (bad, field) in [
            ("interval=1m", "interval"),
            ("interval=1h&since=2026-11-21T15:05:00Z", "since"),
            ("interval=5m&since=2026-11-21", "since"),
            ("order=key", "order"),
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            (many.as_str(), "model"),
        ] {
            assert_eq!(all(bad).unwrap_err().field(), Some(field), "{bad}");
        }
        assert_eq!(time("20261121").as_deref(), Some("2026-11-21T00:00:00.000000Z"));
        assert_eq!(time("1764000300").as_deref(), Some("2025-11-24T16:05:00.000000Z"));
    }
}
