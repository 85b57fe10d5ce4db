//! Segments: append-only files of compressed, sealed blocks that hold captures. Nothing here knows the index.
//!
//! A segment is its head, twice, then blocks. Captures are written in groups: a block of heads, a block of bodies unless
//! none has any, and last a block of rows, which says where the other two are and what the index is told of each capture.
//! A group whose rows are there is therefore whole, and an index is rebuilt from rows alone, or from heads where rows are
//! damaged. A block of graves names captures that were deleted, in whatever segment they are. A segment that was closed ends
//! with an end block.

pub mod format;
pub mod group;
pub mod reader;
pub mod writer;
