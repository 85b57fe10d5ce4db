//! Spend against budgets, and usage by day. Requests do not wait for these writes.

use std::sync::Arc;

use super::columns::Columns;
use super::limits::NanoUsd;
use super::sql::{ToValue, Transaction, params};
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

/// A share of a budget that a process wants to hold: what it may spend before it asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetShare {
    /// What it holds.
    pub held: NanoUsd,
    /// What it wants to hold instead.
    pub wanted: NanoUsd,
    /// What it gets in any case: it is spent or reserved.
    pub least: NanoUsd,
    /// What all together may hold.
    pub budget: NanoUsd,
    /// What others hold, where nobody else changes that.
    pub others: Option<NanoUsd>,
}

/// A wish for a share of a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpendWish {
    /// The id of the key or user.
    pub subject: String,
    /// A day as `yyyymmdd`, or a month as `yyyymm00`.
    pub period: i64,
    pub share: BudgetShare,
    /// Whether other gateways are asked to give back, where there is no room.
    pub recalls: bool,
}

/// What a process holds of a budget, and what others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetGrant {
    pub held: NanoUsd,
    pub others: NanoUsd,
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
    /// The alias that was asked for, as the document has it.
    pub alias: Option<Arc<str>>,
    /// The recipe that decided.
    pub recipe: Arc<str>,
    /// The rule that matched.
    pub rule: Option<Arc<str>>,
    /// Whether it is a reroute of a capture.
    pub replay: bool,
}

/// A column that usage is grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageColumn {
    Key,
    User,
    Model,
    Alias,
    Recipe,
    Rule,
    Day,
}

impl UsageColumn {
    pub const ALL: [UsageColumn; 7] = [
        UsageColumn::Key,
        UsageColumn::User,
        UsageColumn::Model,
        UsageColumn::Alias,
        UsageColumn::Recipe,
        UsageColumn::Rule,
        UsageColumn::Day,
    ];

    /// Its name in queries and in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            UsageColumn::Key => "key",
            UsageColumn::User => "user",
            UsageColumn::Model => "model",
            UsageColumn::Alias => "alias",
            UsageColumn::Recipe => "recipe",
            UsageColumn::Rule => "rule",
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

/// The largest sum, 2^53: exact as a JSON number, and 64 bits hold the sum of many of them.
/// Providers may report any number; one that overflows a column would fail the whole batch on
/// every try.
const SUM_MOST: i64 = 1 << 53;

impl Store {
    /// Grants shares of budgets and adds usage: all or nothing. Returns the grants in the order of
    /// the wishes.
    pub async fn write_usage(
        &self,
        wishes: Vec<SpendWish>,
        usage: Vec<(UsageKey, UsageSums)>,
    ) -> Result<Vec<BudgetGrant>, StoreError> {
        self.write(move |transaction| {
            let granted = wishes.iter().map(|wish| grant(transaction, wish));
            let granted = granted.collect::<Result<_, StoreError>>()?;
            write(transaction, &usage)?;
            Ok(granted)
        })
        .await
    }

    /// The budgets of which some gateway lacks a part, with their periods, by id of the key or
    /// user.
    pub(crate) async fn recalled_spend(&self) -> Result<Vec<(String, i64)>, StoreError> {
        self.read_shared(Vec::new(), recalled).await
    }

    /// The spend of the periods from `since` on.
    pub async fn spend(&self, since: i64) -> Result<Vec<SpendRow>, StoreError> {
        self.read_after_writes(move |transaction| spend(transaction, since)).await
    }

    /// Sums of usage, the latest day first, else in the order of the values. It does not wait for
    /// writes.
    pub async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageGroup>, StoreError> {
        self.read(move |transaction| usage(transaction, &query)).await
    }

