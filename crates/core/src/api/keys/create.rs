//! `POST K`: a new key, with no more rights than its creator.

use std::collections::{BTreeMap, BTreeSet};

use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;

use super::change::{check_labels, end};
use super::collection::{KeyCollection, enter};
use super::permission::{changed_meanwhile, is_open, noted};
use super::record::{record, with_secret};
use super::repeat::NamedCreation;
use crate::api::body::{BodyFields, check_name, check_pairs};
use crate::api::page::Query;
use crate::api::route::{ApiRequest, ApiResult};
use crate::api::{answer, idempotency, limits};
use crate::app::App;
use rerouter_access::auth::{ADMIN_SCOPE, Key, KeyState, Principal};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::{KeyId, UserId};
use rerouter_base::secret::{Secret, token};
use rerouter_store::{Action, Change, KeyRow, KeyStatus, Limits, StoreError};

/// Generations of keys that make keys: a request draws on the limits of each.
pub(in crate::api) const KEY_DESCENT: usize = 16;

/// A key that was made, with its secret.
struct MadeKey {
    id: KeyId,
    /// The body of the 201.
    body: Secret,
    /// The names of the gateways that may not know it.
    unconfirmed: Vec<String>,
}

/// `POST K`. With an `Idempotency-Key`, the same call by the same caller within ten minutes creates
/// no second key and gets the same answer. Callers without a credential get no idempotency.
pub(crate) async fn create(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let (collection, user) = enter(who, request)?;
    Query::read(request.uri().query(), &[])?;
    let named = if is_open(who) { None } else { idempotency::key(request.headers())? };
    let named = named.map(|key| NamedCreation::of(app, who, &key, request)).transpose()?;
    let mut made = None;
    if let Some(named) = &named {
        made = repeat(app, who, (collection, &user), request, named).await?;
    }
    if made.is_none() {
        made = make(app, who, (collection, &user), request, named.as_ref()).await?;
    }
    // The same call was quicker somewhere else.
    if let (None, Some(named)) = (&made, &named) {
        made = repeat(app, who, (collection, &user), request, named).await?;
    }
    let made = made.ok_or_else(|| Error::internal("a key was made, and its answer is gone"))?;
    let location = HeaderValue::from_str(&format!("{}/{}", collection.path, made.id));
    let mut response = answer::secret_text(StatusCode::CREATED, made.body.expose());
    response.headers_mut().insert(LOCATION, location.map_err(Error::internal)?);
    Ok(answer::confirmed(response, made.unconfirmed))
}

