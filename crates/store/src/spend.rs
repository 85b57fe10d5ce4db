//! What is spent of budgets, and what each process holds of them. A process writes absolute sums of
//! its own, so a write whose answer was lost may be repeated.

use std::collections::BTreeMap;

use super::columns::Columns;
use super::holders::{end_of, end_other_holders, next_rev, seen_and_unseen};
use super::rows::Stored;
use super::rows::stored::row;
use super::sql::{NOW, Row, ToValue, Transaction, Value, params, unnest};
use super::usage_sums::unsigned;
use super::{Result, Store, StoreError, audit};
use rerouter_base::money::NanoUsd;

/// A key or user by its id, and a day as `yyyymmdd` or a month as `yyyymm00`.
pub type SpendKey = (String, i64);

/// The periods that count: a month, and all from `day` on, with the months that end later.
#[derive(Clone, Copy, Debug, Default)]
pub struct Since {
    pub month: i64,
    pub day: i64,
}

/// Sums of one budget in one period, of all processes but one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OthersSpend {
    pub spent: NanoUsd,
    /// The part of `spent` that was estimated.
    pub estimated: NanoUsd,
    /// Held by processes that may spend it.
    pub held: NanoUsd,
    /// Held by processes that died, until it is settled.
    pub lost: NanoUsd,
}

impl OthersSpend {
    /// What is not left of the budget.
    pub fn total(&self) -> NanoUsd {
        self.spent.saturating_add(self.held).saturating_add(self.lost)
    }
}

/// What a process spent and wants to hold of a budget in a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldWrite {
    pub key: SpendKey,
    /// By this process in this period, and the part that was estimated.
    pub spent: NanoUsd,
    pub estimated: NanoUsd,
    /// Wanted beyond `spent`.
    pub held: NanoUsd,
    /// Reserved by running requests: held also where the budget has no room.
    pub least: NanoUsd,
    pub budget: NanoUsd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    pub held: NanoUsd,
    pub others: OthersSpend,
}

row! { "holds" =>
    /// What a dead process held of a budget.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LostHold {
        /// The id of the key or user.
        pub subject: String,
        /// A day as `yyyymmdd`, or a month as `yyyymm00`.
        pub period: i64,
        pub held: NanoUsd,
        /// When it was written last, in microseconds since the epoch.
        pub at: i64,
        /// The name of the gateway; empty if no other one shares the store.
        pub name: String,
    }
}

#[derive(Debug, Default)]
pub struct SpendNews {
    /// Whether this process may still spend. Otherwise it was taken for dead.
    pub is_holder: bool,
    /// The writes that it knows of: all others are news next time. Empty for none.
    pub seen: String,
    pub changed: Vec<(SpendKey, OthersSpend)>,
    /// Budgets in which another process found no room, of those of which this one holds a part.
    pub wanted: Vec<SpendKey>,
}

impl Store {
    /// Adds a process that may spend, by a random number; again, if it was taken for dead. Where no
    /// other process can run, all others are dead.
    pub async fn open_holder(&self, holder: i64) -> Result<()> {
        let is_alone = !self.is_shared() && !self.has_predecessor();
        let (process, name) = self.gateway_names();
        self.write_beside(&self.databases.accounts, move |transaction| {
            let add = "INSERT INTO holders (holder, process, name) VALUES (?1, ?2, ?3)
                       ON CONFLICT (holder) DO NOTHING";
            transaction.execute(add, &params![holder, process, name])?;
            if is_alone { end_other_holders(transaction, holder) } else { Ok(()) }
        })
        .await
    }

    /// Notes that no other process runs on this data directory: all of them are dead.
    pub async fn end_other_holders(&self, holder: i64) -> Result<()> {
        self.write(move |transaction| end_other_holders(transaction, holder)).await
    }

    /// Ends a process: adds what it spent to the sums of all. What it still holds is lost.
    pub async fn close_holder(&self, holder: i64) -> Result<()> {
        self.write_beside(&self.databases.accounts, move |transaction| {
            // First the row of the process: none of its writes is under way then, or will come.
            transaction.execute("DELETE FROM holders WHERE holder = ?1", &params![holder])?;
            let rev = next_rev(transaction)?;
            let lost = format!("UPDATE holds SET rev = {rev} WHERE holder = ?1 AND held > 0");
            transaction.execute(&lost, &params![holder])?;
            let add = format!(
                "INSERT INTO spend (subject, period, spent, estimated, rev)
                  SELECT subject, period, spent, estimated, {rev} FROM holds
                  WHERE holder = ?1 AND held = 0 ORDER BY subject, period
                ON CONFLICT (subject, period) DO UPDATE SET spent = spend.spent + excluded.spent,
                  estimated = spend.estimated + excluded.estimated, rev = excluded.rev"
            );
            transaction.execute(&add, &params![holder])?;
            let delete = "DELETE FROM holds WHERE holder = ?1 AND held = 0";
            transaction.execute(delete, &params![holder]).map(drop)
        })
        .await
    }

