//! Captures: the data that is kept of a call, redaction of credentials, captures on disk, and
//! traces.

// The documentation is for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]
// A test's scenario reads from top to bottom, however many steps it has.
#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod archive;
pub mod capture;
pub mod redaction;
pub mod telemetry;