/// The key of the same call before this one, if the caller could still create it and its secret is
/// good.
async fn repeat(
    app: &App,
    who: &Principal,
    (collection, user): (&'static KeyCollection, &UserId),
    request: &ApiRequest,
    named: &NamedCreation,
) -> Result<Option<MadeKey>> {
    let Some((id, body, rev)) = named.answer(app).await? else { return Ok(None) };
    let (key, now) = (app.auth.key(collection.interface, &id), app.clock.now());
    // At the time of the creation: a requested expiry may have passed since.
    let made_at = key.as_ref().map_or(now, |key| key.row().created_at);
    NewKey::read(app, who, collection, user.clone(), request, made_at)?;
    let ended = |key: &Key| matches!(key.state(now), KeyState::Revoked | KeyState::Expired);
    if key.is_none_or(|key| ended(&key) || key.row().rotated_at.is_some()) {
        return Err(Error::new(Kind::Conflict, "The created key has ended, or has a new secret.")
            .at("Idempotency-Key"));
    }
    let unconfirmed = app.store.acknowledge(rev).await?;
    Ok(Some(MadeKey { id, body, unconfirmed }))
}

/// A key as requested, after all checks of the caller's rights.
struct NewKey {
    owner: UserId,
    labels: BTreeMap<String, String>,
    name: String,
    metadata: BTreeMap<String, String>,
    scopes: Vec<String>,
    limits: Limits,
    expires_at: Option<Timestamp>,
}

impl NewKey {
    fn read(
        app: &App,
        who: &Principal,
        collection: &KeyCollection,
        user: UserId,
        request: &ApiRequest,
        now: Timestamp,
    ) -> Result<Self> {
        let mut fields = BodyFields::read_if_any(request)?;
        let owner = owner(app, who, user, &mut fields)?;
        let labels = labels(who, &mut fields)?;
        let name: String = fields.take("name", "a string")?.unwrap_or_else(|| "key".to_owned());
        check_name(&name)?;
        let metadata: BTreeMap<String, String> =
            fields.take("metadata", "an object of strings")?.unwrap_or_default();
        check_pairs("metadata", &metadata)?;
        let scopes = fields.take("scopes", "a list of strings")?;
        let limits = limits::read(
            collection.interface,
            fields.take("limits", "an object")?.unwrap_or_default(),
        )?;
        let limits = limits::narrow(limits, who.key().map(|key| &key.limits))?;
        let expires_at = fields.take::<String>("expires_at", "an RFC 3339 time")?;
        fields.finish()?;
        check_descent(app, who)?;
        let scopes = grant(collection, who, &owner, scopes)?;
        Ok(NewKey {
            owner,
            labels,
            name,
            metadata,
            scopes,
            limits,
            expires_at: expiry(who, expires_at.as_deref(), now)?,
        })
    }
}

/// `None` if the call was answered before.
async fn make(
    app: &App,
    who: &Principal,
    (collection, user): (&'static KeyCollection, &UserId),
    request: &ApiRequest,
    named: Option<&NamedCreation>,
) -> Result<Option<MadeKey>> {
    let now = app.clock.now();
    let NewKey { owner, labels, name, metadata, scopes, limits, expires_at } =
        NewKey::read(app, who, collection, user.clone(), request, now)?;
    let secret = token::mint(collection.interface.key_prefix(), &app.random);
    let key = KeyRow {
        id: KeyId::new(now, &app.random),
        interface: collection.interface,
        name,
        redacted: token::redact(secret.expose()),
        digest: app.auth.digest(&secret),
        scopes,
        owner,
        created_by: who.actor(),
        parent: who.key().map(|key| key.id.clone()),
        labels,
        limits,
        status: KeyStatus::Active,
        created_at: now,
        expires_at,
        revoked_at: None,
        rotated_at: None,
        generation: 1,
        previous: None,
        made_open: is_open(who),
        maker: Some(user.clone()),
        last_used_at: None,
        metadata: metadata.into(),
    };
    let body =
        Secret::new(with_secret(record(&key, KeyState::Active, None, now), &secret).to_string());
    let store = app.store.noting(noted(app, who, user, request, Action::KeyCreate, &key));
    let id = key.id.clone();
    let kept = named.map(|named| named.keep(app, &id, &body)).transpose()?;
    let seen = who.key().map(|maker| maker.generation);
    let committed = match store.create_key_once(key, seen, kept).await {
        Err(StoreError::Repeated) => return Ok(None),
        committed => committed.map_err(changed_meanwhile)?,
    };
    let unconfirmed = app.store.acknowledge(committed.rev).await?;
    for change in &committed.changes {
        if let Change::Key(key) = change {
            app.limits.expect_key(&app.auth, key, &app.store, now).await;
        }
    }
    Ok(Some(MadeKey { id, body, unconfirmed }))
}

/// Bounds the depth of descent: a request draws on the limits of every ancestor of its key.
fn check_descent(app: &App, who: &Principal) -> Result<()> {
    let deep = who.key().is_some_and(|key| app.auth.ancestors(key).len() + 1 >= KEY_DESCENT);
    if deep {
        let most = KEY_DESCENT;
        return Err(Error::new(
            Kind::KeyLimitReached,
            format!(
                "Keys descend at most {most} levels. Create this one with an ancestor of your key."
            ),
        ));
    }
    Ok(())
}

fn owner(app: &App, who: &Principal, user: UserId, fields: &mut BodyFields) -> Result<UserId> {
    only_admin(who, fields, "owner")?;
    match fields.take::<String>("owner", "the id of a user")? {
        None => Ok(user),
        // A key of the built-in user outlives the admin who created it.
        Some(owner) if owner == UserId::admin().as_str() && owner != user.as_str() => Err(
            Error::new(Kind::Forbidden, "Only ADMIN_API_KEY may create keys of the built-in user.")
                .at("owner"),
        ),
        Some(owner) => {
            let user = app.auth.user(&UserId::known(&owner));
            user.map(|user| user.id.clone()).ok_or_else(|| Error::invalid("owner", "Unknown user."))
        }
    }
}

/// Labels steer routing, so only an admin sets them. A child has the labels of its creator.
fn labels(who: &Principal, fields: &mut BodyFields) -> Result<BTreeMap<String, String>> {
    only_admin(who, fields, "labels")?;
    let labels = fields.take("labels", "an object of strings")?;
    let labels =
        labels.unwrap_or_else(|| who.key().map(|key| key.labels.clone()).unwrap_or_default());
    check_labels(&labels)?;
    Ok(labels)
}

fn only_admin(who: &Principal, fields: &BodyFields, name: &str) -> Result<()> {
    if fields.has(name) && !who.is_admin() {
        return Err(Error::new(Kind::Forbidden, format!("Only an admin may set {name}.")).at(name));
    }
    Ok(())
}

/// The scopes of the new key: the requested ones, if the caller may grant them all; without a
/// request the default ones that the caller has.
fn grant(
    collection: &KeyCollection,
    who: &Principal,
    owner: &UserId,
    asked: Option<Vec<String>>,
) -> Result<Vec<String>> {
    let Some(asked) = asked else {
        let defaults = collection.defaults.iter().filter(|scope| who.has_scope(scope));
        let granted: Vec<String> = defaults.map(|scope| (*scope).to_owned()).collect();
        let why = "Name the scopes of the new key: yours lacks the default ones.";
        let missing = || Error::invalid("scopes", why);
        return Some(granted).filter(|granted| !granted.is_empty()).ok_or_else(missing);
    };
    if asked.is_empty() {
        return Err(Error::invalid("scopes", "scopes must not be empty."));
    }
    for scope in &asked {
        let scope = scope.as_str();
        if !collection.usual.contains(&scope) && !collection.reserved.contains(&scope) {
            return Err(Error::invalid("scopes", format!("Unknown scope {scope:?}.")));
        }
        if collection.reserved.contains(&scope) && !who.is_admin() || !who.has_scope(scope) {
            let why = match collection.reserved.contains(&scope) {
                true => format!("Only an admin may grant the scope {scope}."),
                false => format!("Your key lacks the scope {scope}, so it may not grant it."),
            };
            return Err(Error::new(Kind::Forbidden, why).at("scopes"));
        }
        if scope == ADMIN_SCOPE
            && !matches!(who, Principal::Admin)
            && who.user_id().as_ref() != Some(owner)
        {
            return Err(Error::new(
                Kind::Forbidden,
                "Only ADMIN_API_KEY may grant the scope admin to other users.",
            )
            .at("scopes"));
        }
    }
    Ok(asked.into_iter().collect::<BTreeSet<_>>().into_iter().collect())
}

/// The expiry of the new key: in the future, and not after that of the key that creates it.
fn expiry(who: &Principal, asked: Option<&str>, now: Timestamp) -> Result<Option<Timestamp>> {
    let outer = who.key().and_then(|key| key.expires_at);
    let Some(asked) = asked else {
        return Ok(outer);
    };
    let asked = end(asked, now)?;
    if outer.is_some_and(|outer| asked > outer) {
        return Err(
            Error::new(Kind::Forbidden, "A key may not outlive its creator.").at("expires_at")
        );
    }
    Ok(Some(asked))
}
