//! Spend against budgets, written together with the usage that caused it. Requests do not wait for
//! these writes.

use super::rows::Stored;
use super::rows::stored::row;
use super::spend_recalls::recalled;
use super::sql::{NOW, Transaction, params};
use super::usage_sums::{UsageBatch, UsageInterval, unsigned, write_days};
use super::{Store, StoreError};
use rerouter_base::money::NanoUsd;

row! { "spend" =>
    /// The spend of a budget in a period, reservations included.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SpendRow {
        /// The id of the key or user.
        pub subject: String,
        /// A day as `yyyymmdd`, or a month as `yyyymm00`.
        pub period: i64,
        pub counted: NanoUsd,
    }
}

/// A share of a budget that a process wants to hold: what it may spend before it asks again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetShare {
    /// The holder, a random number. No two processes have the same.
    pub holder: i64,
    /// The amount that it holds. If gateways share the store, the holder's row in the store counts
    /// instead, as the answer to its last wish may have been lost.
    pub held: NanoUsd,
    /// The amount that it wants to hold instead.
    pub wanted: NanoUsd,
    /// The amount that it gets in any case, as it is spent or reserved already.
    pub least: NanoUsd,
    /// The amount that all holders together may hold.
    pub budget: NanoUsd,
    /// The amount that others hold, if no other process changes it.
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
    /// Whether other gateways are asked to give back shares if the budget has no room.
    pub recalls: bool,
    /// The amount that running requests have reserved, for other gateways that asked.
    pub reserved: NanoUsd,
}

/// The amounts of a budget that a process holds and that others hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetGrant {
    pub held: NanoUsd,
    pub others: NanoUsd,
    /// If others were asked to give back shares: the amount that they reported as reserved.
    pub reserved: NanoUsd,
}

impl Store {
    /// Grants shares of budgets and adds usage: all or nothing. Returns the grants in the order of
    /// the wishes.
    pub async fn write_spend_and_usage(
        &self,
        wishes: Vec<SpendWish>,
        usage: impl Into<UsageBatch>,
    ) -> Result<Vec<BudgetGrant>, StoreError> {
        let (gateway, batch) = (self.instance().unwrap_or_default().to_owned(), usage.into());
        self.write(move |transaction| {
            let granted = wishes.iter().map(|wish| grant(transaction, wish, &gateway));
            let granted = granted.collect::<Result<_, StoreError>>()?;
            if batch.is_new(transaction)? {
                write_days(transaction, &batch.sums)?;
            }
            Ok(granted)
        })
        .await
    }

    /// The budgets that were recalled because a gateway lacks a part, each as id of the key or user
    /// and period.
    pub async fn recalled_spend(&self) -> Result<Vec<(String, i64)>, StoreError> {
        self.read_shared(Vec::new(), recalled).await
    }

    /// The spend of the periods from `since` on.
    pub async fn spend(&self, since: i64) -> Result<Vec<SpendRow>, StoreError> {
        self.read_after_writes(move |transaction| spend(transaction, since)).await
    }

    /// Deletes the spend of periods before `period` and the usage of days before `day`.
    pub async fn trim_spend_and_usage(&self, period: i64, day: i64) -> Result<(), StoreError> {
        let trim = move |transaction: &Transaction<'_>| {
            transaction.execute("DELETE FROM spend WHERE period < ?1", &params![period])?;
            transaction.execute("DELETE FROM usage WHERE day < ?1", &params![day])?;
            let of_all = "DELETE FROM usage_recent WHERE span = ?1 AND at < ?2";
            transaction.execute(of_all, &params![UsageInterval::Day.span_of_all(), day])?;
            Ok(())
        };
        self.write(trim).await
    }

    /// If gateways share the store: deletes their shares of budgets for months before `month` and
    /// for days before `day`, a limited number at a time, and the numbers of old batches.
    pub async fn trim_shares(&self, month: i64, day: i64) -> Result<(), StoreError> {
        let trim = move |transaction: &Transaction<'_>| {
            if transaction.is_shared() {
                let shares = "DELETE FROM spend_shares WHERE ctid IN (SELECT ctid FROM spend_shares
                    WHERE period < ?1 OR period > ?1 AND period < ?2 LIMIT ?3)";
                transaction.execute(shares, &params![month, day, SHARES_TRIMMED])?;
                let batches = format!("DELETE FROM usage_batches WHERE at < {NOW} - ?1");
                transaction.execute(&batches, &params![BATCH_US])?;
            }
            Ok(())
        };
        self.write_beside(trim).await
    }
}

