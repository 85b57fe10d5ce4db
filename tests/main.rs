//! The integration tests in one binary: the real gateway as a process, used over sockets, and
//! checks of the source.

// A test fails by a panic, prints the gateway's log then, and reads its tier from the environment.
// Nothing outside calls its code.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    unreachable_pub
)]
// A scenario reads from top to bottom, however many steps it has.
#![allow(clippy::disallowed_methods, clippy::too_many_lines)]

mod access;
mod captures;
mod cli;
mod cluster;
mod console;
mod house;
mod limits;
mod nodes;
mod process;
mod providers;
mod requests;
mod routing;
mod store;
mod support;
mod translation;
