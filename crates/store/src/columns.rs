//! Reads values from the columns of a row, and writes them there.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::sql::{Row, ToValue, Value};
use super::{Result, StoreError};
use rerouter_base::id::{AgentId, AuditId, KeyId, NodeId, RequestId, SessionId, UserId};
use rerouter_base::interface::Interface;

/// The columns of a row, read in their order. A start reads a million rows, so columns are not
/// looked up by name, and their text is not copied before it is parsed.
pub(super) struct Columns<'a> {
    row: &'a Row<'a>,
    next: usize,
}

impl<'a> Columns<'a> {
    pub(super) fn new(row: &'a Row<'_>) -> Self {
        Columns { row, next: 0 }
    }

    /// The next column, which must not be NULL.
    pub(super) fn get<T: Column>(&mut self) -> Result<T> {
        self.maybe()?.ok_or_else(|| self.unreadable("NULL"))
    }

    pub(super) fn maybe<T: Column>(&mut self) -> Result<Option<T>> {
        self.next += 1;
        T::read(self.row, self.next - 1)
    }

    pub(super) fn two<T: Column, U: Column>(&mut self) -> Result<(T, U)> {
        Ok((self.get()?, self.get()?))
    }

    /// The error for the last column that was read: this build cannot read its value.
    fn unreadable(&self, cause: impl std::fmt::Display) -> StoreError {
        self.row.unreadable(self.next.saturating_sub(1), cause)
    }
}

pub(super) trait Column: Sized {
    /// `None` is NULL.
    fn read(row: &Row<'_>, at: usize) -> Result<Option<Self>>;

    fn put(&self) -> Result<Written<'_>>;
}

/// A value to be written into a column, borrowed or owned.
pub(super) enum Written<'a> {
    Value(Value<'a>),
    Text(String),
    Blob(Vec<u8>),
}

impl<'a> Written<'a> {
    /// The value; NULL for `None`.
    pub(super) fn of(value: Option<&'a impl ToValue>) -> Self {
        Written::Value(value.map_or(Value::Null, ToValue::value))
    }

    /// An owned copy, which outlives the row.
    pub(super) fn owned(value: Value<'_>) -> Self {
        match value {
            // No row has a column as the value of a column.
            Value::Null | Value::Column(_) => Written::Value(Value::Null),
            Value::Int(number) => Written::Value(Value::Int(number)),
            Value::Text(text) => Written::Text(text.to_owned()),
            Value::Blob(bytes) => Written::Blob(bytes.to_vec()),
        }
    }

    pub(super) fn value(&self) -> Value<'_> {
        match self {
            Written::Value(value) => *value,
            Written::Text(text) => Value::Text(text),
            Written::Blob(bytes) => Value::Blob(bytes),
        }
    }
}

/// Implements [`Column`] for types that are stored as the same SQL type. `$read` converts a stored
/// value, `$put` the value to be stored.
macro_rules! columns {
    ($($column:ident $($kind:ty),*: $value:ident => $read:expr, $put:expr;)*) => {
        $($(impl $crate::columns::Column for $kind {
            fn read(
                row: &$crate::sql::Row<'_>,
                at: usize,
            ) -> $crate::Result<Option<Self>> {
                let Some($value) = row.$column(at)? else { return Ok(None) };
                $read.map(Some).map_err(|cause| row.unreadable(at, cause))
            }

            fn put(&self) -> $crate::Result<$crate::columns::Written<'_>> {
                $put(self)
            }
        })*)*
    };
}
pub(super) use columns;

/// Implements [`Column`] for enumerations whose values are words.
macro_rules! word_columns {
    ($($kind:ty),*) => {
        $crate::columns::columns! {
            text $($kind),*: word =>
                Self::parse(word).ok_or_else(|| format!("unknown word {word:?}")),
                $crate::columns::plain;
        }
        $(impl $crate::sql::ToValue for $kind {
            fn value(&self) -> $crate::sql::Value<'_> {
                $crate::sql::Value::Text(self.as_str())
            }
        })*
    };
}
pub(super) use word_columns;

/// Implements [`Column`] for types that are stored as JSON.
macro_rules! json_columns {
    ($($kind:ty),*) => {
        $crate::columns::columns! {
            text $($kind),*: text => serde_json::from_str(text), $crate::columns::json;
        }
    };
}
pub(super) use json_columns;

pub(super) fn plain(value: &impl ToValue) -> Result<Written<'_>> {
    Ok(Written::Value(value.value()))
}

pub(super) fn json(value: &impl Serialize) -> Result<Written<'static>> {
    serde_json::to_string(value).map(Written::Text).map_err(StoreError::unavailable)
}

fn sure<T>(value: T) -> Result<T, Infallible> {
    Ok(value)
}

columns! {
    int i64: value => sure(value), plain;
    int u16, u32: value => value.try_into(), plain;
    int u64: value => sure(value.try_into().unwrap_or(0)), plain;
    int Duration: value => sure(Duration::from_micros(value.try_into().unwrap_or(0))), plain;
    int bool: value => sure(value != 0), plain;
    int Timestamp: value => Timestamp::from_microsecond(value), plain;
    text String, Arc<str>, Box<str>: value => sure(value.into()), plain;
    text Cow<'static, str>: value => sure(value.to_owned().into()), plain;
    text AgentId, AuditId, KeyId, NodeId, RequestId, SessionId, UserId: value =>
        sure(Self::known(value)), plain;
    blob Vec<u8>, Arc<[u8]>: value => sure(value.into()), plain;
    blob [u8; 16], [u8; 32]: value => value.try_into(), plain;
}

impl<T: Column> Column for Arc<T> {
    fn read(row: &Row<'_>, at: usize) -> Result<Option<Self>> {
        Ok(T::read(row, at)?.map(Arc::new))
    }

    fn put(&self) -> Result<Written<'_>> {
        T::put(self)
    }
}

word_columns! { Interface }

json_columns! {
    BTreeMap<String, String>,
    Vec<String>,
    Vec<serde_json::Value>,
    serde_json::Map<String, serde_json::Value>
}
