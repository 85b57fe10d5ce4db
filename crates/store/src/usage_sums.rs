//! Sums of usage: by day, and for the last days also by hour and by five minutes. `usage_query.rs`
//! reads them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::latency::{LATENCIES, LatencyCounts};
use super::sql::{NOW, Transaction, Value, params};
use super::{Result, Store};
use rerouter_base::id::{KeyId, UserId};
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
    /// The recipe that decided.
    pub recipe: Arc<str>,
    /// The rule that matched.
    pub rule: Option<Arc<str>>,
    /// Whether it is a reroute of a capture.
    pub replay: bool,
}

/// The begin of the interval of five minutes that contains `at`, in seconds since the epoch.
pub fn usage_interval_start(at: Timestamp) -> i64 {
    UsageInterval::FiveMinutes.begin(at.as_second())
}

/// Usage that is added to the sums at once.
#[derive(Clone, Debug, Default)]
pub struct UsageBatch {
    pub sums: Vec<(UsageKey, UsageSums)>,
    /// A batch with a number is added once, however often it is written.
    pub number: Option<BatchNumber>,
}

/// The number of a batch of one writer. The writer retries a batch until it is in the sums, then
/// writes the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchNumber {
    /// A random number: no two processes have the same.
    pub writer: i64,
    pub number: i64,
}

impl From<Vec<(UsageKey, UsageSums)>> for UsageBatch {
    fn from(sums: Vec<(UsageKey, UsageSums)>) -> Self {
        UsageBatch { sums, number: None }
    }
}

impl UsageBatch {
    /// Whether the batch is not in the sums yet. If so, notes in the same transaction that it is.
    /// Only a database server may have committed a write that it answered with an error.
    pub(super) fn is_new(&self, transaction: &Transaction<'_>) -> Result<bool> {
        let Some(BatchNumber { writer, number }) = self.number else { return Ok(true) };
        if !transaction.is_shared() || self.sums.is_empty() {
            return Ok(true);
        }
        let note = format!(
            "INSERT INTO usage_batches (writer, number, at) VALUES (?1, ?2, {NOW})
             ON CONFLICT (writer) DO UPDATE SET number = excluded.number, at = excluded.at
             WHERE usage_batches.number < excluded.number"
        );
        Ok(transaction.execute(&note, &params![writer, number])? > 0)
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
        let batch = usage.into();
        self.write(move |transaction| match batch.is_new(transaction)? {
            true => write_days(transaction, &batch.sums),
            false => Ok(()),
        })
        .await
    }

    /// Adds usage to the sums by hour and by five minutes.
    pub async fn write_recent_usage(&self, usage: impl Into<UsageBatch>) -> Result<()> {
        let batch = usage.into();
        let write = move |transaction: &Transaction<'_>| match batch.is_new(transaction)? {
            true => write_recent(transaction, &batch.sums),
            false => Ok(()),
        };
        self.write(write).await
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
        let trim = move |transaction: &Transaction<'_>| {
            for (interval, age) in
                [(UsageInterval::Hour, hours), (UsageInterval::FiveMinutes, minutes)]
            {
                let delete = "DELETE FROM usage_recent WHERE span IN (?1, ?2) AND at < ?3";
                let spans = [interval.seconds(), interval.span_of_all()];
                transaction.execute(delete, &params![spans[0], spans[1], oldest(age)])?;
            }
            Ok(())
        };
        self.write(trim).await
    }
}

/// Adds usage to the sums by day.
pub(super) fn write_days(
    transaction: &Transaction<'_>,
    usage: &[(UsageKey, UsageSums)],
) -> Result<()> {
    static ADD: LazyLock<String> = LazyLock::new(|| add_to("usage", &["day"]));
    for (key, sums) in usage {
        add(transaction, &ADD, &[day_of(key.at)], key, sums)?;
    }
    for (key, sums) in &of_all(usage) {
        let time = [UsageInterval::Day.span_of_all(), day_of(key.at)];
        add(transaction, &ADD_RECENT, &time, key, sums)?;
    }
    Ok(())
}

static ADD_RECENT: LazyLock<String> = LazyLock::new(|| add_to("usage_recent", &["span", "at"]));

/// The sums of all users and keys together, so that a query about all need not read the sums of
/// each.
fn of_all(usage: &[(UsageKey, UsageSums)]) -> HashMap<UsageKey, UsageSums> {
    let mut all: HashMap<UsageKey, UsageSums> = HashMap::new();
    for (key, sums) in usage {
        let key = UsageKey { user: UserId::known(""), key: None, ..key.clone() };
        all.entry(key).or_default().add(sums);
    }
    all
}

fn write_recent(transaction: &Transaction<'_>, usage: &[(UsageKey, UsageSums)]) -> Result<()> {
    let all = of_all(usage);
    for interval in [UsageInterval::FiveMinutes, UsageInterval::Hour] {
        for (key, sums) in usage {
            let time = [interval.seconds(), interval.begin(key.at)];
            add(transaction, &ADD_RECENT, &time, key, sums)?;
        }
        for (key, sums) in &all {
            let time = [interval.span_of_all(), interval.begin(key.at)];
            add(transaction, &ADD_RECENT, &time, key, sums)?;
        }
    }
    Ok(())
}

/// The statement that adds a row to a table whose first columns are those of its time.
fn add_to(table: &str, time: &[&str]) -> String {
    let keys = format!("{}, \"user\", key, model, alias, recipe, rule, replay", time.join(", "));
    let width = time.len() + 7 + COLUMNS.len();
    let places: Vec<String> = (1..=width).map(|at| format!("?{at}")).collect();
    let most = width + 1;
    let add = COLUMNS.iter().map(|sum| {
        let added = format!("{table}.{sum} + excluded.{sum}");
        format!("{sum} = CASE WHEN {added} < ?{most} THEN {added} ELSE ?{most} END")
    });
    format!(
        "INSERT INTO {table} ({keys}, {}) VALUES ({})
         ON CONFLICT ({keys}) DO UPDATE SET {}",
        COLUMNS.join(", "),
        places.join(", "),
        add.collect::<Vec<_>>().join(", ")
    )
}

fn add(
    transaction: &Transaction<'_>,
    statement: &str,
    time: &[i64],
    key: &UsageKey,
    sums: &UsageSums,
) -> Result<()> {
    let of_key = key.key.as_ref().map_or("", KeyId::as_str);
    let [model, alias, rule] =
        [&key.model, &key.alias, &key.rule].map(|name| name.as_deref().unwrap_or_default());
    let of_key = params![key.user, of_key, model, alias, key.recipe, rule, key.replay];
    let time = time.iter().map(|part| Value::Int(*part));
    let sums = sums.all().map(|sum| Value::Int(signed(sum).min(SUM_MOST)));
    let params: Vec<Value<'_>> =
        time.chain(of_key).chain(sums).chain([Value::Int(SUM_MOST)]).collect();
    transaction.execute(statement, &params)?;
    Ok(())
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
