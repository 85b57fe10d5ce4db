//! Statements of the store on a connection of SQLite.

use rusqlite::types::{FromSqlResult, ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};

use super::super::value::Value;
use super::super::{Result, StoreError};

/// Statements are prepared once and kept.
pub(crate) struct SqliteTransaction<'a>(pub(super) &'a Connection);

impl SqliteTransaction<'_> {
    pub(crate) fn execute(&self, sql: &str, params: &[Value<'_>]) -> Result<usize> {
        Ok(self.0.prepare_cached(sql)?.execute(params_from_iter(params))?)
    }

    pub(crate) fn batch(&self, statements: &str) -> Result<()> {
        Ok(self.0.execute_batch(statements)?)
    }

    pub(crate) fn each(
        &self,
        sql: &str,
        params: &[Value<'_>],
        take: &mut dyn FnMut(SqliteRow<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut statement = self.0.prepare_cached(sql)?;
        let mut rows = statement.query(params_from_iter(params))?;
        while let Some(row) = rows.next()? {
            take(SqliteRow(row))?;
        }
        Ok(())
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match *self {
            // Only statements for PostgreSQL have columns.
            Value::Null | Value::Column(_) => ValueRef::Null,
            Value::Int(value) => ValueRef::Integer(value),
            Value::Text(value) => ValueRef::Text(value.as_bytes()),
            Value::Blob(value) => ValueRef::Blob(value),
        }))
    }
}

#[derive(Clone, Copy)]
pub(crate) struct SqliteRow<'a>(&'a rusqlite::Row<'a>);

impl<'a> SqliteRow<'a> {
    pub(crate) fn int(self, at: usize) -> Result<Option<i64>> {
        self.read(at, ValueRef::as_i64_or_null)
    }

    pub(crate) fn text(self, at: usize) -> Result<Option<&'a str>> {
        self.read(at, ValueRef::as_str_or_null)
    }

    pub(crate) fn blob(self, at: usize) -> Result<Option<&'a [u8]>> {
        self.read(at, ValueRef::as_blob_or_null)
    }

    pub(crate) fn value(self, at: usize) -> Result<Value<'a>> {
        self.read(at, |value| match value {
            ValueRef::Null => Ok(Value::Null),
            ValueRef::Integer(number) => Ok(Value::Int(*number)),
            ValueRef::Blob(bytes) => Ok(Value::Blob(bytes)),
            other => other.as_str().map(Value::Text),
        })
    }

    pub(crate) fn width(self) -> usize {
        self.0.as_ref().column_count()
    }

    pub(crate) fn name(self, at: usize) -> &'a str {
        self.0.as_ref().column_name(at).unwrap_or("?")
    }

    fn read<T>(
        self,
        at: usize,
        value: impl FnOnce(&ValueRef<'a>) -> FromSqlResult<T>,
    ) -> Result<T> {
        value(&self.0.get_ref(at)?).map_err(|cause| {
            StoreError::unavailable(format_args!("column {}: {cause}", self.name(at)))
        })
    }
}
