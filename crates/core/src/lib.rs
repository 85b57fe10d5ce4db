//! The state of one gateway and the calls on it: documents, the live document, evaluations, the
//! API.

// The documentation is for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]
// A test's scenario reads from top to bottom, however many steps it has.
#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod api;
pub mod app;
pub mod config;
pub mod evaluate;
pub mod prompt;
pub mod reload;
