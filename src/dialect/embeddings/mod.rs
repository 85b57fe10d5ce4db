//! Embeddings, as OpenAI has them.

pub(crate) mod request_facts;
