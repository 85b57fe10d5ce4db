//! Captures: the stored request, inputs, decision and answer of one inference call. Capturing never delays or fails a
//! request, never holds a credential, and what is stored reads back whole or not at all.

mod coded;
pub mod coming;
pub mod draft;
mod echo;
pub mod import;
pub mod index;
pub mod names;
mod prepare;
pub mod query;
pub mod queue;
pub mod record;
pub mod redact;
mod restore;
pub mod scrub;
pub mod segment;
mod shelf;
mod shown;
mod sift;
mod size;
mod spelled;
mod tend;
mod values;
mod whole;

pub use restore::Recovered;
