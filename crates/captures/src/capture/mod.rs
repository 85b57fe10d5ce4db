//! Captures: the stored request, inputs, decision and answer of one inference call, and the queue
//! to the archive. Capturing never delays or fails a request, and a capture never holds a
//! credential.

pub mod bounds;
mod conversation_json;
mod export_json;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
pub mod fixtures;
mod import_json;
pub(crate) mod pace;
pub(crate) mod packed_capture;
pub(crate) mod packed_head;
mod packing;
pub mod pending;
pub mod queue;
pub mod raw_capture;
pub mod record;
