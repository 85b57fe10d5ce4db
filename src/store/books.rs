//! The statements of what is counted: spend against budgets, and usage by day. Written in batches,
//! behind the requests.

use std::sync::Arc;

use rusqlite::types::Value;
use rusqlite::{Connection, Transaction, params};

use super::StoreError;
use super::limits::NanoUsd;
use super::rows::Change;
use crate::id::{KeyId, UserId};

/// What counts as spent of a budget in a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpendRow {
    /// The id of the key or user.
    pub subject: String,
    /// A day as `yyyymmdd`, or a month as `yyyymm00`.
    pub period: i64,
    pub counted: NanoUsd,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageSums {
    pub requests: u64,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Tokens of their answers.
    pub completion_tokens: u64,
    /// Those of the prompts that came from a provider's cache.
    pub cached_tokens: u64,
    /// What those cost whose cost is known.
    pub nano: NanoUsd,
    /// How many have a known cost.
    pub priced: u64,
    /// How many used tokens whose cost is not known.
    pub unpriced: u64,
}

impl UsageSums {
    pub fn add(&mut self, other: &UsageSums) {
        self.requests = self.requests.saturating_add(other.requests);
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.nano = self.nano.saturating_add(other.nano);
        self.priced = self.priced.saturating_add(other.priced);
        self.unpriced = self.unpriced.saturating_add(other.unpriced);
    }
}

/// What usage is kept apart by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UsageKey {
    /// The day in UTC, as `yyyymmdd`.
    pub day: i64,
    pub user: UserId,
    /// By which key; none by a session.
    pub key: Option<KeyId>,
    /// Who answered, as `provider/model`; none when nobody did.
    pub model: Option<Arc<str>>,
    /// The recipe that decided.
    pub recipe: String,
    /// Whether a capture was run again.
    pub replay: bool,
}

/// A column that usage is grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageColumn {
    Key,
    User,
    Model,
    Recipe,
    Day,
}

impl UsageColumn {
    pub const ALL: [UsageColumn; 5] = [
        UsageColumn::Key,
        UsageColumn::User,
        UsageColumn::Model,
        UsageColumn::Recipe,
        UsageColumn::Day,
    ];

    /// The word of it, which is also its name in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            UsageColumn::Key => "key",
            UsageColumn::User => "user",
            UsageColumn::Model => "model",
            UsageColumn::Recipe => "recipe",
            UsageColumn::Day => "day",
        }
    }
}

/// Which usage, and how it is summed.
#[derive(Clone, Debug, Default)]
pub struct UsageQuery {
    pub user: Option<UserId>,
    /// From this day on, as `yyyymmdd`.
    pub since: i64,
    pub until: i64,
    /// By these; nothing: one sum.
    pub group_by: Vec<UsageColumn>,
    pub limit: usize,
}

/// One sum of usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageGroup {
    /// The values of the columns asked for, in that order; empty where a request had none.
    pub values: Vec<String>,
    /// Of clients' own requests.
    pub own: UsageSums,
    /// Of captures run again.
    pub replays: UsageSums,
}

/// Most that a sum comes to, 2^53: many of them fit 63 bits together, and as a number of JSON it is
/// exact. What providers report has no bound, and a sum that a column cannot hold would be refused
/// with all of its batch, again and again.
const SUM_MOST: i64 = 1 << 53;

/// Writes a batch, all or none.
pub(super) fn write(
    transaction: &Transaction<'_>,
    spend: &[SpendRow],
    usage: &[(UsageKey, UsageSums)],
) -> Result<Vec<Change>, StoreError> {
    let mut count = transaction.prepare_cached(
        "INSERT INTO spend (subject, period, counted) VALUES (?1, ?2, ?3) ON CONFLICT (subject, period) DO UPDATE SET counted = excluded.counted",
    )?;
    for row in spend {
        count.execute(params![row.subject, row.period, signed(row.counted)])?;
    }
    let mut sum = transaction.prepare_cached(
        "INSERT INTO usage (day, user, key, model, recipe, replay, requests, prompt_tokens, completion_tokens, cached_tokens, nano, priced, unpriced)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
         ON CONFLICT DO UPDATE SET requests = min(requests + excluded.requests, ?14),
           prompt_tokens = min(prompt_tokens + excluded.prompt_tokens, ?14),
           completion_tokens = min(completion_tokens + excluded.completion_tokens, ?14),
           cached_tokens = min(cached_tokens + excluded.cached_tokens, ?14), nano = min(nano + excluded.nano, ?14),
           priced = min(priced + excluded.priced, ?14), unpriced = min(unpriced + excluded.unpriced, ?14)",
    )?;
    for (key, sums) in usage {
        sum.execute(params![
            key.day,
            key.user.as_str(),
            key.key.as_ref().map_or("", KeyId::as_str),
            key.model.as_deref().unwrap_or_default(),
            key.recipe,
            key.replay,
            bounded(sums.requests),
            bounded(sums.prompt_tokens),
            bounded(sums.completion_tokens),
            bounded(sums.cached_tokens),
            bounded(sums.nano),
            bounded(sums.priced),
            bounded(sums.unpriced),
            SUM_MOST
        ])?;
    }
    Ok(Vec::new())
}

