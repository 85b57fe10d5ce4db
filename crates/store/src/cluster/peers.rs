//! Statements on the rows of `gateways`. A gateway has a row for each of its registrations that
//! other gateways may still have to wait for.

use std::collections::BTreeSet;
use std::time::Duration;

use super::lease::Timing;
use crate::Result;
use crate::columns::Columns;
use crate::rows::Stored;
use crate::rows::stored::row;
use crate::sql::{NOW, Row, ToValue, Transaction, Value, now, params};
use crate::steps::{self, Base};
use rerouter_base::id::GatewayId;

/// The revision up to which a gateway has applied this log. A gateway that claims more than the log
/// has was reading another log.
const APPLIED: &str = "CASE WHEN applied > (SELECT rev FROM state) THEN 0 ELSE applied END";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayIdentity {
    /// The name of the gateway, the same at each start on one data directory.
    pub instance: String,
    /// The name of the data directory. It never changes, even after an upgrade.
    pub directory: String,
    /// The name of the process, another one at each start; a later one is greater, by the clock of
    /// the database. Other processes may belong to living gateways, even if they have the same
    /// directory: it may have been copied.
    pub process: String,
    /// The name of its machine.
    pub name: String,
    pub version: String,
    /// The address where it listens.
    pub address: String,
}

row! { "gateways" =>
    /// Another gateway, as the protocol sees it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(super) struct Peer {
        pub(super) id: String,
        pub(super) directory: String,
        pub(super) process: String,
        pub(super) name: String,
        /// Duration of its lease; zero if its build does not report it.
        pub(super) lease: Duration,
        /// The revision up to which it has applied all changes.
        pub(super) applied: u64 = APPLIED,
        pub(super) renewals: u64,
        /// Whether it goes on without a lease.
        pub(super) serves_stale: bool,
    }
}

impl Peer {
    /// The durations that follow from this peer's lease, which may differ from `own`.
    pub(super) fn timing(&self, own: Timing) -> Timing {
        match self.lease.is_zero() {
            true => own,
            false => Timing { lease: self.lease },
        }
    }
}

row! { "gateways" =>
    /// A gateway, as operators see it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct GatewayRow {
        pub id: String,
        pub process: String,
        pub name: String,
        pub version: String,
        pub address: String,
        /// Duration of its lease; zero if its build does not report it.
        pub lease: Duration,
        /// The revision of the routing document that it runs.
        pub document: String,
        pub serves_stale: bool,
        pub applied: u64,
        /// How many changes it has yet to apply.
        pub lag: u64 = "CAST((SELECT rev FROM state) - applied AS BIGINT)",
        /// Whether it must register anew before it can have a lease.
        pub fenced: bool,
        /// Microseconds since the epoch, like `renewed_at`.
        pub registered_at: i64,
        pub renewed_at: i64,
        /// Microseconds since the last renewal.
        pub silent_us: i64 = concat!(now!(), " - renewed_at"),
        /// Microseconds by which the clock of its machine was ahead of the database's at that time.
        pub clock_ahead: i64,
    }
}

/// Adds a row without a lease, if this build can work with the tables.
pub(super) fn register(
    transaction: &Transaction<'_>,
    id: &GatewayId,
    identity: &GatewayIdentity,
    lease: Duration,
    (serves_stale, applied, document): (bool, u64, &str),
) -> Result<()> {
    steps::level(transaction, Base::Postgres)?;
    let insert = format!(
        "INSERT INTO gateways (id, instance, name, version, address, document, serves_stale,
           applied, renewals, fenced, registered_at, renewed_at, process, directory,
           lease)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, 0, {NOW}, {NOW}, ?9, ?10, ?11)"
    );
    let GatewayIdentity { instance, directory, process, name, version, address } = identity;
    let values = params![
        id,
        instance,
        name,
        version,
        address,
        document,
        serves_stale,
        applied,
        process,
        directory,
        lease
    ];
    transaction.execute(&insert, &values).map(drop)
}

