//! Captures: the stored request, inputs, decision and answer of one inference call, and the queue
//! to the archive. Capturing never delays or fails a request, and a capture never holds a
//! credential.

mod export_json;
mod import_json;
pub(crate) mod pace;
pub mod pending;
pub mod queue;
pub mod raw_capture;
pub mod record;
mod size;
