//! How rows of captures are inserted: many with one statement, without the door of other
//! statements, which costs each capture a fifth more.

use std::sync::LazyLock;

use rusqlite::{Statement, ToSql, Transaction};

use super::super::StoreError;
use super::super::captures::{COLUMNS, CaptureLocation, CaptureRow, signed};
use rerouter_base::id::{KeyId, RequestId};

/// Rows of one statement, which costs as much as a row or two by itself. They are inserted in about
/// a tenth of a millisecond.
const ROWS_TOGETHER: usize = 16;

/// An insert of so many rows.
fn insert_of(rows: usize) -> String {
    let row = format!("({})", vec!["?"; WIDTH].join(", "));
    let rows = vec![row; rows].join(", ");
    format!("INSERT OR REPLACE INTO captures ({COLUMNS}) VALUES {rows}")
}

/// How many columns a capture has.
const WIDTH: usize = 20;

pub(super) fn insert(
    transaction: &Transaction<'_>,
    rows: &[(CaptureRow, CaptureLocation)],
    between: impl Fn(),
) -> Result<(), StoreError> {
    static TOGETHER: LazyLock<String> = LazyLock::new(|| insert_of(ROWS_TOGETHER));
    static ALONE: LazyLock<String> = LazyLock::new(|| insert_of(1));
    let (together, alone) = rows.as_chunks::<ROWS_TOGETHER>();
    for rows in together {
        between();
        let mut statement = transaction.prepare_cached(&TOGETHER)?;
        for (row, at) in rows.iter().zip((1..).step_by(WIDTH)) {
            bind(&mut statement, at, row)?;
        }
        statement.raw_execute()?;
    }
    between();
    for row in alone {
        let mut statement = transaction.prepare_cached(&ALONE)?;
        bind(&mut statement, 1, row)?;
        statement.raw_execute()?;
    }
    Ok(())
}

/// Binds a row to the parameters of a statement, the first of which has this number.
fn bind(
    statement: &mut Statement<'_>,
    first: usize,
    (row, location): &(CaptureRow, CaptureLocation),
) -> rusqlite::Result<()> {
    let values: [&dyn ToSql; WIDTH] = [
        &row.id.as_str(),
        &row.created_at_us,
        &row.owner.as_str(),
        &row.key.as_ref().map(KeyId::as_str),
        &row.alias,
        &row.recipe,
        &row.provider,
        &row.model,
        &row.decided_provider,
        &row.decided_model,
        &row.status,
        &row.state,
        &row.replay_of.as_ref().map(RequestId::as_str),
        &row.shadow_of.as_ref().map(RequestId::as_str),
        &location.segment,
        &signed(location.head.offset),
        &location.head.length,
        &location.bodies.map(|bodies| signed(bodies.offset)),
        &location.bodies.map(|bodies| bodies.length),
        &location.salt,
    ];
    values.iter().zip(first..).try_for_each(|(value, at)| statement.raw_bind_parameter(at, value))
}
