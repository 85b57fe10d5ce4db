//! The in-memory key tables, the authority on what a key may do: a miss is a refusal without any look at the store.
//! A revocation acts by a flag in the shared key, before the store has heard of it, and outlives every re-read of the row.

use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use dashmap::{DashMap, DashSet};
use jiff::Timestamp;

use super::principal::RESERVED_SCOPES;
use super::tally::{Sort, Tally};
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
    /// It has a scope that only an admin grants: then it matters who granted it.
    reserved: bool,
    dead: AtomicBool,
    /// Microseconds since the epoch; [`NEVER`] before the first use.
    used_us: AtomicI64,
    /// Whether the store has yet to hear of the last use.
    unsaved: AtomicBool,
}

/// See [`Key::last_used`].
const NEVER: i64 = i64::MIN;

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
        [Standing::Revoked, Standing::Expired, Standing::Inactive, Standing::Active]
            .into_iter()
            .find(|known| known.as_str() == word)
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

    /// When it was last used, by any of its secrets.
    pub fn last_used(&self) -> Option<Timestamp> {
        Timestamp::from_microsecond(self.used_us.load(Ordering::Acquire)).ok()
    }

    /// Whether it has a scope that only an admin grants.
    pub(super) fn has_reserved(&self) -> bool {
        self.reserved
    }

    /// Whether it was made while AGENT was open, and so is nobody's while AGENT is enforced.
    pub fn is_dormant(&self) -> bool {
        self.dormant
    }

    /// How it is counted.
    fn sort(&self) -> Sort {
        let end_us = self.row.expires_at.map(Timestamp::as_microsecond);
        if self.dead.load(Ordering::Acquire) {
            Sort::Revoked
        } else if self.dormant || self.row.status == KeyStatus::Inactive {
            Sort::Inactive { end_us }
        } else {
            Sort::Active { end_us }
        }
    }

    /// Whether this one of its secrets is good at `now`: the present one, or the one before within its grace.
    pub(super) fn accepts(&self, digest: &[u8; 32], now: Timestamp) -> bool {
        let previous = |digest: &[u8; 32]| {
            self.row
                .previous
                .as_ref()
                .is_some_and(|old| old.digest == *digest && now < old.expires_at)
        };
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
        let step = |ids: &BTreeSet<KeyId>| {
            ids.range::<KeyId, _>(older).rev().take(bounds::KEY_STEP).cloned().collect()
        };
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
    /// By the key that made them.
    children: DashMap<KeyId, BTreeSet<KeyId>>,
    /// Used since the store last heard of it.
    touched: DashSet<KeyId>,
    /// Those of ROUTER that have a budget, so that nobody looks for them among all.
    budgets: DashSet<KeyId>,
    turn: Mutex<Turn>,
    /// AGENT asks for a key: then those made while it did not are nobody's.
    agent_enforced: bool,
}

/// What only one change of the tables at a time sees.
#[derive(Debug, Default)]
struct Turn {
    /// Killed here, and not yet seen as revoked in the store.
    killed: HashSet<KeyId>,
    /// Of those the ones that were killed with all that descends from them: what they made at that moment is dead as well.
    felled: HashSet<KeyId>,
    pin: Tally,
    agent: Tally,
    router: Tally,
}

impl Turn {
    fn tally(&mut self, interface: Interface) -> &mut Tally {
        match interface {
            Interface::Pin => &mut self.pin,
            Interface::Agent => &mut self.agent,
            Interface::Router => &mut self.router,
        }
    }

    /// Ends a key, if that is not done.
    fn end(&mut self, key: &Key) {
        let before = key.sort();
        if !key.dead.swap(true, Ordering::AcqRel) {
            let tally = self.tally(key.row.interface);
            tally.remove(before);
            tally.add(Sort::Revoked);
        }
    }
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

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key with this secret.
    pub(super) fn by_digest(&self, interface: Interface, digest: &[u8; 32]) -> Option<Arc<Key>> {
        self.table(interface).by_digest.get(digest).map(|key| Arc::clone(key.value()))
    }

