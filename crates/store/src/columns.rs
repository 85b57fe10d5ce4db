//! How values are read from the columns of a row, and written as JSON.

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StoreError;
use super::sql::Row;

/// The columns of a row, read in their order. A start reads a million rows: a column is not looked
/// up by its name, and its text is not copied to be parsed.
pub(super) struct Columns<'a> {
    row: &'a Row<'a>,
    next: usize,
}

impl<'a> Columns<'a> {
    pub(super) fn of(row: &'a Row<'_>) -> Self {
        Columns { row, next: 0 }
    }

    /// The next column, which is not NULL.
    pub(super) fn get<T: FromColumn<'a>>(&mut self) -> Result<T, StoreError> {
        self.maybe()?.ok_or_else(|| self.unreadable("NULL"))
    }

    pub(super) fn maybe<T: FromColumn<'a>>(&mut self) -> Result<Option<T>, StoreError> {
        self.next += 1;
        T::read(self.row, self.next - 1)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, StoreError> {
        self.get()
    }

    pub(super) fn maybe_text(&mut self) -> Result<Option<&'a str>, StoreError> {
        self.maybe()
    }

    pub(super) fn json<T: DeserializeOwned>(&mut self) -> Result<T, StoreError> {
        let text = self.text()?;
        serde_json::from_str(text).map_err(|error| self.unreadable(error))
    }

    pub(super) fn maybe_json<T: DeserializeOwned>(&mut self) -> Result<Option<T>, StoreError> {
        let Some(text) = self.maybe_text()? else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|error| self.unreadable(error))
    }

    /// One of a set of words.
    pub(super) fn word<T>(&mut self, parse: fn(&str) -> Option<T>) -> Result<T, StoreError> {
        let text = self.text()?;
        parse(text).ok_or_else(|| self.unreadable(format_args!("unknown word {text:?}")))
    }

    /// The last column holds what this build cannot read.
    fn unreadable(&self, cause: impl std::fmt::Display) -> StoreError {
        self.row.unreadable(self.next.saturating_sub(1), cause)
    }
}

/// What a column can be read as.
pub(super) trait FromColumn<'a>: Sized {
    fn read(row: &'a Row<'a>, at: usize) -> Result<Option<Self>, StoreError>;
}

impl FromColumn<'_> for i64 {
    fn read(row: &Row<'_>, at: usize) -> Result<Option<Self>, StoreError> {
        row.int(at)
    }
}

impl FromColumn<'_> for u32 {
    fn read(row: &Row<'_>, at: usize) -> Result<Option<Self>, StoreError> {
        let read = |value| u32::try_from(value).map_err(|error| row.unreadable(at, error));
        row.int(at)?.map(read).transpose()
    }
}

impl FromColumn<'_> for bool {
    fn read(row: &Row<'_>, at: usize) -> Result<Option<Self>, StoreError> {
        Ok(row.int(at)?.map(|value| value != 0))
    }
}

impl FromColumn<'_> for Timestamp {
    fn read(row: &Row<'_>, at: usize) -> Result<Option<Self>, StoreError> {
        let read = |us| Timestamp::from_microsecond(us).map_err(|error| row.unreadable(at, error));
        row.int(at)?.map(read).transpose()
    }
}

impl<'a> FromColumn<'a> for &'a str {
    fn read(row: &'a Row<'a>, at: usize) -> Result<Option<Self>, StoreError> {
        row.text(at)
    }
}

impl FromColumn<'_> for String {
    fn read(row: &Row<'_>, at: usize) -> Result<Option<Self>, StoreError> {
        Ok(row.text(at)?.map(str::to_owned))
    }
}

impl FromColumn<'_> for Vec<u8> {
    fn read(row: &Row<'_>, at: usize) -> Result<Option<Self>, StoreError> {
        Ok(row.blob(at)?.map(<[u8]>::to_vec))
    }
}

impl<'a> FromColumn<'a> for &'a [u8] {
    fn read(row: &'a Row<'a>, at: usize) -> Result<Option<Self>, StoreError> {
        row.blob(at)
    }
}

impl<const N: usize> FromColumn<'_> for [u8; N] {
    fn read(row: &Row<'_>, at: usize) -> Result<Option<Self>, StoreError> {
        let read = |bytes: &[u8]| bytes.try_into().map_err(|error| row.unreadable(at, error));
        row.blob(at)?.map(read).transpose()
    }
}

pub(super) fn json<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(StoreError::unavailable)
}
