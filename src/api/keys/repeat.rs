//! A creation with an `Idempotency-Key`: within ten minutes it makes one key, and is answered
//! alike, at whichever gateway it is repeated. The answer holds the secret. It is sealed under a
//! key that derives from the root key and from the `Idempotency-Key`, which the store does not
//! have.

use crate::api::ApiRequest;
use crate::app::App;
use crate::auth::Principal;
use crate::bounds;
use crate::error::{Error, Kind, Result};
use crate::id::KeyId;
use crate::secret::{Secret, SecretBytes, open, seal};
use crate::store::KeptCreation;

/// A creation that may be repeated.
pub(super) struct NamedCreation {
    id: [u8; 32],
    about: [u8; 32],
    payer: String,
    seal: SecretBytes,
}

impl NamedCreation {
    pub(super) fn of(app: &App, who: &Principal, key: &str, request: &ApiRequest) -> Result<Self> {
        let actor = who.actor();
        let name = format!("{} {} {key}", actor.kind, actor.id);
        let derive = |what: &str, of: &[u8]| {
            let context = [what.as_bytes(), b"\n", of].concat();
            let derived = app.creations.derive(&context);
            derived.ok_or_else(|| Error::internal("a key could not be derived"))
        };
        let asked = [request.uri().path().as_bytes(), b"\n", request.body()].concat();
        Ok(NamedCreation {
            id: *derive("id", name.as_bytes())?.expose(),
            about: *derive("about", &asked)?.expose(),
            payer: app.auth.tenant(who),
            seal: derive("answer", name.as_bytes())?,
        })
    }

    /// The key that it made before, the body of the answer, and a revision that has the key. 409 if
    /// something else was asked for, 429 if it is new and the payer has too many of late.
    pub(super) async fn answer(&self, app: &App) -> Result<Option<(KeyId, Secret, u64)>> {
        let Some((kept, rev)) = app.store.creation(self.id, app.clock.now()).await? else {
            return match app.store.creations_of(self.payer.clone()).await? {
                kept if kept < bounds::REPEATS_SHARE => Ok(None),
                _ => {
                    let why = "Too many calls with an Idempotency-Key of late.";
                    Err(Error::new(Kind::RateLimited, why).retry_after(bounds::REPEATS_RETRY))
                }
            };
        };
        if kept.about != self.about {
            let why = "This Idempotency-Key was used for another body.";
            return Err(Error::new(Kind::Conflict, why).at("Idempotency-Key"));
        }
        let body = open(&self.seal, kept.key.as_str().as_bytes(), &kept.sealed);
        let body = body.and_then(|body| String::from_utf8(body).ok()).map(Secret::new);
        let body = body.ok_or_else(|| Error::internal("the answer to a creation does not open"))?;
        Ok(Some((kept.key, body, rev)))
    }

    /// The answer as it is kept.
    pub(super) fn keep(&self, app: &App, key: &KeyId, body: &Secret) -> Result<KeptCreation> {
        let body = body.expose().as_bytes();
        let sealed = seal(&self.seal, key.as_str().as_bytes(), body, &app.random);
        Ok(KeptCreation {
            id: self.id,
            about: self.about,
            payer: self.payer.clone(),
            key: key.clone(),
            sealed: sealed
                .ok_or_else(|| Error::internal("the answer to a creation could not be sealed"))?,
        })
    }
}
