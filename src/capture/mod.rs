//! Captures: the stored request, inputs, decision and answer of one inference call, and the queue
//! to the archive. Capturing never delays or fails a request, and a capture never holds a
//! credential.

mod conversation_json;
mod export_json;
#[cfg(test)]
pub(crate) mod fixtures;
mod import_json;
pub(crate) mod pace;
pub(crate) mod packed_capture;
pub(crate) mod packed_head;
mod packing;
pub(crate) mod pending;
pub(crate) mod queue;
pub(crate) mod raw_capture;
pub(crate) mod record;
