//! Sums of usage: by day, and for the last days also by hour and by five minutes. `usage_query.rs`
//! reads them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::latency::{LATENCIES, LatencyCounts};
use super::postgres::storable;
use super::sql::{NOW, ToValue, Transaction, Value, transposed, unnest};
use super::{Result, Store};
use rerouter_base::id::{KeyId, Random, UserId};
use rerouter_base::usage_kind::{UsageCountSums, UsageCounts};

macro_rules! sums {
    ($($(#[$about:meta])* $sum:ident,)+) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct UsageSums {
            $($(#[$about])* pub $sum: u64,)+
            /// How much was used of the kinds that not every answer has.
            pub counts: UsageCountSums,
            /// Durations of good answers, without reroutes.
            pub took: LatencyCounts,
            /// Time to the first token of good answers that were streamed.
            pub first_token: LatencyCounts,
        }

        const OWN: [&str; [$(stringify!($sum)),+].len()] = [$(stringify!($sum)),+];

        impl UsageSums {
            fn own(&self) -> [u64; OWN.len()] {
                [$(self.$sum),+]
            }

            fn of_own([$($sum),+]: [u64; OWN.len()]) -> Self {
                UsageSums { $($sum,)+ ..UsageSums::default() }
            }

            pub fn add(&mut self, more: &UsageSums) {
                $(self.$sum = self.$sum.saturating_add(more.$sum);)+
                self.counts.add(&more.counts);
                self.took.add(&more.took);
                self.first_token.add(&more.first_token);
            }
        }
    };
}

sums! {
    requests,
    prompt_tokens,
    completion_tokens,
    /// The sum of the known costs, in nano-USD.
    nano,
    /// Requests with a known cost.
    priced,
    /// Requests that used tokens of unknown cost.
    unpriced,
    /// Requests that no target answered successfully.
    errors,
    /// Requests that used something of unknown meaning or price, or whose usage cannot be read.
    unknown_usage,
    /// Requests that a limit refused.
    refused_limit,
    /// Requests that were refused because no target could take them.
    refused_target,
    /// Requests that were refused because the document does not know the model.
    refused_model,
    /// Requests that were refused because of what they ask or how they are written.
    refused_request,
}

/// The number of sums that are not of latencies.
pub(super) const PLAIN: usize = OWN.len() + UsageCounts::NAMES.len();

impl UsageSums {
    /// The sums that are not of latencies, in the order of [`COLUMNS`].
    fn plain(&self) -> impl Iterator<Item = u64> {
        self.own().into_iter().chain(self.counts.all())
    }

    pub(super) fn of_plain(plain: [u64; PLAIN]) -> Self {
        let (mut own, mut counts) = ([0; OWN.len()], [0; UsageCounts::NAMES.len()]);
        let places = own.iter_mut().chain(&mut counts);
        places.zip(plain).for_each(|(place, sum)| *place = sum);
        UsageSums { counts: UsageCountSums::of(counts), ..UsageSums::of_own(own) }
    }

    /// Every column, in the order of [`COLUMNS`].
    fn all(&self) -> impl Iterator<Item = u64> {
        let latencies = self.took.counts().into_iter().chain(self.first_token.counts());
        self.plain().chain(latencies)
    }
}

/// All columns of sums, in the order of the tables.
pub(super) static COLUMNS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let latencies = ["took", "first"]
        .into_iter()
        .flat_map(|name| (0..LATENCIES).map(move |at| format!("{name}_{at}")));
    let plain = OWN.iter().chain(&UsageCounts::NAMES).map(|name| (*name).to_owned());
    plain.chain(latencies).collect()
});

/// The group that usage is summed in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UsageKey {
    /// The begin of its interval of five minutes, see [`usage_interval_start`].
    pub at: i64,
    pub user: UserId,
    /// The key; none if a session called.
    pub key: Option<KeyId>,
    /// The target that answered, as `provider/model`.
    pub model: Option<Arc<str>>,
    /// The alias that was requested, as the document has it.
    pub alias: Option<Arc<str>>,
    pub recipe: Arc<str>,
    pub rule: Option<Arc<str>>,
    /// Whether it is a reroute of a capture.
    pub replay: bool,
}

/// The begin of the interval of five minutes that contains `at`, in seconds since the epoch.
pub fn usage_interval_start(at: Timestamp) -> i64 {
    UsageInterval::FiveMinutes.begin(at.as_second())
}

#[derive(Clone, Debug, Default)]
pub struct UsageBatch {
    pub sums: Vec<(UsageKey, UsageSums)>,
    /// A batch with a number is added once, however often it is written.
    pub number: Option<BatchNumber>,
}

/// The writer retries a batch until it is in the sums, then writes the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchNumber {
    /// A random number: no two processes have the same.
    pub writer: i64,
    pub number: i64,
}

impl Default for BatchNumber {
    /// The only batch of its writer.
    fn default() -> Self {
        BatchNumber { writer: Random::System.next_u64().cast_signed(), number: 1 }
    }
}

impl From<Vec<(UsageKey, UsageSums)>> for UsageBatch {
    fn from(sums: Vec<(UsageKey, UsageSums)>) -> Self {
        UsageBatch { sums, number: None }
    }
}

