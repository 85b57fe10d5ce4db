//! The neutral form: what a request, an answer and a stream say, in no dialect's words.

pub mod answer;
pub mod event;
pub mod part;
pub mod request;