    /// Writes holds, all or none, of different budgets. Returns them in the order of the writes;
    /// `None` if the process was taken for dead.
    pub async fn write_holds(
        &self,
        holder: i64,
        holds: Vec<HoldWrite>,
    ) -> Result<Option<Vec<Hold>>> {
        let write = move |transaction: &Transaction<'_>| write_holds(transaction, holder, &holds);
        self.write_beside(self.prompt(), write).await
    }

    /// What writes changed that were not `seen`, in the periods that count.
    pub async fn spend_news(&self, holder: i64, seen: &str, since: Since) -> Result<SpendNews> {
        let known = seen.to_owned();
        let read = move |transaction: &Transaction<'_>| news(transaction, holder, &known, since);
        if seen.is_empty() { self.read_after_writes(read).await } else { self.read_one(read).await }
    }

    /// Up to `limit` holds of dead processes, the latest first.
    pub async fn lost_holds(&self, limit: usize) -> Result<Vec<LostHold>> {
        let lost = LostHold::select(
            "WHERE held > 0 AND holder NOT IN (SELECT holder FROM holders)
             ORDER BY at DESC, subject, period LIMIT ?1",
        );
        self.read_after_writes(move |transaction| {
            transaction.rows(&lost, &params![limit], LostHold::of)
        })
        .await
    }

    /// Counts `spent` of what dead processes held of a budget, and gives the rest back. `false` if
    /// they held nothing, or less than `spent`; [`StoreError::Conflict`] if one of them came back.
    pub async fn settle_lost(&self, key: SpendKey, spent: NanoUsd) -> Result<bool> {
        let event = self.event.clone();
        self.write(move |transaction| {
            let (subject, period) = (key.0.as_str(), key.1);
            let lost = "SELECT holder, held FROM holds WHERE subject = ?1 AND period = ?2
                AND held > 0 AND holder NOT IN (SELECT holder FROM holders)";
            let lost = transaction
                .rows(lost, &params![subject, period], |row| Columns::new(row).two::<i64, u64>())?;
            let sum = lost.iter().fold(0, |sum: NanoUsd, (_, held)| sum.saturating_add(*held));
            if sum == 0 || spent > sum {
                return Ok(false);
            }
            let rev = next_rev(transaction)?;
            // First the row that writers of holds lock first.
            let add = format!(
                "INSERT INTO spend (subject, period, spent, rev) VALUES (?1, ?2, ?3, {rev})
                 ON CONFLICT (subject, period)
                 DO UPDATE SET spent = spend.spent + excluded.spent, rev = excluded.rev"
            );
            transaction.execute(&add, &params![subject, period, spent])?;
            // Not what a process held that has died since.
            let end = format!(
                "UPDATE holds SET held = 0, rev = {rev} WHERE subject = ?1 AND period = ?2
                   AND holder = ?3 AND held = ?4 AND holder NOT IN (SELECT holder FROM holders)"
            );
            for (holder, held) in lost {
                if transaction.execute(&end, &params![subject, period, holder, held])? == 0 {
                    return Err(StoreError::Conflict);
                }
            }
            event.map_or(Ok(true), |event| audit::insert(transaction, &event).map(|()| true))
        })
        .await
    }

    /// Deletes the spend and the holds of periods that do not count any more, and the usage of days
    /// before `usage`.
    pub async fn trim_spend(&self, since: Since, usage: i64) -> Result<()> {
        let (old, values) = ("period <> ?1 AND period < ?2", [since.month, since.day]);
        self.trim("spend", "subject, period", old, values.to_vec()).await?;
        self.trim("holds", "subject, period, holder", old, values.to_vec()).await?;
        self.trim_usage_days(usage).await?;
        if self.is_shared() {
            let old = format!("at < {NOW} - ?1");
            self.trim("usage_batches", "writer", &old, vec![BATCH_US]).await?;
        }
        Ok(())
    }

