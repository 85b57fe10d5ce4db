//! The tables of the store: one numbered list of migration steps for all databases. A start applies
//! the missing steps to a database. The files in `steps/` are history: a released file never
//! changes.
//!
//! A step is written in SQLite's dialect. The mark `-- only: ` with names of databases limits its
//! line to these databases. On a line without a statement it limits all lines up to the next such
//! mark.

use super::sql::{Transaction, params};
use super::{Result, StoreError};

/// A database that has tables of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// `accounts.db`.
    Accounts,
    /// `captures.db`.
    Captures,
    /// A database of PostgreSQL, which has both.
    Postgres,
}

struct Step {
    sql: &'static str,
    /// The first step whose builds can work with a database at this step. An addition must not
    /// disturb these builds: a new column is at the end of its table and has a default.
    compatible: i64,
}

const STEPS: &[Step] = &[
    Step { sql: include_str!("steps/0001_store.sql"), compatible: 1 },
    Step { sql: include_str!("steps/0002_memory.sql"), compatible: 2 },
    Step { sql: include_str!("steps/0003_holds.sql"), compatible: 3 },
    Step { sql: include_str!("steps/0004_usage_kinds.sql"), compatible: 3 },
    Step { sql: include_str!("steps/0005_spend_locks.sql"), compatible: 5 },
    Step { sql: include_str!("steps/0006_spend_revisions.sql"), compatible: 5 },
];

/// The number of the last step.
pub(super) const KNOWN: u32 = STEPS.len() as u32;

/// The last step that a database has, 0 if it is new; [`StoreError::OtherSchema`] if this build
/// cannot work with it.
pub(super) fn level(transaction: &Transaction<'_>, base: Base) -> Result<u32> {
    let (found, compatible) = match has_table(transaction, "schema_steps")? {
        true => {
            let last = "SELECT number, compatible FROM schema_steps ORDER BY number DESC LIMIT 1";
            let read = transaction.row(last, &[], |row| Ok((row.int(0)?, row.int(1)?)))?;
            let (found, compatible) = read.unwrap_or_default();
            (found.unwrap_or(0), compatible.unwrap_or(i64::MAX))
        }
        false => from_before_the_steps(transaction, base)?,
    };
    match u32::try_from(found) {
        Ok(found) if compatible <= i64::from(KNOWN) => Ok(found),
        found => Err(StoreError::OtherSchema { found: found.unwrap_or(u32::MAX), known: KNOWN }),
    }
}

/// The level of a database from before the steps, when each database had its own version numbers.
fn from_before_the_steps(transaction: &Transaction<'_>, base: Base) -> Result<(i64, i64)> {
    let number = match base {
        Base::Postgres if !has_table(transaction, "schema_versions")? => return Ok((0, 0)),
        Base::Postgres => "SELECT max(number) FROM schema_versions",
        _ => "SELECT user_version FROM pragma_user_version",
    };
    Ok(match (base, transaction.int(number, &[])?.unwrap_or(0)) {
        (_, 0) => (0, 0),
        (Base::Accounts, 19) | (Base::Captures, 3) | (Base::Postgres, 9 | 10) => (1, 1),
        (_, other) => (other, i64::MAX),
    })
}

fn has_table(transaction: &Transaction<'_>, name: &str) -> Result<bool> {
    let there = match transaction.is_shared() {
        // `to_regclass` is not used: after a wait for the lock it may answer from an outdated
        // cache.
        true => {
            "SELECT 1 FROM pg_catalog.pg_class
             WHERE relname = ?1 AND pg_catalog.pg_table_is_visible(oid)"
        }
        false => "SELECT 1 FROM sqlite_master WHERE name = ?1",
    };
    transaction.exists(there, &params![name])
}

fn missing(found: u32) -> &'static [Step] {
    STEPS.get(found as usize..).unwrap_or_default()
}

/// Whether the database has all steps.
pub(super) fn is_current(transaction: &Transaction<'_>, base: Base) -> Result<bool> {
    Ok(missing(level(transaction, base)?).is_empty())
}

/// Whether a build that uses the database now can continue after it is brought to the last step. A
/// missing step of `accounts.db` rules that out, as the step replaces the file.
pub(super) fn may_be_in_use(transaction: &Transaction<'_>, base: Base) -> Result<bool> {
    let found = level(transaction, base)?;
    let fits = |step: &Step| base != Base::Accounts && step.compatible <= i64::from(found);
    Ok(found == 0 || missing(found).iter().all(fits))
}

/// Brings the database to the last step.
pub(super) fn bring_up(transaction: &Transaction<'_>, base: Base) -> Result<()> {
    let missing = missing(level(transaction, base)?);
    let Some(last) = missing.last() else { return Ok(()) };
    for step in missing {
        transaction.batch(&words_of(step.sql, base))?;
    }
    let note = "INSERT INTO schema_steps (number, compatible) VALUES (?1, ?2)";
    transaction.execute(note, &params![KNOWN, last.compatible]).map(drop)
}

/// The lines of a step that are for this database, in its SQL dialect.
fn words_of(step: &str, base: Base) -> String {
    let name = match base {
        Base::Accounts => "accounts",
        Base::Captures => "captures",
        Base::Postgres => "postgres",
    };
    let (mut lines, mut section) = (String::new(), true);
    for line in step.lines() {
        let (text, mark) = line.split_once("-- only: ").unwrap_or((line, name));
        let is_for = mark.split(' ').any(|base| base == name);
        if text.is_empty() && !line.is_empty() {
            section = is_for;
        } else if section && is_for {
            lines.extend([text, "\n"]);
        }
    }
    if base != Base::Postgres {
        return lines;
    }
    // Texts are ordered by their bytes, whatever the locale of the database.
    [
        (
            "INTEGER PRIMARY KEY AUTOINCREMENT",
            "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        ),
        ("INTEGER", "BIGINT"),
        ("BLOB", "BYTEA"),
        (" TEXT", " TEXT COLLATE \"C\""),
        ("STRICT, WITHOUT ROWID", ""),
        ("STRICT", ""),
    ]
    .iter()
    .fold(lines, |lines, (ours, theirs)| lines.replace(ours, theirs))
}

#[cfg(test)]
#[path = "steps_tests.rs"]
pub(super) mod tests;
