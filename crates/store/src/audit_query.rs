//! Lists audit rows.

use jiff::Timestamp;

use super::audit::{Action, AuditRow};
use super::rows::Stored;
use super::sql::{Row, ToValue, Transaction, Value, params};
use super::{Result, Store};
use crate::captures::LIST_ROWS;
use rerouter_base::id::AuditId;

/// A field that is not set does not filter.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// The id of the actor.
    pub actor: Option<String>,
    pub action: Option<Action>,
    /// The id of the target.
    pub target: Option<String>,
}

impl Store {
    /// Up to `limit` rows before `after`, the last commit first. `None` if `after` was never the id
    /// of a row.
    pub async fn audit(
        &self,
        filter: AuditFilter,
        limit: usize,
        after: Option<AuditId>,
    ) -> Result<Option<Vec<AuditRow>>> {
        self.read(move |transaction| list(transaction, &filter, limit, after.as_ref())).await
    }
}

fn list(
    transaction: &Transaction<'_>,
    filter: &AuditFilter,
    limit: usize,
    after: Option<&AuditId>,
) -> Result<Option<Vec<AuditRow>>> {
    let mut last = transaction.int(LAST, &[])?.unwrap_or(0);
    if let Some(after) = after {
        match transaction.int("SELECT seq FROM audit WHERE id = ?1", &params![after])? {
            Some(place) => last = place - 1,
            // The retention deleted this row, and therefore all rows before it.
            None => return Ok(after.at().map(|_| Vec::new())),
        }
    }
    if filter.since.is_none() && filter.until.is_none() {
        return page(transaction, filter, (0, last), limit).map(Some);
    }
    // Most queries are for the newest rows. Other queries first look up which range of rows the
    // time covers. If the clock was set, the range is larger but misses no row.
    let rows = page(transaction, filter, (last.saturating_sub(NEAR), last), limit)?;
    if rows.len() >= limit {
        return Ok(Some(rows));
    }
    let us = |at: Option<Timestamp>, none: i64| at.map_or(none, Timestamp::as_microsecond);
    let (since, until) = (us(filter.since, i64::MIN), us(filter.until, i64::MAX));
    let span = |row: &Row<'_>| Ok(row.int(0)?.zip(row.int(1)?));
    let span = transaction.row(OF_TIME, &params![since, until], span)?;
    let Some((first, newest)) = span.flatten() else { return Ok(Some(Vec::new())) };
    page(transaction, filter, (first, newest.min(last)), limit).map(Some)
}

pub(super) const LAST: &str = "SELECT max(seq) FROM audit";
pub(super) const OF_TIME: &str = "SELECT min(seq), max(seq) FROM audit WHERE at >= ?1 AND at < ?2";
/// Number of newest rows that a query for a period reads before it looks up the rows of that
/// period.
pub(super) const NEAR: i64 = LIST_ROWS as i64;

/// The matching rows from `first` to `last` by their number `seq`, the last first.
fn page(
    transaction: &Transaction<'_>,
    filter: &AuditFilter,
    (first, last): (i64, i64),
    limit: usize,
) -> Result<Vec<AuditRow>> {
    let (conditions, mut values) = conditions(filter);
    values.extend(params![first, last, limit]);
    transaction.rows(&select(&conditions), &values, AuditRow::of)
}

/// The statement of a page. Its parameters are the values of the conditions in their order, then
/// the first and the last `seq`, then the limit.
pub(super) fn select(conditions: &[&str]) -> String {
    let numbered = conditions.iter().chain(&["seq >=", "seq <="]).zip(1..);
    let conditions: Vec<_> = numbered.map(|(condition, at)| format!("{condition} ?{at}")).collect();
    let (conditions, limit) = (conditions.join(" AND "), conditions.len() + 1);
    AuditRow::select(&format!("WHERE {conditions} ORDER BY seq DESC LIMIT ?{limit}"))
}

/// The conditions of a filter, with their values. The rarest of target, actor and action is looked
/// up by its index, in this order; the others are written so that no index serves them.
pub(super) fn conditions(filter: &AuditFilter) -> (Vec<&'static str>, Vec<Value<'_>>) {
    let (target, actor) = (filter.target.is_some(), filter.actor.is_some());
    let narrow = [
        (filter.since.as_ref().map(ToValue::value), "at + 0 >="),
        (filter.until.as_ref().map(ToValue::value), "at + 0 <"),
        (filter.target.as_ref().map(ToValue::value), "target ="),
        (
            filter.actor.as_ref().map(ToValue::value),
            if target { "actor || '' =" } else { "actor =" },
        ),
        (
            filter.action.map(|action| Value::Text(action.as_str())),
            if target || actor { "action || '' =" } else { "action =" },
        ),
    ];
    let named = narrow.into_iter().filter_map(|(value, condition)| Some((condition, value?)));
    named.unzip()
}
