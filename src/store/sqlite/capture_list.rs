//! Lists of captures: newest first, in pages. A page looks at a bounded part of the index.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::super::StoreError;
use super::capture_rows::{ByteRange, CaptureFilter, CaptureLocation, CapturePage, Shadows};
use crate::bounds;
use crate::id::{KeyId, RequestId, UserId};

/// The columns that [`location`] reads.
pub(super) const LOCATION: &str = "segment, head_at, head_len, bodies_at, bodies_len, salt";

/// The location in a row.
pub(super) fn location(row: &rusqlite::Row<'_>) -> rusqlite::Result<CaptureLocation> {
    let offset = |name: &str| {
        let offset = row.get::<_, Option<i64>>(name)?;
        Ok::<_, rusqlite::Error>(offset.and_then(|offset| u64::try_from(offset).ok()))
    };
    let bodies = match (offset("bodies_at")?, row.get("bodies_len")?) {
        (Some(offset), Some(length)) => Some(ByteRange { offset, length }),
        _ => None,
    };
    Ok(CaptureLocation {
        segment: row.get("segment")?,
        head: ByteRange {
            offset: offset("head_at")?.unwrap_or_default(),
            length: row.get("head_len")?,
        },
        bodies,
        salt: row.get("salt")?,
    })
}

/// Conditions of a statement and their values. Only fixed text goes into the statement.
#[derive(Default)]
struct Conditions {
    sql: String,
    values: Vec<Value>,
}

impl Conditions {
    fn add(&mut self, condition: &str, values: impl IntoIterator<Item = Value>) {
        self.sql.push_str(if self.sql.is_empty() { " WHERE " } else { " AND " });
        self.sql.push_str(condition);
        self.values.extend(values);
    }

    fn texts<'a>(&mut self, conditions: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) {
        for (condition, value) in conditions {
            if let Some(value) = value {
                self.add(condition, [Value::Text(value.to_owned())]);
            }
        }
    }
}

/// Captures that match the filter and are older than `after`, up to `limit`. Looks at `budget`
/// rows; the next page goes on from there.
pub(super) fn list(
    connection: &mut Connection,
    filter: &CaptureFilter,
    limit: usize,
    after: Option<&RequestId>,
    budget: usize,
) -> Result<CapturePage, StoreError> {
    // Both queries of a page see the same state.
    let snapshot = connection.transaction()?;
    page(&snapshot, filter, limit, after, budget)
}

fn page(
    connection: &Connection,
    filter: &CaptureFilter,
    limit: usize,
    after: Option<&RequestId>,
    budget: usize,
) -> Result<CapturePage, StoreError> {
    let (mut inner, outer) = (indexed(filter, after), others(filter));
    let index = failures(filter).inspect(|_| inner.add("status >= 400", [])).unwrap_or_default();
    let most = |bound: usize| Value::Integer(i64::try_from(bound).unwrap_or(i64::MAX));
    // SQLite reads the inner select row by row, and stops when the outer one has enough.
    let within = format!(
        "(SELECT id, created_at, key, alias, recipe, provider, model, decided_provider,
            decided_model, status, state, shadow_of, \
    {LOCATION} FROM captures{index}{} ORDER BY id DESC LIMIT ?)",
        inner.sql
    );
    let sql = format!("SELECT id, {LOCATION} FROM {within}{} LIMIT ?", outer.sql);
    let values = inner
        .values
        .iter()
        .cloned()
        .chain([most(budget)])
        .chain(outer.values)
        .chain([most(limit.saturating_add(1))]);
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), |row| {
        Ok((RequestId::known(&row.get::<_, String>(0)?), location(row)?))
    })?;
    let mut found = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    found.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
    if found.len() > limit {
        found.truncate(limit);
        let next = found.last().map(|(id, _)| id.clone());
        return Ok(CapturePage { found, next });
    }
    // The last row that was looked at; `None` if there were fewer than the budget.
    let sql =
        format!("SELECT id FROM captures{index}{} ORDER BY id DESC LIMIT 1 OFFSET ?", inner.sql);
    let values = inner.values.into_iter().chain([most(budget.saturating_sub(1))]);
    let last: Option<String> = connection
        .prepare_cached(&sql)?
        .query_row(params_from_iter(values), |row| row.get(0))
        .optional()?;
    Ok(CapturePage { found, next: last.map(|id| RequestId::known(&id)) })
}

/// The index of failures, where the filter wants nothing else. SQLite would not choose it.
fn failures(filter: &CaptureFilter) -> Option<&'static str> {
    let only =
        !filter.statuses.is_empty() && filter.statuses.iter().all(|(low, _)| *low >= FAILURES);
    let only = only && filter.replay_of.is_none() && filter.shadow_of.is_none();
    only.then_some(if filter.owner.is_some() {
        " INDEXED BY captures_owner_failed"
    } else {
        " INDEXED BY captures_failed"
    })
}

/// Statuses from here on are in the indexes of failures.
const FAILURES: u16 = 400;

/// How many rows one page looks at.
pub(super) fn budget(filter: &CaptureFilter) -> usize {
    if filter.owner.is_some() || failures(filter).is_some() {
        bounds::LIST_LOOKUPS
    } else {
        bounds::LIST_ROWS
    }
}

/// Conditions that an index serves: owner, copies of a capture, and time, which is the order of
/// ids.
fn indexed(filter: &CaptureFilter, after: Option<&RequestId>) -> Conditions {
    let mut conditions = Conditions::default();
    let oldest = filter.since_us.and_then(RequestId::first_at);
    let newest = filter
        .until_us
        .and_then(|until_us| RequestId::first_at(until_us.saturating_add(bounds::ID_PRECISION_US)));
    conditions.texts([
        ("id < ?", after.map(RequestId::as_str)),
        ("id >= ?", oldest.as_ref().map(RequestId::as_str)),
        ("id < ?", newest.as_ref().map(RequestId::as_str)),
        ("owner = ?", filter.owner.as_ref().map(UserId::as_str)),
        ("replay_of = ?", filter.replay_of.as_ref().map(RequestId::as_str)),
        ("shadow_of = ?", filter.shadow_of.as_ref().map(RequestId::as_str)),
    ]);
    conditions
}

fn others(filter: &CaptureFilter) -> Conditions {
    let mut conditions = Conditions::default();
    match filter.shadows {
        Shadows::Without => conditions.add("shadow_of IS NULL", []),
        Shadows::Only => conditions.add("shadow_of IS NOT NULL", []),
        Shadows::With => {}
    }
    conditions.texts([
        ("key = ?", filter.key.as_ref().map(KeyId::as_str)),
        ("alias = ?", filter.alias.as_deref()),
        ("recipe = ?", filter.recipe.as_deref()),
        ("provider = ?", filter.provider.as_deref()),
        ("model = ?", filter.model.as_deref()),
        ("decided_provider = ?", filter.decided_provider.as_deref()),
        ("decided_model = ?", filter.decided_model.as_deref()),
        ("state = ?", filter.state.as_deref()),
    ]);
    for (condition, value) in
        [("created_at >= ?", filter.since_us), ("created_at < ?", filter.until_us)]
    {
        if let Some(value) = value {
            conditions.add(condition, [Value::Integer(value)]);
        }
    }
    if !filter.statuses.is_empty() {
        let ranges: Vec<&str> = filter.statuses.iter().map(|_| "status BETWEEN ? AND ?").collect();
        let values = filter
            .statuses
            .iter()
            .flat_map(|(low, high)| [*low, *high])
            .map(|status| Value::Integer(status.into()));
        conditions.add(&format!("({})", ranges.join(" OR ")), values);
    }
    conditions
}
