//! Types that all crates share: ids, errors, clocks, secrets, logs, metrics, money. They make no
//! policy, and no I/O except for replacing files.

// The documentation is written for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]
// A scenario of a test reads from top to bottom, however many steps it has.
#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod atomic_file;
pub mod blocking;
pub mod body_memory;
pub mod bounds;
#[warn(missing_docs)]
pub mod clock;
pub mod count_guard;
pub mod error;
pub mod id;
pub mod interface;
pub mod log;
pub mod metrics;
pub mod money;
pub mod repeats;
#[warn(missing_docs)]
pub mod secret;
pub mod trace_context;
pub mod turns;
pub mod unread;
pub mod url;
pub mod usage_kind;
mod words;
