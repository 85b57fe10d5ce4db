//! Attempts to log in and to register, counted for all gateways that share the store.

use std::time::Duration;

use super::Result;
use super::sql::{NOW, Transaction, params};

/// A limit on attempts: at most `most` within the time `lasting`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptLimit {
    /// A digest of what is tried, and by whom.
    pub what: String,
    pub most: u32,
    pub lasting: Duration,
}

pub(super) fn count(
    transaction: &Transaction<'_>,
    limits: &[AttemptLimit],
) -> Result<Option<Duration>> {
    // The `most`-th newest attempt within `lasting`: the next attempt has to wait until it is
    // older.
    let oldest = format!(
        "SELECT at + ?2 - {NOW} FROM attempts WHERE what = ?1 AND at > {NOW} - ?2
         ORDER BY at DESC LIMIT 1 OFFSET ?3"
    );
    for limit in limits {
        let earlier = limit.most.saturating_sub(1);
        let values = params![limit.what, limit.lasting, earlier];
        if let Some(wait) = transaction.int(&oldest, &values)? {
            return Ok(Some(Duration::from_micros(u64::try_from(wait).unwrap_or(0))));
        }
    }
    let insert = format!("INSERT INTO attempts (what, at) VALUES (?1, {NOW})");
    for limit in limits {
        transaction.execute(&insert, &params![limit.what])?;
    }
    Ok(None)
}

pub(super) fn trim(transaction: &Transaction<'_>, after: Duration) -> Result<()> {
    let delete = format!("DELETE FROM attempts WHERE at < {NOW} - ?1");
    transaction.execute(&delete, &params![after]).map(drop)
}
