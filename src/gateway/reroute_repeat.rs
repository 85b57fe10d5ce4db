//! Reroutes with an `Idempotency-Key`: one runs at a time, whichever gateways are asked, and its
//! answer is told to whoever repeats the call, so nothing is paid twice.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use log::warn;

use super::exchange::HttpExchange;
use super::reply::json_bytes;
use super::reroute::RerouteRequest;
use crate::api::idempotency::{NamedCall, too_many, used_for_another};
use crate::api::{audit, replays};
use crate::app::App;
use crate::auth::Principal;
use crate::bounds;
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::id::RequestId;
use crate::store::{Action, KnownReroute, NamedReroute, RerouteAnswer, Store};

/// What is known of a reroute by its `Idempotency-Key`.
pub(super) enum Repeat {
    /// It was answered before.
    Answered(Response<Bytes>),
    /// It is new, or has no key.
    New(Option<KeyedReroute>),
}

/// Looks the `Idempotency-Key` up. A caller that may not see the capture, or no longer, gets 404
/// whatever was answered before.
pub(super) async fn find_repeat(
    app: &App,
    exchange: &HttpExchange,
    principal: &Principal,
    asked: &RerouteRequest,
) -> Result<Repeat> {
    let Some(key) = &asked.key else { return Ok(Repeat::New(None)) };
    let (original, owner) = replays::visible_soon(app, principal, &asked.id).await?;
    let call = NamedCall::of(app, principal, "reroute", key)?;
    let mut claim = [0; 32];
    app.random.fill(&mut claim);
    let named =
        NamedReroute { id: call.id, original: original.clone(), payer: call.payer.clone(), claim };
    let claim = Claim { store: app.store.clone(), clock: app.clock.clone(), named: named.clone() };
    // Before it is claimed: the client may leave meanwhile.
    let mut keyed = KeyedReroute { call, claim: Some(claim) };
    let known = app.store.claim_reroute(named, app.clock.now()).await?;
    if known == KnownReroute::New {
        return Ok(Repeat::New(Some(keyed)));
    }
    keyed.claim = None;
    match known {
        KnownReroute::New => Ok(Repeat::New(None)),
        KnownReroute::UnderWay => {
            let why = "The call with this Idempotency-Key is under way.";
            Err(Error::new(Kind::Conflict, why).retry_after(Duration::from_secs(1)))
        }
        KnownReroute::OfAnother => Err(used_for_another("capture")),
        KnownReroute::Full => Err(too_many()),
        KnownReroute::Answered(RerouteAnswer { replay, sealed }) => {
            let by = (Some(exchange.id.clone()), exchange.client.address);
            let about = (&original, &owner);
            audit::foreign(app, principal, Action::CaptureReroute, about, by).await?;
            if let Some(replay) = &replay {
                replays::visible_soon(app, principal, replay.as_str()).await?;
            }
            let Some(sealed) = sealed else {
                let why =
                    "The call with this Idempotency-Key was answered; the answer is not kept.";
                return Err(Error::new(Kind::Conflict, why));
            };
            let body = keyed.call.open(made(replay.as_ref()), &sealed)?;
            Ok(Repeat::Answered(json_bytes(StatusCode::OK, body.into())))
        }
    }
}

fn made(replay: Option<&RequestId>) -> &str {
    replay.map_or("", RequestId::as_str)
}

/// A new reroute whose answer is kept for its key.
pub(super) struct KeyedReroute {
    call: NamedCall,
    claim: Option<Claim>,
}

impl KeyedReroute {
    /// Keeps the claim while the reroute runs.
    pub(super) async fn hold(&self) -> Infallible {
        loop {
            tokio::time::sleep(bounds::REROUTE_CLAIM / 3).await;
            let Some(claim) = &self.claim else { continue };
            let renewed = claim.store.renew_reroute(claim.named.clone(), claim.clock.now()).await;
            if let Err(error) = renewed {
                warn!("a reroute with an Idempotency-Key may be run twice: {error}");
            }
        }
    }

    /// Keeps the answer if it is a success: a failed reroute may be tried again.
    pub(super) async fn end(
        mut self,
        app: &App,
        exchange: &HttpExchange,
        principal: &Principal,
        answer: Result<Response<Bytes>>,
    ) -> Result<Response<Bytes>> {
        let good = answer.as_ref().ok().filter(|answer| answer.status() == StatusCode::OK);
        let kept = match good {
            Some(good) => Some(self.kept(app, exchange, principal, good.body()).await),
            None => None,
        };
        if let Some(claim) = self.claim.take() {
            // To its end, also if the client leaves: what is not known is paid again.
            if let Err(error) = tokio::spawn(claim.end(kept)).await {
                warn!("the Idempotency-Key of a reroute is not free yet: {error}");
            }
        }
        answer
    }

    /// The answer as it is kept: without a body that is too large.
    async fn kept(
        &self,
        app: &App,
        exchange: &HttpExchange,
        principal: &Principal,
        body: &Bytes,
    ) -> RerouteAnswer {
        let (queue, id) = (&app.captures, &exchange.id);
        let replay = match replays::visible(queue, &app.archive, principal, id.as_str()).await {
            // The caller's requests are not captured, or the replay is deleted by now.
            Err(error) if error.kind() == Kind::NotFound => None,
            _ => Some(id.clone()),
        };
        let fits = body.len() <= bounds::REPEATS_SHARE_BYTES;
        let sealed = fits.then(|| self.call.seal(app, made(replay.as_ref()), body));
        RerouteAnswer { replay, sealed: sealed.and_then(Result::ok) }
    }
}

impl Drop for KeyedReroute {
    /// The client left, or the call panicked: it may be repeated.
    fn drop(&mut self) {
        if let (Some(claim), Ok(runtime)) =
            (self.claim.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(release(claim.store, claim.named));
        }
    }
}

/// The claim of a reroute that runs.
struct Claim {
    store: Store,
    clock: Clock,
    named: NamedReroute,
}

impl Claim {
    /// Keeps the answer, or, where that fails, that there was one. Without an answer the call may
    /// be repeated.
    async fn end(self, answer: Option<RerouteAnswer>) {
        let Claim { store, clock, named } = self;
        let Some(answer) = answer else { return release(store, named).await };
        let alone = RerouteAnswer { sealed: None, ..answer.clone() };
        if let Err(error) = store.answer_reroute(named.clone(), answer, clock.now()).await {
            warn!("the answer to a reroute with an Idempotency-Key is not kept: {error}");
            if let Err(error) = store.answer_reroute(named, alone, clock.now()).await {
                warn!("a reroute with an Idempotency-Key may be run twice: {error}");
            }
        }
    }
}

async fn release(store: Store, named: NamedReroute) {
    if let Err(error) = store.release_reroute(named).await {
        warn!("the Idempotency-Key of a reroute is not free yet: {error}");
    }
}
