//! Stages of a call, each on its own, for benches.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::http::HttpTask;

use super::call::InferenceCall;
use super::plan::{CallPlan, SentRequest};
use super::provider_headers;
use super::verdict::{Mode, RelayVerdict};
use rerouter_base::id::RequestId;
use rerouter_core::app::App;
use rerouter_core::prompt::Prompt;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_routing::{Inputs, decide};

/// A call of a chat completion amid its first attempt.
pub struct CallStages(InferenceCall);

impl CallStages {
    /// A call with this body, decided by these inputs under the live document. `None` if the inputs
    /// lead to no target, or the body is no prompt.
    pub fn new(app: &Arc<App>, inputs: &Inputs, body: Bytes) -> Option<Self> {
        let live = app.live();
        let decision = decide(&live.routing, inputs).ok()?;
        let prompt = Prompt::read(Endpoint::ChatCompletions, body, HeaderMap::new()).ok()?;
        let plan = CallPlan::of_decision(app, live, &decision, Some(inputs), Mode::Relay);
        let id = RequestId::new(app.clock.now(), &app.random);
        let request = SentRequest::of_prompt(prompt, &HeaderMap::new(), false);
        let call = InferenceCall::new(app, id, plan, request, Mode::Relay);
        let target = call.begin_attempt()?;
        call.admit(&target).ok()?;
        call.attempt_connected();
        Some(CallStages(call))
    }

    /// Writes the head for the provider; gives the body that belongs to it.
    pub fn write_request(&self, head: &mut RequestHeader) -> pingora::Result<Bytes> {
        provider_headers::write_request(&self.0, head)
    }

    /// Makes a provider's answer head ours.
    pub fn rewrite_answer(&self, head: &mut ResponseHeader) -> pingora::Result<()> {
        provider_headers::rewrite_answer(&self.0, head)
    }

    /// Judges a piece of the answer; whether something goes on to the client.
    pub fn observe(&self, piece: HttpTask) -> bool {
        matches!(self.0.observe(vec![piece]), RelayVerdict::Forward { then: None, .. })
    }
}
