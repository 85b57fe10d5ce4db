//! From a capture to what is written of it.

use bytes::Bytes;

use crate::bounds;
use crate::capture::packed_capture::{PackedCapture, packed_head};
use crate::capture::packed_head::{self, HeaderSide};
use crate::capture::record::{Bodies, Head};
use crate::redaction::{HeaderFilter, RedactedCapture, Redactor};
use crate::store::CaptureRow;

/// A redacted capture that is ready to be written.
pub(super) struct PreparedCapture {
    /// Its row in the index.
    pub(super) row: CaptureRow,
    /// The head, packed.
    pub(super) head: Vec<u8>,
    /// The bodies; empty where they are not kept.
    pub(super) bodies: Bodies,
}

/// What is written of a capture after redaction; `None` for one that is too large or damaged.
pub(super) fn ready(
    capture: &PackedCapture,
    redactor: &Redactor,
    filter: &mut HeaderFilter,
) -> Option<PreparedCapture> {
    let packed = capture.head()?;
    // Its own headers stay packed.
    let fields = packed.fields()?;
    let prepared = if redactor.is_clean(packed, &fields, &capture.bodies) {
        let mut bodies = capture.bodies.clone();
        if !fields.request_captured {
            bodies.request = Bytes::new();
        }
        let head = packed_head::rewrite(packed, |side, name, value| match side {
            HeaderSide::Request => filter.keeps_request(redactor, name, value),
            HeaderSide::Response => filter.keeps_response(redactor, name, value),
        })?;
        PreparedCapture { row: row(fields), head, bodies }
    } else {
        let RedactedCapture { head, bodies, .. } = redactor.redact(&capture.unpack()?)?;
        PreparedCapture { head: packed_head(&head)?, row: row(head), bodies }
    };
    let Bodies { request, response } = &prepared.bodies;
    let size = request.len().saturating_add(response.len());
    (size <= bounds::CAPTURE_QUEUE_BYTES).then_some(prepared)
}

/// What the index is told of a capture.
fn row(head: Head) -> CaptureRow {
    let decision = head.decision;
    CaptureRow {
        id: head.id,
        created_at_us: head.created_at.as_microsecond(),
        owner: head.owner,
        key: head.key,
        alias: match &decision {
            Some(decision) => decision.alias.as_deref().map(str::to_owned),
            // The name that was asked for.
            None => head
                .inputs
                .map(|inputs| inputs.request.name.to_string())
                .filter(|name| !name.is_empty()),
        },
        recipe: decision.as_ref().map(|decision| decision.recipe.to_string()),
        provider: head.served.as_ref().map(|served| served.provider.to_string()),
        model: head.served.as_ref().map(|served| served.model.to_string()),
        decided_provider: decision.as_ref().map(|decision| decision.provider.to_string()),
        decided_model: decision.as_ref().map(|decision| decision.model.to_string()),
        status: head.status,
        state: head.state.as_str().to_owned(),
        replay_of: head.replay_of,
        shadow_of: head.shadow_of,
    }
}

#[cfg(test)]
#[path = "prepare_tests.rs"]
mod tests;
