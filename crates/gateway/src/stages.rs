//! The stages of a call, each callable on its own, for benches.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::http::HttpTask;

use super::call::InferenceCall;
use super::plan::{CallPlan, SentRequest};
use super::provider_headers;
use super::verdict::{Mode, RelayVerdict};
use rerouter_access::limits::LimitPermit;
use rerouter_base::id::RequestId;
use rerouter_core::app::App;
use rerouter_core::prompt::Prompt;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_routing::{Inputs, decide};

/// A chat completion call in the middle of its first attempt.
pub struct CallStages(InferenceCall);

impl CallStages {
    /// `None` if the inputs lead to no target, or the body has no prompt.
    pub fn new(app: &Arc<App>, inputs: &Inputs, body: Bytes) -> Option<Self> {
        let live = app.live();
        let decision = decide(&live.routing, inputs).ok()?;
        let prompt = Prompt::read(Endpoint::ChatCompletions, body, HeaderMap::new()).ok()?;
        let plan = CallPlan::of_decision(app, live, &decision, Some(inputs), Mode::Relay);
        let id = RequestId::new(app.clock.now(), &app.random);
        let request = SentRequest::of_prompt(prompt, &HeaderMap::new(), &LimitPermit::default());
        let call = InferenceCall::new(app, id, plan, request, Mode::Relay);
        let target = call.begin_attempt()?;
        call.admit(&target).ok()?;
        call.attempt_connected();
        Some(CallStages(call))
    }

    pub fn write_request(&self, head: &mut RequestHeader) -> pingora::Result<Bytes> {
        provider_headers::write_request(&self.0, head)
    }

    pub fn rewrite_answer(&self, head: &mut ResponseHeader) -> pingora::Result<()> {
        provider_headers::rewrite_answer(&self.0, head)
    }

    /// Returns whether anything is passed on to the client.
    pub fn observe(&self, piece: HttpTask) -> bool {
        matches!(self.0.observe(vec![piece]), RelayVerdict::Forward { then: None, .. })
    }
}
