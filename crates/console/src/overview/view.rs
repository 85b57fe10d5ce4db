//! Which traffic the overview shows: its time range, its dimension and its filter.

use jiff::Timestamp;

use crate::call::PageCall;
use crate::links::with_query;
use rerouter_base::error::{Error, Result};
use rerouter_records::usage::UsageRecord;

/// A span of time up to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    Hour,
    Day,
    Week,
    Month,
}

impl Range {
    pub(super) const ALL: [Range; 4] = [Range::Hour, Range::Day, Range::Week, Range::Month];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Range::Hour => "hour",
            Range::Day => "day",
            Range::Week => "week",
            Range::Month => "month",
        }
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Range::Hour => "Last hour",
            Range::Day => "Last day",
            Range::Week => "Last week",
            Range::Month => "Last month",
        }
    }

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

/// What traffic is grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dimension {
    Recipe,
    Target,
    Key,
    User,
}

impl Dimension {
    pub(super) const ALL: [Dimension; 4] =
        [Dimension::Recipe, Dimension::Target, Dimension::Key, Dimension::User];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Dimension::Recipe => "recipe",
            Dimension::Target => "target",
            Dimension::Key => "key",
            Dimension::User => "user",
        }
    }

    /// The column of the API's usage for this dimension.
    pub(super) fn column(self) -> &'static str {
        match self {
            Dimension::Target => "model",
            other => other.as_str(),
        }
    }

    /// The value of this dimension in a row of usage.
    pub(super) fn value(self, row: &UsageRecord) -> Option<&str> {
        let value = match self {
            Dimension::Recipe => &row.recipe,
            Dimension::Target => &row.model,
            Dimension::Key => &row.key,
            Dimension::User => &row.user,
        };
        value.as_ref()?.as_deref()
    }
}

/// The traffic that the page shows, from its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) range: Range,
    pub(super) by: Dimension,
    /// A filter: only traffic with this value of the dimension.
    pub(super) only: Option<(Dimension, String)>,
}

impl View {
    pub(super) fn read(call: &PageCall<'_>) -> Result<View> {
        let all = Dimension::ALL.into_iter().find_map(|dimension| {
            Some((dimension, call.query(dimension.as_str()).filter(|value| !value.is_empty())?))
        });
        Ok(View {
            range: word(call, "range", &Range::ALL, Range::as_str)?.unwrap_or(Range::Day),
            by: word(call, "by", &Dimension::ALL, Dimension::as_str)?.unwrap_or(Dimension::Recipe),
            only: all,
        })
    }

    /// The address of the page with this view.
    pub(super) fn href(&self) -> String {
        let only = self.only.iter().map(|(dimension, value)| (dimension.as_str(), value.as_str()));
        let chosen = [("range", self.range.as_str()), ("by", self.by.as_str())];
        with_query("/console/", &chosen.into_iter().chain(only).collect::<Vec<_>>())
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

fn word<T: Copy>(
    call: &PageCall<'_>,
    name: &str,
    all: &[T],
    as_str: fn(T) -> &'static str,
) -> Result<Option<T>> {
    let Some(text) = call.query(name) else { return Ok(None) };
    let found = all.iter().copied().find(|one| as_str(*one) == text);
    found.map(Some).ok_or_else(|| Error::invalid(name, format!("Unknown {name}.")))
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
            only: Some((Dimension::Target, "a/b&c".into())),
        };
        assert_eq!(view.href(), "/console/?range=hour&by=key&target=a%2Fb%26c");
        let usage = view.usage(&Range::Hour.times(at(0)), "5m");
        let asked = "/v1/router/usage?interval=5m&since=2025-11-24T15%3A05%3A00Z&model=a%2Fb%26c";
        assert_eq!(usage, asked);
    }
}
