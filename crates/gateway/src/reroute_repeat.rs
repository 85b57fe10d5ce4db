//! Reroutes with an `Idempotency-Key`: only one runs at a time, and a repeat of the call gets its
//! answer, so nothing is paid twice.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};

use super::answers::json_bytes;
use super::exchange::HttpExchange;
use super::reroute::RerouteRequest;
use rerouter_access::auth::Principal;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::repeats::{Claim, Repeat};
use rerouter_core::api::idempotency::call_name;
use rerouter_core::api::{audit, replays};
use rerouter_core::app::{App, RerouteAnswer};
use rerouter_store::Action;

pub(super) enum KnownReroute {
    Answered(Response<Bytes>),
    /// The call is new, or has no key.
    New(Option<Claim<RerouteAnswer>>),
}

/// Looks up the `Idempotency-Key`. A caller that may not see the capture now gets 404, even if the
/// key was answered before.
pub(super) async fn find_repeat(
    app: &App,
    exchange: &HttpExchange,
    principal: &Principal,
    asked: &RerouteRequest,
) -> Result<KnownReroute> {
    let Some(key) = &asked.key else { return Ok(KnownReroute::New(None)) };
    let (original, owner) = replays::visible_soon(app, principal, &asked.id).await?;
    let (name, about) = (call_name(app, principal, key), original.as_str().as_bytes());
    match app.named_reroutes.claim(&name, ("capture", about), app.clock.now())? {
        Repeat::New(claim) => Ok(KnownReroute::New(Some(claim))),
        Repeat::UnderWay(_) => {
            let why = "The call with this Idempotency-Key is under way.";
            Err(Error::new(Kind::Conflict, why).retry_after(Duration::from_secs(1)))
        }
        Repeat::Answered(RerouteAnswer { replay, body }) => {
            let by = (Some(exchange.id.clone()), exchange.client.address);
            let about = (&original, &owner);
            audit::foreign(app, principal, Action::CaptureReroute, about, by).await?;
            if let Some(replay) = &replay {
                replays::visible_soon(app, principal, replay.as_str()).await?;
            }
            Ok(KnownReroute::Answered(json_bytes(StatusCode::OK, body)))
        }
    }
}

/// Remembers the answer if it is a success: a failed reroute may be tried again.
pub(super) async fn keep(
    claim: Claim<RerouteAnswer>,
    app: &App,
    exchange: &HttpExchange,
    principal: &Principal,
    answer: &Result<Response<Bytes>>,
) {
    let good = answer.as_ref().ok().filter(|answer| answer.status() == StatusCode::OK);
    let Some(body) = good.map(|answer| answer.body().clone()) else { return };
    let (queue, id, reach) = (&app.captures, &exchange.id, app.auth.reach(principal));
    let replay = match replays::visible(queue, &app.archive, &reach, id.as_str()).await {
        // The caller's requests are not captured, or the replay was deleted meanwhile.
        Err(error) if error.kind() == Kind::NotFound => None,
        _ => Some(id.clone()),
    };
    let bytes = body.len();
    claim.answer(RerouteAnswer { replay, body }, bytes, app.clock.now());
}
