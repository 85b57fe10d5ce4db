//! The tables in PostgreSQL. Gateways that start at once make them once. A database of a later
//! schema is refused: this build would misread it.

use std::time::{Duration, Instant};

use super::session::{DATABASE_RETRY, Session, WRITE};
use crate::StoreError;
use crate::sql::Transaction;
use crate::value::params;

/// How often a change of tables is tried again while a table is in use: a backup may take minutes.
const DATABASE_MIGRATION_TRIES: u32 = 600;
/// Time between two of these, for those who wait behind them.
const DATABASE_MIGRATION_PAUSE: Duration = Duration::from_secs(1);
/// How long a gateway that starts waits for its database, and tries to get its first lease.
pub(crate) const DATABASE_JOIN: Duration = Duration::from_secs(30);

/// What makes each schema out of the one before. While gateways are replaced one by one, those of
/// the build before go on with the new tables: a migration adds columns at the end of a table, with
/// a default, and takes nothing away.
const MIGRATIONS: &[&str] = &[
    include_str!("schema/0001_store.sql"),
    include_str!("schema/0002_cluster.sql"),
    include_str!("schema/0003_creations.sql"),
    include_str!("schema/0004_captures.sql"),
    include_str!("schema/0005_usage_of_all.sql"),
    include_str!("schema/0006_reroutes.sql"),
    include_str!("schema/0007_gateway_processes.sql"),
    include_str!("schema/0008_spend_reserves.sql"),
    include_str!("schema/0009_written_once.sql"),
    include_str!("schema/0010_clocks.sql"),
];

/// The number of the schema of this build.
const KNOWN: usize = MIGRATIONS.len();

/// The first statements of a migration: one runs at a time. The number has no meaning, and is of
/// no other program.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7263480254919331447)";

const VERSIONS: &str = "
    CREATE TABLE IF NOT EXISTS schema_versions (
        number BIGINT PRIMARY KEY,
        migrated_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp())";

/// Brings the tables to the schema of this build; [`StoreError::OtherSchema`] if it is later. Tries
/// again where a table is in use, as by a backup.
pub(super) fn prepare(session: &mut Session) -> Result<(), StoreError> {
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

/// The code of the error of a lock that was not had in time.
const LOCK_TIMEOUT: &str = "(55P03)";

/// Classes of errors that no wait for the server mends: of passwords, names, rights and locks.
const FINAL: [&str; 4] = ["(28", "(3D", "(42", LOCK_TIMEOUT];

fn migrate(session: &mut Session) -> Result<(), StoreError> {
    if session.read(version)? == KNOWN {
        return Ok(());
    }
    session.transact(WRITE, LOCK, |transaction| {
        let from = version(transaction)?;
        if from == 0 {
            transaction.execute(VERSIONS, &[])?;
        }
        for (number, migration) in (1..).zip(MIGRATIONS).skip(from) {
            if let Transaction::Postgres(postgres) = transaction {
                postgres.batch(migration)?;
            }
            let done = "INSERT INTO schema_versions (number) VALUES (?1)";
            transaction.execute(done, &params![number as usize])?;
        }
        Ok(())
    })
}

/// Whether this user may make tables where there are none.
pub(super) fn can_make(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    let may = "SELECT 1 WHERE has_schema_privilege(current_schema(), 'CREATE')";
    match transaction.exists(may, &[])? {
        true => Ok(()),
        false => Err(StoreError::unavailable(
            "the database has no tables yet, and this user may not make them: it lacks CREATE on \
             the schema",
        )),
    }
}

/// The number of the schema that the database has, 0 if it has none;
/// [`StoreError::OtherSchema`] if this build does not know it.
pub(super) fn version(transaction: &Transaction<'_>) -> Result<usize, StoreError> {
    // Not by `to_regclass`: after a wait for the lock it may answer from a cache of before.
    let there = "SELECT 1 FROM pg_catalog.pg_class
        WHERE relname = 'schema_versions' AND pg_catalog.pg_table_is_visible(oid)";
    if !transaction.exists(there, &[])? {
        return Ok(0);
    }
    let found = transaction.int("SELECT max(number) FROM schema_versions", &[])?.unwrap_or(0);
    match usize::try_from(found) {
        Ok(found) if found <= KNOWN => Ok(found),
        _ => Err(StoreError::OtherSchema {
            found: u32::try_from(found).unwrap_or(u32::MAX),
            known: KNOWN as u32,
        }),
    }
}
