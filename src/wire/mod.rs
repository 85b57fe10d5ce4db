//! What stands on the wire, as bytes: JSON, events, content codings, and how many
//! tokens a text has. Nothing here knows a dialect.

pub(crate) mod coding;
pub(crate) mod json;
pub(crate) mod sse;
pub(crate) mod tokens;
