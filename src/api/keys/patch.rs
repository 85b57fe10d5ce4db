//! `PATCH K/{id}`: a merge patch (RFC 7396) of what may be changed of a key. Its owner names it, switches it and ends it
//! earlier; limits and labels are an admin's and those of the key that made it; of what no key made, its user narrows the limits.
//! No key changes what holds it.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Shelf, acting, end, enter, find, is_open, limits, may_hold, meanwhile, shown};
use crate::api::body::{Fields, check_name, check_pairs};
use crate::api::page::Query;
use crate::api::{answer, audit};
use crate::app::App;
use crate::auth::{AgentCredential, Credential, Key, KeyState, Principal};
use crate::bounds;
use crate::clock::rfc3339;
use crate::error::{Error, Kind, Result};
use crate::store::{Action, Change, KeyPatch, KeyRow, KeyStatus, Limits, Seen, StoreError};

/// What a patch may change that holds the key: no key changes it of itself or of one above it.
const HOLDS: [&str; 3] = ["limits", "labels", "status"];

/// `PATCH K/{id}`. When this answers, the next request with the key, or with one that descends from it, finds it changed.
pub async fn patch(
    app: &App,
    who: &Principal,
    request: &Request<Bytes>,
) -> Result<Response<Bytes>> {
    let (shelf, user) = enter(who, request)?;
    Query::read(request.uri().query(), &[])?;
    // Another change that comes between is no reason to fail: this one is made anew of what is then.
    for _ in 0..bounds::PATCH_TRIES {
        let fields = Fields::read_if_any(request)?;
        let now = app.clock.now();
        let found = find(app, shelf, who, &user, request);
        let key = match &found {
            Ok(key) => key,
            // What is wrong with the patch by itself is said first.
            Err(_) => {
                return Err(read_alone(fields, shelf)
                    .err()
                    .or(found.err())
                    .unwrap_or_else(|| Error::not_found("key")));
            }
        };
        let (patch, seen) = Target { app, who, shelf, key, now }.decide(fields)?;
        let event =
            audit::event(app, who, request, Action::KeyUpdate, "key", key.row().id.as_str());
        match app.store.noting(event).patch_key(&key.row().id, patch, seen).await {
            Ok(committed) => {
                app.store.acknowledge(committed.rev).await?;
                for change in &committed.changes {
                    if let Change::Key(row) = change {
                        app.limits.expect_key(&app.auth, row, &app.store, now).await;
                    }
                }
                let key = find(app, shelf, who, &user, request)?;
                return Ok(answer::json(StatusCode::OK, &shown(&key, now)));
            }
            Err(StoreError::Conflict) if still_acting(app, who) => {}
            Err(error) => return Err(meanwhile(error)),
        }
    }
    Err(meanwhile(StoreError::Conflict))
}

/// Whether the key that acts is still what it was when the request was let in.
fn still_acting(app: &App, who: &Principal) -> bool {
    who.key().is_none_or(|own| {
        app.auth
            .key(own.interface, &own.id)
            .is_some_and(|now| now.row().generation == own.generation)
    })
}

/// Reads a patch of a key that is not there.
fn read_alone(mut fields: Fields, shelf: &Shelf) -> Result<()> {
    let nothing: BTreeMap<String, String> = BTreeMap::new();
    name(&mut fields, "")?;
    pairs(&mut fields, "metadata", &nothing)?;
    pairs(&mut fields, "labels", &nothing)?;
    status(&mut fields, KeyStatus::Active)?;
    wanted_limits(&mut fields, shelf, &Limits::default())?;
    fields.patched::<String>("expires_at", &Value::Null, "an RFC 3339 time")?;
    fields.finish()
}

fn name(fields: &mut Fields, before: &str) -> Result<Option<String>> {
    let Some(name) = fields.patched::<String>("name", &before, "a string")? else {
        return Ok(None);
    };
    let name = name.ok_or_else(|| Error::invalid("name", "A key always has a name."))?;
    check_name(&name)?;
    Ok(Some(name))
}

fn pairs(
    fields: &mut Fields,
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

fn status(fields: &mut Fields, before: KeyStatus) -> Result<Option<KeyStatus>> {
    let Some(word) = fields.patched::<String>("status", &before.as_str(), "active or inactive")?
    else {
        return Ok(None);
    };
    let known = word.and_then(|word| KeyStatus::parse(&word));
    known.map(Some).ok_or_else(|| Error::invalid("status", "status must be active or inactive."))
}

fn wanted_limits(fields: &mut Fields, shelf: &Shelf, before: &Limits) -> Result<Option<Limits>> {
    let merged = fields.patched::<Map<String, Value>>("limits", before, "an object")?;
    merged.map(|merged| limits::read(shelf.interface, merged.unwrap_or_default())).transpose()
}

/// A key that is to be changed, and by whom.
struct Target<'a> {
    app: &'a App,
    who: &'a Principal,
    shelf: &'static Shelf,
    key: &'a Key,
    now: Timestamp,
}

