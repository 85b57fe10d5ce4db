//! Spend against budgets, and usage by day. Requests do not wait for these writes.

use std::sync::Arc;

use rusqlite::{Connection, Row, Transaction, params};

use super::limits::NanoUsd;
use super::{Store, StoreError};
use crate::id::{KeyId, UserId};

/// The spend of a budget in a period, reservations included.
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
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// Prompt tokens that came from a provider's cache.
    pub cached_tokens: u64,
    /// The sum of the known costs.
    pub nano: NanoUsd,
    /// Requests with a known cost.
    pub priced: u64,
    /// Requests that used tokens of unknown cost.
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

/// What usage is summed by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UsageKey {
    /// The day in UTC, as `yyyymmdd`.
    pub day: i64,
    pub user: UserId,
    /// The key; none if a session called.
    pub key: Option<KeyId>,
    /// The target that answered, as `provider/model`.
    pub model: Option<Arc<str>>,
    /// The recipe that decided.
    pub recipe: Arc<str>,
    /// Whether it is a reroute of a capture.
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

    /// Its name in queries and in the table.
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

/// Which usage to sum, and how.
#[derive(Clone, Debug, Default)]
pub struct UsageQuery {
    pub user: Option<UserId>,
    /// From this day on, as `yyyymmdd`.
    pub since: i64,
    pub until: i64,
    /// Without columns there is one sum.
    pub group_by: Vec<UsageColumn>,
    pub limit: usize,
}

/// One sum of usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageGroup {
    /// The values of the columns in the order of the query; empty if a request had none.
    pub values: Vec<String>,
    pub own: UsageSums,
    /// Of reroutes of captures.
    pub replays: UsageSums,
}

/// The largest sum, 2^53: exact as a JSON number, and SQLite can add many of them. Providers may
/// report any number; one that overflows a column would fail the whole batch on every try.
const SUM_MOST: i64 = 1 << 53;

impl Store {
    /// Replaces spend and adds usage: all or nothing.
    pub async fn write_usage(
        &self,
        spend: Vec<SpendRow>,
        usage: Vec<(UsageKey, UsageSums)>,
    ) -> Result<(), StoreError> {
        self.write(move |transaction| write(transaction, &spend, &usage)).await
    }

    /// The spend of the periods from `since` on.
    pub async fn spend(&self, since: i64) -> Result<Vec<SpendRow>, StoreError> {
        self.read_after_writes(move |connection| spend(connection, since)).await
    }

    /// Sums of usage, the latest day first, else in the order of the values. It does not wait for
    /// writes.
    pub async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageGroup>, StoreError> {
        self.read(move |connection| usage(connection, &query)).await
    }

    /// Deletes the spend of periods before `period` and the usage of days before `day`.
    pub async fn trim_usage(&self, period: i64, day: i64) -> Result<(), StoreError> {
        let trim = move |transaction: &Transaction<'_>| {
            transaction.execute("DELETE FROM spend WHERE period < ?1", [period])?;
            transaction.execute("DELETE FROM usage WHERE day < ?1", [day])?;
            Ok(())
        };
        self.write(trim).await
    }
}

/// The columns of [`UsageSums`] in its order.
const SUMS: [&str; 7] = [
    "requests",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "nano",
    "priced",
    "unpriced",
];

fn write(
    transaction: &Transaction<'_>,
    spend: &[SpendRow],
    usage: &[(UsageKey, UsageSums)],
) -> Result<(), StoreError> {
    let mut replace = transaction
        .prepare_cached("REPLACE INTO spend (subject, period, counted) VALUES (?1, ?2, ?3)")?;
    for row in spend {
        replace.execute(params![row.subject, row.period, signed(row.counted)])?;
    }
    let add = SUMS.map(|sum| format!("{sum} = min({sum} + excluded.{sum}, ?14)")).join(", ");
    let mut insert = transaction.prepare_cached(&format!(
        "INSERT INTO usage (day, user, key, model, recipe, replay, {})
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
         ON CONFLICT DO UPDATE SET {add}",
        SUMS.join(", ")
    ))?;
    for (key, sums) in usage {
        insert.execute(params![
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
    Ok(())
}

fn spend(connection: &Connection, since: i64) -> Result<Vec<SpendRow>, StoreError> {
    let mut statement = connection
        .prepare_cached("SELECT subject, period, counted FROM spend WHERE period >= ?1")?;
    let rows = statement.query_map([since], |row| {
        Ok(SpendRow { subject: row.get(0)?, period: row.get(1)?, counted: unsigned(row.get(2)?) })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn usage(connection: &Connection, query: &UsageQuery) -> Result<Vec<UsageGroup>, StoreError> {
    let columns: Vec<&str> = query.group_by.iter().map(|column| column.as_str()).collect();
    let values: String = columns.iter().map(|column| format!("CAST({column} AS TEXT), ")).collect();
    let sums = [0, 1].map(|replay| {
        let sum = |sum| format!("COALESCE(SUM({sum}) FILTER (WHERE replay = {replay}), 0)");
        SUMS.map(sum).join(", ")
    });
    let order: Vec<&str> =
        columns.iter().map(|column| if *column == "day" { "day DESC" } else { column }).collect();
    let groups = match columns.is_empty() {
        true => String::new(),
        false => format!("GROUP BY {} ORDER BY {}", columns.join(", "), order.join(", ")),
    };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {values}{} FROM usage
         WHERE day >= ?1 AND day < ?2 AND (?3 IS NULL OR user = ?3) {groups} LIMIT ?4",
        sums.join(", ")
    ))?;
    let user = query.user.as_ref().map(UserId::as_str);
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let width = columns.len();
    let rows = statement.query_map(params![query.since, query.until, user, limit], |row| {
        let values = (0..width).map(|at| row.get(at)).collect::<rusqlite::Result<_>>()?;
        let replays = read_sums(row, width + SUMS.len())?;
        Ok(UsageGroup { values, own: read_sums(row, width)?, replays })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn read_sums(row: &Row<'_>, from: usize) -> rusqlite::Result<UsageSums> {
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
