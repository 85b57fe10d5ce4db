//! JSON as bytes: a cursor that reads it, and edits in place.

mod cursor;
mod edit;

pub use cursor::{
    Cursor, JSON_WORD_BYTES, JsonError, JsonKind, MemberName, read_last_members, read_object,
    read_part, split_string, text,
};
pub use edit::{Edit, splice, without_members};

#[cfg(test)]
mod tests;