impl Target<'_> {
    fn row(&self) -> &KeyRow {
        self.key.row()
    }

    /// What the patch makes of the key, and what that was decided on.
    fn decide(&self, mut fields: Fields) -> Result<(KeyPatch, Seen)> {
        let row = self.row();
        let touched = HOLDS.into_iter().filter(|name| fields.speaks_of(name)).collect::<Vec<_>>();
        let name = name(&mut fields, &row.name)?;
        let metadata = pairs(&mut fields, "metadata", &row.metadata)?;
        let labels = pairs(&mut fields, "labels", &row.labels)?;
        let status = status(&mut fields, row.status)?;
        let limits = wanted_limits(&mut fields, self.shelf, &row.limits)?;
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
            // To switch on what nobody in particular made is to vouch for it.
            vouched_at: (status == Some(KeyStatus::Active) && self.key.is_dormant())
                .then_some(self.now),
            name,
            metadata,
            labels: labels.map(|labels| self.labels(labels)).transpose()?,
            limits: limits
                .map(|limits| self.limits(limits, maker.map(|maker| &maker.limits)))
                .transpose()?,
            status: status.map(|status| self.switch(status)).transpose()?,
            expires_at: expires_at.map_or(Ok(None), |asked| {
                self.earlier(asked, maker.and_then(|maker| maker.expires_at))
            })?,
        };
        let maker = maker.map(|maker| (maker.id.clone(), maker.generation));
        Ok((patch, Seen { generation: row.generation, by: acting(self.who), maker }))
    }

    /// Refuses what is not the caller's to change.
    fn may_change(&self, touched: &[&'static str]) -> Result<()> {
        let row = self.row();
        if is_open(self.who) && !row.made_open {
            return Err(Error::new(
                Kind::Forbidden,
                "A key that was made while AGENT was enforced is not changed while it is open.",
            ));
        }
        let Some(first) = touched.first() else { return Ok(()) };
        let holds_caller = |own: &KeyRow| {
            own.id == row.id || self.app.auth.ancestors(own).iter().any(|above| above.id == row.id)
        };
        if self.who.key().is_some_and(holds_caller) {
            let why = "No key changes limits, labels or status of itself or of one that it descends from.";
            return Err(Error::new(Kind::Forbidden, why).at(*first));
        }
        let creators = touched.iter().find(|name| **name != "status");
        if let Some(name) = creators.filter(|_| !self.who.is_admin() && !self.is_creator()) {
            return Err(Error::new(
                Kind::Forbidden,
                format!("Only an admin and the key's creator change {name}."),
            )
            .at(*name));
        }
        if touched.contains(&"labels") && row.parent.is_none() && !self.who.is_admin() {
            // They are an admin's doing, or there are none.
            return Err(Error::new(
                Kind::Forbidden,
                "Only an admin changes labels of a key that no key made.",
            )
            .at("labels"));
        }
        Ok(())
    }

    /// Limits within those of the key that made it; of what no key made, only an admin takes off what is there.
    fn limits(&self, asked: Limits, outer: Option<&Limits>) -> Result<Limits> {
        let (row, limits) = (self.row(), limits::narrow(asked, outer)?);
        if row.parent.is_none()
            && !self.who.is_admin()
            && let Some(name) = limits.beyond(&row.limits)
        {
            let why = format!("Only an admin widens the limit on {name}, or takes it off.");
            return Err(Error::new(Kind::Forbidden, why).at(format!("limits.{name}")));
        }
        // Each time has an account of its own: what was used of the one before would be forgotten.
        let other_time = row
            .limits
            .budget
            .is_some_and(|old| limits.budget.is_some_and(|new| new.per != old.per));
        if other_time && row.parent.is_none() && !self.who.is_admin() {
            return Err(Error::new(
                Kind::Forbidden,
                "Only an admin changes the time that a budget is for.",
            )
            .at("limits.budget"));
        }
        Ok(limits)
    }

    /// Whether the caller is who made the key: the very key that did, or for what no key made the user, by any session, and on
    /// AGENT its tenant.
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

    /// Labels steer routing: whoever is no admin has the choice between those that are there and those of a key that they make.
    fn labels(&self, asked: BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
        super::check_labels(&asked)?;
        let made = self.who.key().map(|own| own.labels.clone()).unwrap_or_default();
        if self.who.is_admin() || asked == self.row().labels || asked == made {
            return Ok(asked);
        }
        Err(Error::new(
            Kind::Forbidden,
            "Only an admin sets labels; else a key has those of the key that made it.",
        )
        .at("labels"))
    }

    /// Switching off is anybody's who may end the key. Switching on gives whoever has its secret what it may do: a key does it
    /// for those only whose secret it could have.
    fn switch(&self, asked: KeyStatus) -> Result<KeyStatus> {
        let (row, on) = (self.row(), asked == KeyStatus::Active);
        let off = self.key.is_dormant() || row.status == KeyStatus::Inactive;
        if on && off && !may_hold(self.app, self.who, row) {
            return Err(Error::new(
                Kind::Forbidden,
                "This key may do more than yours: a session switches it on.",
            )
            .at("status"));
        }
        Ok(asked)
    }

    /// An end that is not later than the one before, nor than that of the key that made it.
    fn earlier(
        &self,
        asked: Option<String>,
        outer: Option<Timestamp>,
    ) -> Result<Option<Timestamp>> {
        let before = self.row().expires_at;
        let later = || Error::invalid("expires_at", "expires_at can only be brought forward.");
        let Some(asked) = asked else {
            // There is none, and none is asked for.
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
        Ok(Some(asked))
    }
}
