//! Recalls of budgets: if a gateway lacks a part of a budget, the other gateways are asked to give
//! back what they do not need.

use super::StoreError;
use super::columns::Columns;
use super::sql::{NOW, Transaction, params};

/// How long gateways answer a recall, in microseconds.
const RECALL_US: i64 = 5_000_000;

pub(super) fn recalled(transaction: &Transaction<'_>) -> Result<Vec<(String, i64)>, StoreError> {
    let recalled = format!("SELECT subject, period FROM spend_recalls WHERE at > {NOW} - ?1");
    transaction.rows(&recalled, &params![RECALL_US], |row| Columns::new(row).two())
}

/// Deletes old recalls, and the answers to them.
pub(super) fn forget_recalls(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    for table in ["spend_recalls", "spend_reserves"] {
        let delete = format!("DELETE FROM {table} WHERE at < {NOW} - ?1");
        transaction.execute(&delete, &params![RECALL_US])?;
    }
    Ok(())
}
