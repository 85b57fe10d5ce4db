//! `POST K`: a new key, with no more rights than its creator.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::change::{check_labels, end};
use super::collection::{KeyCollection, enter};
use super::permission::{changed_meanwhile, is_open, noted};
use super::record::{record, with_secret};
use crate::api::body::{check_name, check_pairs};
use crate::api::call::{Answer, Call};
use crate::api::{idempotency, limits};
use crate::app::App;
use rerouter_access::auth::{ADMIN_SCOPE, Key, Principal};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::{KeyId, UserId};
use rerouter_base::repeats::Repeat;
use rerouter_base::secret::token;
use rerouter_records::Time;
use rerouter_records::key::{KeyWithSecret, NewKey};
use rerouter_store::{Action, Committed, KeyRow, KeyState, KeyStatus, Limits};

/// Longest chain of keys that create keys: a request counts against the limits of all of them.
pub(in crate::api) const KEY_DESCENT: usize = 16;
/// Bytes that a remembered answer to a creation counts as.
const KEPT_BYTES: usize = 4 << 10;

/// `POST K`. With an `Idempotency-Key`, a repeat of the call by the same caller within ten minutes
/// creates no second key and gets the same answer. Callers without a credential get no idempotency.
pub(crate) async fn create(call: Call<'_>, new: NewKey) -> Result<Answer<KeyWithSecret>> {
    let (of, Call { app, who, request }) = (enter(call)?, call);
    let key = if is_open(who) { None } else { idempotency::key(request.headers())? };
    let about = [request.uri().path().as_bytes(), b"\n", request.body()].concat();
    let name = key.map(|key| idempotency::call_name(app, who, &key));
    let (made, committed) = loop {
        let Some(name) = &name else { break make(call, &of, &new).await? };
        match app.creations.claim(name, ("body", &about), call.now())? {
            Repeat::UnderWay(end) => end.ended().await,
            Repeat::Answered((made, rev)) => {
                check_repeat(call, &of, &new, &made.record.id)?;
                break (made, Committed { rev, changes: Vec::new() });
            }
            Repeat::New(claim) => {
                let (made, committed) = make(call, &of, &new).await?;
                claim.answer((made.clone(), committed.rev), KEPT_BYTES, call.now());
                break (made, committed);
            }
        }
    };
    let path = format!("{}/{}", of.0.path, made.record.id);
    call.commit(&committed, made).await?.secret().at(&path)
}

