//! `PATCH K/{id}`: a merge patch (RFC 7396). The owner may change name, metadata and status, and
//! bring the expiry forward. Limits and labels may be changed by an admin or by the key that
//! created this one. If no key created it, its user may narrow the limits. No key may lift its own
//! restrictions.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::change::{check_labels, end};
use super::collection::{KeyCollection, enter, find};
use super::permission::{acting, changed_meanwhile, is_open, may_end, may_hold};
use super::record::shown;
use crate::api::body::{check_name, check_pairs};
use crate::api::call::{Answer, Call};
use crate::api::limits;
use crate::app::App;
use rerouter_access::auth::{AgentCredential, Credential, Key, Principal};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_records::Time;
use rerouter_records::key::{KeyPatch, KeyRecord};
use rerouter_records::patch::Patch;
use rerouter_store::{Action, KeyChange, KeyRow, KeyState, KeyStatus, Limits, Seen, StoreError};

/// How often a key's patch is tried if concurrent changes interfere.
const PATCH_TRIES: usize = 8;

/// `PATCH K/{id}`. The change applies from the next request with the key or a descendant of it.
pub(crate) async fn patch(call: Call<'_>, patch: KeyPatch) -> Result<Answer<KeyRecord>> {
    let ((collection, _), Call { app, who, .. }) = (enter(call)?, call);
    // After a concurrent change the patch is applied again, to the new state.
    for _ in 0..PATCH_TRIES {
        let (key, now) = (find(call, collection), call.now());
        // Errors of the patch itself come before 404.
        let wanted = Wanted::of(&patch, collection, key.as_ref().ok().map(|key| &**key.row()))?;
        let key = key?;
        let changed = PatchedKey { app, who, key: &key, now };
        let (change, seen) = changed.decide(&patch, wanted)?;
        let store = call.noting(Action::KeyUpdate, "key", key.row().id.as_str());
        match store.patch_key(&key.row().id, change, seen).await {
            Ok(committed) => {
                let key = find(call, collection)?;
                return call.commit(&committed, shown(&key, now)).await;
            }
            Err(StoreError::Conflict) if still_acting(app, who) => {}
            Err(error) => return Err(changed_meanwhile(error)),
        }
    }
    Err(changed_meanwhile(StoreError::Conflict))
}

/// Whether the caller's own key has not changed since the request was authenticated.
fn still_acting(app: &App, who: &Principal) -> bool {
    who.key().is_none_or(|own| {
        app.auth
            .key(own.interface, &own.id)
            .is_some_and(|now| now.row().generation == own.generation)
    })
}

struct Wanted {
    metadata: Option<BTreeMap<String, String>>,
    labels: Option<BTreeMap<String, String>>,
    limits: Option<Limits>,
}

impl Wanted {
    fn of(patch: &KeyPatch, collection: &KeyCollection, row: Option<&KeyRow>) -> Result<Self> {
        patch.name.set().map_or(Ok(()), |name| check_name(name))?;
        let limits = row.map(|row| row.limits.clone()).unwrap_or_default();
        let limits = limits::merged(&limits, &patch.limits)?;
        let metadata = row.map(|row| row.metadata.to_map()).unwrap_or_default();
        let labels = row.map(|row| (*row.labels).clone()).unwrap_or_default();
        Ok(Wanted {
            metadata: merged("metadata", metadata, &patch.metadata)?,
            labels: merged("labels", labels, &patch.labels)?,
            limits: limits
                .map(|limits| limits::allowed(collection.interface, limits))
                .transpose()?,
        })
    }
}

