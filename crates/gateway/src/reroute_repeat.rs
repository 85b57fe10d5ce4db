//! Reroutes with an `Idempotency-Key`: one runs at a time, whichever gateways are asked, and its
//! answer is told to whoever repeats the call, so nothing is paid twice.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use log::{info, warn};
use tokio::time::Instant;

use super::exchange::HttpExchange;
use super::reply::json_bytes;
use super::reroute::RerouteRequest;
use rerouter_access::auth::Principal;
use rerouter_base::body_memory::BodyClass;
use rerouter_base::clock::Clock;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::RequestId;
use rerouter_core::api::idempotency::{NamedCall, too_many, used_for_another};
use rerouter_core::api::{audit, replays};
use rerouter_core::app::App;
use rerouter_store::{
    Action, KnownReroute, NamedReroute, REPEATS_AGE, REPEATS_SHARE_BYTES, REROUTE_CLAIM,
    RerouteAnswer, Store, StoreError,
};

/// Pause after which a store that did not take the claim or the answer of a reroute is tried again.
const REPEATS_PAUSE: Duration = Duration::from_secs(1);

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
    // Before it is claimed: a panic or the end of the process may cut it off meanwhile.
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
        let mut pause = REROUTE_CLAIM / 3;
        loop {
            tokio::time::sleep(pause).await;
            let Some(claim) = &self.claim else { continue };
            let renewed = claim.renew().await;
            if let Err(error) = &renewed
                && pause != REPEATS_PAUSE
            {
                warn!("a reroute with an Idempotency-Key may be run twice: {error}");
            }
            pause = match renewed {
                Ok(()) => REROUTE_CLAIM / 3,
                Err(_) => REPEATS_PAUSE,
            };
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
        match (self.claim.take(), kept) {
            (Some(claim), Some(answer)) => claim.keep(app, answer).await,
            (Some(claim), None) => release(claim.store, claim.named).await,
            (None, _) => {}
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
        let (queue, id, reach) = (&app.captures, &exchange.id, app.auth.reach(principal));
        let replay = match replays::visible(queue, &app.archive, &reach, id.as_str()).await {
            // The caller's requests are not captured, or the replay is deleted by now.
            Err(error) if error.kind() == Kind::NotFound => None,
            _ => Some(id.clone()),
        };
        let fits = body.len() <= REPEATS_SHARE_BYTES;
        let sealed = fits.then(|| self.call.seal(app, made(replay.as_ref()), body));
        RerouteAnswer { replay, sealed: sealed.and_then(Result::ok) }
    }
}

impl Drop for KeyedReroute {
    /// The call panicked or was cut off: it may be repeated.
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
    async fn renew(&self) -> Result<(), StoreError> {
        self.store.renew_reroute(self.named.clone(), self.clock.now()).await
    }

    /// Whether the claim was still there for the answer.
    async fn answer(&self, answer: RerouteAnswer) -> Result<bool, StoreError> {
        let kept = self.store.answer_reroute(self.named.clone(), answer, self.clock.now()).await?;
        if !kept {
            warn!("a reroute with an Idempotency-Key may have run twice: its claim had ended");
        }
        Ok(kept)
    }

    /// Keeps the answer. Where the store takes nothing now, the client does not wait for it.
    async fn keep(self, app: &App, mut answer: RerouteAnswer) {
        let Err(error) = self.answer(answer.clone()).await else { return };
        let Ok(place) = app.late_answers.clone().try_acquire_owned() else {
            warn!("a reroute with an Idempotency-Key may be run twice: {error}");
            return;
        };
        warn!("the answer to a reroute with an Idempotency-Key is not kept yet: {error}");
        let mut held = app.body_memory.begin(BodyClass::Copies);
        if !held.set(answer.sealed.as_ref().map_or(0, Vec::len)) {
            answer.sealed = None;
        }
        tokio::spawn(async move {
            self.keep_late(answer).await;
            drop((held, place));
        });
    }

    /// Keeps the answer once the store takes it; else, when no repeat may come any more or the
    /// store takes everything but the answer, that there was one.
    async fn keep_late(self, answer: RerouteAnswer) {
        let end = Instant::now() + REPEATS_AGE;
        let mut pause = REPEATS_PAUSE;
        while Instant::now() + pause < end {
            tokio::time::sleep(pause).await;
            // The claim first, so that nobody runs it meanwhile.
            pause = match self.renew().await {
                Err(_) => REPEATS_PAUSE,
                Ok(()) => match self.answer(answer.clone()).await {
                    Err(_) => REROUTE_CLAIM / 3,
                    Ok(kept) => {
                        if kept {
                            info!("the answer to a reroute with an Idempotency-Key is kept now");
                        }
                        return;
                    }
                },
            };
        }
        let alone = RerouteAnswer { sealed: None, ..answer };
        if let Err(error) = self.answer(alone).await {
            warn!("a reroute with an Idempotency-Key may be run twice: {error}");
        }
    }
}

async fn release(store: Store, named: NamedReroute) {
    if let Err(error) = store.release_reroute(named).await {
        warn!("the Idempotency-Key of a reroute is not free yet: {error}");
    }
}
