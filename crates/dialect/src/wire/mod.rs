//! What stands on the wire, as bytes: JSON, events, content codings, and how many
//! tokens a text has. Nothing here knows a dialect.

pub mod coding;
pub mod json;
pub mod sse;
pub mod tokens;
