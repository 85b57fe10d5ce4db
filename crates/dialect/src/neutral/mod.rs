//! The neutral form: what a request, an answer and a stream say, in no dialect's words.

pub mod answer;
pub mod answer_builder;
pub mod event;
pub mod failure;
pub(crate) mod ids;
pub mod json_text;
pub(crate) mod normalizer;
pub(crate) mod open_parts;
pub mod part;
pub mod request;
pub(crate) mod seal;
pub(crate) mod size;
pub(crate) mod text_tool;