    /// The key with this id.
    pub(super) fn by_id(&self, interface: Interface, id: &KeyId) -> Option<Arc<Key>> {
        self.table(interface).by_id.get(id).map(|key| Arc::clone(key.value()))
    }

    /// Takes a row as it is now. One that was killed here stays dead, whatever the row says.
    pub(super) fn apply(&self, row: Arc<KeyRow>) {
        let mut turn = self.turn();
        let table = self.table(row.interface);
        let id = row.id.clone();
        if row.revoked_at.is_some() {
            turn.killed.remove(&id);
            turn.felled.remove(&id);
        } else if row.parent.as_ref().is_some_and(|parent| turn.felled.contains(parent)) {
            turn.killed.insert(id.clone());
            turn.felled.insert(id.clone());
        }
        let dead = row.revoked_at.is_some() || turn.killed.contains(&id);
        let dormant = row.made_open && row.interface == Interface::Agent && self.agent_enforced;
        let stored_us = row.last_used_at.map_or(NEVER, Timestamp::as_microsecond);
        let old = table.by_id.get(&id).map(|old| Arc::clone(old.value()));
        let used_us =
            old.as_ref().map_or(NEVER, |old| old.used_us.load(Ordering::Acquire)).max(stored_us);
        let unsaved = old.as_ref().is_some_and(|old| old.unsaved.load(Ordering::Acquire));
        let reserved = row.scopes.iter().any(|scope| RESERVED_SCOPES.contains(&scope.as_str()));
        let key = Arc::new(Key {
            row,
            dormant,
            reserved,
            dead: dead.into(),
            used_us: used_us.into(),
            unsaved: unsaved.into(),
        });
        let digests = secrets(&key.row);
        table.by_id.insert(id.clone(), Arc::clone(&key));
        for digest in &digests {
            table.by_digest.insert(*digest, Arc::clone(&key));
        }
        if key.row.interface == Interface::Router && key.row.limits.budget.is_some() {
            self.budgets.insert(id.clone());
        } else {
            self.budgets.remove(&id);
        }
        let tally = turn.tally(key.row.interface);
        tally.add(key.sort());
        match old {
            Some(old) => {
                for gone in secrets(&old.row).iter().filter(|digest| !digests.contains(digest)) {
                    table.by_digest.remove(gone);
                }
                tally.remove(old.sort());
            }
            None => {
                if let Some(parent) = &key.row.parent {
                    self.children.entry(parent.clone()).or_default().insert(id.clone());
                }
                table.by_owner.entry(key.row.owner.clone()).or_default().insert(id.clone());
                table.ids.write().unwrap_or_else(PoisonError::into_inner).insert(id);
            }
        }
    }

    /// Knows a key no more.
    pub(super) fn forget(&self, id: &KeyId) {
        let mut turn = self.turn();
        for table in Interface::ALL.map(|interface| self.table(interface)) {
            let Some((_, key)) = table.by_id.remove(id) else { continue };
            turn.tally(key.row.interface).remove(key.sort());
            key.dead.store(true, Ordering::Release);
            for digest in secrets(&key.row) {
                table.by_digest.remove_if(&digest, |_, found| found.row.id == *id);
            }
            if let Some(mut ids) = table.by_owner.get_mut(&key.row.owner) {
                ids.remove(id);
            }
            table.by_owner.remove_if(&key.row.owner, |_, ids| ids.is_empty());
            if let Some(parent) = &key.row.parent {
                if let Some(mut ids) = self.children.get_mut(parent) {
                    ids.remove(id);
                }
                self.children.remove_if(parent, |_, ids| ids.is_empty());
            }
            table.ids.write().unwrap_or_else(PoisonError::into_inner).remove(id);
        }
        self.budgets.remove(id);
        turn.killed.remove(id);
        turn.felled.remove(id);
    }

    /// The keys with a budget that are not over, or from which others descend.
    pub(super) fn with_budget(&self, now: Timestamp) -> Vec<Arc<Key>> {
        let ids: Vec<KeyId> = self.budgets.iter().map(|id| id.key().clone()).collect();
        let live = |key: &Key| {
            matches!(key.standing(now), Standing::Active | Standing::Inactive)
                || self.children.contains_key(&key.row.id)
        };
        ids.iter()
            .filter_map(|id| self.by_id(Interface::Router, id))
            .filter(|key| live(key))
            .collect()
    }

