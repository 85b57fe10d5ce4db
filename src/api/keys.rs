//! API keys, the same nouns and verbs on every interface: the path says which one. Nothing here ever grants more than
//! the caller has.

mod create;
mod patch;
mod usage;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use http::{Request, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::body::{Fields, check_pairs};
use super::page::{self, Query};
use super::{PathParams, answer, audit, limits};
use crate::app::App;
use crate::auth::{
    ADMIN_SCOPE, AGENT_SCOPES, AgentCredential, CAPTURE_LABEL, CaptureLevel, DEFAULT_SCOPES, Key,
    KeyState, PIN_SCOPES, Principal, RESERVED_SCOPES, token,
};
use crate::bounds;
use crate::clock::rfc3339;
use crate::error::{Error, Kind, Result};
use crate::id::{KeyId, UserId};
use crate::interface::{Interface, Surface};
use crate::secret::Secret;
use crate::store::{Action, Change, Event, KeyRow, NewSecret, Seen, StoreError};

pub use create::create;
pub use patch::patch;

/// The keys of one interface: where they are, and which scopes there are.
struct Shelf {
    interface: Interface,
    path: &'static str,
    /// What a key has when its maker says nothing.
    defaults: &'static [&'static str],
    /// What only an admin grants.
    reserved: &'static [&'static str],
    /// What a key needs to come here.
    needed: &'static str,
}

/// One row an interface.
const SHELVES: &[Shelf] = &[
    Shelf {
        interface: Interface::Pin,
        path: "/v1/apikeys",
        defaults: &PIN_SCOPES,
        reserved: &[ADMIN_SCOPE],
        needed: "user",
    },
    Shelf {
        interface: Interface::Agent,
        path: "/v1/api-keys",
        defaults: &AGENT_SCOPES,
        reserved: &[],
        needed: "keys",
    },
    Shelf {
        interface: Interface::Router,
        path: "/v1/router/keys",
        defaults: &DEFAULT_SCOPES,
        reserved: &RESERVED_SCOPES,
        needed: "keys",
    },
];

/// `GET K`
pub async fn list(app: &App, who: &Principal, request: &Request<Bytes>) -> Result<Response<Bytes>> {
    let (shelf, user) = enter(who, request)?;
    let query = Query::read(request.uri().query(), &["limit", "after", "status", "owner"])?;
    let limit = query.limit()?;
    let parse = |text| {
        KeyId::parse(text).ok_or_else(|| Error::invalid("after", "after must be the id of a key."))
    };
    let after = query.get("after").map(parse).transpose()?;
    let parse = |text| {
        KeyState::parse(text).ok_or_else(|| {
            Error::invalid("status", "status is active, inactive, expired or revoked.")
        })
    };
    let status = query.get("status").map(parse).transpose()?;
    let owner = match query.get("owner") {
        None => (!who.is_admin()).then_some(user),
        Some(owner) if who.is_admin() || owner == user.as_str() => Some(UserId::known(owner)),
        Some(_) => {
            return Err(
                Error::new(Kind::Forbidden, "Only an admin lists the keys of others.").at("owner")
            );
        }
    };
    let now = app.clock.now();
    let keep = |key: &Key| match status {
        Some(status) => key.state(now) == status,
        None => key.state(now) != KeyState::Revoked,
    };
    let found =
        app.auth.keys(shelf.interface, owner.as_ref(), after.as_ref(), limit + 1, keep).await;
    let found = found.iter().map(|key| shown(key, now)).collect();
    Ok(answer::json(StatusCode::OK, &page::list(found, limit)))
}

/// `GET K/{id}`; of a ROUTER key also what is left of its limits.
pub async fn get(app: &App, who: &Principal, request: &Request<Bytes>) -> Result<Response<Bytes>> {
    let (shelf, user) = enter(who, request)?;
    Query::read(request.uri().query(), &[])?;
    let key = find(app, shelf, who, &user, request)?;
    let now = app.clock.now();
    let mut record = shown(&key, now);
    if let (Value::Object(record), Interface::Router) = (&mut record, shelf.interface) {
        record.insert("usage".to_owned(), usage::usage(app, &key, now));
    }
    Ok(answer::json(StatusCode::OK, &record))
}

