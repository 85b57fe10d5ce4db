//! Lists of captures: newest first, in pages. A page looks at a bounded part of the index.

use super::rows::{CaptureFilter, CaptureLocation, CapturePage, Shadows, location_columns};
use crate::Result;
use crate::columns::Columns;
use crate::reach::in_list;
use crate::rows::Stored;
use crate::sql::{ToValue, Transaction, Value};
use rerouter_base::id::{ID_PRECISION_US, KeyId, RequestId, UserId};

/// Maximum number of index rows that one page of a list reads in order: less than 5 ms
/// (`benches/run index`).
pub(crate) const LIST_ROWS: usize = 15_000;
/// Maximum number of rows that a page reads if each row is looked up separately, as for one owner
/// or for failures.
const LIST_LOOKUPS: usize = 1_500;

/// Conditions of a statement and their values. Only fixed text goes into the statement, with a `?`
/// for each value.
#[derive(Default)]
struct Conditions<'a> {
    sql: String,
    values: Vec<Value<'a>>,
}

impl<'a> Conditions<'a> {
    fn add(&mut self, condition: &str, values: impl IntoIterator<Item = Value<'a>>) {
        self.sql.push_str(if self.sql.is_empty() { " WHERE " } else { " AND " });
        self.sql.push_str(condition);
        self.values.extend(values);
    }

    fn texts(&mut self, conditions: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) {
        for (condition, value) in conditions {
            if let Some(value) = value {
                self.add(condition, [Value::Text(value)]);
            }
        }
    }
}

/// A statement with `?1`, `?2` and so on for its `?`s.
fn numbered(sql: &str) -> String {
    let mut numbered = String::with_capacity(sql.len() + 16);
    for (number, part) in sql.split('?').enumerate() {
        if number > 0 {
            numbered.push_str(&format!("?{number}"));
        }
        numbered.push_str(part);
    }
    numbered
}

/// Captures that match the filter and are older than `after`, up to `limit`. Reads at most `budget`
/// rows; the next page continues from there.
pub(super) fn list(
    transaction: &Transaction<'_>,
    filter: &CaptureFilter,
    limit: usize,
    after: Option<&RequestId>,
    budget: usize,
) -> Result<CapturePage> {
    let ids = ids_of(filter);
    let (shared, keys) = (transaction.is_shared(), filter.reach.keys());
    let (mut inner, mut outer) = (indexed(filter, after, &ids), others(filter));
    if let Some(keys) = &keys {
        outer.add(&in_list("key", "?", shared), [Value::Text(keys)]);
    }
    let only_failures = is_of_failures(filter);
    if only_failures {
        inner.add("status >= 400", []);
    }
    let index = match (shared, only_failures, filter.reach.owner().is_some()) {
        // SQLite would not choose this index itself.
        (false, true, true) => " INDEXED BY captures_owner_failed",
        (false, true, false) => " INDEXED BY captures_failed",
        _ => "",
    };
    let location_columns = location_columns(shared, ", NULL");
    // The database reads the inner select row by row, and stops when the outer one has enough.
    let within = format!(
        "(SELECT id, created_at, key, alias, recipe, provider, model, decided_provider,
            decided_model, status, state, shadow_of, \
    {location_columns} FROM captures{index}{} ORDER BY id DESC LIMIT ?) AS looked_at",
        inner.sql
    );
    let sql = format!("SELECT id, {location_columns} FROM {within}{} LIMIT ?", outer.sql);
    let most = [budget, limit.saturating_add(1)];
    let values: Vec<Value<'_>> = (inner.values.iter().copied())
        .chain([most[0].value()])
        .chain(outer.values)
        .chain([most[1].value()])
        .collect();
    let mut found = transaction.rows(&numbered(&sql), &values, |row| {
        let mut columns = Columns::new(row);
        Ok((columns.get::<RequestId>()?, CaptureLocation::read(&mut columns)?))
    })?;
    found.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
    if found.len() > limit {
        found.truncate(limit);
        let next = found.last().map(|(id, _)| id.clone());
        return Ok(CapturePage { found, next });
    }
    // The last row that was read; `None` if there were fewer rows than the budget.
    let sql =
        format!("SELECT id FROM captures{index}{} ORDER BY id DESC LIMIT 1 OFFSET ?", inner.sql);
    let skipped = budget.saturating_sub(1);
    let values: Vec<Value<'_>> = inner.values.into_iter().chain([skipped.value()]).collect();
    let next = transaction.row(&numbered(&sql), &values, |row| Columns::new(row).get())?;
    Ok(CapturePage { found, next })
}

/// Whether the filter wants failures and nothing else, for which there is an index.
fn is_of_failures(filter: &CaptureFilter) -> bool {
    let only =
        !filter.statuses.is_empty() && filter.statuses.iter().all(|(low, _)| *low >= FAILURES);
    only && filter.replay_of.is_none() && filter.shadow_of.is_none()
}

/// Statuses from this one on are in the indexes of failures.
const FAILURES: u16 = 400;

pub(super) fn budget(filter: &CaptureFilter) -> usize {
    if filter.reach.owner().is_some() || is_of_failures(filter) { LIST_LOOKUPS } else { LIST_ROWS }
}

/// The range of ids of the filter's captures: from the first id on, before the second.
fn ids_of(filter: &CaptureFilter) -> [Option<RequestId>; 2] {
    let until = |until_us: i64| RequestId::first_at(until_us.saturating_add(ID_PRECISION_US));
    [filter.since_us.and_then(RequestId::first_at), filter.until_us.and_then(until)]
}

/// Conditions that an index serves: owner, copies of a capture, and time, which is the order of
/// ids.
fn indexed<'a>(
    filter: &'a CaptureFilter,
    after: Option<&'a RequestId>,
    [oldest, newest]: &'a [Option<RequestId>; 2],
) -> Conditions<'a> {
    let mut conditions = Conditions::default();
    conditions.texts([
        ("id < ?", after.map(RequestId::as_str)),
        ("id >= ?", oldest.as_ref().map(RequestId::as_str)),
        ("id < ?", newest.as_ref().map(RequestId::as_str)),
        ("owner = ?", filter.reach.owner().map(UserId::as_str)),
        ("replay_of = ?", filter.replay_of.as_ref().map(RequestId::as_str)),
        ("shadow_of = ?", filter.shadow_of.as_ref().map(RequestId::as_str)),
    ]);
    conditions
}

fn others(filter: &CaptureFilter) -> Conditions<'_> {
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
            conditions.add(condition, [Value::Int(value)]);
        }
    }
    if !filter.statuses.is_empty() {
        let ranges: Vec<&str> = filter.statuses.iter().map(|_| "status BETWEEN ? AND ?").collect();
        let values = filter
            .statuses
            .iter()
            .flat_map(|(low, high)| [*low, *high])
            .map(|status| Value::Int(status.into()));
        conditions.add(&format!("({})", ranges.join(" OR ")), values);
    }
    conditions
}
