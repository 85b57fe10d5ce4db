//! The endpoints of the data plane, and their paths at providers.

/// An endpoint of the data plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Endpoint {
    #[default]
    ChatCompletions,
    Embeddings,
    Responses,
    Messages,
    CountTokens,
}

impl Endpoint {
    pub const ALL: [Endpoint; 5] = [
        Endpoint::ChatCompletions,
        Endpoint::Embeddings,
        Endpoint::Responses,
        Endpoint::Messages,
        Endpoint::CountTokens,
    ];

    /// The endpoint of this name in records.
    pub fn named(word: &str) -> Option<Self> {
        Endpoint::ALL.into_iter().find(|endpoint| endpoint.as_str() == word)
    }

    /// Whether it belongs to Anthropic's API; the others belong to OpenAI's.
    pub fn is_anthropic(self) -> bool {
        matches!(self, Endpoint::Messages | Endpoint::CountTokens)
    }

    /// Whether its requests may cost money.
    pub fn costs(self) -> bool {
        self != Endpoint::CountTokens
    }

    /// Whether its answers may be streams.
    pub fn streams(self) -> bool {
        matches!(self, Endpoint::ChatCompletions | Endpoint::Responses | Endpoint::Messages)
    }

    /// Whether a model generates its answer.
    pub fn generates(self) -> bool {
        self.streams()
    }

    /// Its name in records and signals.
    pub fn as_str(self) -> &'static str {
        match self {
            Endpoint::ChatCompletions => "chat.completions",
            Endpoint::Embeddings => "embeddings",
            Endpoint::Responses => "responses",
            Endpoint::Messages => "messages",
            Endpoint::CountTokens => "messages.count_tokens",
        }
    }

    /// Its path below the base URL of a provider, which ends in `/v1` or the like.
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