/// The pairs of a field after a merge patch; `None` if the patch has none.
fn merged(
    field: &str,
    before: BTreeMap<String, String>,
    patch: &Patch<BTreeMap<String, Option<String>>>,
) -> Result<Option<BTreeMap<String, String>>> {
    let pairs = match patch {
        Patch::Absent => return Ok(None),
        Patch::Null => BTreeMap::new(),
        Patch::Set(changes) => {
            let mut pairs = before;
            for (name, value) in changes {
                match value {
                    Some(value) => pairs.insert(name.clone(), value.clone()),
                    None => pairs.remove(name),
                };
            }
            pairs
        }
    };
    check_pairs(field, &pairs)?;
    Ok(Some(pairs))
}

struct PatchedKey<'a> {
    app: &'a App,
    who: &'a Principal,
    key: &'a Key,
    now: Timestamp,
}

impl PatchedKey<'_> {
    fn row(&self) -> &KeyRow {
        self.key.row()
    }

    /// Returns the changes, and the state on which they were decided.
    fn decide(&self, patch: &KeyPatch, wanted: Wanted) -> Result<(KeyChange, Seen)> {
        let row = self.row();
        // The fields that restrict a key: no key may change them on itself or on an ancestor.
        let restricting = [
            ("limits", patch.limits.is_present()),
            ("labels", patch.labels.is_present()),
            ("status", patch.status.is_present()),
        ];
        let touched: Vec<&str> =
            restricting.into_iter().filter(|(_, touched)| *touched).map(|(name, _)| name).collect();
        self.may_change(&touched)?;
        if self.key.state(self.now) == KeyState::Revoked {
            return Err(Error::new(Kind::KeyRevoked, "The key is revoked."));
        }
        let maker = row.parent.as_ref().and_then(|id| self.app.auth.key(row.interface, id));
        let maker = maker.as_ref().map(|key| key.row());
        let status = patch.status.set().copied();
        let change = KeyChange {
            // Activating a key that was created without a credential vouches for it.
            vouched_at: (status == Some(KeyStatus::Active) && self.key.is_dormant())
                .then_some(self.now),
            name: patch.name.set().map(|name| name.as_str().into()),
            metadata: wanted.metadata,
            labels: wanted.labels.map(|labels| self.labels(labels)).transpose()?,
            limits: wanted
                .limits
                .map(|limits| self.limits(limits, maker.map(|maker| &*maker.limits)))
                .transpose()?,
            status: status.map(|status| self.status(status)).transpose()?,
            expires_at: patch.expires_at.change().map_or(Ok(None), |asked| {
                self.earlier(asked.copied(), maker.and_then(|maker| maker.expires_at))
            })?,
        };
        let maker = maker.map(|maker| (maker.id.clone(), maker.generation));
        Ok((change, Seen { generation: row.generation, by: acting(self.who), maker }))
    }

    fn may_change(&self, touched: &[&'static str]) -> Result<()> {
        let row = self.row();
        if is_open(self.who) && !row.made_open {
            return Err(Error::forbidden(
                "A key created while AGENT was enforced cannot be changed while AGENT is open.",
            ));
        }
        let Some(first) = touched.first() else { return Ok(()) };
        let holds_caller = |own: &KeyRow| {
            own.id == row.id || self.app.auth.ancestors(own).iter().any(|above| above.id == row.id)
        };
        if self.who.key().is_some_and(holds_caller) {
            let why = "A key may not change limits, labels or status of itself or of an ancestor.";
            return Err(Error::forbidden(why).at(*first));
        }
        let creators = touched.iter().find(|name| **name != "status");
        if let Some(name) = creators.filter(|_| !self.who.is_admin() && !self.is_creator()) {
            return Err(Error::forbidden(format!(
                "Only an admin or the creator of the key may change {name}."
            ))
            .at(*name));
        }
        if touched.contains(&"labels") && row.parent.is_none() && !self.who.is_admin() {
            return Err(Error::forbidden(
                "Only an admin may change labels of a key that no key created.",
            )
            .at("labels"));
        }
        Ok(())
    }

    /// The new limits, within those of the key that created this one. If no key created it, only an
    /// admin may widen the limits.
    fn limits(&self, asked: Limits, outer: Option<&Limits>) -> Result<Limits> {
        let (row, limits) = (self.row(), limits::narrow(asked, outer)?);
        if row.parent.is_none()
            && !self.who.is_admin()
            && let Some(name) = limits.beyond(&row.limits)
        {
            let why = format!("Only an admin may widen or remove the limit {name}.");
            return Err(Error::forbidden(why).at(format!("limits.{name}")));
        }
        // Budgets per day and per month are counted separately, so a change of the period would
        // forget what was spent.
        let other_period = row
            .limits
            .budget
            .is_some_and(|old| limits.budget.is_some_and(|new| new.per != old.per));
        if other_period && row.parent.is_none() && !self.who.is_admin() {
            return Err(Error::forbidden("Only an admin may change the period of a budget.")
                .at("limits.budget"));
        }
        Ok(limits)
    }

    /// Whether the caller created the key: the key that created it or, if no key did, a session of
    /// the same user, or on AGENT the tenant.
    fn is_creator(&self) -> bool {
        let row = self.row();
        match self.who {
            Principal::User { via: Credential::Key(own), .. }
            | Principal::AgentTenant { via: AgentCredential::Key(own) } => {
                row.parent.as_ref() == Some(&own.id)
            }
            Principal::User { user, via: Credential::Session(session) } => {
                let known = row
                    .maker
                    .as_ref()
                    .map_or(row.created_by.id == session.as_str(), |maker| *maker == user.id);
                row.parent.is_none() && row.created_by.kind == "session" && known
            }
            Principal::AgentTenant { via: AgentCredential::CloudKey | AgentCredential::Open } => {
                row.parent.is_none()
            }
            Principal::Admin => true,
            Principal::Node { .. } | Principal::Anonymous => false,
        }
    }

    /// The new labels. Labels steer routing: without the admin role only the key's current labels
    /// and those of the caller's key are allowed.
    fn labels(&self, asked: BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
        check_labels(&asked)?;
        let made = self.who.key().map(|own| own.labels.clone()).unwrap_or_default();
        if self.who.is_admin() || asked == *self.row().labels || asked == *made {
            return Ok(asked);
        }
        Err(Error::forbidden("Only an admin may set labels other than those of the creator.")
            .at("labels"))
    }

    /// The new status. Only a caller who may revoke the key may deactivate it. A caller's key may
    /// activate only keys whose secret it may hold.
    fn status(&self, asked: KeyStatus) -> Result<KeyStatus> {
        let (row, on) = (self.row(), asked == KeyStatus::Active);
        let off = self.key.is_dormant() || row.status == KeyStatus::Inactive;
        if on && off && !may_hold(self.app, self.who, row) {
            return Err(Error::forbidden(
                "This key has more rights than yours. Activate it with a session.",
            )
            .at("status"));
        }
        if !on && !off {
            may_end(self.app, self.who, row).map_err(|error| error.at("status"))?;
        }
        Ok(asked)
    }

    /// The new expiry, not later than the current one or that of the key that created this one.
    /// Only a caller who may revoke the key may bring it forward.
    fn earlier(&self, asked: Option<Time>, outer: Option<Timestamp>) -> Result<Option<Timestamp>> {
        let before = self.row().expires_at;
        let later =
            || Error::invalid("expires_at", "expires_at may only be set to an earlier time.");
        let Some(asked) = asked else {
            return if before.is_none() { Ok(None) } else { Err(later()) };
        };
        let asked = end(asked, self.now)?;
        if before.is_some_and(|before| asked > before) {
            return Err(later());
        }
        if outer.is_some_and(|outer| asked > outer) {
            return Err(Error::forbidden("A key may not outlive its creator.").at("expires_at"));
        }
        if before != Some(asked) {
            may_end(self.app, self.who, self.row()).map_err(|error| error.at("expires_at"))?;
        }
        Ok(Some(asked))
    }
}
