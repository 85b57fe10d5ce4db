//! Yesterday's requests by alias, rule and target, from the sums of usage.

use std::collections::BTreeMap;

use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::call::PageCall;
use rerouter_base::error::Result;
use rerouter_records::usage::UsageList;

/// The requests of one day in UTC.
#[derive(Debug, Default)]
pub(super) struct DayTraffic {
    pub(super) day: String,
    /// Whether the day is today, which is shown if yesterday had no requests.
    pub(super) is_today: bool,
    /// Whether usage has more rows than one answer of the API.
    pub(super) is_partial: bool,
    pub(super) total: u64,
    /// Requests that named a target directly.
    pub(super) direct: u64,
    aliases: BTreeMap<(String, String), u64>,
    rules: BTreeMap<(String, String), u64>,
    targets: BTreeMap<(String, String, String), u64>,
}

impl DayTraffic {
    /// Reads the traffic of yesterday, or of today so far if yesterday had none.
    pub(super) async fn read(call: PageCall<'_>) -> Result<DayTraffic> {
        let today = call.app.clock.now().to_zoned(TimeZone::UTC).date();
        let yesterday = today.yesterday().unwrap_or(today);
        let found = DayTraffic::of(call, yesterday, Some(today)).await?;
        if found.total > 0 {
            return Ok(found);
        }
        Ok(DayTraffic { is_today: true, ..DayTraffic::of(call, today, None).await? })
    }

    async fn of(call: PageCall<'_>, since: Date, until: Option<Date>) -> Result<DayTraffic> {
        let until = until.map(|until| format!("&until={until}")).unwrap_or_default();
        let ways = "group_by=alias,recipe,rule,model";
        let usage = call.read(&format!("/v1/router/usage?since={since}{until}&{ways}")).await?;
        Ok(DayTraffic { day: since.to_string(), ..DayTraffic::sum(usage) })
    }

    pub(super) fn sum(usage: UsageList) -> DayTraffic {
        let mut traffic = DayTraffic { is_partial: usage.has_more, ..DayTraffic::default() };
        for row in usage.data {
            let requests = row.sums.requests;
            // Without a recipe the request was refused before a decision.
            let Some(recipe) = row.recipe.flatten() else { continue };
            traffic.total += requests;
            let Some(rule) = row.rule.flatten() else {
                traffic.direct += requests;
                continue;
            };
            let [alias, model] =
                [row.alias, row.model].map(|name| name.flatten().unwrap_or_default());
            *traffic.aliases.entry((alias, recipe.clone())).or_default() += requests;
            *traffic.rules.entry((recipe.clone(), rule.clone())).or_default() += requests;
            *traffic.targets.entry((recipe, rule, model)).or_default() += requests;
        }
        traffic
    }

    /// Requests for an alias that led to a recipe.
    pub(super) fn of_alias(&self, alias: &str, recipe: &str) -> u64 {
        self.aliases.get(&(alias.to_owned(), recipe.to_owned())).copied().unwrap_or(0)
    }

    pub(super) fn of_rule(&self, recipe: &str, rule: &str) -> u64 {
        self.rules.get(&(recipe.to_owned(), rule.to_owned())).copied().unwrap_or(0)
    }

    /// Requests of a rule that a target answered.
    pub(super) fn of_target(&self, recipe: &str, rule: &str, target: &str) -> u64 {
        let way = (recipe.to_owned(), rule.to_owned(), target.to_owned());
        self.targets.get(&way).copied().unwrap_or(0)
    }
}
