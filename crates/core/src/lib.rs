//! The state of one gateway and what is asked of it: documents, the live one, evaluation, the API.

// The documentation is written for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]
// A scenario of a test reads from top to bottom, however many steps it has.
#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod api;
pub mod app;
pub mod config;
pub mod evaluate;
pub mod prompt;
pub mod reload;
