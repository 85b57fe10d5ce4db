//! The neutral form: what a request, an answer and a stream say, in no dialect's words.

pub(crate) mod answer;
pub(crate) mod event;
pub(crate) mod part;
pub(crate) mod request;
