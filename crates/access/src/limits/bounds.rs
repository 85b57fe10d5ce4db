//! Limits that several files of the room use.

/// Budgets, and sums of usage, written in one transaction: others write between two of them.
pub(super) const USAGE_WRITE_ROWS: usize = 1_000;
/// Sums of usage by five minutes waiting to be written; beyond it those of a day are one, with a
/// warning.
pub(super) const USAGE_PENDING: usize = 20_000;
