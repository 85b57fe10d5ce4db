//! `POST K`: another key, with no more than its maker has. What was made under an `Idempotency-Key` is told once more.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderValue, Request, Response, StatusCode};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::{
    Shelf, check_labels, end, enter, is_open, limits, meanwhile, noted, record, with_secret,
};
use crate::api::answer;
use crate::api::body::{Fields, check_name, check_pairs};
use crate::api::page::Query;
use crate::app::{App, MadeKey};
use crate::auth::{ADMIN_SCOPE, Key, Principal, Standing, token};
use crate::bounds;
use crate::error::{Error, Kind, Result};
use crate::id::{KeyId, UserId};
use crate::idempotency::{self, CallLookup, IdempotentCall};
use crate::secret::Secret;
use crate::store::{Action, Change, KeyRow, KeyStatus, Limits};

/// `POST K`. With an `Idempotency-Key` the same call by the same caller within ten minutes makes no other key: it is told
/// the same once more. Who has shown nothing of themselves is nobody's same caller, and it is as if there were none.
pub async fn create(
    app: &App,
    who: &Principal,
    request: &Request<Bytes>,
) -> Result<Response<Bytes>> {
    let (shelf, user) = enter(who, request)?;
    Query::read(request.uri().query(), &[])?;
    let named = if is_open(who) { None } else { idempotency::key(request.headers())? };
    let made = match named {
        None => make(app, who, shelf, user, request).await?,
        Some(key) => match app.made_keys.begin(asked(app, who, key, request), app.clock.now())? {
            CallLookup::Repeated(made) => {
                still(app, who, shelf, user, request, &made)?;
                made
            }
            CallLookup::First(claim) => {
                let made = make(app, who, shelf, user, request).await?;
                claim.answered(made.clone(), made.body.expose().len(), app.clock.now());
                made
            }
        },
    };
    let mut response = answer::secret_text(StatusCode::CREATED, made.body.expose());
    response.headers_mut().insert(LOCATION, made.location);
    Ok(response)
}

