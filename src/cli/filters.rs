//! Which captures: the filters of the list, as options.

use clap::Args;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::client::{Failure, duration};
use crate::clock::rfc3339;

/// The filters of `GET /v1/router/replay`.
#[derive(Args, Default)]
pub(super) struct Filters {
    /// Only those since then: an RFC 3339 time, or how long ago, like 24h or 7d.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only those before then, said as `--since`.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only those that asked for this alias.
    #[arg(long)]
    alias: Option<String>,
    /// Only those of this recipe.
    #[arg(long)]
    recipe: Option<String>,
    /// Only those that this provider served.
    #[arg(long)]
    provider: Option<String>,
    /// Only those that this model served.
    #[arg(long)]
    model: Option<String>,
    /// Only those that were meant for this provider first.
    #[arg(long, value_name = "PROVIDER")]
    decided_provider: Option<String>,
    /// Only those that were meant for this model first.
    #[arg(long, value_name = "MODEL")]
    decided_model: Option<String>,
    /// Only those with these statuses: 200, 4xx, or several with commas between.
    #[arg(long)]
    status: Option<String>,
    /// Only completed, failed, aborted or refused ones.
    #[arg(long)]
    state: Option<String>,
    /// Only those of the ROUTER key with this id.
    #[arg(long, value_name = "KEY_ID")]
    by_key: Option<String>,
    /// Only those of this user; for admins.
    #[arg(long, value_name = "USER_ID")]
    owner: Option<String>,
    /// Only replays of this capture.
    #[arg(long, value_name = "ID")]
    replay_of: Option<String>,
    /// Only shadows, instead of all but them.
    #[arg(long)]
    shadow: bool,
    /// Only the shadow of this capture.
    #[arg(long, value_name = "ID")]
    shadow_of: Option<String>,
}

impl Filters {
    /// The parameters of the query, times as the API takes them.
    pub(super) fn query(&self, now: Timestamp) -> Result<Vec<(&'static str, String)>, Failure> {
        let time = |name: &str, text: &Option<String>| {
            text.as_deref().map(|text| moment(name, text, now)).transpose()
        };
        let pairs = [
            ("since", time("--since", &self.since)?),
            ("until", time("--until", &self.until)?),
            ("alias", self.alias.clone()),
            ("recipe", self.recipe.clone()),
            ("provider", self.provider.clone()),
            ("model", self.model.clone()),
            ("decided_provider", self.decided_provider.clone()),
            ("decided_model", self.decided_model.clone()),
            ("status", self.status.clone()),
            ("state", self.state.clone()),
            ("key", self.by_key.clone()),
            ("owner", self.owner.clone()),
            ("replay_of", self.replay_of.clone()),
            ("shadow", self.shadow.then(|| "true".to_owned())),
            ("shadow_of", self.shadow_of.clone()),
        ];
        Ok(pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
    }

    /// The same as the `filter` of an evaluation.
    pub(super) fn object(&self, now: Timestamp) -> Result<Map<String, Value>, Failure> {
        Ok(self
            .query(now)?
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect())
    }
}

fn moment(option: &str, text: &str, now: Timestamp) -> Result<String, Failure> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(rfc3339(at));
    }
    let ago = duration(text).and_then(|ago| now.checked_sub(ago).ok());
    ago.map(rfc3339).ok_or_else(|| {
        Failure::Wrong(format!(
            "{option} has to be an RFC 3339 time, or how long ago, like 24h or 7d"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_moments_or_how_long_ago() {
        let now = Timestamp::from_second(1_764_000_000).unwrap();
        for (text, expected) in [
            ("24h", "2025-11-23T16:00:00.000000Z"),
            ("7d", "2025-11-17T16:00:00.000000Z"),
            ("90m", "2025-11-24T14:30:00.000000Z"),
            ("1h30m", "2025-11-24T14:30:00.000000Z"),
            ("2025-11-24T17:00:00+02:00", "2025-11-24T15:00:00.000000Z"),
        ] {
            let filters = Filters { since: Some(text.into()), shadow: true, ..Filters::default() };
            assert_eq!(
                filters.query(now).unwrap(),
                [("since", expected.to_owned()), ("shadow", "true".to_owned())],
                "{text}"
            );
        }
        for bad in ["", "yesterday", "-24h", "24", "2025-11-24", "99999999999h", "1 month"] {
            let filters = Filters { until: Some(bad.into()), ..Filters::default() };
            assert!(
                matches!(filters.query(now), Err(Failure::Wrong(why)) if why.starts_with("--until")),
                "{bad}"
            );
        }
    }
}
