//! Usage: requests, errors, latencies, tokens and cost, from sums by time, not from captures.

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::answer;
use super::page::Query;
use super::route::{ApiRequest, ApiResult};
use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_access::limits::day;
use rerouter_base::clock::rfc3339;
use rerouter_base::error::{Error, Result};
use rerouter_base::money::dollars;
use rerouter_store::{
    LatencyCounts, UsageColumn, UsageGroup, UsageInterval, UsageOrder, UsageQuery, UsageSums,
};

/// Values of one column that usage is asked of.
const USAGE_VALUES: usize = 20;
/// Groups in an answer on usage.
pub(super) const USAGE_GROUPS: usize = 1_000;

pub(super) const PARAMETERS: &[&str] =
    &["since", "until", "interval", "group_by", "order", "limit", "key", "user", "model", "recipe"];

/// The columns that usage can be asked of.
const FILTERS: [UsageColumn; 4] =
    [UsageColumn::Key, UsageColumn::User, UsageColumn::Model, UsageColumn::Recipe];

/// `GET /v1/router/usage`: the usage in the caller's reach. It is summed by intervals in
/// UTC, so `since` and `until` must be starts of them.
pub(super) async fn get(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let query = Query::read(request.uri().query(), PARAMETERS)?;
    let now = app.clock.now();
    let interval = word(&query, "interval", &UsageInterval::ALL, UsageInterval::as_str)?;
    let interval = interval.unwrap_or_default();
    let (since, until) = (bound(&query, "since", interval)?, bound(&query, "until", interval)?);
    if since.zip(until).is_some_and(|(since, until)| since >= until) {
        return Err(Error::invalid("until", "until must be after since."));
    }
    let group_by = columns(query.get("group_by").unwrap_or_default())?;
    if group_by.contains(&UsageColumn::Day) && interval != UsageInterval::Day {
        return Err(Error::invalid("group_by", "The column of other intervals than 1d is time."));
    }
    let end = until.unwrap_or_else(|| end_of(now, interval));
    let unit = |at: Timestamp| match interval {
        UsageInterval::Day => day(at),
        UsageInterval::Hour | UsageInterval::FiveMinutes => at.as_second(),
    };
    let reach = app.auth.reach(who);
    let limit = limit(&query)?;
    let wanted = UsageQuery {
        reach: reach.clone(),
        interval,
        since: since.map_or(0, unit),
        until: unit(end),
        only: filters(&query)?,
        group_by: group_by.clone(),
        order: word(&query, "order", &UsageOrder::ALL, UsageOrder::as_str)?,
        limit: limit + 1,
    };
    // Write pending sums first: the answer covers every request that has ended.
    app.limits.write_usage(&app.store, reach.owner()).await?;
    let mut groups = app.store.usage(wanted).await?;
    let has_more = groups.len() > limit;
    groups.truncate(limit);
    let data: Vec<Value> = groups.iter().map(|group| show(group, &group_by)).collect();
    let span = json!({"since": since.map(rfc3339), "until": rfc3339(end)});
    Ok(answer::json(
        StatusCode::OK,
        &json!({"object": "list", "data": data, "has_more": has_more, "next": null, "span": span}),
    ))
}

/// Reads one of a set of words.
fn word<T: Copy>(
    query: &Query,
    name: &str,
    all: &[T],
    as_str: fn(T) -> &'static str,
) -> Result<Option<T>> {
    let Some(text) = query.get(name) else { return Ok(None) };
    let words: Vec<&str> = all.iter().map(|one| as_str(*one)).collect();
    let found = all.iter().copied().find(|one| as_str(*one) == text);
    let refused = || Error::invalid(name, format!("{name} must be one of {}.", words.join(", ")));
    found.map(Some).ok_or_else(refused)
}

fn limit(query: &Query) -> Result<usize> {
    let most = USAGE_GROUPS;
    let Some(text) = query.get("limit") else { return Ok(most) };
    let limit = text.parse().ok().filter(|limit| (1..=most).contains(limit));
    limit.ok_or_else(|| Error::invalid("limit", format!("limit must be 1 to {most}.")))
}

