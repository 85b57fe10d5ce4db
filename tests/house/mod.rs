//! Checks of the source and the files that ship with it: structure, docs, schemas, examples, fuzz
//! targets.

mod api_examples;
/// README and docs: their commands, documents, links and references.
pub mod docs;
mod examples;
/// The Rust files of the workspace, and their rooms.
mod files;
pub mod fuzzing;
/// The graph of imports among files.
mod imports;
/// Dependencies among crates, rooms and files, places of external crates, and unique type names.
mod layering;
/// Each limit has a reason.
mod reasons;
mod schemas;
/// Length and width of source files, the place of unit tests, and the paths in the map.
mod source;
/// Public items of a crate are used by another crate.
mod visibility;
