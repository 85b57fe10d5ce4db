//! Shadows: copies of live requests for another target, which the recipe names, to see how that
//! target would have answered. A copy is sent once, apart from the request itself, through a memory
//! session. Nobody gets the answer and nobody pays for it: it is captured and counted separately.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use pingora::server::ShutdownWatch;
use pingora_proxy::HttpProxy;
use tokio::sync::OwnedSemaphorePermit;

use super::ProxyHooks;
use super::call::InferenceCall;
use super::failure::AttemptFailure;
use super::outcome::Outcome;
use super::plan::{CallPlan, SentRequest, forwarded};
use super::record::Record;
use super::verdict::Mode;
use super::wrap::proxy;
use rerouter_access::auth::Principal;
use rerouter_base::blocking::blocking;
use rerouter_base::body_memory::{BodyClass, Held};
use rerouter_base::count_guard::CountGuard;
use rerouter_base::error::{Kind, Result};
use rerouter_core::app::{App, Live};
use rerouter_core::prompt::{NeutralForm, Prompt, READ_INLINE, neutral_form, reading_turn};
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::protocol::Way;
use rerouter_dialect::request::{self, ModelRequest};
use rerouter_routing::{Decision, Target, shadow};

/// Time that a draining gateway waits for shadows, whose answers nobody waits for.
const SHADOW_GRACE: Duration = Duration::from_secs(2);

/// Sends a copy of a decided request in its own task, if the random draw selects the request. Never
/// waits: if too many copies are running, this one is dropped. A request that is not captured has
/// no shadow, because nobody would see the answer.
pub(super) fn send(
    (app, proxy): (&Arc<App>, &Arc<HttpProxy<ProxyHooks>>),
    live: &Arc<Live>,
    (principal, prompt): (&Principal, &Prompt),
    record: &Record,
    shutdown: &ShutdownWatch,
) {
    if !record.is_captured() {
        return;
    }
    let (Some(inputs), Some(decision)) = (record.inputs(), record.decision()) else { return };
    let target = match shadow(&live.routing, inputs, decision) {
        None => return,
        Some(Err(_)) => return app.metrics.shadow("ineligible"),
        Some(Ok(target)) => target,
    };
    let turn = app.shadows.clone().try_acquire_owned().ok().filter(|_| !*shutdown.borrow());
    let Some(turn) = turn else { return app.metrics.shadow("dropped") };
    let is_translated = matches!(target.provider.way(prompt.endpoint), Some(Way::Translated(_)));
    // Memory for the body that is sent and the request's body, which the copy may outlive. For
    // another dialect also for the neutral form and the body that is written from it.
    let copies = if is_translated { 4 } else { 2 };
    let mut held = app.body_memory.begin(BodyClass::Copies);
    if !held.set(copies * prompt.body.len()) {
        return app.metrics.shadow("dropped");
    }
    let copy = ShadowCopy {
        app: app.clone(),
        proxy: proxy.clone(),
        live: live.clone(),
        target,
        is_translated,
        tenant: app.auth.tenant(principal),
        decision: decision.clone(),
        endpoint: prompt.endpoint,
        body: prompt.body.clone(),
        unexpanded: prompt.agent().map(|_| prompt.sent().clone()),
        headers: forwarded(&record.request_headers),
        query: prompt.query.clone(),
        record: record.shadow(app),
        _turn: turn,
        _held: held,
        _busy: app.begin_request(),
    };
    tokio::spawn(copy.run(shutdown.clone()));
}

struct ShadowCopy {
    app: Arc<App>,
    proxy: Arc<HttpProxy<ProxyHooks>>,
    live: Arc<Live>,
    target: Arc<Target>,
    is_translated: bool,
    tenant: String,
    decision: Arc<Decision>,
    endpoint: Endpoint,
    /// The request's body, shared with the request.
    body: Bytes,
    /// The body as the client sent it, if an agent changed it.
    unexpanded: Option<Bytes>,
    headers: HeaderMap,
    query: Option<String>,
    record: Record,
    _turn: OwnedSemaphorePermit,
    _held: Held,
    /// A drain waits for the shadow, at most for [`SHADOW_GRACE`].
    _busy: CountGuard,
}