/// 409 if the key that the call created before has ended or has another secret by now. Refuses a
/// caller who may no longer create such a key.
fn check_repeat(
    call: Call<'_>,
    of: &(&'static KeyCollection, UserId),
    new: &NewKey,
    made: &KeyId,
) -> Result<()> {
    let (key, now) = (call.app.auth.key(of.0.interface, made), call.now());
    // Checked at the time of the creation: a requested expiry may have passed since.
    let made_at = key.as_ref().map_or(now, |key| key.row().created_at);
    Wanted::of(call, of, new, made_at)?;
    let ended = |key: &Key| matches!(key.state(now), KeyState::Revoked | KeyState::Expired);
    if key.is_none_or(|key| ended(&key) || key.row().rotated_at.is_some()) {
        let why = "The created key has ended, or has a new secret.";
        return Err(Error::conflict(why).at("Idempotency-Key"));
    }
    Ok(())
}

/// A key as requested, after all checks of the caller's rights.
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
    fn of(
        Call { app, who, .. }: Call<'_>,
        (collection, user): &(&'static KeyCollection, UserId),
        new: &NewKey,
        now: Timestamp,
    ) -> Result<Self> {
        let owner = owner(app, who, user, new.owner.as_deref())?;
        let labels = labels(who, new.labels.as_ref())?;
        let name = new.name.clone().unwrap_or_else(|| "key".to_owned());
        check_name(&name)?;
        let metadata = new.metadata.clone().unwrap_or_default();
        check_pairs("metadata", &metadata)?;
        let limits = limits::allowed(collection.interface, new.limits.clone().unwrap_or_default())?;
        let limits = limits::narrow(limits, who.key().map(|key| &*key.limits))?;
        check_descent(app, who)?;
        Ok(Wanted {
            labels,
            name,
            metadata,
            scopes: grant(collection, who, &owner, new.scopes.as_deref())?,
            limits,
            expires_at: expiry(who, new.expires_at, now)?,
            owner,
        })
    }
}

async fn make(
    call: Call<'_>,
    of: &(&'static KeyCollection, UserId),
    new: &NewKey,
) -> Result<(KeyWithSecret, Committed)> {
    let ((collection, user), Call { app, who, .. }, now) = (of, call, call.now());
    let Wanted { owner, labels, name, metadata, scopes, limits, expires_at } =
        Wanted::of(call, of, new, now)?;
    let secret = token::mint(collection.interface.key_prefix(), &app.random);
    let key = KeyRow {
        id: KeyId::new(now, &app.random),
        interface: collection.interface,
        name: name.into(),
        redacted: token::redact(secret.expose()).into(),
        digest: app.auth.digest(&secret),
        scopes: scopes.into(),
        owner,
        created_by: who.actor().into(),
        parent: who.key().map(|key| key.id.clone()),
        labels: labels.into(),
        limits: limits.into(),
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
    let made = with_secret(record(&key, KeyState::Active, None, now), &secret);
    let store = app.store.noting(noted(call, user, Action::KeyCreate, &key));
    let seen = who.key().map(|maker| maker.generation);
    let committed = store.create_key_by(key, seen).await.map_err(changed_meanwhile)?;
    Ok((made, committed))
}

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

fn owner(app: &App, who: &Principal, user: &UserId, asked: Option<&str>) -> Result<UserId> {
    let Some(asked) = asked else { return Ok(user.clone()) };
    only_admin(who, "owner")?;
    // A key of the built-in user would outlive the admin who created it.
    if asked == UserId::admin().as_str() && asked != user.as_str() {
        let why = "Only ADMIN_API_KEY may create keys of the built-in user.";
        return Err(Error::forbidden(why).at("owner"));
    }
    let user = app.auth.user(&UserId::known(asked));
    user.map(|user| user.id.clone()).ok_or_else(|| Error::invalid("owner", "Unknown user."))
}

/// Labels steer routing, so only an admin sets them. A child has the labels of its creator.
fn labels(
    who: &Principal,
    asked: Option<&BTreeMap<String, String>>,
) -> Result<BTreeMap<String, String>> {
    let Some(asked) = asked else {
        return Ok(who.key().map(|key| (*key.labels).clone()).unwrap_or_default());
    };
    only_admin(who, "labels")?;
    check_labels(asked)?;
    Ok(asked.clone())
}

fn only_admin(who: &Principal, name: &str) -> Result<()> {
    match who.is_admin() {
        true => Ok(()),
        false => {
            let why = format!("Only an admin may set {name}.");
            Err(Error::forbidden(why).at(name))
        }
    }
}

/// The scopes of the new key: the requested ones, if the caller may grant them all; without a
/// request the default ones that the caller has.
fn grant(
    collection: &KeyCollection,
    who: &Principal,
    owner: &UserId,
    asked: Option<&[String]>,
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
    for scope in asked {
        let scope = scope.as_str();
        if !collection.usual.contains(&scope) && !collection.reserved.contains(&scope) {
            return Err(Error::invalid("scopes", format!("Unknown scope {scope:?}.")));
        }
        if collection.reserved.contains(&scope) && !who.is_admin() || !who.has_scope(scope) {
            let why = match collection.reserved.contains(&scope) {
                true => format!("Only an admin may grant the scope {scope}."),
                false => format!("Your key lacks the scope {scope}, so it may not grant it."),
            };
            return Err(Error::forbidden(why).at("scopes"));
        }
        if scope == ADMIN_SCOPE
            && !matches!(who, Principal::Admin)
            && who.user_id().as_ref() != Some(owner)
        {
            return Err(Error::forbidden(
                "Only ADMIN_API_KEY may grant the scope admin to other users.",
            )
            .at("scopes"));
        }
    }
    Ok(asked.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect())
}

/// The expiry of the new key: in the future, and not after that of the key that creates it.
fn expiry(who: &Principal, asked: Option<Time>, now: Timestamp) -> Result<Option<Timestamp>> {
    let outer = who.key().and_then(|key| key.expires_at);
    let Some(asked) = asked else {
        return Ok(outer);
    };
    let asked = end(asked, now)?;
    if outer.is_some_and(|outer| asked > outer) {
        return Err(Error::forbidden("A key may not outlive its creator.").at("expires_at"));
    }
    Ok(Some(asked))
}
