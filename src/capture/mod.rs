//! Captures: the stored request, inputs, decision and answer of one inference call, and the queue
//! to the archive. Capturing never delays or fails a request, and a capture never holds a
//! credential.

mod coded;
mod echo;
mod export_json;
mod import_json;
pub mod names;
pub(crate) mod pace;
pub mod pending;
pub(crate) mod prepare;
pub mod query;
pub mod queue;
pub mod raw_capture;
pub mod record;
pub mod redact;
pub mod scrub;
mod sift;
mod size;
mod spelled;
mod values;
