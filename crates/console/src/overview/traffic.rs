//! The traffic of a view, from the usage of the API.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use serde_json::Value;

use super::view::{Dimension, View};
use crate::call::PageCall;
use rerouter_base::error::Result;
use rerouter_base::url::encode;

/// Values that have their own series in the charts.
const SERIES: usize = 5;
/// Values in the list.
const LISTED: usize = 10;

/// Sums of a view: whole, over time, and by the values of its dimension.
pub(super) struct Traffic {
    pub(super) times: Vec<i64>,
    pub(super) total: Value,
    /// By the begin of the step.
    pub(super) over_time: BTreeMap<i64, Value>,
    /// The values with the most requests.
    pub(super) largest: Vec<Value>,
    /// Whether there are more values.
    pub(super) has_more: bool,
    /// The largest over time, by value.
    pub(super) series: Vec<(String, BTreeMap<i64, Value>)>,
    /// Names of keys and users.
    pub(super) names: HashMap<String, String>,
}

impl Traffic {
    pub(super) async fn read(call: &PageCall<'_>, view: &View) -> Result<Traffic> {
        let times = view.range.times(call.app.clock.now());
        let [usage, whole] =
            [view.range.interval(), view.range.whole()].map(|step| view.usage(&times, step));
        let column = view.by.column();
        let by_time = format!("{usage}&group_by=time");
        let by_value = format!("{whole}&group_by={column}&order=requests&limit={LISTED}");
        let (total, over_time, largest) =
            futures::join!(call.get(&whole), call.get(&by_time), call.get(&by_value));
        let (over_time, largest) = (rows(over_time?), largest?);
        let has_more = largest.get("has_more") == Some(&Value::Bool(true));
        let largest = rows(largest);
        // A value with a comma cannot be asked for in a list.
        let values = largest.iter().filter_map(|row| row.get(column)?.as_str());
        let values: Vec<&str> = values.filter(|value| !value.contains(',')).take(SERIES).collect();
        let mut series: Vec<(String, BTreeMap<i64, Value>)> =
            values.iter().map(|value| ((*value).to_owned(), BTreeMap::new())).collect();
        // A view of one value has that value alone.
        if !values.is_empty() && view.only.as_ref().is_none_or(|(only, _)| *only != view.by) {
            let values = encode(&values.join(","));
            let of_values = format!("{usage}&group_by=time,{column}&{column}={values}");
            for row in rows(call.get(&of_values).await?) {
                let (at, value) = (begin(&row), row.get(column).and_then(Value::as_str));
                let found = series.iter_mut().find(|(name, _)| Some(name.as_str()) == value);
                if let (Some(at), Some((_, steps))) = (at, found) {
                    steps.insert(at, row);
                }
            }
        } else {
            series.clear();
        }
        let names = names(call, view.by, &largest).await;
        Ok(Traffic {
            times,
            total: rows(total?).into_iter().next().unwrap_or_default(),
            over_time: over_time.into_iter().filter_map(|row| Some((begin(&row)?, row))).collect(),
            largest,
            has_more,
            series,
            names,
        })
    }

    /// The name of a value of a dimension.
    pub(super) fn name<'a>(&'a self, by: Dimension, value: Option<&'a str>) -> &'a str {
        match (by, value) {
            (_, Some(value)) => self.names.get(value).map_or(value, String::as_str),
            (Dimension::Target, None) => "no answer",
            (Dimension::Key, None) => "session",
            (_, None) => "none",
        }
    }
}

/// The entries of a list of the API.
pub(super) fn rows(list: Value) -> Vec<Value> {
    match list {
        Value::Object(mut list) => match list.remove("data") {
            Some(Value::Array(rows)) => rows,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// A number of a record; 0 where there is none.
pub(super) fn number(record: &Value, pointer: &str) -> f64 {
    maybe_number(record, pointer).unwrap_or(0.0)
}

pub(super) fn maybe_number(record: &Value, pointer: &str) -> Option<f64> {
    record.pointer(pointer).and_then(Value::as_f64)
}

/// A count of a record; 0 where there is none.
pub(super) fn whole(record: &Value, pointer: &str) -> u64 {
    record.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

fn begin(row: &Value) -> Option<i64> {
    Some(row.get("time")?.as_str()?.parse::<Timestamp>().ok()?.as_second())
}

/// Names of keys and emails of users. Keys that are gone, and keys of others, have none.
async fn names(call: &PageCall<'_>, by: Dimension, rows: &[Value]) -> HashMap<String, String> {
    let (list, field) = match by {
        Dimension::Key => ("/v1/router/keys", "name"),
        Dimension::User => ("/v1/users", "email"),
        Dimension::Recipe | Dimension::Target => return HashMap::new(),
    };
    let ids = rows.iter().filter_map(|row| row.get(by.column())?.as_str());
    let read = ids.map(async |id| {
        let record = call.get(&format!("{list}/{}", encode(id))).await.ok()?;
        let name = record.get(field)?.as_str().filter(|name| !name.is_empty())?;
        Some((id.to_owned(), name.to_owned()))
    });
    futures::future::join_all(read).await.into_iter().flatten().collect()
}