    /// Deletes the spend of periods before `period` and the usage of days before `day`.
    pub async fn trim_usage(&self, period: i64, day: i64) -> Result<(), StoreError> {
        let trim = move |transaction: &Transaction<'_>| {
            transaction.execute("DELETE FROM spend WHERE period < ?1", &params![period])?;
            transaction.execute("DELETE FROM usage WHERE day < ?1", &params![day])?;
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

/// Grants a share, as far as others leave room.
fn grant(transaction: &Transaction<'_>, wish: &SpendWish) -> Result<BudgetGrant, StoreError> {
    let BudgetShare { held, wanted, least, budget, others } = wish.share;
    let others = match others {
        Some(others) => others,
        None => {
            let counted = "SELECT counted FROM spend WHERE subject = ?1 AND period = ?2";
            let counted = transaction.int(counted, &params![wish.subject, wish.period])?;
            unsigned(counted.unwrap_or(0)).saturating_sub(held)
        }
    };
    let held = wanted.min(budget.saturating_sub(others)).max(least);
    let counted = signed(others.saturating_add(held));
    transaction.execute(
        "INSERT INTO spend (subject, period, counted) VALUES (?1, ?2, ?3)
         ON CONFLICT (subject, period) DO UPDATE SET counted = excluded.counted",
        &params![wish.subject, wish.period, counted],
    )?;
    if wish.recalls && held < wanted && transaction.is_shared() {
        let recall = format!(
            "INSERT INTO spend_recalls (subject, period, at) VALUES (?1, ?2, {NOW})
             ON CONFLICT (subject, period) DO UPDATE SET at = excluded.at"
        );
        transaction.execute(&recall, &params![wish.subject, wish.period])?;
    }
    Ok(BudgetGrant { held, others })
}

/// The time of the database that gateways share, in microseconds since the epoch.
const NOW: &str = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)";
/// How long a recall is answered.
const RECALL_US: i64 = 5_000_000;

fn recalled(transaction: &Transaction<'_>) -> Result<Vec<(String, i64)>, StoreError> {
    let recalled = format!("SELECT subject, period FROM spend_recalls WHERE at > {NOW} - ?1");
    transaction.rows(&recalled, &params![RECALL_US], |row| {
        let mut columns = Columns::of(row);
        Ok((columns.get()?, columns.get()?))
    })
}

/// Deletes recalls that were answered.
pub(super) fn forget_recalls(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    let delete = format!("DELETE FROM spend_recalls WHERE at < {NOW} - ?1");
    transaction.execute(&delete, &params![RECALL_US])?;
    Ok(())
}

fn write(transaction: &Transaction<'_>, usage: &[(UsageKey, UsageSums)]) -> Result<(), StoreError> {
    let add = SUMS.map(|sum| {
        let added = format!("usage.{sum} + excluded.{sum}");
        format!("{sum} = CASE WHEN {added} < ?16 THEN {added} ELSE ?16 END")
    });
    let insert = format!(
        "INSERT INTO usage (day, \"user\", key, model, alias, recipe, rule, replay, {})
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
         ON CONFLICT (day, \"user\", key, model, alias, recipe, rule, replay)
         DO UPDATE SET {}",
        SUMS.join(", "),
        add.join(", ")
    );
    for (key, sums) in usage {
        transaction.execute(
            &insert,
            &params![
                key.day,
                key.user,
                key.key.as_ref().map_or("", KeyId::as_str),
                key.model.as_deref().unwrap_or_default(),
                key.alias.as_deref().unwrap_or_default(),
                key.recipe,
                key.rule.as_deref().unwrap_or_default(),
                key.replay,
                bounded(sums.requests),
                bounded(sums.prompt_tokens),
                bounded(sums.completion_tokens),
                bounded(sums.cached_tokens),
                bounded(sums.nano),
                bounded(sums.priced),
                bounded(sums.unpriced),
                SUM_MOST
            ],
        )?;
    }
    Ok(())
}

fn spend(transaction: &Transaction<'_>, since: i64) -> Result<Vec<SpendRow>, StoreError> {
    let spend = "SELECT subject, period, counted FROM spend WHERE period >= ?1";
    transaction.rows(spend, &params![since], |row| {
        let mut columns = Columns::of(row);
        Ok(SpendRow {
            subject: columns.get()?,
            period: columns.get()?,
            counted: unsigned(columns.get()?),
        })
    })
}

fn usage(transaction: &Transaction<'_>, query: &UsageQuery) -> Result<Vec<UsageGroup>, StoreError> {
    let columns = query.group_by.iter().map(|column| format!("\"{}\"", column.as_str()));
    let columns: Vec<String> = columns.collect();
    let values: String = columns.iter().map(|column| format!("CAST({column} AS TEXT), ")).collect();
    let sums = [0, 1].map(|replay| {
        let sum = |sum| format!("CAST(sum({sum}) FILTER (WHERE replay = {replay}) AS BIGINT)");
        SUMS.map(sum).join(", ")
    });
    let day = |column: &String| if column == "\"day\"" { " DESC" } else { "" };
    let order: Vec<String> =
        columns.iter().map(|column| format!("{column}{}", day(column))).collect();
    let groups = match columns.is_empty() {
        true => String::new(),
        false => format!("GROUP BY {} ORDER BY {}", columns.join(", "), order.join(", ")),
    };
    let mut params = params![query.since, query.until, query.limit].to_vec();
    let of_user = match &query.user {
        Some(user) => {
            params.push(user.value());
            "AND \"user\" = ?4"
        }
        None => "",
    };
    let sums = sums.join(", ");
    let select = format!(
        "SELECT {values}{sums} FROM usage
         WHERE day >= ?1 AND day < ?2 {of_user} {groups} LIMIT ?3"
    );
    transaction.rows(&select, &params, |row| {
        let mut row = Columns::of(row);
        let values = columns.iter().map(|_| row.get()).collect::<Result<_, StoreError>>()?;
        Ok(UsageGroup { values, own: read_sums(&mut row)?, replays: read_sums(&mut row)? })
    })
}

/// Nothing is summed as NULL.
fn read_sums(row: &mut Columns<'_>) -> Result<UsageSums, StoreError> {
    let mut sum = || Ok::<_, StoreError>(unsigned(row.maybe()?.unwrap_or(0)));
    Ok(UsageSums {
        requests: sum()?,
        prompt_tokens: sum()?,
        completion_tokens: sum()?,
        cached_tokens: sum()?,
        nano: sum()?,
        priced: sum()?,
        unpriced: sum()?,
    })
}

fn bounded(sum: u64) -> i64 {
    signed(sum).min(SUM_MOST)
}

/// Integers of databases have a sign.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
