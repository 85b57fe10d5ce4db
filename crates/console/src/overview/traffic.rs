//! The traffic of a view, from the API's usage.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use super::view::{Dimension, View};
use crate::call::PageCall;
use rerouter_base::error::Result;
use rerouter_base::url::encode;
use rerouter_records::usage::{UsageList, UsageRecord};

/// Most values that have their own series in the charts.
const SERIES: usize = 5;
/// Most values in the list.
const LISTED: usize = 10;

/// Sums of usage by the beginning of their time step, in seconds since the epoch.
pub(super) type Steps = BTreeMap<i64, UsageRecord>;

/// Sums of a view: the total, over time, and by value of the view's dimension.
pub(super) struct Traffic {
    pub(super) times: Vec<i64>,
    pub(super) total: UsageRecord,
    pub(super) over_time: Steps,
    /// The values with the most requests.
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
        let column = view.by.column();
        let by_time = format!("{usage}&group_by=time");
        let by_value = format!("{whole}&group_by={column}&order=requests&limit={LISTED}");
        let usage_of = async |path: &str| call.read::<UsageList>(path).await;
        let (total, over_time, largest) =
            futures::try_join!(usage_of(&whole), usage_of(&by_time), usage_of(&by_value))?;
        // With a filter on the view's own dimension, there is only one value.
        let is_one = view.only.as_ref().is_some_and(|(only, _)| *only == view.by);
        let values = largest.data.iter().filter(|_| !is_one).filter_map(|row| view.by.value(row));
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
