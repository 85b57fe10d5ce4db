//! Filters of captures, as options.

use clap::Args;
use jiff::Timestamp;

use super::super::client::ApiClient;
use super::super::failure::Result;
use super::super::{keys, times, users};

/// The filters of `GET /v1/router/replay`.
#[derive(Args, Default)]
pub(crate) struct Filters {
    /// Not before this time: RFC 3339, or an age such as 24h or 7d.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Before this time, written like --since.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Requests for this alias.
    #[arg(long)]
    alias: Option<String>,
    /// Decided by this recipe.
    #[arg(long)]
    recipe: Option<String>,
    /// Served by this provider.
    #[arg(long)]
    provider: Option<String>,
    /// Served by this model.
    #[arg(long)]
    model: Option<String>,
    /// First choice of the decision: this provider.
    #[arg(long, value_name = "PROVIDER")]
    decided_provider: Option<String>,
    /// First choice of the decision: this model.
    #[arg(long, value_name = "MODEL")]
    decided_model: Option<String>,
    /// Status 200, or a class such as 4xx, or several separated by commas.
    #[arg(long)]
    status: Option<String>,
    /// How the request ended.
    #[arg(long, value_parser = ["completed", "failed", "aborted", "refused"])]
    state: Option<String>,
    /// Made with this ROUTER key, by id or name.
    #[arg(long, value_name = "KEY")]
    by_key: Option<String>,
    /// Owned by this user, by id or email; admins only.
    #[arg(long, value_name = "USER")]
    owner: Option<String>,
    /// Replays of this capture.
    #[arg(long, value_name = "ID")]
    replay_of: Option<String>,
    /// Shadows, which are left out otherwise.
    #[arg(long)]
    shadow: bool,
    /// The shadow of this capture.
    #[arg(long, value_name = "ID")]
    shadow_of: Option<String>,
}

impl Filters {
    /// The query for the API, in which names are replaced by ids. Ages are counted back from `now`.
    pub(crate) fn query(
        &self,
        client: &ApiClient,
        now: Timestamp,
    ) -> Result<Vec<(&'static str, String)>> {
        let mut query = self.given(now)?;
        for (name, value) in &mut query {
            match *name {
                "key" => *value = keys::router_id(client, value)?,
                "owner" => *value = users::id(client, value)?,
                _ => {}
            }
        }
        Ok(query)
    }

    /// The filters that are set, with names not replaced.
    pub(super) fn given(&self, now: Timestamp) -> Result<Vec<(&'static str, String)>> {
        let time = |name: &str, text: &Option<String>| {
            text.as_deref().map(|text| times::past(name, text, now)).transpose()
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
}

#[cfg(test)]
mod tests {
    use super::super::super::failure::CommandFailure;
    use super::*;

    #[test]
    fn a_time_is_a_timestamp_or_an_age() {
        let now = rerouter_base::clock::fixtures::at(0);
        for (text, expected) in [
            ("24h", "2025-11-23T16:00:00.000000Z"),
            ("7d", "2025-11-17T16:00:00.000000Z"),
            ("90m", "2025-11-24T14:30:00.000000Z"),
            ("1h30m", "2025-11-24T14:30:00.000000Z"),
            ("2025-11-24T17:00:00+02:00", "2025-11-24T15:00:00.000000Z"),
        ] {
            let filters = Filters { since: Some(text.into()), shadow: true, ..Filters::default() };
            assert_eq!(
                filters.given(now).unwrap(),
                [("since", expected.to_owned()), ("shadow", "true".to_owned())],
                "{text}"
            );
        }
        for bad in ["", "yesterday", "-24h", "24", "2025-11-24", "99999999999h", "1 month"] {
            let filters = Filters { until: Some(bad.into()), ..Filters::default() };
            assert!(
                matches!(
                    filters.given(now), Err(CommandFailure::Usage(why)) if why.starts_with(
                        "--until"
                    )
                ),
                "{bad}"
            );
        }
    }
}