/// A creation as it may be repeated.
fn asked(app: &App, who: &Principal, key: String, request: &Request<Bytes>) -> IdempotentCall {
    let actor = who.actor();
    let body = [request.uri().path().as_bytes(), b"\n", request.body()].concat();
    IdempotentCall {
        caller: format!("{} {}", actor.kind, actor.id),
        payer: app.auth.tenant(who),
        key,
        about: Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// A secret is told once more to whom it would be given now, and while it is good.
fn still(
    app: &App,
    who: &Principal,
    shelf: &'static Shelf,
    user: UserId,
    request: &Request<Bytes>,
    made: &MadeKey,
) -> Result<()> {
    let (key, now) = (app.auth.key(shelf.interface, &made.id), app.clock.now());
    // As of then: an end that was to come may have come.
    Wanted::read(
        app,
        who,
        shelf,
        user,
        request,
        key.as_ref().map_or(now, |key| key.row().created_at),
    )?;
    let ended = |key: &Key| matches!(key.standing(now), Standing::Revoked | Standing::Expired);
    if key.is_none_or(|key| ended(&key) || key.row().rotated_at.is_some()) {
        return Err(Error::new(
            Kind::Conflict,
            "The key that was made has ended, or has another secret by now.",
        )
        .at("Idempotency-Key"));
    }
    Ok(())
}

/// What is asked for, and is the caller's to have.
struct Wanted {
    owner: UserId,
    labels: BTreeMap<String, String>,
    name: String,
    metadata: BTreeMap<String, String>,
    scopes: Vec<String>,
    limits: Limits,
    expires_at: Option<Timestamp>,
}

impl Wanted {
    fn read(
        app: &App,
        who: &Principal,
        shelf: &Shelf,
        user: UserId,
        request: &Request<Bytes>,
        now: Timestamp,
    ) -> Result<Self> {
        let mut fields = Fields::read_if_any(request)?;
        let owner = owner(app, who, user, &mut fields)?;
        let labels = labels(who, &mut fields)?;
        let name: String = fields.take("name", "a string")?.unwrap_or_else(|| "key".to_owned());
        check_name(&name)?;
        let metadata: BTreeMap<String, String> =
            fields.take("metadata", "an object of strings")?.unwrap_or_default();
        check_pairs("metadata", &metadata)?;
        let scopes = fields.take("scopes", "a list of strings")?;
        let limits =
            limits::read(shelf.interface, fields.take("limits", "an object")?.unwrap_or_default())?;
        let limits = limits::narrow(limits, who.key().map(|key| &key.limits))?;
        let expires_at = fields.take::<String>("expires_at", "an RFC 3339 time")?;
        fields.finish()?;
        check_descent(app, who)?;
        let scopes = grant(shelf, who, &owner, scopes)?;
        Ok(Wanted {
            owner,
            labels,
            name,
            metadata,
            scopes,
            limits,
            expires_at: shorten(who, expires_at.as_deref(), now)?,
        })
    }
}

async fn make(
    app: &App,
    who: &Principal,
    shelf: &'static Shelf,
    user: UserId,
    request: &Request<Bytes>,
) -> Result<MadeKey> {
    let now = app.clock.now();
    let Wanted { owner, labels, name, metadata, scopes, limits, expires_at } =
        Wanted::read(app, who, shelf, user.clone(), request, now)?;
    let secret = token::mint(shelf.interface.key_prefix(), &app.random);
    let key = KeyRow {
        id: KeyId::new(now, &app.random),
        interface: shelf.interface,
        name,
        redacted: token::redact(secret.expose()),
        digest: app.auth.digest(&secret),
        pepper: app.auth.pepper(),
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
    let location =
        HeaderValue::from_str(&format!("{}/{}", shelf.path, key.id)).map_err(Error::internal)?;
    let body =
        Secret::new(with_secret(record(&key, Standing::Active, None, now), &secret).to_string());
    let store = app.store.noting(noted(app, who, &user, request, Action::KeyCreate, &key));
    let id = key.id.clone();
    let committed = match who.key() {
        None => store.create_key(key).await?,
        Some(maker) => store.create_child(key, maker.generation).await.map_err(meanwhile)?,
    };
    app.store.acknowledge(committed.rev).await?;
    for change in &committed.changes {
        if let Change::Key(key) = change {
            app.limits.expect_key(&app.auth, key, &app.store, now).await;
        }
    }
    Ok(MadeKey { id, location, body })
}

/// A request of a key draws on the limits of every key above it, so there are only so many.
fn check_descent(app: &App, who: &Principal) -> Result<()> {
    let deep =
        who.key().is_some_and(|key| app.auth.ancestors(key).len() + 1 >= bounds::KEY_DESCENT);
    if deep {
        let most = bounds::KEY_DESCENT;
        return Err(Error::new(
            Kind::KeyLimitReached,
            format!(
                "Keys descend from one another up to {most} deep; make it by a key further up."
            ),
        ));
    }
    Ok(())
}

fn owner(app: &App, who: &Principal, user: UserId, fields: &mut Fields) -> Result<UserId> {
    only_admin(who, fields, "owner")?;
    match fields.take::<String>("owner", "the id of a user")? {
        None => Ok(user),
        // What is the built-in user's outlives whoever gave it to them.
        Some(owner) if owner == UserId::admin().as_str() && owner != user.as_str() => {
            Err(Error::new(Kind::Forbidden, "Only ADMIN_API_KEY makes keys of the built-in user.")
                .at("owner"))
        }
        Some(owner) => {
            let user = app.auth.user(&UserId::known(&owner));
            user.map(|user| user.id.clone())
                .ok_or_else(|| Error::invalid("owner", "There is no such user."))
        }
    }
}

/// Labels steer routing, so only an admin sets them; what a key makes has the same as the key.
fn labels(who: &Principal, fields: &mut Fields) -> Result<BTreeMap<String, String>> {
    only_admin(who, fields, "labels")?;
    let labels = fields.take("labels", "an object of strings")?;
    let labels =
        labels.unwrap_or_else(|| who.key().map(|key| key.labels.clone()).unwrap_or_default());
    check_labels(&labels)?;
    Ok(labels)
}

fn only_admin(who: &Principal, fields: &Fields, name: &str) -> Result<()> {
    if fields.has(name) && !who.is_admin() {
        return Err(Error::new(Kind::Forbidden, format!("Only an admin sets {name}.")).at(name));
    }
    Ok(())
}

/// The scopes of the new key: those asked for, each known and the caller's to give; else the usual ones that the caller has.
fn grant(
    shelf: &Shelf,
    who: &Principal,
    owner: &UserId,
    asked: Option<Vec<String>>,
) -> Result<Vec<String>> {
    let Some(asked) = asked else {
        return Ok(shelf
            .defaults
            .iter()
            .filter(|scope| who.has_scope(scope))
            .map(|scope| (*scope).to_owned())
            .collect());
    };
    if asked.is_empty() {
        return Err(Error::invalid("scopes", "scopes must name at least one."));
    }
    for scope in &asked {
        let scope = scope.as_str();
        if !shelf.defaults.contains(&scope) && !shelf.reserved.contains(&scope) {
            return Err(Error::invalid("scopes", format!("There is no scope {scope:?}.")));
        }
        if shelf.reserved.contains(&scope) && !who.is_admin() || !who.has_scope(scope) {
            return Err(Error::new(
                Kind::Forbidden,
                format!("You may not grant the scope {scope}."),
            )
            .at("scopes"));
        }
        if scope == ADMIN_SCOPE
            && !matches!(who, Principal::Admin)
            && who.user_id().as_ref() != Some(owner)
        {
            return Err(Error::new(
                Kind::Forbidden,
                "Only ADMIN_API_KEY grants the scope admin to others.",
            )
            .at("scopes"));
        }
    }
    Ok(asked.into_iter().collect::<BTreeSet<_>>().into_iter().collect())
}

/// When the new key ends: in the future, and not after the key that makes it.
fn shorten(who: &Principal, asked: Option<&str>, now: Timestamp) -> Result<Option<Timestamp>> {
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
