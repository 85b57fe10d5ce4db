//! The header `Idempotency-Key`.

use http::HeaderMap;

use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_base::error::{Error, Result};
use rerouter_base::repeats::CallName;

/// Longest `Idempotency-Key`, in characters: enough for a UUID with a prefix.
pub(super) const IDEMPOTENCY_KEY: usize = 255;

const HEADER: &str = "idempotency-key";

/// Reads the `Idempotency-Key` of a request, if it has one. 400 if it is repeated or invalid.
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

/// The name under which a call of `who` with this `Idempotency-Key` is remembered.
pub fn call_name(app: &App, who: &Principal, key: &str) -> CallName {
    let actor = who.actor();
    CallName::new((&actor.kind, &actor.id), &app.auth.tenant(who), key)
}
