//! How the tables follow the store, and look-ups in them.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, PoisonError};

use jiff::Timestamp;

use super::Auth;
use super::agents::Agents;
use super::key_table::Key;
use super::principal::{CaptureLevel, Principal, REPLAY_ALL_SCOPE};
use rerouter_base::id::{AgentId, KeyId, SessionId, UserId};
use rerouter_base::interface::Interface;
use rerouter_store::{
    Change, Committed, Follower, KeyRow, KeyState, Reach, Reload, Store, StoreError, UserRow,
};

/// The tables of [`Auth`], and others that follow the store after them.
struct AuthFollower {
    auth: Auth,
    beside: Vec<Arc<dyn Follower>>,
}

impl Follower for AuthFollower {
    fn apply(&self, committed: &Committed) {
        self.auth.apply(committed);
        self.beside.iter().for_each(|beside| beside.apply(committed));
    }

    fn reload(&self) -> Box<dyn Reload> {
        let beside = self.beside.iter().map(|beside| beside.reload()).collect();
        Box::new(AuthReload { auth: self.auth.clone(), known: self.auth.known(), beside })
    }

    fn document(&self) -> Option<String> {
        self.beside.iter().find_map(|beside| beside.document())
    }
}

struct AuthReload {
    auth: Auth,
    /// The rows that the tables had before, without those that the reload has passed so far.
    known: KnownRows,
    beside: Vec<Box<dyn Reload>>,
}

#[derive(Default)]
struct KnownRows {
    users: HashSet<UserId>,
    keys: HashSet<KeyId>,
    sessions: HashSet<SessionId>,
    agents: HashSet<AgentId>,
}

impl Reload for AuthReload {
    fn row(&mut self, row: Change) {
        let known = &mut self.known;
        let _known = match &row {
            Change::User(user) => known.users.remove(&user.id),
            Change::Key(key) => known.keys.remove(&key.id),
            Change::Session(session) => known.sessions.remove(&session.id),
            Change::Agent(agent) => known.agents.remove(&agent.id),
            _ => return self.beside.iter_mut().for_each(|beside| beside.row(row.clone())),
        };
        self.auth.change(row);
    }

    fn finish(self: Box<Self>, rev: u64) {
        let AuthReload { auth, known, beside } = *self;
        let keys = known.keys.into_iter().map(Change::KeyForgotten);
        let sessions = known.sessions.into_iter().map(Change::SessionEnded);
        let agents = known.agents.into_iter().map(Change::AgentDeleted);
        let users = known.users.into_iter().map(Change::UserDeleted);
        keys.chain(sessions).chain(agents).chain(users).for_each(|gone| auth.change(gone));
        *auth.0.applied.lock().unwrap_or_else(PoisonError::into_inner) = rev;
        beside.into_iter().for_each(|beside| beside.finish(rev));
    }
}

impl Auth {
    /// Follows the store from now on and loads what it has. To be called once, before the first
    /// request.
    pub async fn attach(&self, store: &Store) -> Result<(), StoreError> {
        store.follow(self.follower(Vec::new())).await.map(drop)
    }

    /// The tables as a follower of a store. The followers in `beside` come after them, and take the
    /// rows that are not kept here.
    pub fn follower(&self, beside: Vec<Arc<dyn Follower>>) -> Arc<dyn Follower> {
        Arc::new(AuthFollower { auth: self.clone(), beside })
    }

    fn known(&self) -> KnownRows {
        KnownRows {
            users: self.0.users.iter().map(|user| user.key().clone()).collect(),
            keys: self.0.keys.ids(),
            sessions: self.0.sessions.ids(),
            agents: self.0.agents.by_name().iter().map(|agent| agent.id.clone()).collect(),
        }
    }

    /// Applies one mutation, unless it is applied already.
    pub fn apply(&self, committed: &Committed) {
        let mut applied = self.0.applied.lock().unwrap_or_else(PoisonError::into_inner);
        if committed.rev <= *applied {
            return;
        }
        for change in &committed.changes {
            self.change(change.clone());
        }
        *applied = committed.rev;
    }

    fn change(&self, change: Change) {
        match change {
            Change::User(user) => {
                let (id, email) = (user.id.clone(), user.email.clone());
                self.0.emails.insert(email.clone(), id.clone());
                if let Some(old) = self.0.users.insert(id, user)
                    && old.email != email
                {
                    self.0.emails.remove_if(&old.email, |_, of| *of == old.id);
                }
            }
            Change::UserDeleted(id) => {
                if let Some((_, user)) = self.0.users.remove(&id) {
                    self.0.emails.remove_if(&user.email, |_, of| *of == id);
                }
            }
            Change::Key(key) => self.0.keys.apply(key),
            Change::KeyForgotten(id) => self.0.keys.forget(&id),
            Change::Session(session) => self.0.sessions.apply(session),
            Change::SessionEnded(id) => self.0.sessions.remove(&id),
            Change::Agent(agent) => self.0.agents.apply(agent),
            Change::AgentDeleted(id) => self.0.agents.remove(&id),
            // Other tables keep these.
            Change::Node(_) | Change::NodeDeleted(_) | Change::Document(_) => {}
        }
    }

