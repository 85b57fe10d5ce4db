//! Who sends a request, and what it may use: credentials, limits, nodes.

// The documentation is written for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]
// The scenario of a test is read from top to bottom, so a test function may be long.
#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod auth;
pub mod limits;
pub mod nodes;
