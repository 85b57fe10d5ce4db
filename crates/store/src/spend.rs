//! What is spent of budgets, and what each process holds of them. A process writes absolute sums of
//! its own, so a write whose answer was lost may be repeated.

use std::collections::BTreeMap;

use super::columns::Columns;
use super::holders::{end_other_holders, is_holder, next_rev};
use super::rows::Stored;
use super::rows::stored::row;
use super::sql::{NOW, Transaction, params};
use super::usage_sums::{UsageInterval, unsigned};
use super::{Result, Store, audit};
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

/// The hold that was written.
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

/// What a process has to know about budgets.
#[derive(Debug, Default)]
pub struct SpendNews {
    /// Whether this process may still spend. Otherwise it was taken for dead.
    pub is_holder: bool,
    /// The number of the last write.
    pub rev: i64,
    pub changed: Vec<(SpendKey, OthersSpend)>,
    /// Budgets in which another process found no room.
    pub wanted: Vec<SpendKey>,
}

impl Store {
    /// Adds a process that may spend, by a random number; again, if it was taken for dead. Where no
    /// other process can run, all others are dead.
    pub async fn open_holder(&self, holder: i64) -> Result<()> {
        let is_alone = !self.is_shared() && !self.has_predecessor();
        let (process, name) = self.gateway_names();
        self.write(move |transaction| {
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
        self.write(move |transaction| {
            let rev = next_rev(transaction)?;
            let lost = "UPDATE holds SET rev = ?2 WHERE holder = ?1 AND held > 0";
            transaction.execute(lost, &params![holder, rev])?;
            let add = "INSERT INTO spend (subject, period, spent, estimated, rev)
                  SELECT subject, period, spent, estimated, ?2 FROM holds
                  WHERE holder = ?1 AND held = 0
                ON CONFLICT (subject, period) DO UPDATE SET spent = spend.spent + excluded.spent,
                  estimated = spend.estimated + excluded.estimated, rev = excluded.rev";
            transaction.execute(add, &params![holder, rev])?;
            let delete = "DELETE FROM holds WHERE holder = ?1 AND held = 0";
            transaction.execute(delete, &params![holder])?;
            transaction.execute("DELETE FROM holders WHERE holder = ?1", &params![holder])?;
            Ok(())
        })
        .await
    }

    /// Writes holds, all or none. Returns them in the order of the writes; `None` if the process
    /// was taken for dead.
    pub async fn write_holds(
        &self,
        holder: i64,
        holds: Vec<HoldWrite>,
    ) -> Result<Option<Vec<Hold>>> {
        self.write(move |transaction| {
            if !is_holder(transaction, holder)? {
                return Ok(None);
            }
            let rev = next_rev(transaction)?;
            let held = holds.iter().map(|hold| write_hold(transaction, holder, rev, hold));
            held.collect::<Result<_>>().map(Some)
        })
        .await
    }

    /// What changed after the write `after` in the periods that count.
    pub async fn spend_news(&self, holder: i64, after: i64, since: Since) -> Result<SpendNews> {
        self.read_after_writes(move |transaction| news(transaction, holder, after, since)).await
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
    /// they held nothing, or less than `spent`.
    pub async fn settle_lost(&self, key: SpendKey, spent: NanoUsd) -> Result<bool> {
        let event = self.event.clone();
        self.write(move |transaction| {
            let (subject, period) = (key.0.as_str(), key.1);
            let lost = "SELECT CAST(sum(held) AS BIGINT) FROM holds WHERE subject = ?1
                AND period = ?2 AND holder NOT IN (SELECT holder FROM holders)";
            let lost = transaction.int(lost, &params![subject, period])?.map_or(0, unsigned);
            if lost == 0 || spent > lost {
                return Ok(false);
            }
            let rev = next_rev(transaction)?;
            let end = "UPDATE holds SET held = 0, rev = ?3 WHERE subject = ?1 AND period = ?2
                AND holder NOT IN (SELECT holder FROM holders)";
            transaction.execute(end, &params![subject, period, rev])?;
            let add = "INSERT INTO spend (subject, period, spent, rev) VALUES (?1, ?2, ?3, ?4)
                ON CONFLICT (subject, period)
                DO UPDATE SET spent = spend.spent + excluded.spent, rev = excluded.rev";
            transaction.execute(add, &params![subject, period, spent, rev])?;
            event.map_or(Ok(true), |event| audit::insert(transaction, &event).map(|()| true))
        })
        .await
    }

    /// Deletes the spend and the holds of periods that do not count any more, and the usage of days
    /// before `usage`.
    pub async fn trim_spend(&self, since: Since, usage: i64) -> Result<()> {
        self.write(move |transaction| {
            for (table, key) in [("spend", "subject, period"), ("holds", "subject, period, holder")]
            {
                let old = format!(
                    "DELETE FROM {table} WHERE ({key}) IN (
                       SELECT {key} FROM {table} WHERE period <> ?1 AND period < ?2 LIMIT ?3)"
                );
                transaction.execute(&old, &params![since.month, since.day, SPEND_TRIMMED])?;
            }
            transaction.execute("DELETE FROM usage WHERE day < ?1", &params![usage])?;
            let of_all = "DELETE FROM usage_recent WHERE span = ?1 AND at < ?2";
            transaction.execute(of_all, &params![UsageInterval::Day.span_of_all(), usage])?;
            if transaction.is_shared() {
                let batches = format!("DELETE FROM usage_batches WHERE at < {NOW} - ?1");
                transaction.execute(&batches, &params![BATCH_US])?;
            }
            Ok(())
        })
        .await
    }
}

/// Rows of spend and of holds that are deleted at once.
const SPEND_TRIMMED: i64 = 20_000;
/// How long the number of a writer's last batch is kept: longer than any process retries one.
const BATCH_US: i64 = 40 * 86_400 * 1_000_000;
/// How long other processes are asked to give back.
const WANTED_US: i64 = 2_000_000;

/// Microseconds since the epoch, by the clock of the database.
fn now(transaction: &Transaction<'_>) -> &'static str {
    if transaction.is_shared() { NOW } else { "CAST(unixepoch('subsec') * 1000000 AS INTEGER)" }
}

/// The sums of a budget, of all processes but `?3`.
const OTHERS: &str = "
    SELECT CAST(coalesce(sum(spent), 0) AS BIGINT), CAST(coalesce(sum(estimated), 0) AS BIGINT),
      CAST(coalesce(sum(held * lives), 0) AS BIGINT),
      CAST(coalesce(sum(held * (1 - lives)), 0) AS BIGINT)
    FROM (SELECT spent, estimated, 0 AS held, 1 AS lives FROM spend
            WHERE subject = ?1 AND period = ?2
          UNION ALL
          SELECT spent, estimated, held,
            CASE WHEN EXISTS (SELECT 1 FROM holders WHERE holder = holds.holder) THEN 1 ELSE 0 END
          FROM holds WHERE subject = ?1 AND period = ?2 AND holder <> ?3) AS parts";

fn write_hold(
    transaction: &Transaction<'_>,
    holder: i64,
    rev: i64,
    hold: &HoldWrite,
) -> Result<Hold> {
    let (subject, period) = &hold.key;
    let others = transaction.row(OTHERS, &params![subject, *period, holder], |row| {
        let mut columns = Columns::new(row);
        let mut sum = || columns.get::<i64>().map(unsigned);
        Ok(OthersSpend { spent: sum()?, estimated: sum()?, held: sum()?, lost: sum()? })
    })?;
    let others = others.unwrap_or_default();
    let room = hold.budget.saturating_sub(others.total()).saturating_sub(hold.spent);
    let held = hold.held.min(room).max(hold.least);
    let now = now(transaction);
    let write = format!(
        "INSERT INTO holds (subject, period, holder, spent, estimated, held, rev, at, name)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, {now},
           (SELECT name FROM holders WHERE holder = ?3))
         ON CONFLICT (subject, period, holder) DO UPDATE SET spent = excluded.spent,
           estimated = excluded.estimated, held = excluded.held, rev = excluded.rev,
           at = excluded.at"
    );
    let sums = params![subject, *period, holder, hold.spent, hold.estimated, held, rev];
    transaction.execute(&write, &sums)?;
    if held < hold.held && others.held > 0 {
        let want = format!(
            "INSERT INTO spend (subject, period, spent, wanted_at) VALUES (?1, ?2, 0, {now})
             ON CONFLICT (subject, period) DO UPDATE SET wanted_at = excluded.wanted_at"
        );
        transaction.execute(&want, &params![subject, *period])?;
    }
    Ok(Hold { held, others })
}

/// What changed after the write `after`.
fn news(transaction: &Transaction<'_>, holder: i64, after: i64, since: Since) -> Result<SpendNews> {
    let is_holder = is_holder(transaction, holder)?;
    let rev = transaction.int("SELECT spend_rev FROM state", &[])?.unwrap_or(0);
    // PostgreSQL finds by an index only what is compared with a time that stays the same.
    let now = now(transaction).replace("clock_timestamp", "statement_timestamp");
    let wanted = format!("SELECT subject, period FROM spend WHERE wanted_at > {now} - {WANTED_US}");
    let wanted = transaction.rows(&wanted, &[], |row| Columns::new(row).two())?;
    if rev == after {
        return Ok(SpendNews { is_holder, rev, changed: Vec::new(), wanted });
    }
    let mut sums: BTreeMap<SpendKey, OthersSpend> = BTreeMap::new();
    transaction.each(CHANGED, &params![after, since.month, holder, since.day], &mut |row| {
        let mut columns = Columns::new(row);
        let sum = sums.entry(columns.two()?).or_default();
        let mut add = |to: &mut NanoUsd| -> Result<()> {
            *to = to.saturating_add(unsigned(columns.get()?));
            Ok(())
        };
        [&mut sum.spent, &mut sum.estimated, &mut sum.held, &mut sum.lost]
            .into_iter()
            .try_for_each(&mut add)
    })?;
    Ok(SpendNews { is_holder, rev, changed: sums.into_iter().collect(), wanted })
}

/// The parts of all sums of which one changed. Those of `?3` itself count as nothing, but name the
/// budget.
const CHANGED: &str = "
    WITH changed AS (
      SELECT subject, period FROM spend WHERE rev > ?1 AND (period = ?2 OR period >= ?4)
      UNION SELECT subject, period FROM holds
        WHERE rev > ?1 AND (period = ?2 OR period >= ?4) AND holder <> ?3)
    SELECT subject, period, spent, estimated, 0, 0 FROM changed
      JOIN spend USING (subject, period)
    UNION ALL
    SELECT subject, period, spent, estimated,
      CASE WHEN holders.holder IS NULL THEN 0 ELSE held END,
      CASE WHEN holders.holder IS NULL THEN held ELSE 0 END
    FROM changed JOIN holds USING (subject, period)
      LEFT JOIN holders ON holders.holder = holds.holder
    WHERE holds.holder <> ?3";
