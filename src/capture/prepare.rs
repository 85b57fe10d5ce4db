//! From a capture to what is written of it: without credentials, without what the server document keeps out.

use super::record::{Bodies, Capture, Head};
use super::redact::Redactor;
use super::scrub::{self, is_credential};
use super::segment::group::Ready;
use crate::bounds;
use crate::store::CaptureRow;

/// What is written of a capture; `None` for one that cannot be.
pub(super) fn ready(capture: &Capture, redactor: &Redactor) -> Option<Ready> {
    let mut head = capture.head.clone();
    // What comes from a request is without them already; what comes from a file may hold them.
    let kept = |name: &str| !is_credential(&name.to_ascii_lowercase());
    head.request_headers.retain(|(name, _)| kept(name));
    head.response_headers.retain(|(name, _)| kept(name));
    if let Some(inputs) = &mut head.inputs {
        inputs.request.headers.retain(|name, _| kept(name));
    }
    let mut bodies = Bodies { response: capture.bodies.response.clone(), ..Bodies::default() };
    if head.request_captured {
        let scrubbed = scrub::scrub_body(&capture.bodies.request);
        bodies.request = scrubbed.body;
        head.redacted |= scrubbed.redacted;
    }
    redactor.redact(&mut head, &mut bodies);
    of(&head, bodies)
}

/// What is written of a head that is fit to be, and its bodies.
pub(super) fn of(head: &Head, bodies: Bodies) -> Option<Ready> {
    if bodies.request.len().saturating_add(bodies.response.len()) > bounds::CAPTURE_QUEUE_BYTES {
        return None;
    }
    Some(Ready { row: row(head), head: serde_json::to_vec(head).ok()?, bodies })
}

/// What the index is told of a capture.
pub(super) fn row(head: &Head) -> CaptureRow {
    let decision = head.decision.as_ref();
    CaptureRow {
        id: head.id.clone(),
        created_at_us: head.created_at.as_microsecond(),
        owner: head.owner.clone(),
        key: head.key.clone(),
        alias: decision.and_then(|decision| decision.alias.clone()),
        recipe: decision.map(|decision| decision.recipe.clone()),
        provider: head.served.as_ref().map(|served| served.provider.to_string()),
        model: head.served.as_ref().map(|served| served.model.to_string()),
        decided_provider: decision.map(|decision| decision.provider.clone()),
        decided_model: decision.map(|decision| decision.model.clone()),
        status: head.status,
        state: head.state.as_str().to_owned(),
        replay_of: head.replay_of.clone(),
        shadow_of: head.shadow_of.clone(),
    }
}
