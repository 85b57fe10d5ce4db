//! The key tables in memory. They are authoritative: a key that they lack is refused without a look
//! at the store. A revocation sets a flag in the shared key before the store knows of it. The flag
//! outlives every later version of the row.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use dashmap::mapref::entry::Entry;
use dashmap::{DashMap, DashSet};
use jiff::Timestamp;

use super::key_counts::{CountedKey, KeyCounts};
use super::principal::RESERVED_SCOPES;
use rerouter_base::id::{KeyId, UserId};
use rerouter_base::interface::Interface;
use rerouter_store::{KeyRow, KeyState, KeyStatus};

/// Number of keys that a list visits under one lock of the table, so that nobody waits long for the
/// lock.
pub(super) const KEY_LIST_STEP: usize = 128;

#[derive(Debug)]
pub struct Key {
    row: Arc<KeyRow>,
    /// Whether it was made while the AGENT interface was open, and AGENT is enforced now. Such a
    /// key is off, whatever its row says.
    dormant: bool,
    /// Whether it has a scope that only an admin grants.
    reserved: bool,
    /// Whether it is revoked, here or in its row.
    dead: AtomicBool,
    /// Microseconds since the epoch; [`NEVER`] before the first use.
    used_us: AtomicI64,
    /// Whether the last use is not in the store yet.
    unsaved: AtomicBool,
}

/// The last use of a key that nobody has used, in microseconds: a time before all others.
const NEVER: i64 = i64::MIN;

impl Key {
    pub fn row(&self) -> &Arc<KeyRow> {
        &self.row
    }

    pub fn state(&self, now: Timestamp) -> KeyState {
        if self.dead.load(Ordering::Acquire) || self.row.revoked_at.is_some() {
            KeyState::Revoked
        } else if self.row.expires_at.is_some_and(|end| end <= now) {
            KeyState::Expired
        } else if self.dormant || self.row.status == KeyStatus::Inactive {
            KeyState::Inactive
        } else {
            KeyState::Active
        }
    }

    /// When it was last used, by any of its secrets.
    pub fn last_used(&self) -> Option<Timestamp> {
        Timestamp::from_microsecond(self.used_us.load(Ordering::Acquire)).ok()
    }

    pub(super) fn has_reserved_scope(&self) -> bool {
        self.reserved
    }

    pub fn is_dormant(&self) -> bool {
        self.dormant
    }

    fn counted(&self) -> CountedKey {
        let end_us = self.row.expires_at.map(Timestamp::as_microsecond);
        if self.dead.load(Ordering::Acquire) {
            CountedKey::Revoked
        } else if self.dormant || self.row.status == KeyStatus::Inactive {
            CountedKey::Inactive { end_us }
        } else {
            CountedKey::Active { end_us }
        }
    }

    /// Whether the secret with this digest is valid at `now`: the current one, or the previous one
    /// in its grace period.
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

/// Defines an entry of a table that finds keys by one of their fields, without a copy of it.
macro_rules! keyed {
    ($name:ident by $part:ident: $kind:ty) => {
        #[derive(Debug)]
        struct $name(Arc<Key>);

        impl Borrow<$kind> for $name {
            fn borrow(&self) -> &$kind {
                &self.0.row.$part
            }
        }

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.0.row.$part.hash(state);
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.0.row.$part == other.0.row.$part
            }
        }

        impl Eq for $name {}
    };
}

keyed! { ByDigest by digest: [u8; 32] }
keyed! { ById by id: KeyId }

/// Inserts a key, or replaces the one that was there. A look-up meanwhile finds one of the two.
fn put<K: Eq + Hash>(table: &DashMap<K, ()>, key: K) {
    match table.entry(key) {
        Entry::Occupied(old) => drop(old.replace_entry(())),
        Entry::Vacant(new) => drop(new.insert(())),
    }
}

#[derive(Debug, Default)]
struct InterfaceKeys {
    by_digest: DashMap<ByDigest, ()>,
    /// Keys by the secret before, if a rotation left it a grace period.
    by_previous: DashMap<[u8; 32], Arc<Key>>,
    by_id: DashMap<ById, ()>,
    by_owner: DashMap<UserId, BTreeSet<KeyId>>,
    ids: RwLock<BTreeSet<KeyId>>,
}

