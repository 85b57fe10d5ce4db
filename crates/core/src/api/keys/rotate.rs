//! `POST K/{id}/rotate`.

use std::time::Duration;

use super::collection::{enter, find};
use super::permission::{acting, changed_meanwhile, is_open, may_hold, may_keep, noted};
use super::record::{record, with_secret};
use crate::api::call::{Answer, Call};
use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::UserId;
use rerouter_base::secret::token;
use rerouter_records::key::{KeyWithSecret, Rotation};
use rerouter_store::{Action, Change, KeyRow, KeyState, NewSecret, Seen};

/// `POST K/{id}/rotate`: a new secret under the same id. Before the answer the old secret stops
/// working, or is valid only for the requested grace period. If the store fails, nothing changes.
pub(crate) async fn rotate(call: Call<'_>, asked: Rotation) -> Result<Answer<KeyWithSecret>> {
    let ((collection, user), Call { app, who, .. }) = (enter(call)?, call);
    let grace = asked.grace_period_seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let key = find(call, collection)?;
    may_rotate(app, who, key.row())?;
    let now = call.now();
    if key.state(now) == KeyState::Revoked {
        return Err(Error::new(Kind::KeyRevoked, "The key is revoked."));
    }
    let secret = token::mint(collection.interface.key_prefix(), &app.random);
    let new = NewSecret {
        redacted: token::redact(secret.expose()).into(),
        digest: app.auth.digest(&secret),
        grace_ends: grace
            .map(|grace| now.checked_add(grace))
            .transpose()
            .map_err(Error::internal)?,
    };
    let seen = Seen { generation: key.row().generation, by: acting(who), ..Seen::default() };
    let event = noted(call, &user, Action::KeyRotate, key.row());
    let committed = app
        .store
        .noting(event)
        .rotate_key(&key.row().id, new, seen, now)
        .await
        .map_err(changed_meanwhile)?;
    let row = committed.changes.iter().find_map(|change| match change {
        Change::Key(row) => Some(row),
        _ => None,
    });
    let row = row.ok_or_else(|| Error::internal("a rotation changed nothing"))?;
    let live = app.auth.key(collection.interface, &row.id);
    let standing = live.as_ref().map_or(KeyState::Revoked, |key| key.state(now));
    let used = live.and_then(|key| key.last_used());
    let body = with_secret(record(row, standing, used, now), &secret);
    Ok(call.commit(&committed, body).await?.secret())
}

fn may_rotate(app: &App, who: &Principal, key: &KeyRow) -> Result<()> {
    let built_in = UserId::admin();
    let why = if !may_hold(app, who, key) {
        "This key has more rights than yours. Rotate it with itself or with a session."
    } else if key.owner == built_in && who.user_id() != Some(built_in) {
        // Otherwise an admin who loses that role would keep the secret.
        "Only ADMIN_API_KEY, or the key itself, may rotate a key of usr_admin."
    } else if !may_keep(who, key) {
        "Another admin granted scopes of this key. Only its owner, that admin or ADMIN_API_KEY may \
         rotate it."
    } else if is_open(who) && !key.made_open {
        // Otherwise a caller without a credential would have a secret that is valid when AGENT is
        // enforced again.
        "A key created while AGENT was enforced cannot be rotated while AGENT is open."
    } else {
        return Ok(());
    };
    Err(Error::forbidden(why))
}
