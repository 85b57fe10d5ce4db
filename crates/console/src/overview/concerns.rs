//! Keys that somebody should look at, of those that the caller may see.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::present::text;
use super::traffic::rows;
use crate::call::PageCall;

/// How many keys of a kind are named.
const NAMED: usize = 5;
/// A key that expires within this time is named.
const EXPIRES: Duration = Duration::from_secs(7 * 86_400);
/// A key that is unused for this time is named.
const UNUSED: Duration = Duration::from_secs(30 * 86_400);
/// Share of a budget, of 1, above which its key is named.
const BUDGET: &str = "0.8";

/// Keys, the newest first.
#[derive(Default)]
pub(super) struct Concerns {
    pub(super) expiring: Vec<Value>,
    pub(super) unused: Vec<Value>,
    /// With their `usage`.
    pub(super) short: Vec<Value>,
}

impl Concerns {
    pub(super) async fn read(call: &PageCall<'_>) -> Concerns {
        let now = call.app.clock.now();
        let ask =
            |base: &str, filter: String| format!("{base}?status=active&limit={NAMED}&{filter}");
        let soon = format!("expires_before={}", now.checked_add(EXPIRES).unwrap_or(now));
        let long = now.checked_sub(UNUSED).unwrap_or(Timestamp::UNIX_EPOCH);
        let asked = [
            ask("/v1/router/keys", soon.clone()),
            ask("/v1/apikeys", soon),
            ask("/v1/router/keys", format!("unused_since={long}")),
            ask("/v1/router/keys", format!("budget_used={BUDGET}")),
        ];
        // A key that may not list keys has none to look at.
        let found = asked.iter().map(async |path| call.get(path).await.map(rows));
        let found = futures::future::join_all(found).await;
        let [of_router, of_pin, unused, short] = <[_; 4]>::try_from(found)
            .map_or_else(|_| Default::default(), |found| found.map(Result::unwrap_or_default));
        let with_usage = short
            .iter()
            .map(async |key| call.get(&format!("/v1/router/keys/{}", text(key, "id"))).await.ok());
        let short = futures::future::join_all(with_usage).await.into_iter().flatten().collect();
        Concerns { expiring: [of_router, of_pin].concat(), unused, short }
    }
}