rerouter_base::words! {
    /// The spans of time that usage is summed by.
    #[derive(Default)]
    pub enum UsageInterval {
        FiveMinutes = "5m",
        Hour = "1h",
        #[default]
        Day = "1d",
    }
}

impl UsageInterval {
    pub fn seconds(self) -> i64 {
        match self {
            UsageInterval::FiveMinutes => 300,
            UsageInterval::Hour => 3_600,
            UsageInterval::Day => 86_400,
        }
    }

    /// The `span` of the sums of all users and keys together in `usage_recent`. That table also has
    /// such sums of days; their `at` is the day.
    pub(super) fn span_of_all(self) -> i64 {
        -self.seconds()
    }

    /// The begin of the interval that contains a second since the epoch.
    pub fn begin(self, second: i64) -> i64 {
        second - second.rem_euclid(self.seconds())
    }
}

/// The largest sum, 2^53: exact as a JSON number, and 64 bits hold the sum of many of them.
/// Providers may report any number; one that overflows a column would fail the whole batch on
/// every try.
const SUM_MOST: i64 = 1 << 53;

impl Store {
    /// Adds usage to the sums by day.
    pub async fn write_usage(&self, usage: impl Into<UsageBatch>) -> Result<()> {
        self.add_usage(usage.into(), |usage, slot| {
            let (mut days, mut all) = (UsageRows::new(), UsageRows::new());
            for (key, sums) in usage {
                let day = day_of(key.at);
                put(&mut days, vec![day], of_one(key), sums);
                let of_days = vec![UsageInterval::Day.span_of_all(), day];
                put(&mut all, of_days, of_all(key, slot), sums);
            }
            vec![(&DAYS, days), (&RECENT, all)]
        })
        .await
    }

    /// Adds usage to the sums by hour and by five minutes.
    pub async fn write_recent_usage(&self, usage: impl Into<UsageBatch>) -> Result<()> {
        self.add_usage(usage.into(), |usage, slot| {
            let mut rows = UsageRows::new();
            for interval in [UsageInterval::FiveMinutes, UsageInterval::Hour] {
                for (key, sums) in usage {
                    let at = interval.begin(key.at);
                    put(&mut rows, vec![interval.seconds(), at], of_one(key), sums);
                    put(&mut rows, vec![interval.span_of_all(), at], of_all(key, slot), sums);
                }
            }
            vec![(&RECENT, rows)]
        })
        .await
    }

    /// Adds the rows of a batch to their tables. In PostgreSQL it is one statement, so no row is
    /// locked over a round trip, and notes that the batch is added: a server may have committed a
    /// write that it answered with an error.
    async fn add_usage(&self, batch: UsageBatch, rows: RowsOf) -> Result<()> {
        if batch.sums.is_empty() {
            return Ok(());
        }
        self.write_one(move |transaction| {
            if transaction.is_shared() {
                let slot = batch.number.map(|of| format!("{:x}", of.writer.rem_euclid(SLOTS)));
                let rows = rows(&batch.sums, slot.as_deref().unwrap_or_default());
                add_together(transaction, batch.number.unwrap_or_default(), &rows)
            } else {
                add_each(transaction, &rows(&batch.sums, ""))
            }
        })
        .await
    }

    /// Deletes the sums of intervals that began before `now` by more than `hours` or `minutes`.
    pub async fn trim_recent_usage(
        &self,
        now: Timestamp,
        hours: Duration,
        minutes: Duration,
    ) -> Result<()> {
        let oldest =
            move |age: Duration| now.checked_sub(age).map_or(0, |oldest| oldest.as_second());
        for (interval, age) in [(UsageInterval::Hour, hours), (UsageInterval::FiveMinutes, minutes)]
        {
            let values = vec![interval.seconds(), interval.span_of_all(), oldest(age)];
            self.trim(RECENT.name, &RECENT.key(), "span IN (?1, ?2) AND at < ?3", values).await?;
        }
        Ok(())
    }

    pub(super) async fn trim_usage_days(&self, oldest: i64) -> Result<()> {
        self.trim(DAYS.name, &DAYS.key(), "day < ?1", vec![oldest]).await?;
        let values = vec![UsageInterval::Day.span_of_all(), oldest];
        self.trim(RECENT.name, &RECENT.key(), "span = ?1 AND at < ?2", values).await
    }
}

/// Rows of sums of all users and keys together, between which the gateways that share a store are
/// divided: all of them add to these rows all the time. It is the `key` of such a row.
const SLOTS: i64 = 16;

/// A table of sums; its first columns are those of their time.
struct UsageTable {
    name: &'static str,
    time: &'static [&'static str],
}

static DAYS: UsageTable = UsageTable { name: "usage", time: &["day"] };
static RECENT: UsageTable = UsageTable { name: "usage_recent", time: &["span", "at"] };

