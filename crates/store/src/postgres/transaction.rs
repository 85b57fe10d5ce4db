//! The statements of a transaction. Each is sent unnamed with its parameters, in one round trip. So
//! they work through a pooler that gives a connection to another client after each transaction.

use std::borrow::Cow;
use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use futures::StreamExt;
use tokio::runtime::Runtime;
use tokio_postgres::Client;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::connection::answered;
use crate::Result;
use crate::value::Value;

pub(crate) struct PostgresTransaction<'a> {
    runtime: &'a Runtime,
    client: &'a Client,
    patience: Duration,
    failed: Rc<Cell<bool>>,
}

impl<'a> PostgresTransaction<'a> {
    pub(super) fn new(runtime: &'a Runtime, client: &'a Client, patience: Duration) -> Self {
        PostgresTransaction { runtime, client, patience, failed: Rc::default() }
    }

    /// Whether a statement has failed: the server has undone the transaction then.
    pub(super) fn failed(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.failed)
    }

    pub(crate) fn execute(&self, sql: &str, parameters: &[Value<'_>]) -> Result<usize> {
        let parameters: Vec<Parameter<'_>> = parameters.iter().copied().map(Parameter).collect();
        let typed: Vec<(&(dyn ToSql + Sync), Type)> =
            parameters.iter().map(|one| (one as &(dyn ToSql + Sync), one.kind())).collect();
        let sql = numbered(sql);
        let rows = answered(self.patience, self.client.execute_typed(&sql, &typed));
        let rows = self.judged(self.runtime.block_on(rows))?;
        Ok(usize::try_from(rows).unwrap_or(usize::MAX))
    }

    /// Calls `take` with each row as it arrives. `take` must not run a statement.
    pub(crate) fn each(
        &self,
        sql: &str,
        parameters: &[Value<'_>],
        take: &mut dyn FnMut(PostgresRow<'_>) -> Result<()>,
    ) -> Result<()> {
        let parameters = parameters.iter().copied().map(Parameter).map(|one| {
            let kind = one.kind();
            (one, kind)
        });
        let sql = numbered(sql);
        let stream = async {
            let rows = self.client.query_typed_raw(&sql, parameters);
            let mut rows = pin!(answered(self.patience, rows).await?);
            let mut next =
                async || answered(self.patience, async { rows.next().await.transpose() }).await;
            while let Some(row) = next().await? {
                take(PostgresRow(&row))?;
            }
            Ok(())
        };
        self.judged(self.runtime.block_on(stream))
    }

    pub(crate) fn batch(&self, statements: &str) -> Result<()> {
        let done = answered(self.patience, self.client.batch_execute(statements));
        self.judged(self.runtime.block_on(done))
    }

    fn judged<T>(&self, done: Result<T>) -> Result<T> {
        if done.is_err() {
            self.failed.set(true);
        }
        done
    }
}

#[derive(Clone, Copy)]
pub(crate) struct PostgresRow<'a>(&'a tokio_postgres::Row);

impl<'a> PostgresRow<'a> {
    pub(crate) fn int(self, at: usize) -> Result<Option<i64>> {
        Ok(self.0.try_get::<_, Option<Whole>>(at)?.map(|Whole(number)| number))
    }

    pub(crate) fn text(self, at: usize) -> Result<Option<&'a str>> {
        Ok(self.0.try_get(at)?)
    }

    pub(crate) fn blob(self, at: usize) -> Result<Option<&'a [u8]>> {
        Ok(self.0.try_get(at)?)
    }

    pub(crate) fn value(self, at: usize) -> Result<Value<'a>> {
        let kind = self.0.columns().get(at).map(|column| column.type_().clone());
        let value = match kind {
            Some(Type::TEXT) => self.text(at)?.map(Value::Text),
            Some(Type::BYTEA) => self.blob(at)?.map(Value::Blob),
            _ => self.int(at)?.map(Value::Int),
        };
        Ok(value.unwrap_or(Value::Null))
    }

    pub(crate) fn width(self) -> usize {
        self.0.len()
    }

    pub(crate) fn name(self, at: usize) -> &'a str {
        self.0.columns().get(at).map_or("?", |column| column.name())
    }
}

/// A number of any integer type, or a boolean as 1 or 0.
struct Whole(i64);

impl<'a> FromSql<'a> for Whole {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Whole(match *kind {
            Type::BOOL => bool::from_sql(kind, raw)?.into(),
            Type::INT2 => i16::from_sql(kind, raw)?.into(),
            Type::INT4 => i32::from_sql(kind, raw)?.into(),
            _ => i64::from_sql(kind, raw)?,
        }))
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::BOOL | Type::INT2 | Type::INT4 | Type::INT8)
    }
}

struct Parameter<'a>(Value<'a>);

impl fmt::Debug for Parameter<'_> {
    /// The driver requires `Debug`. Values are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parameter")
    }
}

impl Parameter<'_> {
    /// Its type; the server infers the type of a NULL.
    fn kind(&self) -> Type {
        match self.0 {
            Value::Null => Type::UNKNOWN,
            Value::Int(_) => Type::INT8,
            Value::Text(_) => Type::TEXT,
            Value::Blob(_) => Type::BYTEA,
            Value::Column(values) => {
                match values.iter().find(|value| !matches!(value, Value::Null)) {
                    Some(Value::Int(_)) => Type::INT8_ARRAY,
                    Some(Value::Blob(_)) => Type::BYTEA_ARRAY,
                    Some(_) => Type::TEXT_ARRAY,
                    None => Type::UNKNOWN,
                }
            }
        }
    }
}

impl ToSql for Parameter<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self.0 {
            Value::Null => Ok(IsNull::Yes),
            Value::Int(number) => number.to_sql(kind, out),
            Value::Text(text) => storable(text).as_ref().to_sql(kind, out),
            Value::Blob(bytes) => bytes.to_sql(kind, out),
            Value::Column(_) if *kind == Type::UNKNOWN => Ok(IsNull::Yes),
            Value::Column(values) => {
                let values: Vec<_> = values.iter().copied().map(Parameter).collect();
                values.to_sql(kind, out)
            }
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A text without NUL characters, which PostgreSQL cannot store. A client may send one, for
/// instance in the name of a model, and it would fail a batch that has data of others too.
pub(crate) fn storable(text: &str) -> Cow<'_, str> {
    match text.contains('\0') {
        true => text.replace('\0', "\u{fffd}").into(),
        false => text.into(),
    }
}

/// A statement with `$1` for `?1`, except in quotes.
fn numbered(sql: &str) -> String {
    let mut quote = None;
    let number = |c: char| {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (None, '?') => return '$',
            _ => {}
        }
        c
    };
    sql.chars().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_numbered_outside_of_quotes() {
        for (ours, theirs) in [
            ("SELECT ?1, ?12 FROM t", "SELECT $1, $12 FROM t"),
            (r#"SELECT '?1', "a?", ?2"#, r#"SELECT '?1', "a?", $2"#),
            ("SELECT 'it''s ?', ?1", "SELECT 'it''s ?', $1"),
            ("", ""),
        ] {
            assert_eq!(numbered(ours), theirs);
        }
    }

    #[test]
    fn no_text_holds_a_nul() {
        assert_eq!(storable("a\0b"), "a\u{fffd}b");
        assert!(matches!(storable("ab"), Cow::Borrowed("ab")));
    }
}