impl InterfaceKeys {
    /// The next ids after `after`, newest first, at most [`KEY_LIST_STEP`].
    fn step(&self, owner: Option<&UserId>, after: Option<&KeyId>) -> Vec<KeyId> {
        let older = (Bound::Unbounded, after.map_or(Bound::Unbounded, Bound::Excluded));
        let step = |ids: &BTreeSet<KeyId>| {
            ids.range::<KeyId, _>(older).rev().take(KEY_LIST_STEP).cloned().collect()
        };
        match owner {
            Some(owner) => self.by_owner.get(owner).map(|ids| step(&ids)).unwrap_or_default(),
            None => step(&self.ids.read().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// A key of one interface is unknown on the others.
#[derive(Debug, Default)]
pub(super) struct KeyTable {
    pin: InterfaceKeys,
    agent: InterfaceKeys,
    router: InterfaceKeys,
    /// Keys by the key that made them.
    children: DashMap<KeyId, BTreeSet<KeyId>>,
    /// Keys with uses that are not in the store yet.
    touched: DashSet<KeyId>,
    writer: Mutex<WriterState>,
    /// Whether AGENT requires a key, so that keys made while it did not are off.
    agent_enforced: bool,
}

/// State under the lock of writers: one change of the tables at a time.
#[derive(Debug, Default)]
struct WriterState {
    /// Keys killed here, and not yet revoked in the store.
    killed: HashSet<KeyId>,
    /// The killed keys whose descendants are dead too, including a descendant that is just being
    /// made.
    killed_descent: HashSet<KeyId>,
    pin: KeyCounts,
    agent: KeyCounts,
    router: KeyCounts,
}

impl WriterState {
    fn counts(&mut self, interface: Interface) -> &mut KeyCounts {
        match interface {
            Interface::Pin => &mut self.pin,
            Interface::Agent => &mut self.agent,
            Interface::Router => &mut self.router,
        }
    }

    fn end(&mut self, key: &Key) {
        let before = key.counted();
        if !key.dead.swap(true, Ordering::AcqRel) {
            let counts = self.counts(key.row.interface);
            counts.remove(before);
            counts.add(CountedKey::Revoked);
        }
    }
}

impl KeyTable {
    pub(super) fn new(agent_enforced: bool) -> Self {
        KeyTable { agent_enforced, ..KeyTable::default() }
    }

    fn table(&self, interface: Interface) -> &InterfaceKeys {
        match interface {
            Interface::Pin => &self.pin,
            Interface::Agent => &self.agent,
            Interface::Router => &self.router,
        }
    }

    fn writer(&self) -> MutexGuard<'_, WriterState> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn by_digest(&self, interface: Interface, digest: &[u8; 32]) -> Option<Arc<Key>> {
        let table = self.table(interface);
        let current = table.by_digest.get(digest).map(|key| Arc::clone(&key.key().0));
        current.or_else(|| table.by_previous.get(digest).map(|key| Arc::clone(key.value())))
    }

    pub(super) fn ids(&self) -> HashSet<KeyId> {
        let tables = Interface::ALL.map(|interface| self.table(interface));
        let ids = |table: &InterfaceKeys| {
            table.ids.read().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
        };
        tables.into_iter().flat_map(|table| -> Vec<KeyId> { ids(table) }).collect()
    }

    pub(super) fn by_id(&self, interface: Interface, id: &KeyId) -> Option<Arc<Key>> {
        self.table(interface).by_id.get(id).map(|key| Arc::clone(&key.key().0))
    }

    /// A key that was killed here stays dead, whatever the row says.
    pub(super) fn apply(&self, row: Arc<KeyRow>) {
        let mut writer = self.writer();
        let table = self.table(row.interface);
        let id = row.id.clone();
        if row.revoked_at.is_some() {
            writer.killed.remove(&id);
            writer.killed_descent.remove(&id);
        } else if row.parent.as_ref().is_some_and(|parent| writer.killed_descent.contains(parent)) {
            writer.killed.insert(id.clone());
            writer.killed_descent.insert(id.clone());
        }
        let dead = row.revoked_at.is_some() || writer.killed.contains(&id);
        let dormant = row.made_open && row.interface == Interface::Agent && self.agent_enforced;
        let stored_us = row.last_used_at.map_or(NEVER, Timestamp::as_microsecond);
        let old = self.by_id(row.interface, &id);
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
        put(&table.by_id, ById(Arc::clone(&key)));
        if let Some(previous) = &key.row.previous {
            table.by_previous.insert(previous.digest, Arc::clone(&key));
        }
        put(&table.by_digest, ByDigest(Arc::clone(&key)));
        let counts = writer.counts(key.row.interface);
        counts.add(key.counted());
        match old {
            Some(old) => {
                if old.row.digest != key.row.digest {
                    table.by_digest.remove(&old.row.digest);
                }
                let previous = |row: &KeyRow| row.previous.as_ref().map(|previous| previous.digest);
                if let Some(gone) = previous(&old.row)
                    && previous(&key.row) != Some(gone)
                {
                    table.by_previous.remove(&gone);
                }
                counts.remove(old.counted());
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

    /// Removes a key that the store has deleted.
    pub(super) fn forget(&self, id: &KeyId) {
        let mut writer = self.writer();
        for table in Interface::ALL.map(|interface| self.table(interface)) {
            let Some((ById(key), ())) = table.by_id.remove(id) else { continue };
            writer.counts(key.row.interface).remove(key.counted());
            key.dead.store(true, Ordering::Release);
            table.by_digest.remove_if(&key.row.digest, |found, ()| found.0.row.id == *id);
            if let Some(previous) = &key.row.previous {
                table.by_previous.remove_if(&previous.digest, |_, found| found.row.id == *id);
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
        writer.killed.remove(id);
        writer.killed_descent.remove(id);
    }
    pub(super) fn kill(&self, id: &KeyId) {
        self.kill_locked(&mut self.writer(), id);
    }

    /// Ends a key and all that descend from it in memory, including keys that one of them is about
    /// to make.
    pub(super) fn kill_descent(&self, id: &KeyId) {
        let mut writer = self.writer();
        for id in self.line(id) {
            if self.kill_locked(&mut writer, &id) {
                writer.killed_descent.insert(id);
            }
        }
    }

    /// A key and all that descend from it.
    pub(super) fn line(&self, id: &KeyId) -> BTreeSet<KeyId> {
        let (mut line, mut left) = (BTreeSet::new(), vec![id.clone()]);
        while let Some(id) = left.pop() {
            if let Some(children) = self.children.get(&id) {
                left.extend(children.iter().cloned());
            }
            line.insert(id);
        }
        line
    }

    fn find(&self, id: &KeyId) -> Option<Arc<Key>> {
        Interface::ALL.iter().find_map(|interface| self.by_id(*interface, id))
    }

    /// Returns whether it is not revoked in the store yet.
    fn kill_locked(&self, writer: &mut WriterState, id: &KeyId) -> bool {
        let known = self.find(id);
        if let Some(key) = &known {
            writer.end(key);
        }
        let pending = known.is_none_or(|key| key.row.revoked_at.is_none());
        if pending {
            writer.killed.insert(id.clone());
        }
        pending
    }

    /// The store gets it later, together with many others.
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

    /// Applies a use of a key by another gateway.
    pub(super) fn learn_use(&self, id: &KeyId, at: Timestamp) {
        if let Some(key) = self.find(id) {
            key.used_us.fetch_max(at.as_microsecond(), Ordering::AcqRel);
        }
    }

    pub(super) fn unsaved_uses(&self) -> usize {
        self.touched.len()
    }

    pub(super) fn take_unsaved(&self, most: usize) -> Vec<(KeyId, Timestamp)> {
        let ids: Vec<KeyId> = self.touched.iter().take(most).map(|id| id.key().clone()).collect();
        let take = |id: KeyId| {
            self.touched.remove(&id);
            let key = self.find(&id)?;
            // The mark is cleared before the time is read, so that a later use sets it again.
            key.unsaved.store(false, Ordering::Release);
            key.last_used().map(|at| (id, at))
        };
        ids.into_iter().filter_map(take).collect()
    }

    pub(super) fn put_back_unsaved(&self, used: &[(KeyId, Timestamp)]) {
        for (id, _) in used {
            if let Some(key) = self.find(id) {
                key.unsaved.store(true, Ordering::Release);
                self.touched.insert(id.clone());
            }
        }
    }

    /// Keys newest first, older than `after`, of one owner or of all. It yields to other tasks,
    /// however many keys it must look at.
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

    pub(super) fn count(&self, interface: Interface, state: KeyState, now: Timestamp) -> usize {
        let counts = self.writer().counts(interface).counts(now);
        match state {
            KeyState::Revoked => counts.revoked,
            KeyState::Expired => counts.expired,
            KeyState::Inactive => counts.inactive,
            KeyState::Active => counts.active,
        }
    }
}
