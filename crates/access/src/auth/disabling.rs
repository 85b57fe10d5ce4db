//! Disables a user, in the same steps as a revocation: the user is locked out in memory, then
//! durably, then the caller gets an answer. If the store fails, the caller gets its error, the user
//! stays locked out of this process, and the write is repeated.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tokio::sync::oneshot;

use super::Auth;
use rerouter_base::id::UserId;
use rerouter_store::{ChangeUser, Committed, Role, Store, StoreError, UserRow};

impl Auth {
    /// Makes a change that disables a user; [`StoreError::LastAdmin`] for the last admin, unless
    /// `last_may_go`. A transient error means that the change is not durable yet; the write is
    /// repeated then. The work goes on even if the caller goes away.
    pub async fn disable(
        &self,
        store: &Store,
        id: &UserId,
        last_may_go: bool,
        change: ChangeUser,
    ) -> Result<Committed, StoreError> {
        let is_new = {
            // One disabling at a time: if two admins were disabled at once, each check would find
            // that the other admin stays.
            let _serial = self.0.locking_out.lock().unwrap_or_else(PoisonError::into_inner);
            if !last_may_go && self.is_last_admin(id) {
                return Err(StoreError::LastAdmin);
            }
            self.lock_out(id)
        };
        let (reply, first) = oneshot::channel();
        let (auth, store, id) = (self.clone(), store.clone(), id.clone());
        tokio::spawn(async move {
            let first = store.update_user(&id, last_may_go, Arc::clone(&change)).await;
            let done = auth.settle_lock_out(&id, &first);
            // A caller that went away needs no reply.
            let _gone = reply.send(first);
            // One task for each user repeats the write, however often the caller does.
            if is_new && !done {
                auth.repeat_disabling(&store, &id, last_may_go, change).await;
            }
        });
        first.await.map_err(|_| StoreError::unavailable("the change was interrupted"))?
    }

    /// Whether a user is disabled in this process, but not durably yet.
    pub fn is_being_disabled(&self, id: &UserId) -> bool {
        self.0.disabling.contains(id)
    }

    /// Whether this user is the only admin now. A user who is being disabled does not count as an
    /// admin.
    pub fn is_last_admin(&self, id: &UserId) -> bool {
        let is_admin = |user: &UserRow| user.role == Role::Admin && !user.disabled;
        let is_other = |user: &UserRow| is_admin(user) && user.id != *id;
        self.user(id).is_some_and(|user| is_admin(&user))
            && self.users_with(is_other).iter().all(|user| self.is_being_disabled(&user.id))
    }

    /// The row of a user, disabled if the user is locked out.
    pub(super) fn as_locked_out(&self, user: &Arc<UserRow>) -> Arc<UserRow> {
        let locked_out =
            self.0.being_disabled.load(Ordering::Acquire) > 0 && self.is_being_disabled(&user.id);
        match locked_out {
            true => Arc::new(UserRow { disabled: true, ..UserRow::clone(user) }),
            false => Arc::clone(user),
        }
    }

    /// Locks a user out from now on, whatever the store has. Returns whether the user was not
    /// locked out before.
    fn lock_out(&self, id: &UserId) -> bool {
        // The count rises first: a reader that finds zero does not look at `disabling`.
        self.0.being_disabled.fetch_add(1, Ordering::AcqRel);
        let is_new = self.0.disabling.insert(id.clone());
        if !is_new {
            self.0.being_disabled.fetch_sub(1, Ordering::AcqRel);
        }
        is_new
    }

    /// Ends the lock-out if the store has decided, as the row has the result from now on. Returns
    /// whether the store has decided.
    fn settle_lock_out(&self, id: &UserId, outcome: &Result<Committed, StoreError>) -> bool {
        let decided = matches!(
            outcome,
            Ok(_) | Err(StoreError::LastAdmin | StoreError::NotFound | StoreError::Conflict)
        );
        if decided && self.0.disabling.remove(id).is_some() {
            self.0.being_disabled.fetch_sub(1, Ordering::AcqRel);
        }
        decided
    }

    async fn repeat_disabling(
        &self,
        store: &Store,
        id: &UserId,
        last_may_go: bool,
        change: ChangeUser,
    ) {
        let attempt = || async {
            // If the caller has repeated the change successfully meanwhile, it is not made again:
            // later changes of the user stay.
            let auth = self.clone();
            let change = Arc::clone(&change);
            let still: ChangeUser =
                Arc::new(
                    move |user| {
                        if auth.is_being_disabled(&user.id) { change(user) } else { Ok(()) }
                    },
                );
            if !self.is_being_disabled(id) {
                return Ok(());
            }
            let outcome = store.update_user(id, last_may_go, still).await;
            match self.settle_lock_out(id, &outcome) {
                true => Ok(()),
                false => outcome.map(drop),
            }
        };
        self.retry(&format!("the disabling of {id}"), attempt).await;
    }
}
