//! From a capture to what is written of it.

use crate::bounds;
use crate::capture::record::{Bodies, Capture, Head};
use crate::redaction::{RedactedCapture, Redactor};
use crate::store::CaptureRow;

/// A redacted capture that is ready to be written.
pub(super) struct PreparedCapture {
    /// Its row in the index.
    pub(super) row: CaptureRow,
    /// The head, as JSON.
    pub(super) head: Vec<u8>,
    /// The bodies; empty where they are not kept.
    pub(super) bodies: Bodies,
}

/// What is written of a capture after redaction; `None` for one that is too large.
pub(super) fn ready(capture: &Capture, redactor: &Redactor) -> Option<PreparedCapture> {
    let RedactedCapture { head, head_json, bodies, .. } = redactor.redact(capture)?;
    let size = bodies.request.len().saturating_add(bodies.response.len());
    (size <= bounds::CAPTURE_QUEUE_BYTES).then(|| PreparedCapture {
        row: row(&head),
        head: head_json,
        bodies,
    })
}

/// What the index is told of a capture.
fn row(head: &Head) -> CaptureRow {
    let decision = head.decision.as_ref();
    CaptureRow {
        id: head.id.clone(),
        created_at_us: head.created_at.as_microsecond(),
        owner: head.owner.clone(),
        key: head.key.clone(),
        alias: match decision {
            Some(decision) => decision.alias.as_deref().map(str::to_owned),
            None => asked_for(head),
        },
        recipe: decision.map(|decision| decision.recipe.to_string()),
        provider: head.served.as_ref().map(|served| served.provider.to_string()),
        model: head.served.as_ref().map(|served| served.model.to_string()),
        decided_provider: decision.map(|decision| decision.provider.to_string()),
        decided_model: decision.map(|decision| decision.model.to_string()),
        status: head.status,
        state: head.state.as_str().to_owned(),
        replay_of: head.replay_of.clone(),
        shadow_of: head.shadow_of.clone(),
    }
}

/// The name that was asked for, where nothing was decided.
fn asked_for(head: &Head) -> Option<String> {
    let name = &head.inputs.as_ref()?.request.name;
    (!name.is_empty()).then(|| name.to_string())
}
