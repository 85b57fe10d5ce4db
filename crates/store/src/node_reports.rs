//! The last heartbeat of each node, for the gateways that did not receive it. If the store is not
//! shared, only a successor process needs the heartbeats, and it gets them without the store.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::columns::Columns;
use super::sql::{Transaction, params};
use super::{Result, Store};
use rerouter_base::bounds;
use rerouter_base::id::NodeId;

/// The last heartbeat or registration of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    pub node: NodeId,
    pub epoch: u64,
    /// Rises within an epoch; `None` for the registration itself.
    pub seq: Option<u64>,
    /// The node's status, a word of the heartbeat.
    pub status: String,
    pub running: u32,
    pub queued: u32,
}

impl Store {
    /// Writes a heartbeat for the other gateways; `false` if they know a later one.
    pub async fn report_node(&self, report: NodeReport) -> Result<bool> {
        self.write_shared(true, move |transaction| write(transaction, &report)).await
    }

    /// The heartbeats that came within the lease of a node, with their age.
    pub async fn node_reports(&self) -> Result<Vec<(NodeReport, Duration)>> {
        self.read_shared(Vec::new(), read).await
    }
}

fn write(transaction: &Transaction<'_>, report: &NodeReport) -> Result<bool> {
    let upsert = "
        INSERT INTO node_reports (node, epoch, seq, status, running, queued, at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6,
          CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT))
        ON CONFLICT (node) DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq,
          status = excluded.status, running = excluded.running, queued = excluded.queued,
          at = excluded.at
        WHERE node_reports.epoch < excluded.epoch
          OR (node_reports.epoch = excluded.epoch AND node_reports.seq < excluded.seq)";
    let NodeReport { node, epoch, seq, status, running, queued } = report;
    let seq = seq.map_or(-1, |seq| i64::try_from(seq).unwrap_or(i64::MAX));
    let params = params![node, epoch, seq, status, running, queued];
    Ok(transaction.execute(upsert, &params)? == 1)
}

fn read(transaction: &Transaction<'_>) -> Result<Vec<(NodeReport, Duration)>> {
    let select = "
        SELECT node, epoch, seq, status, running, queued, age FROM
          (SELECT node_reports.*,
             CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) - at AS age
           FROM node_reports) AS aged
        WHERE age < ?1";
    transaction.rows(select, &params![bounds::NODE_LEASE], |row| {
        let mut columns = Columns::new(row);
        let report = NodeReport {
            node: columns.get()?,
            epoch: columns.get()?,
            seq: u64::try_from(columns.get::<i64>()?).ok(),
            status: columns.get()?,
            running: columns.get()?,
            queued: columns.get()?,
        };
        Ok((report, columns.get()?))
    })
}
