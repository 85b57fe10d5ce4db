//! Brings the tables in PostgreSQL to the last step. If gateways start at the same time, one of
//! them does it.

use std::time::{Duration, Instant};

use super::session::{DATABASE_RETRY, Session, WRITE};
use crate::columns::Columns;
use crate::sql::{NOW, Transaction};
use crate::steps::{self, Base};
use crate::{Result, StoreError};

/// Maximum number of tries to change tables while one is in use: a backup may take minutes.
const DATABASE_MIGRATION_TRIES: u32 = 600;
/// Time between two tries, for transactions that wait behind them.
const DATABASE_MIGRATION_PAUSE: Duration = Duration::from_secs(1);
/// How long a starting gateway waits for its database, and tries to get its first lease.
pub(crate) const DATABASE_JOIN: Duration = Duration::from_secs(30);

/// The first statements of a migration, so that one runs at a time. The number of the lock has no
/// meaning, and no other program uses it. Lease renewals queue behind a migration that waits for a
/// table, so it must not wait long.
const LOCK: &str =
    "SELECT pg_advisory_xact_lock(7263480254919331447); SET LOCAL lock_timeout = '500ms'";

/// Brings the tables to the last step. Tries again while a table is in use, as by a backup, and
/// while a gateway holds a lease that could not work with the new tables.
pub(super) fn prepare(session: &mut Session) -> Result<()> {
    let mut tries = DATABASE_MIGRATION_TRIES;
    let (began, mut waits) = (Instant::now(), false);
    let is_final = |why: &str| FINAL.iter().any(|code| why.contains(code));
    loop {
        match migrate(session) {
            Err(StoreError::Unavailable(why))
                if began.elapsed() < DATABASE_JOIN && !is_final(&why) =>
            {
                if !std::mem::replace(&mut waits, true) {
                    log::warn!("waiting for the database: {why}");
                }
                session.pause(DATABASE_RETRY);
            }
            Err(StoreError::Unavailable(why)) if tries > 0 && why.contains(LOCK_TIMEOUT) => {
                log::warn!("the tables of the store are in use, migrating again: {why}");
                tries -= 1;
                session.pause(DATABASE_MIGRATION_PAUSE);
            }
            done => return done,
        }
    }
}

/// The error code of a lock that was not acquired in time.
const LOCK_TIMEOUT: &str = "(55P03)";

/// Classes of errors that stay however long one waits: passwords, names, rights, what the database
/// cannot do, and locks.
const FINAL: [&str; 5] = ["(28", "(3D", "(42", "(0A", LOCK_TIMEOUT];

/// Databases that speak the protocol of PostgreSQL, but lack LISTEN or advisory locks, by a part of
/// their `version()`.
const UNFIT: [(&str, &str); 3] =
    [("CockroachDB", "CockroachDB"), ("-YB-", "YugabyteDB"), ("Redshift", "Amazon Redshift")];

pub(super) fn check_kind(transaction: &Transaction<'_>) -> Result<()> {
    let version = transaction.row("SELECT version()", &[], |row| Columns::new(row).get())?;
    let version: String = version.unwrap_or_default();
    match UNFIT.iter().find(|(part, _)| version.contains(part)) {
        None => Ok(()),
        Some((_, name)) => Err(StoreError::unavailable(format_args!(
            "the store needs PostgreSQL: {name} lacks LISTEN or advisory locks (0A000)"
        ))),
    }
}

fn migrate(session: &mut Session) -> Result<()> {
    let is_current = |transaction: &Transaction<'_>| {
        check_kind(transaction)?;
        steps::is_current(transaction, Base::Postgres)
    };
    if session.read(is_current)? {
        return Ok(());
    }
    session.transact(WRITE, session.patience.answer, LOCK, |transaction| {
        if !steps::may_be_in_use(transaction, Base::Postgres)? && is_in_use(transaction)? {
            return Err(StoreError::unavailable(
                "a gateway of an earlier version works on it, and could not go on after its tables \
                 are changed: stop all of them, then start",
            ));
        }
        steps::bring_up(transaction, Base::Postgres)
    })
}

/// Whether a gateway holds a lease.
fn is_in_use(transaction: &Transaction<'_>) -> Result<bool> {
    let leased = format!("SELECT 1 FROM gateways WHERE renewed_at + lease > {NOW} LIMIT 1");
    transaction.exists(&leased, &[])
}

pub(super) fn can_make(transaction: &Transaction<'_>) -> Result<()> {
    let may = "SELECT 1 WHERE has_schema_privilege(current_schema(), 'CREATE')";
    match transaction.exists(may, &[])? {
        true => Ok(()),
        false => Err(StoreError::unavailable(
            "the database has no tables yet, and this user may not make them: it lacks CREATE on \
             the schema",
        )),
    }
}
