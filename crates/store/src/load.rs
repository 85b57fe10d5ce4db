//! Reads all tables of accounts at a start.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::mpsc::sync_channel;
use std::thread;

use super::changes::{Change, Reload};
use super::rows::{AgentRow, KeyRow, NodeRow, SessionRow, Stored, UserRow};
use super::sql::Transaction;
use super::{Result, StoreError};

/// Rows in a batch.
const BATCH: usize = 256;
/// Maximum number of batches that wait for the other thread.
const BATCHES: usize = 16;

/// Reads every row of users, keys, sessions, agents and nodes into `reload`. Returns their revision
/// with `reload`. One thread reads the rows while another thread passes them to `reload`.
pub(super) fn fill(
    transaction: &Transaction<'_>,
    mut reload: Box<dyn Reload>,
) -> Result<(u64, Box<dyn Reload>)> {
    thread::scope(|scope| {
        let (sender, batches) = sync_channel::<Vec<Change>>(BATCHES);
        let taker = scope.spawn(move || {
            batches.into_iter().flatten().for_each(|row| reload.row(row));
            reload
        });
        let mut batch = Vec::with_capacity(BATCH);
        // If `reload` panics at a row, nobody receives, and the join below fails.
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

pub(super) fn each(transaction: &Transaction<'_>, mut take: impl FnMut(Change)) -> Result<u64> {
    scan(transaction, |user: UserRow| take(Change::User(user.into())))?;
    // Keys with equal parts share one copy of them.
    let (mut users, mut actors) = (HashSet::new(), HashSet::new());
    let (mut scopes, mut labels, mut limits) = (HashSet::new(), HashSet::new(), HashSet::new());
    scan(transaction, |mut key: KeyRow| {
        share(&mut users, &mut key.owner);
        key.maker.iter_mut().for_each(|maker| share(&mut users, maker));
        share(&mut actors, &mut key.created_by);
        share(&mut scopes, &mut key.scopes);
        share(&mut labels, &mut key.labels);
        share(&mut limits, &mut key.limits);
        take(Change::Key(key.into()));
    })?;
    scan(transaction, |session: SessionRow| take(Change::Session(session)))?;
    scan(transaction, |agent: AgentRow| take(Change::Agent(agent.into())))?;
    scan(transaction, |node: NodeRow| take(Change::Node(node.into())))?;
    transaction.revision()
}

/// Replaces `value` with the equal one that is `known`.
fn share<T: Clone + Eq + Hash>(known: &mut HashSet<T>, value: &mut T) {
    match known.get(value) {
        Some(known) => value.clone_from(known),
        None => _ = known.insert(value.clone()),
    }
}

fn scan<T: Stored>(transaction: &Transaction<'_>, mut take: impl FnMut(T)) -> Result<()> {
    let all = format!("SELECT * FROM {}", T::TABLE);
    transaction.each(&all, &[], &mut |row| T::of(row).map(&mut take))
}
