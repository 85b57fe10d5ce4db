//! From a capture to what is written of it.

use super::record::{Bodies, Capture, Head};
use super::redaction::{RedactedCapture, Redactor};
use super::segment::group::Ready;
use crate::bounds;
use crate::store::CaptureRow;

/// What is written of a capture after redaction; `None` for one that cannot be written.
pub(super) fn ready(capture: &Capture, redactor: &Redactor) -> Option<Ready> {
    let RedactedCapture { head, head_json, bodies, .. } = redactor.redact(capture)?;
    written(&head, head_json, bodies)
}

/// What is written of a head that was redacted before, and its bodies.
pub(super) fn of(head: &Head, bodies: Bodies) -> Option<Ready> {
    written(head, serde_json::to_vec(head).ok()?, bodies)
}

fn written(head: &Head, head_json: Vec<u8>, bodies: Bodies) -> Option<Ready> {
    let size = bodies.request.len().saturating_add(bodies.response.len());
    (size <= bounds::CAPTURE_QUEUE_BYTES).then(|| Ready { row: row(head), head: head_json, bodies })
}

/// What the index is told of a capture.
pub(super) fn row(head: &Head) -> CaptureRow {
    let decision = head.decision.as_ref();
    CaptureRow {
        id: head.id.clone(),
        created_at_us: head.created_at.as_microsecond(),
        owner: head.owner.clone(),
        key: head.key.clone(),
        alias: match decision {
            Some(decision) => decision.alias.clone(),
            None => asked_for(head),
        },
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

/// The name that was asked for, where nothing was decided.
fn asked_for(head: &Head) -> Option<String> {
    let name = &head.inputs.as_ref()?.request.name;
    (!name.is_empty()).then(|| name.clone())
}
