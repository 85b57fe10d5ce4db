//! `PATCH K/{id}`: a merge patch (RFC 7396). The owner may change name, metadata and status, and
//! bring the expiry forward. Limits and labels are changed by an admin or by the key that created
//! this one; the user of a key that no key created may narrow its limits. No key lifts a
//! restriction on itself.

use std::collections::BTreeMap;

use http::StatusCode;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::change::{check_labels, end};
use super::collection::{KeyCollection, enter, find};
use super::permission::{acting, changed_meanwhile, is_open, may_end, may_hold};
use super::record::shown;
use crate::api::body::{BodyFields, check_name, check_pairs};
use crate::api::page::Query;
use crate::api::route::{ApiRequest, ApiResult};
use crate::api::{answer, audit, limits};
use crate::app::App;
use rerouter_access::auth::{AgentCredential, Credential, Key, KeyState, Principal};
use rerouter_base::clock::rfc3339;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_store::{Action, Change, KeyPatch, KeyRow, KeyStatus, Limits, Seen, StoreError};

/// Tries of a key's patch when other changes come between.
const PATCH_TRIES: usize = 8;

/// BodyFields that restrict a key: no key changes them of itself or of an ancestor.
const RESTRICTIONS: [&str; 3] = ["limits", "labels", "status"];

/// `PATCH K/{id}`. The change applies to the next request with the key or a descendant of it.
pub(crate) async fn patch(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let (collection, _) = enter(who, request)?;
    Query::read(request.uri().query(), &[])?;
    // After a concurrent change the patch is applied again, to the new state.
    for _ in 0..PATCH_TRIES {
        let fields = BodyFields::read_if_any(request)?;
        let now = app.clock.now();
        let found = find(app, collection, who, request);
        let key = match &found {
            Ok(key) => key,
            // Errors of the patch itself come before 404.
            Err(_) => {
                return Err(check_alone(fields, collection)
                    .err()
                    .or(found.err())
                    .unwrap_or_else(|| Error::not_found("key")));
            }
        };
        let (patch, seen) = PatchedKey { app, who, collection, key, now }.decide(fields)?;
        let event =
            audit::event(app, who, request, Action::KeyUpdate, "key", key.row().id.as_str());
        match app.store.noting(event).patch_key(&key.row().id, patch, seen).await {
            Ok(committed) => {
                let unconfirmed = app.store.acknowledge(committed.rev).await?;
                for change in &committed.changes {
                    if let Change::Key(row) = change {
                        app.limits.expect_key(&app.auth, row, &app.store, now).await;
                    }
                }
                let key = find(app, collection, who, request)?;
                let response = answer::json(StatusCode::OK, &shown(&key, now));
                return Ok(answer::confirmed(response, unconfirmed));
            }
            Err(StoreError::Conflict) if still_acting(app, who) => {}
            Err(error) => return Err(changed_meanwhile(error)),
        }
    }
    Err(changed_meanwhile(StoreError::Conflict))
}

/// Whether the caller's key is unchanged since the request was authenticated.
fn still_acting(app: &App, who: &Principal) -> bool {
    who.key().is_none_or(|own| {
        app.auth
            .key(own.interface, &own.id)
            .is_some_and(|now| now.row().generation == own.generation)
    })
}

/// Checks a patch of a key that does not exist.
fn check_alone(mut fields: BodyFields, collection: &KeyCollection) -> Result<()> {
    let nothing: BTreeMap<String, String> = BTreeMap::new();
    name(&mut fields, "")?;
    pairs(&mut fields, "metadata", &nothing)?;
    pairs(&mut fields, "labels", &nothing)?;
    status(&mut fields, KeyStatus::Active)?;
    wanted_limits(&mut fields, collection, &Limits::default())?;
    fields.patched::<String>("expires_at", &Value::Null, "an RFC 3339 time")?;
    fields.finish()
}

fn name(fields: &mut BodyFields, before: &str) -> Result<Option<String>> {
    let Some(name) = fields.patched::<String>("name", &before, "a string")? else {
        return Ok(None);
    };
    let name = name.ok_or_else(|| Error::invalid("name", "name must not be null."))?;
    check_name(&name)?;
    Ok(Some(name))
}

