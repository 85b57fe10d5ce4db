//! Copies the tables of accounts from SQLite to PostgreSQL. The copied rows are read again and
//! compared before the copy is committed.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::columns::{Columns, Written};
use super::data_dir::DataDir;
use super::postgres::{self, PostgresUrl, storable};
use super::sql::{Row, Transaction, Value, params};
use super::{Result, StoreError, sqlite};

/// Maximum number of parameters of one INSERT: a quarter of PostgreSQL's limit.
const PARAMETERS: usize = 16_000;
/// Bytes of texts and blobs at which an INSERT is sent.
const BYTES: usize = 4 << 20;

#[derive(Debug)]
pub struct CopiedTable {
    pub name: String,
    pub rows: u64,
    /// The SHA-256 of its rows.
    pub digest: [u8; 32],
}

/// Copies the store of a data directory to a database without a store, all or nothing. No process
/// may use the directory. Blocking.
pub fn migrate(data: &Path, to: &PostgresUrl) -> Result<Vec<CopiedTable>> {
    if !data.join("accounts.db").is_file() {
        return Err(StoreError::unavailable(format!("there is no store in {}", data.display())));
    }
    let _locked = DataDir::take(data)?;
    drop(sqlite::open_current(data)?);
    let copied = sqlite::look(data, |from| postgres::fill(to, |to| copy(from, to)))?;
    copied.ok_or_else(|| StoreError::unavailable("another process uses accounts.db"))
}

/// The tables to copy: all but those that PostgreSQL has already. Tables that others refer to come
/// first. Both databases have the same columns in the same order.
const TABLES: &str = "
    SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'
      AND name NOT IN ('audit_leaving', 'schema_steps', 'state') ORDER BY rowid";
/// The columns of a table's primary key.
const KEY: &str = r#"
    SELECT '"' || name || '"' FROM pragma_table_info(?1) WHERE pk > 0 ORDER BY pk"#;

fn copy(from: &Transaction<'_>, to: &Transaction<'_>) -> Result<Vec<CopiedTable>> {
    if to.exists("SELECT 1 FROM root_key", &[])? || to.exists("SELECT 1 FROM users LIMIT 1", &[])? {
        return Err(StoreError::unavailable("the database has a store already"));
    }
    // A child may come before its parent.
    to.execute("SET CONSTRAINTS ALL DEFERRED", &[])?;
    let mut all = Vec::new();
    for name in from.rows(TABLES, &[], |row| Columns::new(row).get::<String>())? {
        let order = from.rows(KEY, &params![name], |row| Columns::new(row).get::<String>())?;
        let order = order.join(", ");
        insert(from, to, &name, &order)?;
        let (source, arrived) = (summary(from, &name, &order)?, summary(to, &name, &order)?);
        if source != arrived {
            return Err(StoreError::unavailable(format!(
                "{name} differs after the copy: {} rows became {}",
                source.0, arrived.0
            )));
        }
        all.push(CopiedTable { name, rows: source.0, digest: source.1 });
    }
    to.execute("SET CONSTRAINTS ALL IMMEDIATE", &[])?;
    to.execute("UPDATE state SET rev = ?1", &params![from.revision()?])?;
    // The numbers of rows continue after the last number that was ever used.
    for name in ["audit", "node_events"] {
        let largest = format!("SELECT coalesce(max(seq), 0) FROM {name}");
        let used = "SELECT seq FROM sqlite_sequence WHERE name = ?1";
        let last = from.int(&largest, &[])?.max(from.int(used, &params![name])?).unwrap_or(0);
        let next = "SELECT setval(pg_get_serial_sequence(?1, 'seq'), ?2, false)";
        to.exists(next, &params![name, last + 1])?;
    }
    Ok(all)
}

fn insert(from: &Transaction<'_>, to: &Transaction<'_>, table: &str, order: &str) -> Result<()> {
    let (mut values, mut width, mut bytes) = (Vec::new(), 0, 0);
    from.each(&format!("SELECT * FROM {table} ORDER BY {order}"), &[], &mut |row| {
        width = row.width();
        for at in 0..width {
            let value = row.value(at)?;
            bytes += match value {
                Value::Text(text) => text.len(),
                Value::Blob(blob) => blob.len(),
                _ => 8,
            };
            values.push(Written::owned(value));
        }
        if values.len() + width > PARAMETERS || bytes > BYTES {
            send(to, table, width, &values)?;
            values.clear();
            bytes = 0;
        }
        Ok(())
    })?;
    if values.is_empty() { Ok(()) } else { send(to, table, width, &values) }
}

fn send(to: &Transaction<'_>, table: &str, width: usize, values: &[Written<'_>]) -> Result<()> {
    let places: Vec<String> = (1..=values.len()).map(|number| format!("?{number}")).collect();
    let rows: Vec<String> =
        places.chunks(width).map(|row| format!("({})", row.join(", "))).collect();
    let values: Vec<Value<'_>> = values.iter().map(Written::value).collect();
    to.execute(&format!("INSERT INTO {table} VALUES {}", rows.join(", ")), &values).map(|_| ())
}

/// The number of rows of a table and the SHA-256 of their values in order.
fn summary(transaction: &Transaction<'_>, table: &str, order: &str) -> Result<(u64, [u8; 32])> {
    let (mut rows, mut digest) = (0, Sha256::new());
    let all = format!("SELECT * FROM {table} ORDER BY {order}");
    transaction.each(&all, &[], &mut |row| {
        rows += 1;
        add(&mut digest, row)
    })?;
    Ok((rows, digest.finalize().into()))
}

/// Adds each value with its type and length, so that no two rows look the same.
fn add(digest: &mut Sha256, row: &Row<'_>) -> Result<()> {
    let mut bytes = |kind: u8, bytes: &[u8]| {
        digest.update([kind]);
        digest.update((bytes.len() as u64).to_be_bytes());
        digest.update(bytes);
    };
    for at in 0..row.width() {
        match row.value(at)? {
            Value::Null | Value::Column(_) => bytes(0, &[]),
            Value::Int(number) => bytes(1, &number.to_be_bytes()),
            Value::Text(text) => bytes(2, storable(text).as_bytes()),
            Value::Blob(blob) => bytes(3, blob),
        }
    }
    Ok(())
}
