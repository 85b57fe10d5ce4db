//! Queries of usage: which sums to read, and how to group them.

use std::sync::LazyLock;

use super::columns::Columns;
use super::latency::LatencyCounts;
use super::reach::{Reach, in_list};
use super::sql::{Transaction, Value, params};
use super::usage_sums::{COLUMNS, PLAIN, UsageInterval, UsageSums};
use super::{Result, Store};

rerouter_base::words! {
    /// A column that usage is grouped by.
    pub enum UsageColumn {
        Key = "key",
        User = "user",
        Model = "model",
        Alias = "alias",
        Recipe = "recipe",
        Rule = "rule",
        /// A label of the key, as the key has it today.
        Label = "label",
        Day = "day",
        /// The interval of the query.
        Time = "time",
    }
}

impl UsageColumn {
    pub fn is_time(self) -> bool {
        matches!(self, UsageColumn::Day | UsageColumn::Time)
    }
}

rerouter_base::words! {
    /// By which sum the groups are ordered, the largest first: the field of the answer.
    pub enum UsageOrder {
        Requests = "requests",
        Errors = "errors",
        Tokens = "total_tokens",
        Cost = "cost_usd",
    }
}

impl UsageOrder {
    fn column(self) -> &'static str {
        match self {
            UsageOrder::Requests => "requests",
            UsageOrder::Errors => "errors",
            UsageOrder::Tokens => "prompt_tokens + completion_tokens",
            UsageOrder::Cost => "nano",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct UsageQuery {
    pub reach: Reach,
    pub interval: UsageInterval,
    /// From this interval on: a day as `yyyymmdd`, else seconds since the epoch.
    pub since: i64,
    pub until: i64,
    /// The permitted values of columns. Other columns are not filtered.
    pub only: Vec<(UsageColumn, Vec<String>)>,
    /// The columns to group by. Without columns there is one sum.
    pub group_by: Vec<UsageColumn>,
    /// The name of the label for [`UsageColumn::Label`], without quotes.
    pub label: String,
    /// The sum to order groups by, the largest first. Without it, groups are in the order of their
    /// values, times latest first.
    pub order: Option<UsageOrder>,
    pub limit: usize,
}

impl UsageQuery {
    /// Whether the sums of all users and keys together are enough.
    fn is_of_all(&self) -> bool {
        let only = self.only.iter().map(|(column, _)| column);
        let mut columns = self.group_by.iter().chain(only);
        self.reach == Reach::All
            && !columns.any(|column| {
                matches!(column, UsageColumn::Key | UsageColumn::User | UsageColumn::Label)
            })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageGroup {
    /// The values of the columns in the order of the query; empty if a request had none. A time is
    /// a number as in [`UsageQuery::since`].
    pub values: Vec<String>,
    pub own: UsageSums,
    /// Sums of reroutes of captures.
    pub replays: UsageSums,
}

impl Store {
    /// Does not wait for writes.
    pub async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageGroup>> {
        self.read(move |transaction| usage(transaction, &query)).await
    }
}

fn usage(transaction: &Transaction<'_>, query: &UsageQuery) -> Result<Vec<UsageGroup>> {
    let interval = query.interval;
    let (table, time, span) = match (interval, query.is_of_all()) {
        (_, true) => ("usage_recent", "at", Some(interval.span_of_all())),
        (UsageInterval::Day, false) => ("usage", "day", None),
        (_, false) => ("usage_recent", "at", Some(interval.seconds())),
    };
    let labels = if transaction.is_shared() { "CAST(labels AS json)" } else { "labels" };
    let named = |column: UsageColumn| match column {
        UsageColumn::Day | UsageColumn::Time => time.to_owned(),
        UsageColumn::Label => format!(
            "coalesce((SELECT {labels} ->> '{}' FROM keys WHERE id = {table}.key), '')",
            query.label
        ),
        _ => format!("\"{}\"", column.as_str()),
    };
    let columns: Vec<String> = query.group_by.iter().map(|column| named(*column)).collect();
    let values: String = columns.iter().map(|column| format!("CAST({column} AS TEXT), ")).collect();
    let mut params = params![query.since, query.until, query.limit].to_vec();
    let mut filter = format!("{time} >= ?1 AND {time} < ?2");
    if let Some(span) = span {
        filter += &format!(" AND span = {span}");
    }
    let of_user = query.reach.owner().map(|user| (UsageColumn::User, vec![user.as_str()]));
    let only = query
        .only
        .iter()
        .map(|(column, values)| (*column, values.iter().map(String::as_str).collect::<Vec<_>>()));
    for (column, values) in of_user.into_iter().chain(only) {
        let first = params.len() + 1;
        let places = (first..first + values.len()).map(|at| format!("?{at}"));
        let places = places.collect::<Vec<_>>().join(", ");
        filter += &format!(" AND {} IN ({places})", named(column));
        params.extend(values.into_iter().map(Value::Text));
    }
    let keys = query.reach.keys();
    if let Some(keys) = &keys {
        params.push(Value::Text(keys));
        let place = format!("?{}", params.len());
        let of_keys = in_list(&named(UsageColumn::Key), &place, transaction.is_shared());
        filter += &format!(" AND {of_keys}");
    }
    let ordered = query
        .group_by
        .iter()
        .zip(&columns)
        .map(|(column, name)| format!("{name}{}", if column.is_time() { " DESC" } else { "" }));
    let by_sum = query.order.map(|order| {
        format!("coalesce(sum({}) FILTER (WHERE replay = 0), 0) DESC", order.column())
    });
    let order: Vec<String> = by_sum.into_iter().chain(ordered).collect();
    let names = columns.join(", ");
    let groups = match columns.is_empty() {
        true => String::new(),
        false => format!("GROUP BY {names} ORDER BY {}", order.join(", ")),
    };
    if query.order.is_some() && !columns.is_empty() {
        // Only the groups that are shown are summed in full.
        let largest = format!("SELECT {names} FROM {table} WHERE {filter} {groups} LIMIT ?3");
        filter += &format!(" AND ({names}) IN ({largest})");
    }
    let select = format!(
        "SELECT {values}{} FROM {table} WHERE {filter} {groups} LIMIT ?3",
        SELECTED.as_str()
    );
    transaction.rows(&select, &params, |row| {
        let mut row = Columns::new(row);
        let values = columns.iter().map(|_| row.get()).collect::<Result<_>>()?;
        let (own, replays) = (read_plain(&mut row)?, read_plain(&mut row)?);
        let took = LatencyCounts::read(|| read_sum(&mut row))?;
        let first_token = LatencyCounts::read(|| read_sum(&mut row))?;
        Ok(UsageGroup { values, own: UsageSums { took, first_token, ..own }, replays })
    })
}

/// The selected columns: sums of requests, sums of reroutes, and latencies, which reroutes do not
/// have.
static SELECTED: LazyLock<String> = LazyLock::new(|| {
    let (plain, latencies) = COLUMNS.split_at(PLAIN);
    let sums = [0, 1].into_iter().flat_map(|replay| {
        plain
            .iter()
            .map(move |sum| format!("CAST(sum({sum}) FILTER (WHERE replay = {replay}) AS BIGINT)"))
    });
    let latencies = latencies.iter().map(|sum| format!("CAST(sum({sum}) AS BIGINT)"));
    sums.chain(latencies).collect::<Vec<_>>().join(", ")
});

fn read_plain(row: &mut Columns<'_>) -> Result<UsageSums> {
    let mut sums = [0; PLAIN];
    for sum in &mut sums {
        *sum = read_sum(row)?;
    }
    Ok(UsageSums::of_plain(sums))
}

/// The sum of no rows is NULL in SQL.
fn read_sum(row: &mut Columns<'_>) -> Result<u64> {
    Ok(row.maybe()?.unwrap_or(0))
}