fn pairs(
    fields: &mut BodyFields,
    name: &str,
    before: &impl Serialize,
) -> Result<Option<BTreeMap<String, String>>> {
    let pairs = fields
        .patched::<BTreeMap<String, String>>(name, before, "an object of strings")?
        .map(Option::unwrap_or_default);
    if let Some(pairs) = &pairs {
        check_pairs(name, pairs)?;
    }
    Ok(pairs)
}

fn status(fields: &mut BodyFields, before: KeyStatus) -> Result<Option<KeyStatus>> {
    let Some(word) = fields.patched::<String>("status", &before.as_str(), "active or inactive")?
    else {
        return Ok(None);
    };
    let known = word.and_then(|word| KeyStatus::parse(&word));
    known.map(Some).ok_or_else(|| Error::invalid("status", "status must be active or inactive."))
}

fn wanted_limits(
    fields: &mut BodyFields,
    collection: &KeyCollection,
    before: &Limits,
) -> Result<Option<Limits>> {
    let merged = fields.patched::<Map<String, Value>>("limits", before, "an object")?;
    merged.map(|merged| limits::read(collection.interface, merged.unwrap_or_default())).transpose()
}

/// A patch under way: the key, and who changes it.
struct PatchedKey<'a> {
    app: &'a App,
    who: &'a Principal,
    collection: &'static KeyCollection,
    key: &'a Key,
    now: Timestamp,
}

