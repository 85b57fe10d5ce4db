//! Reads all tables of accounts at a start.

use std::collections::HashMap;
use std::sync::mpsc::sync_channel;
use std::thread;

use super::StoreError;
use super::changes::{Change, Reload};
use super::rows;
use super::sql::{Row, Transaction};
use rerouter_base::id::UserId;

/// Rows that are handed over at once.
const BATCH: usize = 256;
/// Batches that wait to be taken.
const BATCHES: usize = 16;

/// Reads every row of users, keys, sessions, agents and nodes into `reload`. Returns it with their
/// revision. One thread reads the rows while another one takes them in.
pub(super) fn fill(
    transaction: &Transaction<'_>,
    mut reload: Box<dyn Reload>,
) -> Result<(u64, Box<dyn Reload>), StoreError> {
    thread::scope(|scope| {
        let (sender, batches) = sync_channel::<Vec<Change>>(BATCHES);
        let taker = scope.spawn(move || {
            batches.into_iter().flatten().for_each(|row| reload.row(row));
            reload
        });
        let mut batch = Vec::with_capacity(BATCH);
        // If a row cannot be taken, nobody receives, and the join below fails.
        let rev = each(transaction, |change| {
            batch.push(change);
            if batch.len() == BATCH {
                let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
                let _received = sender.send(full);
            }
        });
        let _received = sender.send(batch);
        drop(sender);
        let reload =
            taker.join().map_err(|_| StoreError::unavailable("a row could not be taken"))?;
        Ok((rev?, reload))
    })
}

pub(super) fn each(
    transaction: &Transaction<'_>,
    mut take: impl FnMut(Change),
) -> Result<u64, StoreError> {
    let mut scan = |table: &str, read: &mut dyn FnMut(&Row<'_>) -> Result<Change, StoreError>| {
        let all = format!("SELECT * FROM {table}");
        transaction.each(&all, &[], &mut |row| read(row).map(&mut take))
    };
    scan("users", &mut |row| Ok(Change::User(rows::user(row)?.into())))?;
    // The id of an owner is in memory once for all keys.
    let mut known: HashMap<Box<str>, UserId> = HashMap::new();
    let mut owner = |id: &str| match known.get(id) {
        Some(owner) => owner.clone(),
        None => known.entry(id.into()).or_insert(UserId::known(id)).clone(),
    };
    scan("keys", &mut |row| Ok(Change::Key(rows::key_with(row, &mut owner)?.into())))?;
    scan("sessions", &mut |row| Ok(Change::Session(rows::session(row)?)))?;
    scan("agents", &mut |row| Ok(Change::Agent(rows::agent(row)?.into())))?;
    scan("nodes", &mut |row| Ok(Change::Node(rows::node(row)?.into())))?;
    transaction.revision()
}
