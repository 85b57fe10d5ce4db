//! Calls with an `Idempotency-Key`: for ten minutes the same call gets the same answer, whichever
//! gateway is asked. Answers are sealed under a key that derives from the root key and from
//! the `Idempotency-Key`, which the store does not have.

use std::time::Duration;

use http::HeaderMap;

use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::secret::{SecretBytes, open, seal};

/// `Retry-After` of a payer that has as many `Idempotency-Key`s as it may.
const REPEATS_RETRY: Duration = Duration::from_secs(60);
/// Characters of an `Idempotency-Key`: a UUID with a prefix.
pub(super) const IDEMPOTENCY_KEY: usize = 255;

const HEADER: &str = "idempotency-key";

/// The `Idempotency-Key` of a request, if it has one. 400 if it is repeated or invalid.
pub fn key(headers: &HeaderMap) -> Result<Option<String>> {
    let mut values = headers.get_all(HEADER).iter();
    let (Some(value), more) = (values.next(), values.next().is_some()) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let fits = (1..=IDEMPOTENCY_KEY).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    if more || !fits {
        let most = IDEMPOTENCY_KEY;
        return Err(Error::invalid(
            "Idempotency-Key",
            format!("Idempotency-Key has to be there once, 1 to {most} visible characters."),
        ));
    }
    Ok(Some(text.to_owned()))
}

/// A call that may be repeated.
pub struct NamedCall {
    /// A digest of the caller and its `Idempotency-Key`.
    pub id: [u8; 32],
    /// Of whose share of kept answers it takes one.
    pub payer: String,
    seal: SecretBytes,
}

impl NamedCall {
    /// A call of this `kind` by this `Idempotency-Key`. Kinds share no keys.
    pub fn of(app: &App, who: &Principal, kind: &str, key: &str) -> Result<Self> {
        let actor = who.actor();
        let name = format!("{kind} {} {} {key}", actor.kind, actor.id);
        Ok(NamedCall {
            id: digest(app, "id", name.as_bytes())?,
            payer: app.auth.tenant(who),
            seal: derive(app, "answer", name.as_bytes())?,
        })
    }

    /// The answer as it is kept, beside the id of what the call made.
    pub fn seal(&self, app: &App, made: &str, answer: &[u8]) -> Result<Vec<u8>> {
        let sealed = seal(&self.seal, made.as_bytes(), answer, &app.random);
        sealed.ok_or_else(|| Error::internal("the answer to a call could not be sealed"))
    }

    pub fn open(&self, made: &str, sealed: &[u8]) -> Result<Vec<u8>> {
        let answer = open(&self.seal, made.as_bytes(), sealed);
        answer.ok_or_else(|| Error::internal("the kept answer to a call does not open"))
    }
}

/// A digest that nobody can compute without the root key.
pub fn digest(app: &App, what: &str, of: &[u8]) -> Result<[u8; 32]> {
    Ok(*derive(app, what, of)?.expose())
}

fn derive(app: &App, what: &str, of: &[u8]) -> Result<SecretBytes> {
    let derived = app.named_calls.derive(&[what.as_bytes(), b"\n", of].concat());
    derived.ok_or_else(|| Error::internal("a key could not be derived"))
}

/// 409: the same key for something else.
pub fn used_for_another(what: &str) -> Error {
    let why = format!("This Idempotency-Key was used for another {what}.");
    Error::new(Kind::Conflict, why).at("Idempotency-Key")
}

/// 429: the payer has its share of names.
pub fn too_many() -> Error {
    let why = "Too many calls with an Idempotency-Key of late.";
    Error::new(Kind::RateLimited, why).retry_after(REPEATS_RETRY)
}