/// `POST K/{id}/rotate`: another secret under the same id. When this answers the old one is dead, or accepted for the
/// grace that was asked for; when the store fails nothing has changed.
pub async fn rotate(
    app: &App,
    who: &Principal,
    request: &Request<Bytes>,
) -> Result<Response<Bytes>> {
    let (shelf, user) = enter(who, request)?;
    Query::read(request.uri().query(), &[])?;
    let mut fields = Fields::read_if_any(request)?;
    let grace = grace(&mut fields)?;
    fields.finish()?;
    let key = find(app, shelf, who, &user, request)?;
    if !may_hold(app, who, key.row()) {
        return Err(Error::new(
            Kind::Forbidden,
            "This key may do more than yours: rotate it by itself or by a session.",
        ));
    }
    let built_in = UserId::admin();
    if key.row().owner == built_in && who.user_id() != Some(built_in) {
        // An admin who is one no longer would have it still.
        return Err(Error::new(
            Kind::Forbidden,
            "The keys of usr_admin are rotated by ADMIN_API_KEY and by themselves.",
        ));
    }
    if !may_keep(who, key.row()) {
        return Err(Error::new(
            Kind::Forbidden,
            "What another admin granted is rotated by the key's owner, by that admin or by ADMIN_API_KEY.",
        ));
    }
    if is_open(who) && !key.row().made_open {
        // Its new secret would be good once AGENT is enforced again, and nobody has shown who they are.
        return Err(Error::new(
            Kind::Forbidden,
            "A key that was made while AGENT was enforced is not rotated while it is open.",
        ));
    }
    let now = app.clock.now();
    if key.state(now) == KeyState::Revoked {
        return Err(Error::new(Kind::KeyRevoked, "The key is revoked."));
    }
    let secret = token::mint(shelf.interface.key_prefix(), &app.random);
    let new = NewSecret {
        redacted: token::redact(secret.expose()),
        digest: app.auth.digest(&secret),
        grace_ends: grace
            .map(|grace| now.checked_add(grace))
            .transpose()
            .map_err(Error::internal)?,
    };
    let seen = Seen { generation: key.row().generation, by: acting(who), ..Seen::default() };
    let event = noted(app, who, &user, request, Action::KeyRotate, key.row());
    let committed = app
        .store
        .noting(event)
        .rotate_key(&key.row().id, new, seen, now)
        .await
        .map_err(meanwhile)?;
    app.store.acknowledge(committed.rev).await?;
    let row = committed.changes.iter().find_map(|change| match change {
        Change::Key(row) => Some(row),
        _ => None,
    });
    let row = row.ok_or_else(|| Error::internal("a rotation changed nothing"))?;
    let live = app.auth.key(shelf.interface, &row.id);
    let standing = live.as_ref().map_or(KeyState::Revoked, |key| key.state(now));
    let used = live.and_then(|key| key.last_used());
    Ok(answer::secret_json(StatusCode::OK, &with_secret(record(row, standing, used, now), &secret)))
}

/// `DELETE K/{id}`: dead in memory, then durable, then 204; `?descendants=true`: and all that descend from it, whosever they
/// are. A key may end itself and others of its owner.
pub async fn revoke(
    app: &App,
    who: &Principal,
    request: &Request<Bytes>,
) -> Result<Response<Bytes>> {
    let (shelf, user) = enter(who, request)?;
    let query = Query::read(request.uri().query(), &["descendants"])?;
    let descendants = match query.get("descendants") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Error::invalid("descendants", "descendants is true or false.")),
    };
    let key = find(app, shelf, who, &user, request)?;
    if is_open(who) && !key.row().made_open {
        // It would be dead once AGENT is enforced again, and nobody has shown who they are.
        return Err(Error::new(
            Kind::Forbidden,
            "A key that was made while AGENT was enforced is not ended while it is open.",
        ));
    }
    let (id, now) = (&key.row().id, app.clock.now());
    let store =
        app.store.noting(audit::event(app, who, request, Action::KeyRevoke, "key", id.as_str()));
    let committed = match descendants {
        false => app.auth.revoke(&store, id, now).await?,
        true => app.auth.revoke_descent(&store, id, now).await?,
    };
    app.store.acknowledge(committed.rev).await?;
    Ok(answer::no_content())
}

