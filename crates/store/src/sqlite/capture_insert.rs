//! Inserts rows of captures, many with one statement. They do not pass through `sql.rs`, which
//! would cost a fifth more for each capture.

use std::sync::LazyLock;

use rusqlite::Transaction;

use super::super::Result;
use super::super::captures::{CaptureLocation, CaptureRow, capture_columns, put_capture};

/// Rows of one statement. A statement costs as much as one or two rows. This many rows are inserted
/// in about a tenth of a millisecond.
const ROWS_TOGETHER: usize = 16;

fn insert_of(rows: usize) -> String {
    let columns = capture_columns(false);
    let row = format!("({})", vec!["?"; columns.split(", ").count()].join(", "));
    let rows = vec![row; rows].join(", ");
    format!("INSERT OR REPLACE INTO captures ({columns}) VALUES {rows}")
}

pub(super) fn insert(
    transaction: &Transaction<'_>,
    rows: &[(CaptureRow, CaptureLocation)],
    between: impl Fn(),
) -> Result<()> {
    static TOGETHER: LazyLock<String> = LazyLock::new(|| insert_of(ROWS_TOGETHER));
    static ALONE: LazyLock<String> = LazyLock::new(|| insert_of(1));
    let (together, alone) = rows.as_chunks::<ROWS_TOGETHER>();
    for rows in together {
        between();
        run(transaction, &TOGETHER, rows)?;
    }
    between();
    for row in alone {
        run(transaction, &ALONE, std::slice::from_ref(row))?;
    }
    Ok(())
}

fn run(
    transaction: &Transaction<'_>,
    statement: &str,
    rows: &[(CaptureRow, CaptureLocation)],
) -> Result<()> {
    let mut values = Vec::new();
    rows.iter().try_for_each(|row| put_capture(row, false, &mut values))?;
    let mut statement = transaction.prepare_cached(statement)?;
    for (value, at) in values.iter().zip(1..) {
        statement.raw_bind_parameter(at, value.value())?;
    }
    statement.raw_execute()?;
    Ok(())
}
