//! Parameters of statements, of the same types for every database.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use rerouter_base::id::{AgentId, AuditId, GatewayId, KeyId, NodeId, RequestId, SessionId, UserId};

/// A parameter of a statement. It may be a digest or a password hash, so it has no `Debug`.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Null,
    Int(i64),
    Text(&'a str),
    Blob(&'a [u8]),
    /// One column of several rows, for `unnest` of PostgreSQL. The statement casts it to its type:
    /// if all are NULL, so is the parameter, and `unnest` fills up the rows.
    Column(&'a [Value<'a>]),
}

/// The columns of rows of values, each to be a [`Value::Column`].
pub(super) fn transposed<'a>(rows: &[Vec<Value<'a>>]) -> Vec<Vec<Value<'a>>> {
    let width = rows.first().map_or(0, Vec::len);
    (0..width).map(|at| rows.iter().filter_map(|row| row.get(at)).copied().collect()).collect()
}

pub(super) trait ToValue {
    fn value(&self) -> Value<'_>;
}

/// The parameters `?1`, `?2` and so on of a statement, as an array of [`Value`]s that borrow.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        [$($crate::value::ToValue::value(&$value)),*]
    };
}
pub(super) use params;

macro_rules! parameters {
    ($($variant:ident $type:ty, $value:ident => $inner:expr;)*) => {
        $(impl ToValue for $type {
            fn value(&self) -> Value<'_> {
                let $value = self;
                Value::$variant($inner)
            }
        })*
    };
}

parameters! {
    Int i64, value => *value;
    Int u16, value => i64::from(*value);
    Int u32, value => i64::from(*value);
    Int u64, value => i64::try_from(*value).unwrap_or(i64::MAX);
    Int usize, value => i64::try_from(*value).unwrap_or(i64::MAX);
    // In microseconds.
    Int Duration, value => i64::try_from(value.as_micros()).unwrap_or(i64::MAX);
    // 1 or 0, as databases differ in their type for flags.
    Int bool, value => i64::from(*value);
    // Microseconds since the epoch.
    Int Timestamp, value => value.as_microsecond();
    Text str, value => value;
    Text String, value => value;
    Text Arc<str>, value => value;
    Text Box<str>, value => value;
    Text Cow<'static, str>, value => value;
    Text AgentId, value => value.as_str();
    Text AuditId, value => value.as_str();
    Text GatewayId, value => value.as_str();
    Text KeyId, value => value.as_str();
    Text NodeId, value => value.as_str();
    Text RequestId, value => value.as_str();
    Text SessionId, value => value.as_str();
    Text UserId, value => value.as_str();
    Blob [u8], value => value;
    Blob Arc<[u8]>, value => value;
    Blob Vec<u8>, value => value;
}

impl<const N: usize> ToValue for [u8; N] {
    fn value(&self) -> Value<'_> {
        Value::Blob(self)
    }
}

impl<T: ToValue + ?Sized> ToValue for &T {
    fn value(&self) -> Value<'_> {
        (**self).value()
    }
}

impl<T: ToValue> ToValue for Option<T> {
    fn value(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Null, ToValue::value)
    }
}