    /// Ends a key here and now.
    pub(super) fn kill(&self, id: &KeyId) {
        self.kill_in_turn(&mut self.turn(), id);
    }

    /// Ends a key and all that descend from it here and now; also what is just being made by one of them.
    pub(super) fn kill_descent(&self, id: &KeyId) {
        let mut turn = self.turn();
        let mut left = vec![id.clone()];
        while let Some(id) = left.pop() {
            if self.kill_in_turn(&mut turn, &id) {
                turn.felled.insert(id.clone());
            }
            left.extend(
                self.children
                    .get(&id)
                    .into_iter()
                    .flat_map(|ids| ids.iter().cloned().collect::<Vec<_>>()),
            );
        }
    }

    /// Gives whether the store has yet to hear of it.
    fn kill_in_turn(&self, turn: &mut Turn, id: &KeyId) -> bool {
        let known = Interface::ALL.iter().find_map(|interface| self.by_id(*interface, id));
        if let Some(key) = &known {
            turn.end(key);
        }
        let unheard = known.is_none_or(|key| key.row.revoked_at.is_none());
        if unheard {
            turn.killed.insert(id.clone());
        }
        unheard
    }

    /// Notes that a key is used. Costs the store nothing: it hears of it with many others.
    pub(super) fn used(&self, key: &Key, now: Timestamp) {
        let now_us = now.as_microsecond();
        let later = key.used_us.fetch_max(now_us, Ordering::AcqRel) < now_us;
        if later
            && !key.unsaved.load(Ordering::Acquire)
            && !key.unsaved.swap(true, Ordering::AcqRel)
        {
            self.touched.insert(key.row.id.clone());
        }
    }

    /// How many uses the store does not know of.
    pub(super) fn unsaved_uses(&self) -> usize {
        self.touched.len()
    }

    /// Takes up to `most` uses that the store does not know of.
    pub(super) fn take_unsaved(&self, most: usize) -> Vec<(KeyId, Timestamp)> {
        let ids: Vec<KeyId> = self.touched.iter().take(most).map(|id| id.key().clone()).collect();
        let take = |id: KeyId| {
            self.touched.remove(&id);
            let key = Interface::ALL.iter().find_map(|interface| self.by_id(*interface, &id))?;
            // Before the look: a use that comes after it is noted anew.
            key.unsaved.store(false, Ordering::Release);
            key.last_used().map(|at| (id, at))
        };
        ids.into_iter().filter_map(take).collect()
    }

    /// Keeps them for the next time, when the store did not take them.
    pub(super) fn still_unsaved(&self, used: &[(KeyId, Timestamp)]) {
        for (id, _) in used {
            if let Some(key) =
                Interface::ALL.iter().find_map(|interface| self.by_id(*interface, id))
            {
                key.unsaved.store(true, Ordering::Release);
                self.touched.insert(id.clone());
            }
        }
    }

    /// Keys from the newest on, those after `after` in that order, of one owner or of all. However many have to be looked at,
    /// others on this thread have their turns.
    pub(super) async fn page(
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
            if found.len() < limit {
                tokio::task::yield_now().await;
            }
        }
        found
    }

    /// How many keys of an interface stand how, for the gauge: as many are counted, none is looked at.
    pub(super) fn count(&self, interface: Interface, standing: Standing, now: Timestamp) -> usize {
        let counts = self.turn().tally(interface).counts(now);
        match standing {
            Standing::Revoked => counts.revoked,
            Standing::Expired => counts.expired,
            Standing::Inactive => counts.inactive,
            Standing::Active => counts.active,
        }
    }
}

/// The digests that a key may be found by.
fn secrets(row: &KeyRow) -> Vec<[u8; 32]> {
    std::iter::once(row.digest)
        .chain(row.previous.as_ref().map(|previous| previous.digest))
        .collect()
}
