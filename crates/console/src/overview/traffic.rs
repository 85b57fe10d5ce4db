//! The traffic of a view, from the API's usage.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;

use super::view::{Dimension, View};
use crate::call::PageCall;
use rerouter_base::error::Result;
use rerouter_base::url::encode;
use rerouter_records::key::KeyRecord;
use rerouter_records::page::Page;
use rerouter_records::usage::{UsageList, UsageRecord, is_label_name};

/// Most values that have their own series in the charts.
const SERIES: usize = 5;
/// Most values in the list, unless all are asked for.
const LISTED: usize = 10;
/// Most values in the list of all: the most in one answer of the API.
pub(super) const ALL_LISTED: usize = 1_000;
/// The label of keys if none is chosen and no key has one.
const LABEL: &str = "team";

/// Sums of usage by the beginning of their time step, in seconds since the epoch.
pub(super) type Steps = BTreeMap<i64, UsageRecord>;

/// Sums of a view: the total, over time, and by value of the view's dimension.
pub(super) struct Traffic {
    pub(super) times: Vec<i64>,
    pub(super) total: UsageRecord,
    pub(super) over_time: Steps,
    /// The largest values, by the order of the view.
    pub(super) largest: Vec<UsageRecord>,
    /// Whether there are more values than in `largest`.
    pub(super) has_more: bool,
    /// The largest values over time.
    pub(super) series: Vec<(String, Steps)>,
    /// Names of keys and users by id.
    pub(super) names: HashMap<String, String>,
}

impl Traffic {
    pub(super) async fn read(call: &PageCall<'_>, view: &View) -> Result<Traffic> {
        let times = view.range.times(call.app.clock.now());
        let [usage, whole] =
            [view.range.interval(), view.range.whole()].map(|step| view.usage(&times, step));
        let column = view.column();
        let by_time = format!("{usage}&group_by=time");
        let listed = if view.all { ALL_LISTED } else { LISTED };
        let order = view.order().as_str();
        let by_value = format!("{whole}&group_by={column}&order={order}&limit={listed}");
        let usage_of = async |path: &str| call.read::<UsageList>(path).await;
        let (total, over_time, largest) =
            futures::try_join!(usage_of(&whole), usage_of(&by_time), usage_of(&by_value))?;
        // With a filter on the view's own dimension, there is only one value. Without a filter for
        // the dimension, a series of each value would be too long for an answer.
        let is_one = view.only.as_ref().is_some_and(|(only, _)| *only == view.by);
        let has_series = !is_one && view.by.has_filter();
        let values = largest.data.iter().filter(|_| has_series);
        let values = values.filter_map(|row| view.by.value(row));
        // The API's filter is a list with commas, so it cannot name a value that has one.
        let values: Vec<&str> = values.filter(|value| !value.contains(',')).take(SERIES).collect();
        let mut series: Vec<(String, Steps)> =
            values.iter().map(|value| ((*value).to_owned(), Steps::new())).collect();
        if !values.is_empty() {
            let values = encode(&values.join(","));
            let of_values = format!("{usage}&group_by=time,{column}&{column}={values}");
            for row in usage_of(&of_values).await?.data {
                let (at, value) = (begin(&row), view.by.value(&row));
                let found = series.iter_mut().find(|(name, _)| Some(name.as_str()) == value);
                if let (Some(at), Some((_, steps))) = (at, found) {
                    steps.insert(at, row);
                }
            }
        }
        let over_time = over_time.data.into_iter();
        Ok(Traffic {
            times,
            total: total.data.into_iter().next().unwrap_or_default(),
            over_time: over_time.filter_map(|row| Some((begin(&row)?, row))).collect(),
            names: names(&largest.data),
            largest: largest.data,
            has_more: largest.has_more,
            series,
        })
    }

    /// The name of a value of a dimension, for people.
    pub(super) fn name<'a>(&'a self, by: Dimension, value: Option<&'a str>) -> &'a str {
        match (by, value) {
            (_, Some(value)) => self.names.get(value).map_or(value, String::as_str),
            (Dimension::Target, None) => "no answer",
            (Dimension::Key, None) => "session",
            (_, None) => "none",
        }
    }
}

/// Names of labels of keys that the caller sees, the newest hundred keys: suggestions.
pub(super) async fn labels(call: &PageCall<'_>) -> BTreeSet<String> {
    let keys = call.read::<Page<KeyRecord>>("/v1/router/keys?limit=100").await;
    let keys = keys.map_or_else(|_| Vec::new(), |page| page.data);
    let names = keys.into_iter().flat_map(|key| key.labels.into_keys());
    names.filter(|name| is_label_name(name)).collect()
}

/// The label to group by if the query names none.
pub(super) fn usual_label(labels: &BTreeSet<String>) -> String {
    labels.first().cloned().unwrap_or_else(|| LABEL.to_owned())
}

fn begin(row: &UsageRecord) -> Option<i64> {
    Some(row.time.as_ref()?.as_ref()?.parse::<Timestamp>().ok()?.as_second())
}

/// Names of keys and emails of users by id. Keys and users that are gone have none.
fn names(rows: &[UsageRecord]) -> HashMap<String, String> {
    let named = |id: &Option<Option<String>>, name: &Option<Option<String>>| {
        Some((id.clone()??, name.clone()?.filter(|name| !name.is_empty())?))
    };
    let both =
        |row: &UsageRecord| [named(&row.key, &row.key_name), named(&row.user, &row.user_email)];
    rows.iter().flat_map(both).flatten().collect()
}
