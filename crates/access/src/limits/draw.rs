//! The keys and users whose limits a request draws on.

use crate::auth::{Auth, Principal};
use rerouter_base::id::{KeyId, UserId};
use rerouter_store::{Budget, ByCount, KeyRow, LimitOwner, Limits};

/// A key or a user. The order of subjects is the order in which they are locked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    User(UserId),
    /// All requests of a key and of the keys that descend from it.
    Key(KeyId),
}

impl Subject {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Subject::User(id) => id.as_str(),
            Subject::Key(id) => id.as_str(),
        }
    }

    /// The subject with this id, as [`Subject::as_str`] returns it.
    pub(super) fn known(id: &str) -> Self {
        match id.starts_with(UserId::PREFIX) {
            true => Subject::User(UserId::known(id)),
            false => Subject::Key(KeyId::known(id)),
        }
    }
}

/// The limits that are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    pub counts: ByCount<u64>,
    pub budget: Option<Budget>,
}

impl From<&Limits> for Caps {
    fn from(limits: &Limits) -> Self {
        Caps { counts: limits.counts(), budget: limits.budget }
    }
}

/// One subject that a request draws on, with its limits as they are now.
#[derive(Clone, Debug)]
pub struct Draw {
    pub subject: Subject,
    pub caps: Caps,
    /// The owner of the limits, as clients are told.
    pub whose: LimitOwner,
}

impl Draw {
    fn of(subject: impl FnOnce() -> Subject, limits: &Limits, whose: LimitOwner) -> Option<Self> {
        limits.are_counted().then(|| Draw { subject: subject(), caps: limits.into(), whose })
    }
}

/// The user, the key and the keys above it, without those that have no counted limits.
pub fn draws(auth: &Auth, who: &Principal) -> Vec<Draw> {
    let user = match who {
        Principal::User { user, .. } => of_user(&user.id, &user.limits),
        _ => None,
    };
    in_order(auth, user, who.key())
}

/// The subjects whose limits the requests of a key count against.
pub fn draws_of_key(auth: &Auth, key: &KeyRow) -> Vec<Draw> {
    let user = auth.user(&key.owner).and_then(|user| of_user(&user.id, &user.limits));
    in_order(auth, user, Some(key))
}

fn in_order(auth: &Auth, user: Option<Draw>, key: Option<&KeyRow>) -> Vec<Draw> {
    let mut draws = Vec::from_iter(user);
    if let Some(key) = key.filter(|key| key.limits.are_counted() || key.parent.is_some()) {
        draws.extend(of_key(auth, key));
        // Key ids are sorted by time, so ancestors come first unless the clock went back.
        draws.sort_by(|a, b| a.subject.cmp(&b.subject));
    }
    draws
}

/// The key and the keys above it that have counted limits.
pub(super) fn of_key(auth: &Auth, key: &KeyRow) -> Vec<Draw> {
    let above = if key.parent.is_some() { auth.ancestors(key) } else { Vec::new() };
    let above = above.iter().filter_map(|key| {
        Draw::of(|| Subject::Key(key.id.clone()), &key.limits, LimitOwner::KeyAbove)
    });
    above.chain(Draw::of(|| Subject::Key(key.id.clone()), &key.limits, LimitOwner::Key)).collect()
}

/// The user, if it has counted limits.
pub(super) fn of_user(id: &UserId, limits: &Limits) -> Option<Draw> {
    Draw::of(|| Subject::User(id.clone()), limits, LimitOwner::User)
}
