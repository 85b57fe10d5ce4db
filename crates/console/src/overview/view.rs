//! Which traffic the overview shows: its time range, its dimension, its order and its filter.

use jiff::Timestamp;

use crate::call::PageCall;
use crate::links::with_query;
use rerouter_base::error::{Error, Result};
use rerouter_base::url::encode;
use rerouter_records::UsageOrder;
use rerouter_records::usage::UsageRecord;

rerouter_base::words! {
    /// A span of time up to now.
    #[derive(Default)]
    pub(super) enum Range {
        Hour = "hour",
        #[default]
        Day = "day",
        Week = "week",
        Month = "month",
    }
}

impl Range {
    /// The API's `interval` for a step of the charts.
    pub(super) fn interval(self) -> &'static str {
        match self {
            Range::Hour => "5m",
            Range::Day | Range::Week => "1h",
            Range::Month => "1d",
        }
    }

    /// The API's `interval` for totals. A week starts with a whole day, so daily sums suffice, and
    /// with thousands of keys there are fewer of them.
    pub(super) fn whole(self) -> &'static str {
        match self {
            Range::Week => "1d",
            other => other.interval(),
        }
    }

    /// Seconds per step, and the beginning of the first step. The last step is the one of `now`.
    fn steps(self, now: i64) -> (i64, i64) {
        let ago = |step: i64, count: i64| now - now.rem_euclid(step) - (count - 1) * step;
        match self {
            Range::Hour => (300, ago(300, 12)),
            Range::Day => (3_600, ago(3_600, 24)),
            Range::Week => (3_600, ago(86_400, 7)),
            Range::Month => (86_400, ago(86_400, 30)),
        }
    }

    /// When the steps begin, in seconds since the epoch.
    pub(super) fn times(self, now: Timestamp) -> Vec<i64> {
        let now = now.as_second();
        let (step, first) = self.steps(now);
        (0..=(now - first) / step).map(|number| first + number * step).collect()
    }
}

rerouter_base::words! {
    /// What traffic is grouped by.
    #[derive(Default)]
    pub(super) enum Dimension {
        #[default]
        Recipe = "recipe",
        Target = "target",
        Key = "key",
        User = "user",
        /// The label of keys that the view names.
        Label = "label",
    }
}

impl Dimension {
    pub(super) fn has_filter(self) -> bool {
        self != Dimension::Label
    }

    /// How the largest values are ordered, unless the query says so.
    fn usual_order(self) -> UsageOrder {
        match self {
            Dimension::Recipe | Dimension::Target => UsageOrder::Requests,
            Dimension::Key | Dimension::User | Dimension::Label => UsageOrder::Cost,
        }
    }

    /// The column of the API's usage for this dimension.
    pub(super) fn column(self) -> &'static str {
        match self {
            Dimension::Target => "model",
            other => other.as_str(),
        }
    }

    pub(super) fn value(self, row: &UsageRecord) -> Option<&str> {
        let value = match self {
            Dimension::Recipe => &row.recipe,
            Dimension::Target => &row.model,
            Dimension::Key => &row.key,
            Dimension::User => &row.user,
            Dimension::Label => &row.label,
        };
        value.as_ref()?.as_deref()
    }
}

/// The sum by which values are ordered.
pub(super) fn sum_of(order: UsageOrder, row: &UsageRecord) -> f64 {
    let sums = &row.sums;
    match order {
        UsageOrder::Requests => sums.requests as f64,
        UsageOrder::Errors => sums.errors as f64,
        UsageOrder::Tokens => sums.total_tokens as f64,
        UsageOrder::Cost => sums.cost_usd.unwrap_or(0.0),
    }
}

pub(super) fn sum_name(order: UsageOrder) -> &'static str {
    match order {
        UsageOrder::Tokens => "tokens",
        UsageOrder::Cost => "cost",
        UsageOrder::Errors => "failed",
        other => other.as_str(),
    }
}

/// The traffic that the page shows, from its query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) range: Range,
    pub(super) by: Dimension,
    /// The label of keys, where traffic is grouped by one.
    pub(super) label: String,
    /// `None`: as usual for the dimension.
    pub(super) order: Option<UsageOrder>,
    /// Whether all values are listed, or only the largest.
    pub(super) all: bool,
    /// A filter: only traffic with this value of the dimension.
    pub(super) only: Option<(Dimension, String)>,
}

