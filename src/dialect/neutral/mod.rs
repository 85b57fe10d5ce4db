//! The neutral form: what a request, an answer and a stream say, in no dialect's words.

pub(crate) mod answer;
pub(crate) mod answer_builder;
pub(crate) mod event;
pub(crate) mod failure;
pub(crate) mod ids;
pub(crate) mod json_text;
pub(crate) mod normalizer;
pub(crate) mod open_parts;
pub(crate) mod part;
pub(crate) mod request;
pub(crate) mod seal;
pub(crate) mod size;
pub(crate) mod text_tool;
