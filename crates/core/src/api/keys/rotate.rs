//! `POST K/{id}/rotate`.

use http::StatusCode;

use super::collection::{enter, find};
use super::permission::{acting, changed_meanwhile, is_open, may_hold, may_keep, noted};
use super::record::{record, with_secret};
use crate::api::answer;
use crate::api::body::BodyFields;
use crate::api::page::Query;
use crate::api::route::{ApiRequest, ApiResult};
use crate::app::App;
use rerouter_access::auth::{KeyState, Principal};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::UserId;
use rerouter_base::secret::token;
use rerouter_store::{Action, Change, KeyRow, NewSecret, Seen};

/// Longest grace of a rotated key's old secret, in seconds: a week.
const ROTATION_GRACE_S: u64 = 604_800;

/// `POST K/{id}/rotate`: a new secret under the same id. Before the answer the old secret is dead,
/// or valid for the requested grace period only. If the store fails, nothing changes.
pub(crate) async fn rotate(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let (collection, user) = enter(who, request)?;
    Query::read(request.uri().query(), &[])?;
    let mut fields = BodyFields::read_if_any(request)?;
    let grace = grace(&mut fields)?;
    fields.finish()?;
    let key = find(app, collection, who, request)?;
    may_rotate(app, who, key.row())?;
    let now = app.clock.now();
    if key.state(now) == KeyState::Revoked {
        return Err(Error::new(Kind::KeyRevoked, "The key is revoked."));
    }
    let secret = token::mint(collection.interface.key_prefix(), &app.random);
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
        .map_err(changed_meanwhile)?;
    let unconfirmed = app.store.acknowledge(committed.rev).await?;
    let row = committed.changes.iter().find_map(|change| match change {
        Change::Key(row) => Some(row),
        _ => None,
    });
    let row = row.ok_or_else(|| Error::internal("a rotation changed nothing"))?;
    let live = app.auth.key(collection.interface, &row.id);
    let standing = live.as_ref().map_or(KeyState::Revoked, |key| key.state(now));
    let used = live.and_then(|key| key.last_used());
    let body = with_secret(record(row, standing, used, now), &secret);
    Ok(answer::confirmed(answer::secret_json(StatusCode::OK, &body), unconfirmed))
}

fn may_rotate(app: &App, who: &Principal, key: &KeyRow) -> Result<()> {
    let built_in = UserId::admin();
    let why = if !may_hold(app, who, key) {
        "This key has more rights than yours. Rotate it with itself or with a session."
    } else if key.owner == built_in && who.user_id() != Some(built_in) {
        // An admin who loses that role would keep the secret.
        "Only ADMIN_API_KEY, or the key itself, may rotate a key of usr_admin."
    } else if !may_keep(who, key) {
        "Another admin granted scopes of this key. Only its owner, that admin or ADMIN_API_KEY may \
         rotate it."
    } else if is_open(who) && !key.made_open {
        // The new secret would be valid once AGENT is enforced, for a caller without a credential.
        "A key created while AGENT was enforced cannot be rotated while AGENT is open."
    } else {
        return Ok(());
    };
    Err(Error::new(Kind::Forbidden, why))
}

/// Reads how long the old secret stays valid; `None` if not at all.
fn grace(fields: &mut BodyFields) -> Result<Option<std::time::Duration>> {
    const NAME: &str = "grace_period_seconds";
    let what = format!("a whole number from 0 to {}", ROTATION_GRACE_S);
    let seconds: u64 = fields.take(NAME, &what)?.unwrap_or(0);
    if seconds > ROTATION_GRACE_S {
        return Err(Error::invalid(NAME, format!("{NAME} must be {what}.")));
    }
    Ok((seconds > 0).then(|| std::time::Duration::from_secs(seconds)))
}