/// Renews a lease. Returns the time of the database. `None` if the row is fenced or gone, or if
/// this log lacks the change that was applied last, with its mark: it may be the log of another
/// server; or if the tables are those of a later build now. `if_all`: `None` also if this log has
/// a later change.
pub(super) fn renew(
    transaction: &Transaction<'_>,
    id: &GatewayId,
    (applied, mark): (u64, Option<&str>),
    (document, clock_ahead): (&str, i64),
    if_all: bool,
) -> Result<Option<i64>> {
    let renew = format!(
        "UPDATE gateways SET applied = ?2, document = ?3, renewals = renewals + 1,
           renewed_at = {NOW}, clock_ahead = ?5
         WHERE id = ?1 AND fenced = 0 AND (?4 = '' OR
           EXISTS (SELECT 1 FROM changes WHERE rev = ?2 AND seq = 0 AND mark = ?4))
           AND (?6 = 0 OR ?2 = (SELECT rev FROM state))
           AND NOT EXISTS (SELECT 1 FROM schema_steps WHERE compatible > ?7)
         RETURNING renewed_at"
    );
    let mark = mark.unwrap_or_default();
    let known = steps::KNOWN;
    transaction.int(&renew, &params![id, applied, document, mark, clock_ahead, if_all, known])
}

/// Deletes the earlier rows of this process, which the lease of `id` replaces.
pub(super) fn forget_former(
    transaction: &Transaction<'_>,
    process: &str,
    id: &GatewayId,
) -> Result<()> {
    let delete = "DELETE FROM gateways WHERE process = ?1 AND id <> ?2";
    transaction.execute(delete, &params![process, id]).map(drop)
}

/// Deletes all rows of this process, which has ended its lease.
pub(super) fn leave(transaction: &Transaction<'_>, process: &str) -> Result<()> {
    transaction.execute("DELETE FROM gateways WHERE process = ?1", &params![process]).map(drop)
}

/// The rows of other gateways, and of processes before this one, that have not applied `rev`.
pub(super) fn behind(transaction: &Transaction<'_>, process: &str, rev: u64) -> Result<Vec<Peer>> {
    let behind = Peer::select(&format!("WHERE process <> ?1 AND {APPLIED} < ?2"));
    transaction.rows(&behind, &params![process, rev], Peer::of)
}

/// The rows of other gateways that may need attention, however many are well: they are behind
/// `rev`, are of the same data directory, or missed a renewal by the clock of the database. That
/// clock only chooses whom to watch; it does not decide who is dead.
pub(super) fn suspects(
    transaction: &Transaction<'_>,
    own: &GatewayIdentity,
    rev: u64,
) -> Result<Vec<Peer>> {
    let which = format!(
        "WHERE process <> ?1 AND (directory = ?2 OR applied < ?3
           OR {NOW} NOT BETWEEN renewed_at - 1000000 AND renewed_at + lease * 2 / 5)"
    );
    transaction.rows(&Peer::select(&which), &params![own.process, own.directory, rev], Peer::of)
}

/// Fences all other gateways that have not applied `rev`: they cannot renew their leases. Returns
/// their ids, and the ids of those that were fenced before.
pub(super) fn fence(
    transaction: &Transaction<'_>,
    process: &str,
    rev: u64,
) -> Result<BTreeSet<String>> {
    let behind = format!("WHERE process <> ?1 AND {APPLIED} < ?2");
    let fence = format!("UPDATE gateways SET fenced = 1 {behind} AND fenced = 0");
    transaction.execute(&fence, &params![process, rev])?;
    let fenced = format!("SELECT id FROM gateways {behind} AND fenced = 1");
    let ids = |row: &Row<'_>| Columns::new(row).get::<String>();
    Ok(transaction.rows(&fenced, &params![process, rev], ids)?.into_iter().collect())
}

/// Deletes the rows of gateways whose lease is over.
pub(super) fn delete_fenced(transaction: &Transaction<'_>, ids: &[String]) -> Result<()> {
    let ids: Vec<_> = ids.iter().map(ToValue::value).collect();
    let delete = "DELETE FROM gateways WHERE id = ANY(CAST(?1 AS TEXT[])) AND fenced = 1";
    transaction.execute(delete, &[Value::Column(&ids)]).map(drop)
}

/// Deletes the row of a dead gateway, unless it was renewed meanwhile. Returns whether it was
/// deleted.
pub(super) fn delete_dead(transaction: &Transaction<'_>, id: &str, renewals: u64) -> Result<bool> {
    let delete = "DELETE FROM gateways WHERE id = ?1 AND renewals = ?2";
    Ok(transaction.execute(delete, &params![id, renewals])? == 1)
}

/// Every row, the newest registration first.
pub(crate) fn all(transaction: &Transaction<'_>) -> Result<Vec<GatewayRow>> {
    transaction.rows(&GatewayRow::select("ORDER BY id DESC"), &[], GatewayRow::of)
}
