//! The reasons why captures cannot be read.

use std::{fmt, io};

#[derive(Debug)]
pub(super) enum Unreadable {
    Absent,
    /// Only the gateway that wrote this segment has it.
    Elsewhere(i64),
    /// The object store does not answer.
    Away(String),
    Io(io::Error),
    /// The capture's bytes are not those that were written.
    Damaged(&'static str),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Absent => f.write_str("its segment is not there"),
            Unreadable::Elsewhere(_) => f.write_str("its segment is on another gateway"),
            Unreadable::Away(why) => write!(f, "the object store: {why}"),
            Unreadable::Io(error) => write!(f, "{error}"),
            Unreadable::Damaged(what) => f.write_str(what),
        }
    }
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Unreadable::Absent,
            io::ErrorKind::UnexpectedEof => Unreadable::Damaged("it is cut off"),
            _ => Unreadable::Io(error),
        }
    }
}
