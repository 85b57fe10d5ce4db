//! How values are read from the columns of a row, and written as JSON.

use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::{FromSql, Type};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StoreError;

/// The columns of a row of `SELECT *`, read in the order of the table. A start reads a million
/// rows: a column is not looked up by its name, and its text is not copied to be parsed.
pub(super) struct Columns<'a, 'row> {
    row: &'a Row<'row>,
    next: usize,
}

impl<'a, 'row> Columns<'a, 'row> {
    pub(super) fn of(row: &'a Row<'row>) -> Self {
        Columns { row, next: 0 }
    }

    pub(super) fn get<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        self.next += 1;
        self.row.get(self.next - 1)
    }

    pub(super) fn text(&mut self) -> rusqlite::Result<&'a str> {
        self.next += 1;
        Ok(self.row.get_ref(self.next - 1)?.as_str()?)
    }

    pub(super) fn maybe_text(&mut self) -> rusqlite::Result<Option<&'a str>> {
        self.next += 1;
        Ok(self.row.get_ref(self.next - 1)?.as_str_or_null()?)
    }

    pub(super) fn json<T: DeserializeOwned>(&mut self) -> rusqlite::Result<T> {
        let text = self.text()?;
        serde_json::from_str(text).map_err(|error| self.unreadable(error))
    }

    pub(super) fn maybe_json<T: DeserializeOwned>(&mut self) -> rusqlite::Result<Option<T>> {
        let Some(text) = self.maybe_text()? else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|error| self.unreadable(error))
    }

    /// One of a set of words.
    pub(super) fn word<T>(&mut self, parse: fn(&str) -> Option<T>) -> rusqlite::Result<T> {
        let text = self.text()?;
        parse(text).ok_or_else(|| self.unreadable(format_args!("unknown word {text:?}")))
    }

    pub(super) fn time(&mut self) -> rusqlite::Result<Timestamp> {
        let micros = self.get()?;
        Timestamp::from_microsecond(micros).map_err(|error| self.unreadable(error))
    }

    pub(super) fn maybe_time(&mut self) -> rusqlite::Result<Option<Timestamp>> {
        let micros: Option<i64> = self.get()?;
        let time = |micros| Timestamp::from_microsecond(micros).map_err(|why| self.unreadable(why));
        micros.map(time).transpose()
    }

    /// The last column holds what this build cannot read.
    fn unreadable(&self, cause: impl std::fmt::Display) -> rusqlite::Error {
        let at = self.next.saturating_sub(1);
        let name = self.row.as_ref().column_name(at).unwrap_or("?").to_owned();
        let cause = std::io::Error::other(format!("column {name}: {cause}"));
        rusqlite::Error::FromSqlConversionFailure(at, Type::Text, Box::new(cause))
    }
}

pub(super) fn json<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(StoreError::unavailable)
}
