//! Gemini's native API, as a provider speaks it.

pub(crate) mod answer_reader;
pub(crate) mod stream_reader;
