//! The in-memory key tables, the authority on what a key may do: a miss is a refusal without any look at the store.
//! A revocation acts by a flag in the shared key, before the store has heard of it, and outlives every re-read of the row.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use dashmap::{DashMap, DashSet};
use jiff::Timestamp;

use crate::bounds;
use crate::id::{KeyId, UserId};
use crate::interface::Interface;
use crate::store::{KeyRow, KeyStatus};

/// A key as requests share it.
#[derive(Debug)]
pub struct Key {
    row: Arc<KeyRow>,
    /// Switched off by where it comes from, whatever its row says.
    dormant: bool,
    dead: AtomicBool,
}

/// Whether a key may be used now; the first that holds of this order is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Ended for good.
    Revoked,
    /// Past its time.
    Expired,
    /// Switched off.
    Inactive,
    /// It may.
    Active,
}

impl Standing {
    /// The word of it, in records, filters and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Revoked => "revoked",
            Standing::Expired => "expired",
            Standing::Inactive => "inactive",
            Standing::Active => "active",
        }
    }

    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        [Standing::Revoked, Standing::Expired, Standing::Inactive, Standing::Active].into_iter().find(|known| known.as_str() == word)
    }
}

impl Key {
    /// What the store says of it.
    pub fn row(&self) -> &Arc<KeyRow> {
        &self.row
    }

    /// Whether it may be used at `now`.
    pub fn standing(&self, now: Timestamp) -> Standing {
        if self.dead.load(Ordering::Acquire) || self.row.revoked_at.is_some() {
            Standing::Revoked
        } else if self.row.expires_at.is_some_and(|end| end <= now) {
            Standing::Expired
        } else if self.dormant || self.row.status == KeyStatus::Inactive {
            Standing::Inactive
        } else {
            Standing::Active
        }
    }

    /// Whether this one of its secrets is good at `now`: the present one, or the one before within its grace.
    pub(super) fn accepts(&self, digest: &[u8; 32], now: Timestamp) -> bool {
        let previous = |digest: &[u8; 32]| self.row.previous.as_ref().is_some_and(|old| old.digest == *digest && now < old.expires_at);
        self.row.digest == *digest || previous(digest)
    }
}

/// The keys of one interface.
#[derive(Debug, Default)]
struct Table {
    /// By the present secret, and by the one before where a rotation left it a grace.
    by_digest: DashMap<[u8; 32], Arc<Key>>,
    by_id: DashMap<KeyId, Arc<Key>>,
    by_owner: DashMap<UserId, BTreeSet<KeyId>>,
    ids: RwLock<BTreeSet<KeyId>>,
}

