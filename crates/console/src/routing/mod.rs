//! Routing: the document with its picture, what a change of it would do, and its revisions.

pub(super) mod apply;
mod diff;
pub(super) mod document;
pub(super) mod evaluate;
mod flow;
mod graph;
mod picture;
mod report;
pub(super) mod revisions;
mod shares;
mod traffic;
mod workbench;
