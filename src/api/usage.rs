//! Usage: requests, tokens and cost, from sums by day, not from captures.

use http::StatusCode;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

use super::answer;
use super::page::Query;
use crate::api::{ApiRequest, ApiResult};
use crate::app::App;
use crate::auth::Principal;
use crate::bounds;
use crate::clock::rfc3339;
use crate::error::{Error, Kind, Result};
use crate::limits::day;
use crate::store::{UsageColumn, UsageGroup, UsageQuery, UsageSums, dollars};

pub(super) const PARAMETERS: &[&str] = &["since", "until", "group_by"];

/// `GET /v1/router/usage`: the caller's usage, for admins everybody's. Sums are kept by day in UTC,
/// so `since` and `until` must be starts of such days.
pub(crate) async fn get(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let query = Query::read(request.uri().query(), PARAMETERS)?;
    let user =
        who.user_id().ok_or_else(|| Error::new(Kind::Forbidden, "Only users have usage."))?;
    let now = app.clock.now();
    let (since, until) = (midnight(&query, "since")?, midnight(&query, "until")?);
    if since.zip(until).is_some_and(|(since, until)| since >= until) {
        return Err(Error::invalid("until", "until must be after since."));
    }
    let group_by = columns(query.get("group_by").unwrap_or_default())?;
    let end = until.unwrap_or_else(|| end_of(now));
    let user = (!who.is_admin()).then_some(user);
    let wanted = UsageQuery {
        user: user.clone(),
        since: since.map_or(0, day),
        until: day(end),
        group_by: group_by.clone(),
        limit: bounds::USAGE_GROUPS + 1,
    };
    // Write pending sums first: the answer covers every request that has ended.
    app.limits.write_usage(&app.store, user.as_ref()).await?;
    let mut groups = app.store.usage(wanted).await?;
    let has_more = groups.len() > bounds::USAGE_GROUPS;
    groups.truncate(bounds::USAGE_GROUPS);
    let data: Vec<Value> = groups.iter().map(|group| show(group, &group_by)).collect();
    let span = json!({"since": since.map(rfc3339), "until": rfc3339(end)});
    Ok(answer::json(
        StatusCode::OK,
        &json!({"object": "list", "data": data, "has_more": has_more, "next": null, "span": span}),
    ))
}

/// Reads the start of a day in UTC, as a date or a time. A time within a day is refused, as sums
/// are kept by day.
fn midnight(query: &Query, name: &str) -> Result<Option<Timestamp>> {
    let Some(text) = query.get(name) else { return Ok(None) };
    let written = if text.len() == DATE { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let at = written.parse::<Timestamp>().ok().filter(|at| begin_of(*at) == *at);
    let detail = || {
        format!(
            "{name} must be the start of a day in UTC, like 2026-11-21 or 2026-11-21T00:00:00Z."
        )
    };
    at.map(Some).ok_or_else(|| Error::invalid(name, detail()))
}

const DATE: usize = 10;

/// Reads a comma-separated list without duplicates.
fn columns(text: &str) -> Result<Vec<UsageColumn>> {
    let refused = || {
        Error::invalid(
            "group_by",
            "group_by must be a comma-separated list of key, user, model, alias, recipe, rule and \
             day, each once.",
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

fn begin_of(at: Timestamp) -> Timestamp {
    at.to_zoned(TimeZone::UTC).start_of_day().map_or(at, |zoned| zoned.timestamp())
}

fn end_of(at: Timestamp) -> Timestamp {
    begin_of(at).checked_add(std::time::Duration::from_secs(86_400)).unwrap_or(at)
}

fn show(group: &UsageGroup, columns: &[UsageColumn]) -> Value {
    let mut shown = Map::new();
    shown.insert("object".into(), json!("usage"));
    for (column, value) in columns.iter().zip(&group.values) {
        let value = match column {
            _ if value.is_empty() => Value::Null,
            // The store has `yyyymmdd`.
            UsageColumn::Day => match (value.get(..4), value.get(4..6), value.get(6..)) {
                (Some(year), Some(month), Some(day)) => json!(format!("{year}-{month}-{day}")),
                _ => json!(value),
            },
            _ => json!(value),
        };
        shown.insert(column.as_str().into(), value);
    }
    shown.extend(sums(&group.own));
    shown.insert("replays".into(), Value::Object(sums(&group.replays)));
    Value::Object(shown)
}

/// Sums as JSON. `cost_usd` is null if no cost is known; `unpriced_requests` counts those without
/// one.
fn sums(sums: &UsageSums) -> Map<String, Value> {
    let cost = (sums.priced > 0).then(|| dollars(sums.nano));
    let shown = json!({
        "requests": sums.requests, "prompt_tokens": sums.prompt_tokens,
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
            midnight(
                &Query::of([("since".to_owned(), text.to_owned())], &["since"]).unwrap(),
                "since",
            )
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
        assert_eq!(rfc3339(end_of(at)), "2026-11-22T00:00:00.000000Z");
    }
}