impl View {
    pub(super) fn read(call: &PageCall<'_>) -> Result<View> {
        let filters = Dimension::ALL.into_iter().filter(|dimension| dimension.has_filter());
        let only = filters.into_iter().find_map(|dimension| {
            Some((dimension, call.query(dimension.as_str()).filter(|value| !value.is_empty())?))
        });
        Ok(View {
            range: word(call, "range", Range::parse)?.unwrap_or_default(),
            by: word(call, "by", Dimension::parse)?.unwrap_or_default(),
            label: call.query("label").unwrap_or_default(),
            order: word(call, "order", UsageOrder::parse)?,
            all: word(call, "rows", |word| (word == "all").then_some(()))?.is_some(),
            only,
        })
    }

    pub(super) fn order(&self) -> UsageOrder {
        self.order.unwrap_or(self.by.usual_order())
    }

    pub(super) fn column(&self) -> String {
        match self.by {
            Dimension::Label => format!("label:{}", encode(&self.label)),
            by => by.column().to_owned(),
        }
    }

    pub(super) fn by(&self, by: Dimension) -> View {
        View { by, order: None, all: false, ..self.clone() }
    }

    pub(super) fn href(&self) -> String {
        with_query("/console/", &self.query())
    }

    pub(super) fn query(&self) -> Vec<(&'static str, &str)> {
        let mut chosen = vec![("range", self.range.as_str()), ("by", self.by.as_str())];
        chosen.extend((self.by == Dimension::Label).then_some(("label", self.label.as_str())));
        chosen.extend(self.order.map(|order| ("order", order.as_str())));
        chosen.extend(self.all.then_some(("rows", "all")));
        chosen.extend(self.only.iter().map(|(by, value)| (by.as_str(), value.as_str())));
        chosen
    }

    /// The path and query of the API for the usage of this view, in steps of `interval`.
    pub(super) fn usage(&self, times: &[i64], interval: &str) -> String {
        let since = times.first().and_then(|first| Timestamp::from_second(*first).ok());
        let since = since.unwrap_or_default().to_string();
        let only = self.only.iter().map(|(dimension, value)| (dimension.column(), value.as_str()));
        let asked = [("interval", interval), ("since", since.as_str())];
        with_query("/v1/router/usage", &asked.into_iter().chain(only).collect::<Vec<_>>())
    }
}

fn word<T>(
    call: &PageCall<'_>,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>> {
    let Some(text) = call.query(name) else { return Ok(None) };
    parse(&text).map(Some).ok_or_else(|| Error::invalid(name, format!("Unknown {name}.")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rerouter_base::clock::fixtures::at;

    #[test]
    fn the_steps_end_with_the_present_one() {
        for range in Range::ALL {
            let times = range.times(at(1));
            let (step, first) = range.steps(at(1).as_second());
            let last = times.last().copied().unwrap();
            assert!(last <= at(1).as_second() && at(1).as_second() < last + step);
            assert!(times.iter().all(|time| time % step == 0), "{range:?}");
            assert_eq!((times[0], times.is_sorted()), (first, true));
        }
        let counts = Range::ALL.map(|range| range.times(at(0)).len());
        // `at(0)` is 2025-11-24T16:00:00Z: the 17th hour of its day.
        assert_eq!(counts, [12, 24, 6 * 24 + 17, 30]);
    }

    #[test]
    fn a_view_has_its_address() {
        let view = View {
            range: Range::Hour,
            by: Dimension::Key,
            label: String::new(),
            order: None,
            all: false,
            only: Some((Dimension::Target, "a/b&c".into())),
        };
        assert_eq!(view.href(), "/console/?range=hour&by=key&target=a%2Fb%26c");
        let usage = view.usage(&Range::Hour.times(at(0)), "5m");
        let asked = "/v1/router/usage?interval=5m&since=2025-11-24T15%3A05%3A00Z&model=a%2Fb%26c";
        assert_eq!(usage, asked);
        let teams = View { order: Some(UsageOrder::Errors), all: true, only: None, ..view };
        let teams = View { by: Dimension::Label, label: "a&b".into(), ..teams };
        let href = "/console/?range=hour&by=label&label=a%26b&order=errors&rows=all";
        assert_eq!(teams.href(), href);
        assert_eq!((teams.column().as_str(), teams.order()), ("label:a%26b", UsageOrder::Errors));
        assert_eq!(teams.by(Dimension::User).order(), UsageOrder::Cost);
    }
}
