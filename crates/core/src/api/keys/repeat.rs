//! A creation with an `Idempotency-Key` makes one key. Its answer holds the secret.

use crate::api::idempotency::{NamedCall, digest, too_many, used_for_another};
use crate::api::route::ApiRequest;
use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_base::error::{Error, Result};
use rerouter_base::id::KeyId;
use rerouter_records::key::KeyWithSecret;
use rerouter_store::{KeptCreation, REPEATS_SHARE};

/// A creation that may be repeated.
pub(super) struct NamedCreation {
    call: NamedCall,
    about: [u8; 32],
}

impl NamedCreation {
    pub(super) fn of(app: &App, who: &Principal, key: &str, request: &ApiRequest) -> Result<Self> {
        let asked = [request.uri().path().as_bytes(), b"\n", request.body()].concat();
        let about = digest(app, "about", &asked)?;
        Ok(NamedCreation { call: NamedCall::of(app, who, "creation", key)?, about })
    }

    /// The key that it made before, the answer, and a revision that has the key. 409 if
    /// something else was asked for, 429 if it is new and the payer has too many of late.
    pub(super) async fn answer(&self, app: &App) -> Result<Option<(KeyId, KeyWithSecret, u64)>> {
        let NamedCall { id, payer, .. } = &self.call;
        let Some((kept, rev)) = app.store.creation(*id, app.clock.now()).await? else {
            return match app.store.creations_of(payer.clone()).await? {
                kept if kept < REPEATS_SHARE => Ok(None),
                _ => Err(too_many()),
            };
        };
        if kept.about != self.about {
            return Err(used_for_another("body"));
        }
        let body = self.call.open(kept.key.as_str(), &kept.sealed)?;
        let made = serde_json::from_slice(&body).map_err(Error::internal)?;
        Ok(Some((kept.key, made, rev)))
    }

    /// The answer as it is kept.
    pub(super) fn keep(&self, app: &App, made: &KeyWithSecret) -> Result<KeptCreation> {
        let (key, body) = (&made.record.id, serde_json::to_vec(made).map_err(Error::internal)?);
        Ok(KeptCreation {
            id: self.call.id,
            about: self.about,
            payer: self.call.payer.clone(),
            key: key.clone(),
            sealed: self.call.seal(app, key.as_str(), &body)?,
        })
    }
}
