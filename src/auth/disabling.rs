//! A user disabled from end to end, as a revocation is: out in memory, then durable, then answered. When the store fails the
//! caller hears of it, the user stays out of this process, and the write is tried until the store takes it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Auth;
use crate::id::UserId;
use crate::store::{ChangeUser, Committed, Role, Store, StoreError, UserRow};

/// The first wait between tries; it doubles up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(100);
/// See [`FIRST`].
const LONGEST: Duration = Duration::from_secs(30);

impl Auth {
    /// Makes a change that disables a user. With `last_may_go` the last admin, too. An error that may pass by itself says that
    /// this is not yet durable; then it is being tried on. The work goes on when the caller goes away.
    pub async fn disable(&self, store: &Store, id: &UserId, last_may_go: bool, change: ChangeUser) -> Result<Committed, StoreError> {
        if !last_may_go && self.is_last_admin(id) {
            return Err(StoreError::LastAdmin);
        }
        let tries = self.0.disabling.insert(id.clone());
        self.shut_out(id);
        let (reply, first) = oneshot::channel();
        tokio::spawn(bring(self.clone(), store.clone(), id.clone(), last_may_go, change, tries, reply));
        first.await.map_err(|_| StoreError::Unavailable("the change was cut short".into()))?
    }

    /// Whether a user is disabled here, and not durably so.
    pub fn is_being_disabled(&self, id: &UserId) -> bool {
        self.0.disabling.contains(id)
    }

    fn is_last_admin(&self, id: &UserId) -> bool {
        let is = |user: &UserRow| user.role == Role::Admin && !user.disabled;
        self.user(id).is_some_and(|user| is(&user)) && self.users_with(|user| is(user) && user.id != *id).is_empty()
    }

    /// Makes the entry of a user who is being disabled say so, whatever the store knows yet.
    pub(super) fn shut_out(&self, id: &UserId) {
        if self.0.disabling.contains(id)
            && let Some(mut user) = self.0.users.get_mut(id)
            && !user.disabled
        {
            *user = Arc::new(UserRow { disabled: true, ..UserRow::clone(&user) });
        }
    }

    /// The store said that it is not to be: the user is what it was.
    fn let_in(&self, id: &UserId) {
        self.0.disabling.remove(id);
        if let Some(mut user) = self.0.users.get_mut(id) {
            *user = Arc::new(UserRow { disabled: false, ..UserRow::clone(&user) });
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
    // One task a user goes on trying, however often the caller repeats.
    let mut wait = FIRST;
    while tries && !done && auth.is_being_disabled(&id) {
        tokio::time::sleep(wait).await;
        let again = store.update_user(&id, last_may_go, Arc::clone(&change)).await;
        if let Err(error) = &again {
            log::warn!("{id} is disabled here, and that is not durable yet: {error}");
        }
        done = settle(&auth, &id, &again);
        wait = (wait * 2).min(LONGEST);
    }
}

/// Whether the store has said its last word; then the tables say the same.
fn settle(auth: &Auth, id: &UserId, outcome: &Result<Committed, StoreError>) -> bool {
    match outcome {
        // The tables have followed the store already.
        Ok(_) => _ = auth.0.disabling.remove(id),
        Err(StoreError::LastAdmin | StoreError::NotFound | StoreError::Conflict) => auth.let_in(id),
        Err(_) => return false,
    }
    true
}