/// What counts as spent in the periods from `since` on.
pub(super) fn spend(connection: &Connection, since: i64) -> Result<Vec<SpendRow>, StoreError> {
    let mut statement = connection
        .prepare_cached("SELECT subject, period, counted FROM spend WHERE period >= ?1")?;
    let rows = statement.query_map([since], |row| {
        Ok(SpendRow { subject: row.get(0)?, period: row.get(1)?, counted: unsigned(row.get(2)?) })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Forgets the spend of periods, and the usage of days, before these.
pub(super) fn trim(
    transaction: &Transaction<'_>,
    period: i64,
    day: i64,
) -> Result<Vec<Change>, StoreError> {
    transaction.execute("DELETE FROM spend WHERE period < ?1", [period])?;
    transaction.execute("DELETE FROM usage WHERE day < ?1", [day])?;
    Ok(Vec::new())
}

/// Sums of usage, the latest day first, else by the values in order.
pub(super) fn usage(
    connection: &Connection,
    query: &UsageQuery,
) -> Result<Vec<UsageGroup>, StoreError> {
    let columns: Vec<&str> = query.group_by.iter().map(|column| column.as_str()).collect();
    let values: String = columns.iter().map(|column| format!("CAST({column} AS TEXT), ")).collect();
    let sums = |replay: u8| {
        [
            "requests",
            "prompt_tokens",
            "completion_tokens",
            "cached_tokens",
            "nano",
            "priced",
            "unpriced",
        ]
        .map(|sum| format!("COALESCE(SUM({sum}) FILTER (WHERE replay = {replay}), 0)"))
        .join(", ")
    };
    let order: Vec<String> = columns
        .iter()
        .map(|column| if *column == "day" { "day DESC".to_owned() } else { (*column).to_owned() })
        .collect();
    let (group, order) = match columns.is_empty() {
        true => (String::new(), String::new()),
        false => {
            (format!("GROUP BY {}", columns.join(", ")), format!("ORDER BY {}", order.join(", ")))
        }
    };
    let text = format!(
        "SELECT {values}{}, {} FROM usage WHERE day >= ?1 AND day < ?2 AND (?3 IS NULL OR user = ?3) {group} {order} LIMIT ?4",
        sums(0),
        sums(1)
    );
    let mut statement = connection.prepare_cached(&text)?;
    let user =
        query.user.as_ref().map_or(Value::Null, |user| Value::Text(user.as_str().to_owned()));
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let width = columns.len();
    let rows = statement.query_map(params![query.since, query.until, user, limit], |row| {
        let values = (0..width).map(|at| row.get(at)).collect::<rusqlite::Result<_>>()?;
        Ok(UsageGroup { values, own: read_sums(row, width)?, replays: read_sums(row, width + 7)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn read_sums(row: &rusqlite::Row<'_>, from: usize) -> rusqlite::Result<UsageSums> {
    let sum = |at: usize| row.get(from + at).map(unsigned);
    Ok(UsageSums {
        requests: sum(0)?,
        prompt_tokens: sum(1)?,
        completion_tokens: sum(2)?,
        cached_tokens: sum(3)?,
        nano: sum(4)?,
        priced: sum(5)?,
        unpriced: sum(6)?,
    })
}

fn bounded(sum: u64) -> i64 {
    signed(sum).min(SUM_MOST)
}

/// SQLite's integers have a sign.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