    /// Deletes the rows of a table that nobody needs, some with each statement. `key` is its
    /// primary key.
    pub(super) async fn trim(
        &self,
        table: &str,
        key: &str,
        old: &str,
        values: Vec<i64>,
    ) -> Result<()> {
        // All gateways do it, and need not wait for each other.
        let lock = if self.is_shared() { "FOR UPDATE SKIP LOCKED" } else { "" };
        let trim = format!(
            "DELETE FROM {table}
             WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {old} LIMIT {TRIMMED} {lock})"
        );
        loop {
            let (trim, values) = (trim.clone(), values.clone());
            let trimmed = self.write_one(move |transaction| {
                transaction.execute(&trim, &values.iter().map(ToValue::value).collect::<Vec<_>>())
            });
            if trimmed.await? < TRIMMED {
                return Ok(());
            }
        }
    }
}

/// Maximum number of rows that are deleted with one statement.
const TRIMMED: usize = 20_000;
/// How long the number of a writer's last batch is kept: longer than any process retries one.
const BATCH_US: i64 = 40 * 86_400 * 1_000_000;
/// How long other processes are asked to give back.
const WANTED_US: i64 = 2_000_000;

/// Microseconds since the epoch, by the clock of the database.
fn now(transaction: &Transaction<'_>) -> &'static str {
    if transaction.is_shared() { NOW } else { "CAST(unixepoch('subsec') * 1000000 AS INTEGER)" }
}

/// Locks budgets in the order of their keys, so that no two writers deadlock, and the process, so
/// that it is not ended meanwhile. `false` if it has ended. The next statement sees what earlier
/// owners of the locks wrote. SQLite has one writer, which needs no lock.
fn lock_budgets(transaction: &Transaction<'_>, holder: i64, holds: &[HoldWrite]) -> Result<bool> {
    let is_holder = "SELECT 1 FROM holders WHERE holder = ?1";
    if !transaction.is_shared() {
        return transaction.exists(is_holder, &params![holder]);
    }
    let mut keys: Vec<_> = holds.iter().map(|hold| &hold.key).collect();
    keys.sort_unstable();
    let (subjects, periods): (Vec<_>, Vec<_>) =
        keys.iter().map(|(subject, period)| (subject.value(), period.value())).unzip();
    let lock = format!(
        "INSERT INTO spend (subject, period, spent)
           SELECT wanted.*, 0 FROM {} AS wanted, ({is_holder} FOR SHARE) AS own
         ON CONFLICT (subject, period) DO UPDATE SET spent = spend.spent",
        unnest(["TEXT", "BIGINT"].into_iter(), 2)
    );
    let values = [holder.value(), Value::Column(&subjects), Value::Column(&periods)];
    Ok(transaction.execute(&lock, &values)? > 0)
}

fn write_holds(
    transaction: &Transaction<'_>,
    holder: i64,
    holds: &[HoldWrite],
) -> Result<Option<Vec<Hold>>> {
    if !lock_budgets(transaction, holder, holds)? {
        return Ok(None);
    }
    let places = |rows: usize, width: usize, first: usize, more: &str| {
        let row = |at: usize| {
            let places = (0..width).map(|column| format!("?{}", first + at * width + column));
            format!("({}{more})", places.collect::<Vec<_>>().join(", "))
        };
        (0..rows).map(row).collect::<Vec<_>>().join(", ")
    };
    let keys = holds.iter().flat_map(|hold| params![hold.key.0, hold.key.1]);
    let values: Vec<_> = params![holder].into_iter().chain(keys).collect();
    let changed =
        format!("WITH changed (subject, period) AS (VALUES {})", places(holds.len(), 2, 2, ""));
    let sums = transaction.rows(&format!("{changed} {SUMS}"), &values, sum_of)?;
    let sums: BTreeMap<SpendKey, OthersSpend> = sums.into_iter().collect();
    let held: Vec<Hold> = holds
        .iter()
        .map(|hold| {
            let others = sums.get(&hold.key).copied().unwrap_or_default();
            let room = hold.budget.saturating_sub(others.total()).saturating_sub(hold.spent);
            Hold { held: hold.held.min(room).max(hold.least), others }
        })
        .collect();
    let (rev, now) = (next_rev(transaction)?, now(transaction));
    let more = format!(", ?1, {rev}, {now}, (SELECT name FROM holders WHERE holder = ?1)");
    let write = format!(
        "INSERT INTO holds (subject, period, spent, estimated, held, holder, rev, at, name)
         VALUES {} ON CONFLICT (subject, period, holder) DO UPDATE SET spent = excluded.spent,
           estimated = excluded.estimated, held = excluded.held, rev = excluded.rev,
           at = excluded.at",
        places(holds.len(), 5, 2, &more)
    );
    let rows = holds.iter().zip(&held).flat_map(|(hold, held)| {
        params![hold.key.0, hold.key.1, hold.spent, hold.estimated, held.held]
    });
    let values: Vec<_> = params![holder].into_iter().chain(rows).collect();
    transaction.execute(&write, &values)?;
    let is_short =
        |(hold, held): &(&HoldWrite, &Hold)| held.held < hold.held && held.others.held > 0;
    let short = holds.iter().zip(&held).filter(is_short);
    let keys: Vec<_> = short.flat_map(|(hold, _)| params![hold.key.0, hold.key.1]).collect();
    if !keys.is_empty() {
        let want = format!(
            "INSERT INTO spend (subject, period, spent, wanted_at) VALUES {}
             ON CONFLICT (subject, period) DO UPDATE SET wanted_at = excluded.wanted_at",
            places(keys.len() / 2, 2, 1, &format!(", 0, {now}"))
        );
        transaction.execute(&want, &keys)?;
    }
    Ok(Some(held))
}

fn news(transaction: &Transaction<'_>, holder: i64, seen: &str, since: Since) -> Result<SpendNews> {
    // PostgreSQL finds by an index only what is compared with a time that stays the same.
    let now = now(transaction).replace("clock_timestamp", "statement_timestamp");
    let (sees, unseen) = seen_and_unseen(transaction);
    let unseen = if seen.is_empty() { "?2 = ''" } else { unseen };
    let changed = format!("{unseen} AND (period = ?3 OR period >= ?4)");
    let select = format!(
        "WITH changed AS (
           SELECT subject, period FROM spend WHERE {changed}
           UNION SELECT subject, period FROM holds WHERE {changed} AND holder <> ?1)
         SELECT {sees} AS subject, 0 AS period, 0, 0, 0, 0, 0 AS kind
         UNION ALL SELECT '', 0, 0, 0, 0, 0, 1 FROM holders WHERE holder = ?1
         UNION ALL SELECT subject, period, 0, 0, 0, 0, 2
           FROM spend JOIN holds USING (subject, period)
           WHERE wanted_at > {now} - {WANTED_US} AND holder = ?1 AND held > 0
         UNION ALL SELECT sums.*, 3 FROM ({SUMS}) AS sums"
    );
    let mut news = SpendNews::default();
    transaction.each(&select, &params![holder, seen, since.month, since.day], &mut |row| {
        match row.int(6)? {
            Some(0) => news.seen = Columns::new(row).get()?,
            Some(1) => news.is_holder = true,
            Some(2) => news.wanted.push(Columns::new(row).two()?),
            _ => news.changed.push(sum_of(row)?),
        }
        Ok(())
    })?;
    // The numbers of another database begin anew.
    if end_of(&news.seen) < end_of(seen) {
        news.seen.clear();
    }
    Ok(news)
}

/// A row of [`SUMS`].
fn sum_of(row: &Row<'_>) -> Result<(SpendKey, OthersSpend)> {
    let mut columns = Columns::new(row);
    let key = columns.two()?;
    let mut sum = || columns.get::<i64>().map(unsigned);
    Ok((key, OthersSpend { spent: sum()?, estimated: sum()?, held: sum()?, lost: sum()? }))
}

/// The sums of `changed` budgets, without those of `?1` itself.
const SUMS: &str = "
    SELECT subject, period, CAST(sum(spent) AS BIGINT), CAST(sum(estimated) AS BIGINT),
      CAST(sum(live) AS BIGINT), CAST(sum(lost) AS BIGINT)
    FROM (
      SELECT subject, period, spent, estimated, 0 AS live, 0 AS lost FROM changed
        JOIN spend USING (subject, period)
      UNION ALL
      SELECT subject, period, spent, estimated,
        CASE WHEN holders.holder IS NULL THEN 0 ELSE held END,
        CASE WHEN holders.holder IS NULL THEN held ELSE 0 END
      FROM changed JOIN holds USING (subject, period)
        LEFT JOIN holders ON holders.holder = holds.holder
      WHERE holds.holder <> ?1) AS parts
    GROUP BY subject, period";
