//! The endpoints of the data plane: what each is called in records and where providers have it.

/// What a data-plane route is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Endpoint {
    /// `POST /v1/chat/completions`.
    #[default]
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
    /// All of them, in the order of the contract.
    pub const ALL: [Endpoint; 5] = [
        Endpoint::ChatCompletions,
        Endpoint::Embeddings,
        Endpoint::Responses,
        Endpoint::Messages,
        Endpoint::CountTokens,
    ];

    /// The one that records call so.
    pub fn named(word: &str) -> Option<Self> {
        Endpoint::ALL.into_iter().find(|endpoint| endpoint.as_str() == word)
    }

    /// Whether it is of Anthropic's API; the others are of OpenAI's.
    pub fn is_anthropic(self) -> bool {
        matches!(self, Endpoint::Messages | Endpoint::CountTokens)
    }

    /// Whether its requests may cost money: a count of tokens never does.
    pub fn costs(self) -> bool {
        self != Endpoint::CountTokens
    }

    /// Whether its answers may be streams.
    pub fn streams(self) -> bool {
        matches!(self, Endpoint::ChatCompletions | Endpoint::Responses | Endpoint::Messages)
    }

    /// Whether a model writes its answer: embeddings and counts have no tokens but the request's.
    pub fn generates(self) -> bool {
        self.streams()
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

    /// Where it is below a provider's base, which ends in `/v1` or what stands for it.
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
