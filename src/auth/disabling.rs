//! A user disabled from end to end, as a revocation is: out in memory, then durable, then answered. When the store fails the
//! caller hears of it, the user stays out of this process, and the write is tried until the store takes it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tokio::sync::oneshot;

use super::Auth;
use super::leaving::{FIRST, LONGEST};
use crate::id::UserId;
use crate::store::{ChangeUser, Committed, Role, Store, StoreError, UserRow};

impl Auth {
    /// Makes a change that disables a user. With `last_may_go` the last admin, too. An error that may pass by itself says that
    /// this is not yet durable; then it is being tried on. The work goes on when the caller goes away.
    pub async fn disable(
        &self,
        store: &Store,
        id: &UserId,
        last_may_go: bool,
        change: ChangeUser,
    ) -> Result<Committed, StoreError> {
        let tries = {
            // One after another: of two admins who are disabled at once each would find that the other stays.
            let _turn = self.0.shutting_out.lock().unwrap_or_else(PoisonError::into_inner);
            if !last_may_go && self.is_last_admin(id) {
                return Err(StoreError::LastAdmin);
            }
            self.shut_out(id)
        };
        let (reply, first) = oneshot::channel();
        tokio::spawn(bring(
            self.clone(),
            store.clone(),
            id.clone(),
            last_may_go,
            change,
            tries,
            reply,
        ));
        first.await.map_err(|_| StoreError::Unavailable("the change was cut short".into()))?
    }

    /// Whether a user is disabled here, and not durably so.
    pub fn is_being_disabled(&self, id: &UserId) -> bool {
        self.0.disabling.contains(id)
    }

    /// Whether nobody but this user is an admin now. Who is being disabled is none.
    pub fn is_last_admin(&self, id: &UserId) -> bool {
        let is = |user: &UserRow| user.role == Role::Admin && !user.disabled;
        let other = |user: &UserRow| is(user) && user.id != *id;
        self.user(id).is_some_and(|user| is(&user))
            && self.users_with(other).iter().all(|user| self.is_being_disabled(&user.id))
    }

    /// Marks a user, who is out from now on whatever the store knows yet; whether the mark is new.
    fn shut_out(&self, id: &UserId) -> bool {
        // Before the mark is there, so that nobody who is to see it passes by.
        self.0.being_disabled.fetch_add(1, Ordering::AcqRel);
        let new = self.0.disabling.insert(id.clone());
        if !new {
            self.0.being_disabled.fetch_sub(1, Ordering::AcqRel);
        }
        new
    }

    /// Takes the mark away: the row says what is so.
    fn unmark(&self, id: &UserId) {
        if self.0.disabling.remove(id).is_some() {
            self.0.being_disabled.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The row of a user, disabled where a mark says so.
    pub(super) fn as_seen(&self, user: &Arc<UserRow>) -> Arc<UserRow> {
        let marked =
            self.0.being_disabled.load(Ordering::Acquire) > 0 && self.is_being_disabled(&user.id);
        if marked {
            Arc::new(UserRow { disabled: true, ..UserRow::clone(user) })
        } else {
            Arc::clone(user)
        }
    }
}

async fn bring(
    auth: Auth,
    store: Store,
    id: UserId,
    last_may_go: bool,
    change: ChangeUser,
    tries: bool,
    reply: oneshot::Sender<Result<Committed, StoreError>>,
) {
    let first = store.update_user(&id, last_may_go, Arc::clone(&change)).await;
    let mut done = settle(&auth, &id, &first);
    // A caller that went away needs no reply.
    let _gone = reply.send(first);
    // One task a user goes on trying, however often the caller repeats. Where a repetition has come through meanwhile, the mark is
    // gone, and what was done to the user after that stays.
    let marked = auth.clone();
    let again: ChangeUser =
        Arc::new(
            move |user| if marked.is_being_disabled(&user.id) { change(user) } else { Ok(()) },
        );
    let mut wait = FIRST;
    while tries && !done && auth.is_being_disabled(&id) {
        auth.pause(wait).await;
        let outcome = store.update_user(&id, last_may_go, Arc::clone(&again)).await;
        if let Err(error) = &outcome {
            log::warn!("{id} is disabled here, and that is not durable yet: {error}");
        }
        done = settle(&auth, &id, &outcome);
        wait = (wait * 2).min(LONGEST);
    }
}

/// Whether the store has said its last word, which the tables have followed: done, or not to be.
fn settle(auth: &Auth, id: &UserId, outcome: &Result<Committed, StoreError>) -> bool {
    let last = matches!(
        outcome,
        Ok(_) | Err(StoreError::LastAdmin | StoreError::NotFound | StoreError::Conflict)
    );
    if last {
        auth.unmark(id);
    }
    last
}
