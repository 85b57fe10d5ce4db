//! Captures: the stored request, inputs, decision and answer of one inference call. Capturing never delays or fails a
//! request, never holds a credential, and what is stored reads back whole or not at all.

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