impl ShadowCopy {
    async fn run(mut self, shutdown: ShutdownWatch) {
        let made = tokio::select! {
            biased;
            made = self.call() => Some(made),
            () = grace_over(shutdown.clone()) => None,
        };
        let call = match made {
            Some(Ok(call)) => Arc::new(call),
            None => return self.app.metrics.shadow("dropped"),
            Some(Err(error)) if error.kind() == Kind::Unavailable => {
                return self.app.metrics.shadow("dropped");
            }
            Some(Err(error)) => {
                log::warn!("{}: the shadow's body cannot be made: {error}", self.record.id());
                return self.app.metrics.shadow("failed");
            }
        };
        tokio::select! {
            biased;
            _ = proxy(&self.proxy, None, &call, &shutdown) => {}
            () = grace_over(shutdown.clone()) => {
                call.attempt_failed(AttemptFailure::ClientGone, false);
            }
        }
        if call.has_panicked() {
            self.app.metrics.process.panics.inc();
        }
        let outcome = Outcome::take(&call, self.record.prompt_tokens());
        let state = self.record.close_shadow(&self.app, outcome);
        self.app.metrics.shadow(state.as_str());
    }

    /// Makes a call with one attempt, at the target. As in a reroute, the body asks for no stream.
    /// A large body is rewritten only when it is the sender's turn.
    async fn call(&mut self) -> Result<InferenceCall> {
        let (endpoint, is_translated) = (self.endpoint, self.is_translated);
        let (body, unexpanded) = (self.body.clone(), self.unexpanded.clone());
        let is_large = body.len() > READ_INLINE;
        let making = move || ShadowBody::make(endpoint, &body, unexpanded.as_ref(), is_translated);
        let made = if is_large {
            let turn = reading_turn(&self.app, &self.tenant).await?;
            let making = move || {
                let _turn = turn;
                making()
            };
            blocking(making).await?
        } else {
            making()
        };
        let ShadowBody { body, sent, model, has_foreign_thinking, neutral } = made?;
        self.record.sends(&self.app, &sent);
        let plan = CallPlan::of_shadow(
            self.live.clone(),
            &self.decision,
            self.target.clone(),
            self.record.inputs(),
        );
        let request = SentRequest {
            endpoint: self.endpoint,
            body,
            model,
            has_foreign_thinking,
            ask_usage: None,
            includes_usage: false,
            headers: std::mem::take(&mut self.headers),
            query: self.query.take(),
            counted: false,
            paid: None,
            answers: 1,
            modes: Vec::new(),
            stream: false,
            neutral,
        };
        let id = self.record.id().clone();
        let mut call = InferenceCall::new(&self.app, id, plan, request, Mode::Collect);
        call.traced(self.record.trace.as_ref());
        call.prompt_tokens = self.record.prompt_tokens();
        Ok(call)
    }
}

/// The body of a shadow, without `stream`.
struct ShadowBody {
    body: Bytes,
    /// The body as the client wrote it, before an agent changed it: this is what the capture keeps.
    sent: Bytes,
    /// The range of the model's name in the body.
    model: Range<usize>,
    has_foreign_thinking: bool,
    neutral: Option<NeutralForm>,
}

impl ShadowBody {
    fn make(
        endpoint: Endpoint,
        body: &Bytes,
        unexpanded: Option<&Bytes>,
        is_translated: bool,
    ) -> Result<ShadowBody> {
        let body = request::without_stream(body)?;
        let sent = match unexpanded {
            Some(sent) => request::without_stream(sent)?,
            None => body.clone(),
        };
        let ModelRequest { model_span: model, has_foreign_thinking, .. } =
            request::read_request(&body, endpoint)?;
        let neutral = is_translated.then(|| neutral_form(endpoint, &body));
        Ok(ShadowBody { body, sent, model, has_foreign_thinking, neutral })
    }
}

/// Resolves [`SHADOW_GRACE`] after the shutdown has begun.
async fn grace_over(mut shutdown: ShutdownWatch) {
    // An error means that the sender was dropped, which is a shutdown too.
    let _ = shutdown.wait_for(|leaving| *leaving).await;
    tokio::time::sleep(SHADOW_GRACE).await;
}