    /// Whether AGENT requires a key.
    pub fn agent_is_enforced(&self) -> bool {
        self.0.agent_cloud.is_some()
    }

    /// A user by id, or the built-in one. A user who is being disabled has a row that is disabled.
    pub fn user(&self, id: &UserId) -> Option<Arc<UserRow>> {
        if *id == self.0.built_in.id {
            return Some(Arc::clone(&self.0.built_in));
        }
        self.0.users.get(id).map(|user| self.as_locked_out(user.value()))
    }

    /// A user by normalised e-mail.
    pub fn user_by_email(&self, email: &str) -> Option<Arc<UserRow>> {
        let id = self.0.emails.get(email)?.value().clone();
        self.user(&id)
    }

    pub fn users_with(&self, keep: impl Fn(&UserRow) -> bool) -> Vec<Arc<UserRow>> {
        self.0.users.iter().map(|user| Arc::clone(user.value())).filter(|user| keep(user)).collect()
    }

    /// Up to `limit` users, newest first, older than `after`.
    pub fn user_page(&self, after: Option<&UserId>, limit: usize) -> Vec<Arc<UserRow>> {
        let mut newest: BTreeMap<UserId, Arc<UserRow>> = BTreeMap::new();
        for user in self.0.users.iter().filter(|user| after.is_none_or(|after| user.id < *after)) {
            newest.insert(user.id.clone(), self.as_locked_out(user.value()));
            if newest.len() > limit {
                newest.pop_first();
            }
        }
        newest.into_values().rev().collect()
    }

    pub fn agents(&self) -> &Agents {
        &self.0.agents
    }

    pub fn key(&self, interface: Interface, id: &KeyId) -> Option<Arc<Key>> {
        self.0.keys.by_id(interface, id)
    }

    /// The capture level in the labels of a key of any interface; everything for an unknown key.
    pub fn capture_level_of(&self, id: &KeyId) -> CaptureLevel {
        let known = Interface::ALL.into_iter().find_map(|interface| self.key(interface, id));
        known.map_or(CaptureLevel::Full, |key| CaptureLevel::of(&key.row().labels))
    }

    /// The keys above a key, its parent first, including those that have ended.
    pub fn ancestors(&self, key: &KeyRow) -> Vec<Arc<KeyRow>> {
        let mut above = Vec::new();
        let mut next = key.parent.clone();
        while let Some(parent) = next.and_then(|id| self.key(key.interface, &id)) {
            next = parent.row().parent.clone();
            above.push(Arc::clone(parent.row()));
        }
        above
    }

    /// Whose captures, usage and keys a caller may see. A ROUTER key sees what was made with it,
    /// and with the keys that descend from it now.
    pub fn reach(&self, who: &Principal) -> Reach {
        // A caller that is no user has at most what belongs to AGENT: no captures.
        let owner = who.user_id().unwrap_or_else(UserId::tenant);
        let all = who.has_scope(REPLAY_ALL_SCOPE);
        match who.key().filter(|key| key.interface == Interface::Router && !all) {
            _ if who.is_admin() => Reach::All,
            Some(key) => Reach::Line(owner, Arc::new(self.0.keys.line(&key.id))),
            None => Reach::Owner(owner),
        }
    }

    /// The unit that gets a fair share of a resource: a user with all of the user's keys. A key
    /// that `ADMIN_API_KEY` made is a separate unit, with its descendants.
    pub fn tenant(&self, who: &Principal) -> String {
        match (who.user_id(), who.key()) {
            (Some(user), Some(key)) if user == UserId::admin() => {
                let above = self.ancestors(key);
                above.last().map_or(&key.id, |top| &top.id).to_string()
            }
            (Some(user), _) => user.to_string(),
            (None, _) => who.actor().id,
        }
    }

    /// Up to `limit` keys of an interface for which `keep` holds, newest first, older than `after`,
    /// of one owner or of all.
    pub async fn keys(
        &self,
        interface: Interface,
        owner: Option<&UserId>,
        after: Option<&KeyId>,
        limit: usize,
        keep: impl Fn(&Key) -> bool,
    ) -> Vec<Arc<Key>> {
        self.0.keys.page(interface, owner, after, limit, keep).await
    }
    pub fn count_keys(&self, interface: Interface, state: KeyState, now: Timestamp) -> usize {
        self.0.keys.count(interface, state, now)
    }
}