impl Table {
    /// The next ids from the newest on, after `after` in that order: as many as may be looked at while others wait.
    fn step(&self, owner: Option<&UserId>, after: Option<&KeyId>) -> Vec<KeyId> {
        let older = (Bound::Unbounded, after.map_or(Bound::Unbounded, Bound::Excluded));
        let step = |ids: &BTreeSet<KeyId>| ids.range::<KeyId, _>(older).rev().take(bounds::KEY_STEP).cloned().collect();
        match owner {
            Some(owner) => self.by_owner.get(owner).map(|ids| step(&ids)).unwrap_or_default(),
            None => step(&self.ids.read().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// The keys of all interfaces; a key of one is unknown on the others.
#[derive(Debug, Default)]
pub(super) struct Keys {
    pin: Table,
    agent: Table,
    router: Table,
    /// Killed here, and not yet seen as revoked in the store.
    killed: DashSet<KeyId>,
    /// AGENT asks for a key: then those made while it did not are nobody's.
    agent_enforced: bool,
}

impl Keys {
    /// Empty tables.
    pub(super) fn new(agent_enforced: bool) -> Self {
        Keys { agent_enforced, ..Keys::default() }
    }

    fn table(&self, interface: Interface) -> &Table {
        match interface {
            Interface::Pin => &self.pin,
            Interface::Agent => &self.agent,
            Interface::Router => &self.router,
        }
    }

    /// The key with this secret.
    pub(super) fn by_digest(&self, interface: Interface, digest: &[u8; 32]) -> Option<Arc<Key>> {
        self.table(interface).by_digest.get(digest).map(|key| Arc::clone(key.value()))
    }

    /// The key with this id.
    pub(super) fn by_id(&self, interface: Interface, id: &KeyId) -> Option<Arc<Key>> {
        self.table(interface).by_id.get(id).map(|key| Arc::clone(key.value()))
    }

    /// Takes a row as it is now. The look at `killed` comes after the insertion, so that a kill at the same
    /// moment finds either the new entry or its own mark.
    pub(super) fn apply(&self, row: Arc<KeyRow>) {
        let table = self.table(row.interface);
        let (id, owner) = (row.id.clone(), row.owner.clone());
        let digests = secrets(&row);
        let dead = row.revoked_at.is_some();
        let dormant = row.made_open && row.interface == Interface::Agent && self.agent_enforced;
        let key = Arc::new(Key { row, dormant, dead: AtomicBool::new(dead || self.killed.contains(&id)) });
        if let Some(old) = table.by_id.insert(id.clone(), Arc::clone(&key)) {
            for gone in secrets(&old.row).iter().filter(|digest| !digests.contains(digest)) {
                table.by_digest.remove(gone);
            }
        }
        for digest in digests {
            table.by_digest.insert(digest, Arc::clone(&key));
        }
        table.by_owner.entry(owner).or_default().insert(id.clone());
        table.ids.write().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        if dead {
            self.killed.remove(&id);
        } else if self.killed.contains(&id) {
            key.dead.store(true, Ordering::Release);
        }
    }

    /// Knows a key no more.
    pub(super) fn forget(&self, id: &KeyId) {
        for table in Interface::ALL.map(|interface| self.table(interface)) {
            let Some((_, key)) = table.by_id.remove(id) else { continue };
            key.dead.store(true, Ordering::Release);
            for digest in secrets(&key.row) {
                table.by_digest.remove_if(&digest, |_, found| found.row.id == *id);
            }
            if let Some(mut ids) = table.by_owner.get_mut(&key.row.owner) {
                ids.remove(id);
            }
            table.ids.write().unwrap_or_else(PoisonError::into_inner).remove(id);
        }
        self.killed.remove(id);
    }

    /// Ends a key here and now.
    pub(super) fn kill(&self, id: &KeyId) {
        self.killed.insert(id.clone());
        for interface in Interface::ALL {
            if let Some(key) = self.table(interface).by_id.get(id) {
                key.dead.store(true, Ordering::Release);
                if key.row.revoked_at.is_some() {
                    self.killed.remove(id);
                }
            }
        }
    }

    /// Keys from the newest on, those after `after` in that order, of one owner or of all.
    pub(super) fn page(
        &self,
        interface: Interface,
        owner: Option<&UserId>,
        after: Option<&KeyId>,
        limit: usize,
        keep: impl Fn(&Key) -> bool,
    ) -> Vec<Arc<Key>> {
        let (mut found, mut after) = (Vec::new(), after.cloned());
        while found.len() < limit {
            let step = self.table(interface).step(owner, after.as_ref());
            let Some(last) = step.last() else { break };
            let keys = step.iter().filter_map(|id| self.by_id(interface, id));
            let left = limit - found.len();
            found.extend(keys.filter(|key| keep(key)).take(left));
            after = Some(last.clone());
        }
        found
    }

    /// How many keys of an interface stand how, for the gauge.
    pub(super) fn count(&self, interface: Interface, standing: Standing, now: Timestamp) -> usize {
        self.table(interface).by_id.iter().filter(|key| key.standing(now) == standing).count()
    }
}

/// The digests that a key may be found by.
fn secrets(row: &KeyRow) -> Vec<[u8; 32]> {
    std::iter::once(row.digest).chain(row.previous.as_ref().map(|previous| previous.digest)).collect()
}
