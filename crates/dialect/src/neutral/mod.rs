//! The neutral form: requests, answers and streams, independent of any dialect.

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
pub mod target_terms;
pub(crate) mod text_tool;