impl PatchedKey<'_> {
    fn row(&self) -> &KeyRow {
        self.key.row()
    }

    /// Returns the changes, and the state that the decision rests on.
    fn decide(&self, mut fields: BodyFields) -> Result<(KeyPatch, Seen)> {
        let row = self.row();
        let touched =
            RESTRICTIONS.into_iter().filter(|name| fields.speaks_of(name)).collect::<Vec<_>>();
        let name = name(&mut fields, &row.name)?;
        let metadata = pairs(&mut fields, "metadata", &row.metadata)?;
        let labels = pairs(&mut fields, "labels", &row.labels)?;
        let status = status(&mut fields, row.status)?;
        let limits = wanted_limits(&mut fields, self.collection, &row.limits)?;
        let before = row.expires_at.map(rfc3339);
        let expires_at = fields.patched::<String>("expires_at", &before, "an RFC 3339 time")?;
        fields.finish()?;
        self.may_change(&touched)?;
        if self.key.state(self.now) == KeyState::Revoked {
            return Err(Error::new(Kind::KeyRevoked, "The key is revoked."));
        }
        let maker = row.parent.as_ref().and_then(|id| self.app.auth.key(row.interface, id));
        let maker = maker.as_ref().map(|key| key.row());
        let patch = KeyPatch {
            // Activating a key that was created without a credential vouches for it.
            vouched_at: (status == Some(KeyStatus::Active) && self.key.is_dormant())
                .then_some(self.now),
            name,
            metadata,
            labels: labels.map(|labels| self.labels(labels)).transpose()?,
            limits: limits
                .map(|limits| self.limits(limits, maker.map(|maker| &maker.limits)))
                .transpose()?,
            status: status.map(|status| self.status(status)).transpose()?,
            expires_at: expires_at.map_or(Ok(None), |asked| {
                self.earlier(asked, maker.and_then(|maker| maker.expires_at))
            })?,
        };
        let maker = maker.map(|maker| (maker.id.clone(), maker.generation));
        Ok((patch, Seen { generation: row.generation, by: acting(self.who), maker }))
    }

    /// Refuses what the caller may not change.
    fn may_change(&self, touched: &[&'static str]) -> Result<()> {
        let row = self.row();
        if is_open(self.who) && !row.made_open {
            return Err(Error::new(
                Kind::Forbidden,
                "A key created while AGENT was enforced cannot be changed while AGENT is open.",
            ));
        }
        let Some(first) = touched.first() else { return Ok(()) };
        let holds_caller = |own: &KeyRow| {
            own.id == row.id || self.app.auth.ancestors(own).iter().any(|above| above.id == row.id)
        };
        if self.who.key().is_some_and(holds_caller) {
            let why = "A key may not change limits, labels or status of itself or of an ancestor.";
            return Err(Error::new(Kind::Forbidden, why).at(*first));
        }
        let creators = touched.iter().find(|name| **name != "status");
        if let Some(name) = creators.filter(|_| !self.who.is_admin() && !self.is_creator()) {
            return Err(Error::new(
                Kind::Forbidden,
                format!("Only an admin or the creator of the key may change {name}."),
            )
            .at(*name));
        }
        if touched.contains(&"labels") && row.parent.is_none() && !self.who.is_admin() {
            return Err(Error::new(
                Kind::Forbidden,
                "Only an admin may change labels of a key that no key created.",
            )
            .at("labels"));
        }
        Ok(())
    }

    /// Limits within those of the key that created this one. Only an admin widens those of a key
    /// that no key created.
    fn limits(&self, asked: Limits, outer: Option<&Limits>) -> Result<Limits> {
        let (row, limits) = (self.row(), limits::narrow(asked, outer)?);
        if row.parent.is_none()
            && !self.who.is_admin()
            && let Some(name) = limits.beyond(&row.limits)
        {
            let why = format!("Only an admin may widen or remove the limit {name}.");
            return Err(Error::new(Kind::Forbidden, why).at(format!("limits.{name}")));
        }
        // Day and month are counted apart: what was spent so far would be forgotten.
        let other_period = row
            .limits
            .budget
            .is_some_and(|old| limits.budget.is_some_and(|new| new.per != old.per));
        if other_period && row.parent.is_none() && !self.who.is_admin() {
            return Err(Error::new(
                Kind::Forbidden,
                "Only an admin may change the period of a budget.",
            )
            .at("limits.budget"));
        }
        Ok(limits)
    }

    /// Whether the caller created the key: the same key; for a key that no key created, a session
    /// of the same user, or on AGENT the tenant.
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

    /// Labels steer routing: without the admin role only the present ones and those of the caller's
    /// key are allowed.
    fn labels(&self, asked: BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
        check_labels(&asked)?;
        let made = self.who.key().map(|own| own.labels.clone()).unwrap_or_default();
        if self.who.is_admin() || asked == self.row().labels || asked == made {
            return Ok(asked);
        }
        Err(Error::new(
            Kind::Forbidden,
            "Only an admin may set labels other than those of the creator.",
        )
        .at("labels"))
    }

    /// Whoever may revoke a key may deactivate it, and nobody else. A key may activate only those
    /// whose secret it may have.
    fn status(&self, asked: KeyStatus) -> Result<KeyStatus> {
        let (row, on) = (self.row(), asked == KeyStatus::Active);
        let off = self.key.is_dormant() || row.status == KeyStatus::Inactive;
        if on && off && !may_hold(self.app, self.who, row) {
            return Err(Error::new(
                Kind::Forbidden,
                "This key has more rights than yours. Activate it with a session.",
            )
            .at("status"));
        }
        if !on && !off {
            may_end(self.app, self.who, row).map_err(|error| error.at("status"))?;
        }
        Ok(asked)
    }

    /// An expiry not later than the present one, nor than that of the key that created this one.
    /// Whoever may revoke a key may bring its end forward, and nobody else.
    fn earlier(
        &self,
        asked: Option<String>,
        outer: Option<Timestamp>,
    ) -> Result<Option<Timestamp>> {
        let before = self.row().expires_at;
        let later =
            || Error::invalid("expires_at", "expires_at may only be set to an earlier time.");
        let Some(asked) = asked else {
            return if before.is_none() { Ok(None) } else { Err(later()) };
        };
        let asked = end(&asked, self.now)?;
        if before.is_some_and(|before| asked > before) {
            return Err(later());
        }
        if outer.is_some_and(|outer| asked > outer) {
            return Err(
                Error::new(Kind::Forbidden, "A key may not outlive its creator.").at("expires_at")
            );
        }
        if before != Some(asked) {
            may_end(self.app, self.who, self.row()).map_err(|error| error.at("expires_at"))?;
        }
        Ok(Some(asked))
    }
}