/// The shelf of the path, and the user at it, who may come with this credential.
fn enter(who: &Principal, request: &Request<Bytes>) -> Result<(&'static Shelf, UserId)> {
    let interface = Surface::of(request.uri().path()).interface();
    let shelf = SHELVES
        .iter()
        .find(|shelf| shelf.interface == interface)
        .ok_or_else(|| Error::not_found("route"))?;
    if !who.has_scope(shelf.needed) {
        return Err(Error::new(
            Kind::InsufficientScope,
            format!("The scope {} is needed.", shelf.needed),
        ));
    }
    let user = match who {
        Principal::AgentTenant { .. } => UserId::tenant(),
        _ => who.user_id().ok_or_else(|| Error::new(Kind::Forbidden, "Keys belong to users."))?,
    };
    Ok((shelf, user))
}

/// How long the old secret stays, when at all.
fn grace(fields: &mut Fields) -> Result<Option<std::time::Duration>> {
    const NAME: &str = "grace_period_seconds";
    let what = format!("a whole number from 0 to {}", bounds::ROTATION_GRACE_S);
    let seconds: u64 = fields.take(NAME, &what)?.unwrap_or(0);
    if seconds > bounds::ROTATION_GRACE_S {
        return Err(Error::invalid(NAME, format!("{NAME} must be {what}.")));
    }
    Ok((seconds > 0).then(|| std::time::Duration::from_secs(seconds)))
}

/// Whether nobody has shown who they are.
fn is_open(who: &Principal) -> bool {
    matches!(who, Principal::AgentTenant { via: AgentCredential::Open })
}

/// What is noted where somebody is shown the secret of a key. One of another user's is noted with that user as well: for as long as
/// it is good, what is done by it looks like theirs. `ADMIN_API_KEY` has every secret anyway.
fn noted(
    app: &App,
    who: &Principal,
    user: &UserId,
    request: &Request<Bytes>,
    action: Action,
    key: &KeyRow,
) -> Event {
    let event = audit::event(app, who, request, action, "key", key.id.as_str());
    if key.owner == *user || matches!(who, Principal::Admin) {
        event
    } else {
        event.also("user", key.owner.as_str())
    }
}

/// The key that acts, as a change of another is decided on it.
fn acting(who: &Principal) -> Option<(KeyId, u32)> {
    who.key().map(|by| (by.id.clone(), by.generation))
}

/// What the store says of a change that was decided on what is no more.
fn meanwhile(error: StoreError) -> Error {
    match error {
        StoreError::Conflict => {
            Error::new(Kind::Conflict, "The key, or yours, was changed meanwhile.")
        }
        other => other.into(),
    }
}

/// A rotation hands out a secret, so a key gets by it only its own, or that of a key which it could have made itself: one that may
/// do no more, and draws on all that this one draws on.
fn may_hold(app: &App, who: &Principal, wanted: &KeyRow) -> bool {
    let Some(own) = who.key().filter(|own| own.id != wanted.id) else {
        return true;
    };
    let lasting =
        own.expires_at.is_none_or(|end| wanted.expires_at.is_some_and(|wanted| wanted <= end));
    let labels = who.is_admin() || own.labels == wanted.labels;
    let draws = counted(app, own).is_subset(&counted(app, wanted));
    wanted.scopes.iter().all(|scope| who.has_scope(scope))
        && wanted.limits.within(&own.limits)
        && lasting
        && labels
        && draws
}

