//! The protocols of providers: their dialects, and the head of a request.

use http::{HeaderName, HeaderValue};

use super::Dialect;
use super::endpoint::Endpoint;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    OpenAi,
    Anthropic,
    Gemini,
    /// The in-process mock, which has chat completions and embeddings.
    Mock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHeader {
    /// The header is `Authorization: Bearer KEY`.
    Bearer,
    /// The key alone, in the header of this lower-case name.
    Named(&'static str),
}

impl KeyHeader {
    pub fn name(self) -> HeaderName {
        match self {
            KeyHeader::Bearer => http::header::AUTHORIZATION,
            KeyHeader::Named(name) => HeaderName::from_static(name),
        }
    }

    /// The value for a key, marked sensitive. `None` if it cannot be sent.
    pub fn value(self, key: &str) -> Option<HeaderValue> {
        let mut value = match self {
            KeyHeader::Bearer => HeaderValue::try_from(format!("Bearer {key}")),
            KeyHeader::Named(_) => HeaderValue::try_from(key),
        }
        .ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

pub(super) struct ProtocolRow {
    pub(super) word: &'static str,
    /// The endpoints of its API. A document may list others for a provider.
    pub(super) endpoints: &'static [Endpoint],
    /// The dialect of its answers, if no client endpoint has that dialect.
    pub(super) own_dialect: Option<Dialect>,
    pub(super) key: KeyHeader,
    pub(super) version: Option<(HeaderName, HeaderValue)>,
    pub(super) is_versioned: bool,
    pub(super) example: &'static str,
    pub(super) takes_stream_options: bool,
    pub(super) model_path: Option<fn(model: &str, wanted: Wanted) -> String>,
}

pub(super) static MOCK: ProtocolRow = ProtocolRow {
    word: "mock",
    endpoints: &[Endpoint::ChatCompletions, Endpoint::Embeddings],
    own_dialect: None,
    key: KeyHeader::Bearer,
    version: None,
    is_versioned: false,
    example: "",
    takes_stream_options: true,
    model_path: None,
};

/// How a provider gets a request for an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Untranslated.
    Native,
    Translated(Dialect),
    /// The API does not count tokens, so the gateway estimates them.
    Estimated,
}

/// The kind of result that is requested from a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Answer,
    Stream,
    /// The number of tokens in the prompt.
    Count,
}

impl Protocol {
    pub const ALL: [Protocol; 4] =
        [Protocol::OpenAi, Protocol::Anthropic, Protocol::Gemini, Protocol::Mock];

    /// Name in documents and answers.
    pub fn as_str(self) -> &'static str {
        self.row().word
    }

    /// Whether the provider is another process.
    pub fn is_remote(self) -> bool {
        self != Protocol::Mock
    }

    pub fn endpoints(self) -> &'static [Endpoint] {
        self.row().endpoints
    }

    /// How a provider with the endpoints `has` can serve this endpoint; `None` if it cannot.
    /// Requests are translated for the first of its endpoints whose answers a model generates.
    pub fn way(self, has: &[Endpoint], endpoint: Endpoint) -> Option<Way> {
        if has.contains(&endpoint) {
            return Some(Way::Native);
        }
        let answers = has.iter().find(|known| known.generates()).map(|known| known.dialect());
        let dialect = answers.or(self.row().own_dialect)?;
        if endpoint.generates() {
            Some(Way::Translated(dialect))
        } else if endpoint.counts() {
            Some(if dialect.counts() { Way::Translated(dialect) } else { Way::Estimated })
        } else {
            None
        }
    }

    pub fn key_header(self) -> KeyHeader {
        self.row().key
    }

    /// The header that names the API version, and the version that the gateway uses.
    pub fn version(self) -> Option<&'static (HeaderName, HeaderValue)> {
        self.row().version.as_ref()
    }

    /// Whether all base URLs end in `/v1`. People often leave that out.
    pub fn is_versioned(self) -> bool {
        self.row().is_versioned
    }

    /// An example of a base URL.
    pub fn example(self) -> &'static str {
        self.row().example
    }

    /// Whether providers take `stream_options`, by which a stream's usage is requested.
    pub fn takes_stream_options(self) -> bool {
        self.row().takes_stream_options
    }

    /// The path of a request to a model, with its query, below the base URL. `None` if the
    /// endpoint's path is used and the body names the model.
    pub fn model_path(self, model: &str, wanted: Wanted) -> Option<String> {
        self.row().model_path.map(|path| path(model, wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_has_its_endpoints() {
        use Way::{Estimated, Native, Translated};
        let (chat, messages, gemini) = (Dialect::Chat, Dialect::Messages, Dialect::Gemini);
        let by = |dialect| Some(Translated(dialect));
        for (endpoint, ways) in [
            ("chat.completions", [Some(Native), by(messages), by(gemini), Some(Native)]),
            ("responses", [Some(Native), by(messages), by(gemini), by(chat)]),
            ("messages", [by(chat), Some(Native), by(gemini), by(chat)]),
            ("messages.count_tokens", [Some(Estimated), Some(Native), by(gemini), Some(Estimated)]),
            ("embeddings", [Some(Native), None, None, Some(Native)]),
        ] {
            let endpoint = Endpoint::named(endpoint).unwrap();
            let found = Protocol::ALL.map(|protocol| protocol.way(protocol.endpoints(), endpoint));
            assert_eq!(found, ways, "{}", endpoint.as_str());
        }
        for endpoint in Endpoint::ALL {
            assert_eq!(Endpoint::named(endpoint.as_str()), Some(endpoint));
        }
        assert_eq!(Endpoint::named("chat"), None);
        let endpoints = Dialect::TRANSLATED.map(|dialect| dialect.endpoint().map(Endpoint::as_str));
        let expected = [Some("chat.completions"), Some("messages"), Some("responses"), None];
        assert_eq!(endpoints, expected);
    }

    #[test]
    fn a_provider_is_asked_for_what_it_has() {
        use Endpoint::{ChatCompletions, CountTokens, Embeddings, Messages, Responses};
        use Way::{Estimated, Native, Translated};
        let all = [ChatCompletions, Responses, Messages, CountTokens, Embeddings];
        let (chat, responses) = (Translated(Dialect::Chat), Translated(Dialect::Responses));
        let counted = Some(Estimated);
        for (protocol, has, ways) in [
            (Protocol::OpenAi, &[ChatCompletions][..], [Native, chat, chat].map(Some)),
            (Protocol::OpenAi, &[Responses], [responses, Native, responses].map(Some)),
            (
                Protocol::OpenAi,
                &[Responses, ChatCompletions],
                [Native, Native, responses].map(Some),
            ),
            (Protocol::OpenAi, &[Embeddings], [None; 3]),
            (
                Protocol::Anthropic,
                &[Messages],
                [Translated(Dialect::Messages), Translated(Dialect::Messages), Native].map(Some),
            ),
        ] {
            let counted = counted.filter(|_| ways[0].is_some());
            let embeddings = has.contains(&Embeddings).then_some(Native);
            let expected: Vec<_> = ways.into_iter().chain([counted, embeddings]).collect();
            let found: Vec<_> = all.iter().map(|endpoint| protocol.way(has, *endpoint)).collect();
            assert_eq!(found, expected, "{has:?}");
        }
    }

    #[test]
    fn each_protocol_carries_its_credential() {
        let carried = Protocol::ALL.map(|protocol| {
            let header = protocol.key_header();
            (protocol.as_str(), header.name(), header.value("k").unwrap())
        });
        let expected = [
            ("openai", "authorization", "Bearer k"),
            ("anthropic", "x-api-key", "k"),
            ("gemini", "x-goog-api-key", "k"),
            ("mock", "authorization", "Bearer k"),
        ];
        for ((word, name, value), expected) in carried.into_iter().zip(expected) {
            assert!(value.is_sensitive());
            assert_eq!((word, name.as_str(), value.to_str().unwrap()), expected);
        }
    }
}
