//! Reads and edits JSON as bytes.

mod cursor;
mod edit;
mod surrogates;

pub use cursor::{
    Cursor, JSON_WORD_BYTES, JsonError, JsonKind, MemberName, read_object, read_part, text,
};
pub(crate) use cursor::{read_last_members, split_string};
pub use edit::{Edit, splice};
pub(crate) use edit::{removals, without_members};
pub(crate) use surrogates::mend_surrogates;

#[cfg(test)]
mod tests;