/// A secret outlasts its rotation: an admin who is one no longer would have by it what only an admin grants. What that admin
/// granted ends by itself, what is its own it has anyway.
fn may_keep(who: &Principal, wanted: &KeyRow) -> bool {
    let reserved = wanted.scopes.iter().any(|scope| RESERVED_SCOPES.contains(&scope.as_str()));
    let user = who.user_id();
    !reserved
        || matches!(who, Principal::Admin)
        || user.as_ref() == Some(&wanted.owner)
        || user.is_some() && user == wanted.maker
}

/// The keys with limits that are counted on which a request of `key` draws: those above it, and itself.
fn counted(app: &App, key: &KeyRow) -> BTreeSet<KeyId> {
    let above = app.auth.ancestors(key);
    let all = above.iter().map(|above| &**above).chain([key]);
    all.filter(|key| key.limits.are_counted()).map(|key| key.id.clone()).collect()
}

/// The key of the path; another owner's is no other than one that is not there.
fn find(
    app: &App,
    shelf: &Shelf,
    who: &Principal,
    user: &UserId,
    request: &Request<Bytes>,
) -> Result<std::sync::Arc<Key>> {
    let id =
        request.extensions().get::<PathParams>().and_then(|params| KeyId::parse(params.first()));
    id.and_then(|id| app.auth.key(shelf.interface, &id))
        .filter(|key| who.is_admin() || key.row().owner == *user)
        .ok_or_else(|| Error::not_found("key"))
}

/// Any pairs, but for the label that has a meaning here.
fn check_labels(labels: &BTreeMap<String, String>) -> Result<()> {
    check_pairs("labels", labels)?;
    if labels.get(CAPTURE_LABEL).is_some_and(|word| CaptureLevel::parse(word).is_none()) {
        return Err(Error::invalid(
            "labels",
            format!("The label {CAPTURE_LABEL} must be on, heads or off."),
        ));
    }
    Ok(())
}

/// An end as it is asked for: a time, to the microsecond, that is to come.
fn end(asked: &str, now: Timestamp) -> Result<Timestamp> {
    let plain = asked.bytes().all(|byte| byte.is_ascii_digit() || b"-:.+TtZz".contains(&byte));
    let parsed = asked
        .parse::<Timestamp>()
        .ok()
        .filter(|_| plain)
        .and_then(|at| Timestamp::from_microsecond(at.as_microsecond()).ok());
    let asked = parsed
        .ok_or_else(|| Error::invalid("expires_at", "expires_at must be an RFC 3339 time."))?;
    if asked <= now {
        return Err(Error::invalid("expires_at", "expires_at must be in the future."));
    }
    Ok(asked)
}

/// A record and, this once, the secret.
fn with_secret(mut record: Value, secret: &Secret) -> Value {
    if let Value::Object(record) = &mut record {
        record.insert("key".to_owned(), Value::from(secret.expose()));
    }
    record
}

/// The record of a key as it is in memory.
fn shown(key: &Key, now: Timestamp) -> Value {
    record(key.row(), key.state(now), key.last_used(), now)
}

/// The record that everyone sees; never the secret nor its digest.
fn record(key: &KeyRow, standing: KeyState, used: Option<Timestamp>, now: Timestamp) -> Value {
    let previous =
        key.previous.as_ref().map(|previous| previous.expires_at).filter(|end| now < *end);
    json!({
        "object": "api_key", "id": key.id, "interface": key.interface, "name": key.name, "redacted": key.redacted,
        "owner": key.owner, "created_by": key.created_by, "scopes": key.scopes, "labels": key.labels, "limits": key.limits,
        "status": standing.as_str(), "created_at": rfc3339(key.created_at), "expires_at": key.expires_at.map(rfc3339),
        "last_used_at": used.map(rfc3339), "revoked_at": key.revoked_at.map(rfc3339), "rotated_at": key.rotated_at.map(rfc3339),
        "previous_secret_expires_at": previous.map(rfc3339), "metadata": key.metadata,
    })
}