/// The values of columns that are asked of, each a comma-separated list.
fn filters(query: &Query) -> Result<Vec<(UsageColumn, Vec<String>)>> {
    let most = USAGE_VALUES;
    let given =
        FILTERS.into_iter().filter_map(|column| Some((column, query.get(column.as_str())?)));
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

/// Reads the start of an interval in UTC, as a time or, for a day, as a date.
fn bound(query: &Query, name: &str, interval: UsageInterval) -> Result<Option<Timestamp>> {
    let Some(text) = query.get(name) else { return Ok(None) };
    let is_date = interval == UsageInterval::Day && text.len() == DATE;
    let written = if is_date { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let begins = |at: &Timestamp| begin_of(*at, interval) == *at;
    let at = written.parse::<Timestamp>().ok().filter(begins);
    let detail = || match interval {
        UsageInterval::Day => format!(
            "{name} must be the start of a day in UTC, like 2026-11-21 or 2026-11-21T00:00:00Z."
        ),
        UsageInterval::Hour => {
            format!("{name} must be the start of an hour, like 2026-11-21T15:00:00Z.")
        }
        UsageInterval::FiveMinutes => {
            format!("{name} must be the start of five minutes, like 2026-11-21T15:05:00Z.")
        }
    };
    at.map(Some).ok_or_else(|| Error::invalid(name, detail()))
}

/// Length of a date like 2026-11-21.
const DATE: usize = 10;

/// Reads a comma-separated list without duplicates.
fn columns(text: &str) -> Result<Vec<UsageColumn>> {
    let refused = || {
        Error::invalid(
            "group_by",
            "group_by must be a comma-separated list of key, user, model, alias, recipe, rule, day \
             and time, each once.",
        )
    };
    let mut columns = Vec::new();
    for word in text.split(',').map(str::trim).filter(|_| !text.is_empty()) {
        let column = UsageColumn::ALL
            .into_iter()
            .find(|column| column.as_str() == word)
            .ok_or_else(refused)?;
        if columns.contains(&column) {
            return Err(refused());
        }
        columns.push(column);
    }
    Ok(columns)
}

fn begin_of(at: Timestamp, interval: UsageInterval) -> Timestamp {
    Timestamp::from_second(interval.begin(at.as_second())).unwrap_or(at)
}

fn end_of(at: Timestamp, interval: UsageInterval) -> Timestamp {
    let end = interval.begin(at.as_second()).saturating_add(interval.seconds());
    Timestamp::from_second(end).unwrap_or(at)
}

fn show(group: &UsageGroup, columns: &[UsageColumn]) -> Value {
    let mut shown = Map::new();
    shown.insert("object".into(), json!("usage"));
    for (column, value) in columns.iter().zip(&group.values) {
        let value = match column {
            _ if value.is_empty() => Value::Null,
            UsageColumn::Day => json!(date(value).unwrap_or_else(|| value.clone())),
            UsageColumn::Time => json!(time(value)),
            _ => json!(value),
        };
        shown.insert(column.as_str().into(), value);
    }
    shown.extend(sums(&group.own));
    shown.insert("latency_ms".into(), quantiles(&group.own.took));
    shown.insert("first_token_ms".into(), quantiles(&group.own.first_token));
    shown.insert("replays".into(), Value::Object(sums(&group.replays)));
    Value::Object(shown)
}

/// A day of the store, which is `yyyymmdd`.
fn date(value: &str) -> Option<String> {
    Some(format!("{}-{}-{}", value.get(..4)?, value.get(4..6)?, value.get(6..8)?))
}

/// The begin of an interval of the store: a day, or seconds since the epoch.
fn time(value: &str) -> Option<String> {
    let at = match value.len() {
        DAY => format!("{}T00:00:00Z", date(value)?).parse().ok()?,
        _ => Timestamp::from_second(value.parse().ok()?).ok()?,
    };
    Some(rfc3339(at))
}

/// Characters of a day of the store. Seconds since the epoch have more.
const DAY: usize = 8;

/// Half of all durations were shorter than the one, and 95 of 100 than the other.
fn quantiles(counts: &LatencyCounts) -> Value {
    let rounded = |share| counts.quantile_ms(share).map(f64::round);
    match (rounded(0.5), rounded(0.95)) {
        (Some(p50), Some(p95)) => json!({ "p50": p50, "p95": p95 }),
        _ => Value::Null,
    }
}

/// Sums as JSON. `cost_usd` is null if no cost is known; `unpriced_requests` counts those without
/// one.
fn sums(sums: &UsageSums) -> Map<String, Value> {
    let cost = (sums.priced > 0).then(|| dollars(sums.nano));
    let shown = json!({
        "requests": sums.requests, "errors": sums.errors, "prompt_tokens": sums.prompt_tokens,
        "completion_tokens": sums.completion_tokens,
        "total_tokens": sums.prompt_tokens.saturating_add(sums.completion_tokens),
        "cached_tokens": sums.cached_tokens,
        "cost_usd": cost, "unpriced_requests": sums.unpriced,
    });
    match shown {
        Value::Object(shown) => shown,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_known_and_there_once() {
        assert_eq!(columns("").unwrap(), []);
        assert_eq!(columns("day,key").unwrap(), [UsageColumn::Day, UsageColumn::Key]);
        for bad in ["days", "key,key", "key,", ","] {
            assert_eq!(columns(bad).unwrap_err().field(), Some("group_by"), "{bad}");
        }
    }

    #[test]
    fn an_unknown_cost_is_null() {
        let mut used =
            UsageSums { requests: 2, prompt_tokens: 7, unpriced: 1, ..UsageSums::default() };
        assert_eq!(
            (&sums(&used)["cost_usd"], &sums(&used)["unpriced_requests"]),
            (&Value::Null, &json!(1))
        );
        used.priced = 1;
        assert_eq!(sums(&used)["cost_usd"], json!(0.0));
        let group = UsageGroup {
            values: vec!["20261121".into(), String::new()],
            own: used,
            replays: UsageSums::default(),
        };
        let shown = show(&group, &[UsageColumn::Day, UsageColumn::Model]);
        assert_eq!(
            (&shown["day"], &shown["model"], &shown["replays"]["requests"]),
            (&json!("2026-11-21"), &Value::Null, &json!(0))
        );
    }

    #[test]
    fn a_bound_is_the_beginning_of_a_day() {
        let read = |text: &str| {
            let query = Query::of([("since".to_owned(), text.to_owned())], &["since"]).unwrap();
            bound(&query, "since", UsageInterval::Day)
        };
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
            let query = Query::read(Some(text), PARAMETERS).unwrap();
            let interval = word(&query, "interval", &UsageInterval::ALL, UsageInterval::as_str)?;
            bound(&query, "since", interval.unwrap_or_default())?;
            word(&query, "order", &UsageOrder::ALL, UsageOrder::as_str)?;
            Ok::<_, Error>((limit(&query)?, filters(&query)?))
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
