//! Checks of the source and of what it ships: structure, docs, schemas, examples, fuzz targets.

mod api_examples;
/// README and docs: their commands, documents, links and references.
mod docs;
mod examples;
/// The Rust source of the house: its files, and their places.
mod files;
pub mod fuzzing;
/// Which files of a crate name which.
mod imports;
/// Which crate, room and file may use which, where other crates enter, unique type names.
mod layering;
/// Each limit has a reason.
mod reasons;
mod schemas;
/// Length and width of source files, where unit tests are, and paths that the map names.
mod source;
/// What is public in a crate is named by another one.
mod visibility;
