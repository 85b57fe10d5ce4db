//! The endpoints of the data plane: what clients ask for.

use http::HeaderName;

use super::Dialect;
use rerouter_base::error::Error;

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

    pub fn named(word: &str) -> Option<Self> {
        Endpoint::ALL.into_iter().find(|endpoint| endpoint.as_str() == word)
    }

    /// The dialect of its answers.
    pub fn dialect(self) -> Dialect {
        self.row().dialect
    }

    /// Whether its requests may cost money.
    pub fn costs(self) -> bool {
        self.row().costs
    }

    /// Whether a model generates its answer.
    pub fn generates(self) -> bool {
        self.row().request.limits.generates
    }

    pub fn counts(self) -> bool {
        self == Endpoint::CountTokens
    }

    /// Its name in records and signals.
    pub fn as_str(self) -> &'static str {
        self.row().name
    }

    /// Its path below the base URL of a provider, which ends in `/v1` or the like.
    pub fn path(self) -> &'static str {
        self.row().path
    }

    /// An error of the gateway as the last event of a stream. `number` is its sequence number.
    pub fn error_event(self, error: &Error, request_id: &str, number: u64) -> String {
        (self.row().error_event)(error, request_id, number)
    }

    /// Whether its answers can be read as chat completions.
    pub fn completes(self) -> bool {
        self.row().completes
    }

    /// The header in which its clients look for the id of a request, beside `x-request-id`.
    pub fn request_id_header(self) -> Option<&'static HeaderName> {
        self.row().request_id.as_ref()
    }
}

impl From<Endpoint> for Dialect {
    fn from(endpoint: Endpoint) -> Dialect {
        endpoint.dialect()
    }
}

impl Dialect {
    /// The endpoint where models answer in this dialect; `None` where the model's path stands in
    /// its place.
    pub fn endpoint(self) -> Option<Endpoint> {
        let answers = |endpoint: &Endpoint| endpoint.dialect() == self && endpoint.generates();
        Endpoint::ALL.into_iter().find(answers)
    }
}
