//! What is kept of a call: captures, credentials taken out of them, captures on disk, traces.

// The documentation is written for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]
// A scenario of a test reads from top to bottom, however many steps it has.
#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod archive;
pub mod capture;
pub mod redaction;
pub mod telemetry;
