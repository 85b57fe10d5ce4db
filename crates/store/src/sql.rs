//! All statements of the store pass through a [`Transaction`].
//!
//! A statement is written once, in SQL that SQLite and PostgreSQL understand alike:
//! - placeholders are `?1`, `?2` and so on; a statement may use one of them twice;
//! - integers have 64 bits, flags are 1 or 0 and compared (`disabled = 0`), times are microseconds;
//! - `"user"` is quoted: the word is reserved; other columns need no quotes;
//! - a table is read by the position of its columns: `SELECT *` has them in its order;
//! - sums are `CAST(sum(x) AS BIGINT)`; `CASE` takes the place of `min` and `max` of two values;
//! - in `ON CONFLICT … DO UPDATE` the present row is named by its table: `usage.nano`;
//! - no limit is `LIMIT 9223372036854775807`;
//! - a column that is to be searched by no index is `name || ''` or `at + 0`.

use super::postgres::{PostgresRow, PostgresTransaction};
use super::sqlite::{SqliteRow, SqliteTransaction};
pub(super) use super::value::{ToValue, Value, params, transposed};
use super::{Result, StoreError};

/// The time of the database that gateways share, in microseconds since the epoch.
macro_rules! now {
    () => {
        "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"
    };
}
pub(super) use now;

pub(super) const NOW: &str = now!();

/// The rows whose columns are parameters from `?first` on, as a table of PostgreSQL. `kinds` are
/// the types of the columns.
pub(super) fn unnest<'a>(kinds: impl Iterator<Item = &'a str>, first: usize) -> String {
    let columns = kinds.zip(first..).map(|(kind, at)| format!("CAST(?{at} AS {kind}[])"));
    format!("unnest({})", columns.collect::<Vec<_>>().join(", "))
}

/// A transaction on the database of accounts. Its thread may block.
pub(super) enum Transaction<'a> {
    Sqlite(SqliteTransaction<'a>),
    Postgres(PostgresTransaction<'a>),
}

/// What a transaction does, on the thread of its database.
pub(super) trait Work<T>: FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static {}

impl<T, W: FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static> Work<T> for W {}

impl Transaction<'_> {
    /// Whether other gateways may change the database too.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Transaction::Postgres(_))
    }

    pub(super) fn revision(&self) -> Result<u64> {
        let rev = self.int("SELECT rev FROM state", &[])?;
        Ok(rev.and_then(|rev| u64::try_from(rev).ok()).unwrap_or(0))
    }

    /// Runs a statement that returns no rows. Returns how many rows it changed.
    pub(super) fn execute(&self, sql: &str, params: &[Value<'_>]) -> Result<usize> {
        match self {
            Transaction::Sqlite(transaction) => transaction.execute(sql, params),
            Transaction::Postgres(transaction) => transaction.execute(sql, params),
        }
    }

    /// Runs statements that have no parameters and return no rows.
    pub(super) fn batch(&self, statements: &str) -> Result<()> {
        match self {
            Transaction::Sqlite(transaction) => transaction.batch(statements),
            Transaction::Postgres(transaction) => transaction.batch(statements),
        }
    }

    /// Calls `take` with each row as it arrives, so the rows need not fit into memory. `take` must
    /// not run another statement.
    pub(super) fn each(
        &self,
        sql: &str,
        params: &[Value<'_>],
        take: &mut dyn FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        match self {
            Transaction::Sqlite(transaction) => {
                transaction.each(sql, params, &mut |row| take(&Row::Sqlite(row)))
            }
            Transaction::Postgres(transaction) => {
                transaction.each(sql, params, &mut |row| take(&Row::Postgres(row)))
            }
        }
    }

    pub(super) fn rows<T>(
        &self,
        sql: &str,
        params: &[Value<'_>],
        mut read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut rows = Vec::new();
        self.each(sql, params, &mut |row| {
            rows.push(read(row)?);
            Ok(())
        })?;
        Ok(rows)
    }

    /// The row of a statement that returns at most one.
    pub(super) fn row<T>(
        &self,
        sql: &str,
        params: &[Value<'_>],
        mut read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut found = None;
        self.each(sql, params, &mut |row| {
            found = Some(read(row)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// The integer of a statement that returns at most one row; `None` for NULL too.
    pub(super) fn int(&self, sql: &str, params: &[Value<'_>]) -> Result<Option<i64>> {
        Ok(self.row(sql, params, |row| row.int(0))?.flatten())
    }

    /// Whether a statement that returns at most one row returns a row.
    pub(super) fn exists(&self, sql: &str, params: &[Value<'_>]) -> Result<bool> {
        Ok(self.row(sql, params, |_| Ok(()))?.is_some())
    }
}

/// A row. Its columns are read by their position; NULL is `None`.
pub(super) enum Row<'a> {
    Sqlite(SqliteRow<'a>),
    Postgres(PostgresRow<'a>),
}

impl<'a> Row<'a> {
    pub(super) fn int(&self, at: usize) -> Result<Option<i64>> {
        match self {
            Row::Sqlite(row) => row.int(at),
            Row::Postgres(row) => row.int(at),
        }
    }

    pub(super) fn text(&self, at: usize) -> Result<Option<&'a str>> {
        match self {
            Row::Sqlite(row) => row.text(at),
            Row::Postgres(row) => row.text(at),
        }
    }

    pub(super) fn blob(&self, at: usize) -> Result<Option<&'a [u8]>> {
        match self {
            Row::Sqlite(row) => row.blob(at),
            Row::Postgres(row) => row.blob(at),
        }
    }

    /// The value of a column, of the type that the database has for it.
    pub(super) fn value(&self, at: usize) -> Result<Value<'a>> {
        match self {
            Row::Sqlite(row) => row.value(at),
            Row::Postgres(row) => row.value(at),
        }
    }

    pub(super) fn width(&self) -> usize {
        match self {
            Row::Sqlite(row) => row.width(),
            Row::Postgres(row) => row.width(),
        }
    }

    /// The error for a column whose value this build cannot read.
    pub(super) fn unreadable(&self, at: usize, cause: impl std::fmt::Display) -> StoreError {
        let name = match self {
            Row::Sqlite(row) => row.name(at),
            Row::Postgres(row) => row.name(at),
        };
        StoreError::unavailable(format_args!("column {name}: {cause}"))
    }
}
