//! Wire formats as bytes: JSON, server-sent events, content codings and token estimates. They are
//! independent of dialects.

pub mod coding;
pub mod json;
pub mod sse;
pub mod tokens;