/// Grants a share, as far as the shares of others leave room.
fn grant(
    transaction: &Transaction<'_>,
    wish: &SpendWish,
    gateway: &str,
) -> Result<BudgetGrant, StoreError> {
    let BudgetShare { holder, held, wanted, least, budget, others } = wish.share;
    let others = match others {
        Some(others) => others,
        None => {
            let others = match transaction.is_shared() {
                true => transaction.int(OTHERS_BY_ROW, &params![wish.subject, wish.period, holder]),
                false => transaction.int(OTHERS, &params![wish.subject, wish.period, held]),
            };
            unsigned(others?.unwrap_or(0))
        }
    };
    let held = wanted.min(budget.saturating_sub(others)).max(least);
    let counted = others.saturating_add(held);
    let (subject, period) = (&wish.subject, wish.period);
    if transaction.is_shared() {
        // One statement for both, as the writes of other gateways wait meanwhile.
        let both = format!("WITH share AS ({KEEP_SHARE}) {KEEP_COUNTED}");
        transaction.execute(&both, &params![subject, period, counted, holder, held])?;
    } else {
        transaction.execute(KEEP_COUNTED, &params![subject, period, counted])?;
    }
    if wish.recalls && held < wanted && transaction.is_shared() {
        let recall = format!(
            "INSERT INTO spend_recalls (subject, period, at) VALUES (?1, ?2, {NOW})
             ON CONFLICT (subject, period) DO UPDATE SET at = excluded.at"
        );
        transaction.execute(&recall, &params![wish.subject, wish.period])?;
    }
    let mut reserved = 0;
    if wish.recalls && transaction.is_shared() {
        let of_others = format!(
            "SELECT CAST(sum(reserved) AS BIGINT) FROM spend_reserves
             WHERE subject = ?1 AND period = ?2 AND holder <> ?3 AND at > {NOW} - ?4"
        );
        let answers = params![wish.subject, wish.period, gateway, ANSWER_US];
        reserved = unsigned(transaction.int(&of_others, &answers)?.unwrap_or(0));
    }
    if wish.reserved > 0 && transaction.is_shared() {
        let answer = format!(
            "INSERT INTO spend_reserves (subject, period, holder, reserved, at)
             VALUES (?1, ?2, ?3, ?4, {NOW})
             ON CONFLICT (subject, period, holder)
             DO UPDATE SET reserved = excluded.reserved, at = excluded.at"
        );
        let values = params![wish.subject, wish.period, gateway, wish.reserved];
        transaction.execute(&answer, &values)?;
    }
    Ok(BudgetGrant { held, others, reserved })
}

/// The amount of a budget that others hold, if the holder has the amount `?3`.
const OTHERS: &str = "SELECT counted - ?3 FROM spend WHERE subject = ?1 AND period = ?2";
/// The amount of a budget that others hold, by the row of the holder `?3`.
const OTHERS_BY_ROW: &str = "
    SELECT counted - coalesce((SELECT held FROM spend_shares
        WHERE subject = ?1 AND period = ?2 AND holder = ?3), 0)
    FROM spend WHERE subject = ?1 AND period = ?2";
const KEEP_COUNTED: &str = "
    INSERT INTO spend (subject, period, counted) VALUES (?1, ?2, ?3)
    ON CONFLICT (subject, period) DO UPDATE SET counted = excluded.counted";
const KEEP_SHARE: &str = "
    INSERT INTO spend_shares (subject, period, holder, held) VALUES (?1, ?2, ?4, ?5)
    ON CONFLICT (subject, period, holder) DO UPDATE SET held = excluded.held";

/// Number of shares that are deleted at once.
const SHARES_TRIMMED: i64 = 20_000;
/// How long the number of a writer's last batch is kept: longer than any process retries one.
const BATCH_US: i64 = 40 * 86_400 * 1_000_000;
/// How long the answer to a recall counts: a new one comes twice a second.
const ANSWER_US: i64 = 2_000_000;

fn spend(transaction: &Transaction<'_>, since: i64) -> Result<Vec<SpendRow>, StoreError> {
    transaction.rows(&SpendRow::select("WHERE period >= ?1"), &params![since], SpendRow::of)
}
