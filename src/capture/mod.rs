//! Captures: the stored request, inputs, decision and answer of one inference call. Capturing never delays or fails a
//! request, never holds a credential, and what is stored reads back whole or not at all.

pub mod coming;
pub mod draft;
pub mod import;
pub mod index;
mod keys;
mod prepare;
pub mod queue;
pub mod record;
pub mod redaction;
mod restore;
pub mod segment;
mod shelf;
mod shown;
mod size;
mod tend;
mod whole;

pub use restore::Recovered;
