//! Keys and refusals that need attention, among those that the caller may see.

use std::time::Duration;

use jiff::Timestamp;

use super::view::{Range, View};
use crate::call::PageCall;
use rerouter_base::url::encode;
use rerouter_records::key::KeyRecord;
use rerouter_records::page::Page;
use rerouter_records::usage::{RefusalCounts, UsageList};

/// Most keys listed for each reason.
const NAMED: usize = 5;
/// A key that expires within this time is listed.
const EXPIRES: Duration = Duration::from_secs(7 * 86_400);
/// A key that was not used for this time is listed.
const UNUSED: Duration = Duration::from_secs(30 * 86_400);
/// Share of a budget, of 1, above which its key is listed.
const BUDGET: &str = "0.8";

/// Keys by the reason for attention, the newest first.
#[derive(Default)]
pub(super) struct Concerns {
    pub(super) expiring: Vec<KeyRecord>,
    pub(super) unused: Vec<KeyRecord>,
    /// Keys that have used most of a budget, with their `usage`.
    pub(super) short: Vec<KeyRecord>,
    /// What was refused in the last hour.
    pub(super) refused: RefusalCounts,
}

impl Concerns {
    pub(super) async fn read(call: &PageCall<'_>) -> Concerns {
        let now = call.app.clock.now();
        // A caller that may not list keys sees no concerns.
        let keys = async |list: &str, filter: &str| {
            let path = format!("{list}?status=active&limit={NAMED}&{filter}");
            let found = call.read::<Page<KeyRecord>>(&path).await;
            found.map_or_else(|_| Vec::new(), |page| page.data)
        };
        let soon = format!("expires_before={}", now.checked_add(EXPIRES).unwrap_or(now));
        let long = now.checked_sub(UNUSED).unwrap_or(Timestamp::UNIX_EPOCH);
        let (unused, short) = (format!("unused_since={long}"), format!("budget_used={BUDGET}"));
        let hour = View { range: Range::Hour, ..View::default() };
        let usage = hour.usage(&hour.range.times(now), hour.range.interval());
        let (of_router, of_pin, unused, short, usage) = futures::join!(
            keys("/v1/router/keys", &soon),
            keys("/v1/apikeys", &soon),
            keys("/v1/router/keys", &unused),
            keys("/v1/router/keys", &short),
            call.read::<UsageList>(&usage),
        );
        let with_usage = short.iter().map(async |key| {
            call.read(&format!("/v1/router/keys/{}", encode(key.id.as_str()))).await.ok()
        });
        let short = futures::future::join_all(with_usage).await.into_iter().flatten().collect();
        let total = usage.ok().and_then(|usage| usage.data.into_iter().next()).unwrap_or_default();
        let refused = total.sums.refused;
        Concerns { expiring: [of_router, of_pin].concat(), unused, short, refused }
    }
}
