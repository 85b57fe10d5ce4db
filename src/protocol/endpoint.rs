//! The endpoints of the data plane: what each is called in records and where providers have it.

/// What a data-plane route is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `POST /v1/chat/completions`.
    ChatCompletions,
    /// `POST /v1/embeddings`.
    Embeddings,
    /// `POST /v1/responses`.
    Responses,
    /// `POST /v1/messages`.
    Messages,
    /// `POST /v1/messages/count_tokens`.
    CountTokens,
}

impl Endpoint {
    /// All of them.
    pub const ALL: [Endpoint; 5] =
        [Endpoint::ChatCompletions, Endpoint::Embeddings, Endpoint::Responses, Endpoint::Messages, Endpoint::CountTokens];

    /// The one that records call by this word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|endpoint| endpoint.as_str() == word)
    }

    /// The word in records and signals.
    pub fn as_str(self) -> &'static str {
        match self {
            Endpoint::ChatCompletions => "chat.completions",
            Endpoint::Embeddings => "embeddings",
            Endpoint::Responses => "responses",
            Endpoint::Messages => "messages",
            Endpoint::CountTokens => "messages.count_tokens",
        }
    }

    /// Where it is below a provider's base.
    pub fn path(self) -> &'static str {
        match self {
            Endpoint::ChatCompletions => "/chat/completions",
            Endpoint::Embeddings => "/embeddings",
            Endpoint::Responses => "/responses",
            Endpoint::Messages => "/messages",
            Endpoint::CountTokens => "/messages/count_tokens",
        }
    }
}