/// The columns of a key: its time, its names, and whether it is of a replay.
type RowKey<'a> = (Vec<i64>, [Cow<'a, str>; 6], bool);
/// Rows in the order of their keys: all gateways lock them in that order, so none deadlock.
type UsageRows<'a> = BTreeMap<RowKey<'a>, UsageSums>;
type TablesOf<'a> = Vec<(&'static UsageTable, UsageRows<'a>)>;
/// The rows of usage in each table. Those of all users and keys are in this slot.
type RowsOf = for<'a> fn(&'a [(UsageKey, UsageSums)], &'a str) -> TablesOf<'a>;
type Names<'a> = ([&'a str; 6], bool);

fn of_one(key: &UsageKey) -> Names<'_> {
    let [model, alias, rule] =
        [&key.model, &key.alias, &key.rule].map(|name| name.as_deref().unwrap_or_default());
    let of_key = key.key.as_ref().map_or("", KeyId::as_str);
    ([key.user.as_str(), of_key, model, alias, &key.recipe, rule], key.replay)
}

/// The key of the sums of all users and keys together, so that a query about all need not read the
/// sums of each.
fn of_all<'a>(key: &'a UsageKey, slot: &'a str) -> Names<'a> {
    let ([_, _, model, alias, recipe, rule], replay) = of_one(key);
    (["", slot, model, alias, recipe, rule], replay)
}

fn put<'a>(rows: &mut UsageRows<'a>, time: Vec<i64>, names: Names<'a>, sums: &UsageSums) {
    // Names that the database stores alike are one row.
    rows.entry((time, names.0.map(storable), names.1)).or_default().add(sums);
}

fn values<'a>(((time, names, replay), sums): (&'a RowKey<'a>, &UsageSums)) -> Vec<Value<'a>> {
    let time = time.iter().map(|part| Value::Int(*part));
    let sums = sums.all().map(|sum| Value::Int(signed(sum).min(SUM_MOST)));
    time.chain(names.iter().map(|name| Value::Text(name)))
        .chain([replay.value()])
        .chain(sums)
        .collect()
}

fn add_each(transaction: &Transaction<'_>, tables: &TablesOf<'_>) -> Result<()> {
    for (table, rows) in tables {
        let places = (1..=table.time.len() + 7 + COLUMNS.len()).map(|at| format!("?{at}"));
        let add = table.add(&format!("VALUES ({})", places.collect::<Vec<_>>().join(", ")));
        for row in rows {
            transaction.execute(&add, &values(row))?;
        }
    }
    Ok(())
}

/// Adds the rows of all tables with one statement, unless the batch is noted already.
fn add_together(
    transaction: &Transaction<'_>,
    BatchNumber { writer, number }: BatchNumber,
    tables: &TablesOf<'_>,
) -> Result<()> {
    let mut add = format!(
        "WITH fresh AS (INSERT INTO usage_batches (writer, number, at) VALUES (?1, ?2, {NOW})
           ON CONFLICT (writer) DO UPDATE SET number = excluded.number, at = excluded.at
           WHERE usage_batches.number < excluded.number RETURNING 1)"
    );
    let mut columns = Vec::new();
    for (table, rows) in tables {
        let kinds = table.time.iter().map(|_| "BIGINT").chain(["TEXT"; 6]);
        let kinds = kinds.chain(COLUMNS.iter().map(|_| "BIGINT")).chain(["BIGINT"]);
        let rows_of = unnest(kinds, columns.len() + 3);
        let add_to = table.add(&format!("SELECT added.* FROM fresh, {rows_of} AS added"));
        add += &format!(", {} AS ({add_to})", table.name.replace("usage", "added"));
        let rows: Vec<_> = rows.iter().map(values).collect();
        columns.extend(transposed(&rows));
    }
    add += " SELECT 1 FROM fresh";
    let numbers = [Value::Int(writer), Value::Int(number)];
    let columns = columns.iter().map(|column| Value::Column(column));
    let values: Vec<Value<'_>> = numbers.into_iter().chain(columns).collect();
    transaction.exists(&add, &values).map(drop)
}

impl UsageTable {
    /// The columns of its primary key.
    fn key(&self) -> String {
        format!("{}, \"user\", key, model, alias, recipe, rule, replay", self.time.join(", "))
    }

    /// The statement that adds rows from `rows` to those of the same keys.
    fn add(&self, rows: &str) -> String {
        let (name, keys) = (self.name, self.key());
        let add = COLUMNS.iter().map(|sum| {
            let added = format!("{name}.{sum} + excluded.{sum}");
            format!("{sum} = CASE WHEN {added} < {SUM_MOST} THEN {added} ELSE {SUM_MOST} END")
        });
        format!(
            "INSERT INTO {name} ({keys}, {}) {rows}
             ON CONFLICT ({keys}) DO UPDATE SET {}",
            COLUMNS.join(", "),
            add.collect::<Vec<_>>().join(", ")
        )
    }
}

/// The day in UTC of a second since the epoch, as `yyyymmdd`.
fn day_of(second: i64) -> i64 {
    let at = Timestamp::from_second(second).unwrap_or_default();
    let date = at.to_zoned(TimeZone::UTC).date();
    i64::from(date.year()) * 10_000 + i64::from(date.month()) * 100 + i64::from(date.day())
}

/// Converts a count to the signed integers of databases.
pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
