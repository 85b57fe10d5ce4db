//! Prepares captures for writing.

use std::borrow::Cow;

use crate::capture::bounds::CAPTURE_QUEUE_BYTES;
use crate::capture::packed_capture::{self, PackedCapture, packed_head};
use crate::capture::packed_head::{self, HeaderSide, PackedHead, PackedHeader};
use crate::capture::record::Bodies;
use crate::redaction::{HeaderFilter, RedactedCapture, Redactor};
use rerouter_store::CaptureRow;

pub(super) struct PreparedCapture<'a> {
    pub(super) row: CaptureRow,
    /// The head in the form of [`packed_head`].
    pub(super) head: Cow<'a, [u8]>,
    /// Empty if they are not kept.
    pub(super) bodies: Cow<'a, Bodies>,
}

/// Redacts a capture for writing; `None` if it is too large or damaged.
pub(super) fn ready<'a>(
    capture: &'a PackedCapture,
    redactor: &Redactor,
    filter: &mut HeaderFilter,
) -> Option<PreparedCapture<'a>> {
    let prepared = if redactor.is_clean(capture)? {
        let packed = capture.head()?;
        let mut bodies = Cow::Borrowed(&capture.bodies);
        if !capture.facts.request_captured && !bodies.request.is_empty() {
            bodies.to_mut().request.clear();
        }
        let mut keeps =
            |side: HeaderSide, header: PackedHeader<'_>| filter.keeps(redactor, side, header);
        let PackedHead { mut request_headers, mut response_headers, .. } = packed;
        // Nearly always all headers stay.
        let head = if request_headers.all(|header| keeps(HeaderSide::Request, header))
            && response_headers.all(|header| keeps(HeaderSide::Response, header))
        {
            Cow::Borrowed(capture.head_bytes())
        } else {
            Cow::Owned(packed_head::rewrite(packed, keeps)?)
        };
        PreparedCapture { row: capture.row.clone(), head, bodies }
    } else {
        let RedactedCapture { head, bodies, .. } = redactor.redact(&capture.unpack()?)?;
        PreparedCapture {
            row: packed_capture::row(&head),
            head: Cow::Owned(packed_head(&head)?),
            bodies: Cow::Owned(bodies),
        }
    };
    let Bodies { request, response } = &*prepared.bodies;
    let size = request.len().saturating_add(response.len());
    (size <= CAPTURE_QUEUE_BYTES).then_some(prepared)
}

#[cfg(test)]
#[path = "prepare_tests.rs"]
mod tests;
