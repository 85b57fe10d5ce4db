//! Limits of budgets. Most are of `budget.rs`; several files of the room use the others.

use std::time::Duration;

/// Parts that a budget is granted in: a crash may cost its owner one.
pub(super) const GRANTS: u64 = 20;
/// Largest reserves so far that a grant holds, up to a quarter of the budget, so that concurrent
/// requests seldom wait for the next.
pub(super) const GRANT_RESERVES: u64 = 8;
/// Smallest grant in billionths of a dollar, up to a quarter of the budget: five cents, so that
/// small budgets need few.
pub(super) const GRANT_SMALL: u64 = 50_000_000;
/// Time before a day or month ends at which the first grant of the next one is written.
pub(super) const GRANT_AHEAD: Duration = Duration::from_secs(120);
/// Time in which gateways give back what they do not use of a budget, once another one lacks it.
pub(super) const GRANT_RECALL: Duration = Duration::from_secs(3);
/// Time after which each gateway that runs has answered a recall: gateways look for one twice a
/// second.
pub(super) const GRANT_ANSWERED: Duration = Duration::from_millis(1_500);
/// Time between two recalls for one budget, while calls of other gateways have reserved of it.
pub(super) const GRANT_RECALL_AGAIN: Duration = Duration::from_secs(5);
/// Time between two recalls for one budget that the other gateways have spent.
pub(super) const GRANT_RECALL_SPENT: Duration = Duration::from_secs(60);
/// Time after a recall in which a gateway is granted no more than it needs.
pub(super) const GRANT_LEAN: Duration = Duration::from_secs(10);
/// Budgets, and sums of usage, written in one transaction: others write between two of them.
pub(super) const USAGE_WRITE_ROWS: usize = 1_000;
/// Sums of usage waiting to be written; more are dropped, with a warning.
pub(super) const USAGE_PENDING: usize = 20_000;
