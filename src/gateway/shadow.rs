//! Shadows: copies of live requests for the target that their recipe names, to see how that would have answered. A copy
//! is sent once, beside the request's path, through a memory session. Nobody gets its answer and nobody pays for it: it is
//! captured, and counted apart.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use pingora::server::ShutdownWatch;
use pingora_proxy::HttpProxy;
use tokio::sync::OwnedSemaphorePermit;

use super::Gateway;
use super::attempt::forwarded;
use super::call::{Call, Progress, demand};
use super::edge::Edge;
use super::failure::Failure;
use super::inference::proxy;
use super::record::{Outcome, Record};
use super::relay::Mode;
use crate::app::{App, Busy, Live};
use crate::body_memory::{BodyClass, Held};
use crate::bounds;
use crate::error::Result;
use crate::prompt::Prompt;
use crate::protocol::endpoint::Endpoint;
use crate::protocol::request;
use crate::routing::decide::{Decision, shadow};
use crate::routing::document::RetryOn;
use crate::routing::recipe::{Retry, Target};

/// Sends a copy of a decided request, if the draw falls on it. Waits for nothing: the copy is a task of its own, or dropped
/// where too many are under way.
pub(super) fn send(
    edge: &Edge,
    live: &Arc<Live>,
    prompt: &Prompt,
    record: &Record,
    shutdown: &ShutdownWatch,
) {
    let (Some(inputs), Some(decision)) = (record.inputs(), record.decision()) else { return };
    let app = &edge.app;
    let target = match shadow(&live.routing, inputs, decision) {
        None => return,
        Some(Err(_)) => return app.metrics.shadow("ineligible"),
        Some(Ok(target)) => target.clone(),
    };
    let turn = app.shadows.clone().try_acquire_owned().ok().filter(|_| !*shutdown.borrow());
    let Some(turn) = turn else { return app.metrics.shadow("dropped") };
    // The one that is sent, beside the request's own, which may end before it.
    let mut held = app.body_memory.begin(BodyClass::Copies);
    if !held.set(2 * prompt.body.len()) {
        return app.metrics.shadow("dropped");
    }
    let copy = Copied {
        app: app.clone(),
        proxy: edge.proxy.clone(),
        live: live.clone(),
        target,
        decision: decision.clone(),
        endpoint: prompt.endpoint,
        body: prompt.body.clone(),
        sent: prompt.agent().map(|_| prompt.sent().clone()),
        forward: forwarded(&prompt.headers),
        query: prompt.query.clone(),
        record: record.shadow(app),
        _turn: turn,
        _held: held,
        _busy: app.begin_request(),
    };
    tokio::spawn(copy.run(shutdown.clone()));
}

/// One copy on its way.
struct Copied {
    app: Arc<App>,
    proxy: Arc<HttpProxy<Gateway>>,
    live: Arc<Live>,
    target: Arc<Target>,
    decision: Arc<Decision>,
    endpoint: Endpoint,
    /// As the request has it, and shared with that.
    body: Bytes,
    /// As the client sent it, where an agent made another of it.
    sent: Option<Bytes>,
    forward: HeaderMap,
    query: Option<String>,
    record: Record,
    _turn: OwnedSemaphorePermit,
    _held: Held,
    /// A drain waits for it, though not for long.
    _busy: Busy,
}

impl Copied {
    async fn run(mut self, shutdown: ShutdownWatch) {
        let call = match self.call() {
            Ok(call) => Arc::new(call),
            Err(error) => {
                log::warn!("{}: a body that was read cannot be copied: {error}", self.record.id());
                return self.app.metrics.shadow("failed");
            }
        };
        tokio::select! {
            biased;
            _ = proxy(&self.proxy, None, &call, &shutdown) => {}
            () = over(shutdown.clone()) => { call.attempt_failed(Failure::ClientGone, false); }
        }
        if call.has_panicked() {
            self.app.metrics.panic();
        }
        let outcome = Outcome::take(&call, self.record.prompt_tokens());
        let state = self.record.close_shadow(&self.app, outcome);
        self.app.metrics.shadow(state.as_str());
    }

    /// One attempt at the one target, with a body that asks for no stream, as that of a reroute.
    fn call(&mut self) -> Result<Call> {
        let body = request::without_stream(&self.body)?;
        let model = request::read_request(&body, self.endpoint)?.model_span;
        // What is kept is the client's part, as of every request.
        match &self.sent {
            Some(sent) => self.record.sends(&self.app, &request::without_stream(sent)?),
            None => self.record.sends(&self.app, &body),
        }
        Ok(Call {
            id: self.record.id().clone(),
            live: self.live.clone(),
            mode: Mode::Collect,
            targets: vec![self.target.clone()],
            retry: Retry { attempts: 1, on: RetryOn::default(), budget_percent: None },
            budget: None,
            clock: self.app.clock.clone(),
            nodes: self.app.nodes.clone(),
            faults: self.app.store.faults().clone(),
            demand: demand(self.record.inputs()),
            endpoint: self.endpoint,
            forward: std::mem::take(&mut self.forward),
            query: self.query.take(),
            rates: Default::default(),
            coming: self.app.captures.coming().clone(),
            decision: self.decision.clone(),
            rule: None,
            capture_limit: self.app.server.capture.max_body,
            body,
            model,
            ask_usage: None,
            counted: false,
            state: Progress::within(&self.app.body_memory).into(),
            home: Default::default(),
            panicked: Default::default(),
        })
    }
}

/// Resolves when the process is leaving and has waited long enough.
async fn over(mut shutdown: ShutdownWatch) {
    // An error means that nobody is left to say it.
    let _ = shutdown.wait_for(|leaving| *leaving).await;
    tokio::time::sleep(bounds::SHADOW_GRACE).await;
}
