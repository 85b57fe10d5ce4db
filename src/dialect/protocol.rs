//! The protocols of providers: which dialects they have, and what the head of a request says.

use http::{HeaderName, HeaderValue};

use super::Dialect;
use super::endpoint::Endpoint;

/// What a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    OpenAi,
    Anthropic,
    Gemini,
    /// The in-process mock, which has the dialects of OpenAI and Anthropic.
    Mock,
}

/// The header that carries a provider's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHeader {
    /// In `Authorization`, after `Bearer`.
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

/// The head of a request to a provider, as its protocol has it.
pub(super) struct ProtocolRow {
    /// Name in documents and answers.
    pub(super) word: &'static str,
    /// The dialects of its endpoints.
    pub(super) dialects: &'static [Dialect],
    /// The dialect in which its models are asked for answers that have another dialect; `None`
    /// where they have all of clients.
    pub(super) translated: Option<Dialect>,
    pub(super) key: KeyHeader,
    /// The header that names the version of the API, and the version that is spoken.
    pub(super) version: Option<(HeaderName, HeaderValue)>,
    /// Whether each base URL ends in `/v1`, which people leave out.
    pub(super) is_versioned: bool,
    /// An example of a base URL.
    pub(super) example: &'static str,
    /// Whether providers take `stream_options`, by which a stream's usage is requested.
    pub(super) takes_stream_options: bool,
    /// The path of a request for an answer by a model, whole or as a stream, where it is not the
    /// endpoint's.
    pub(super) model_path: Option<fn(model: &str, streams: bool) -> String>,
}

pub(super) static MOCK: ProtocolRow = ProtocolRow {
    word: "mock",
    dialects: &[Dialect::Chat, Dialect::Embeddings, Dialect::Responses, Dialect::Messages],
    translated: None,
    key: KeyHeader::Bearer,
    version: None,
    is_versioned: false,
    example: "",
    takes_stream_options: true,
    model_path: None,
};

/// How a provider is asked for what an endpoint gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// In the client's words.
    Native,
    /// Translated into this dialect.
    Translated(Dialect),
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

    /// How its providers are asked for what this endpoint gives; `None` if they cannot be. Only
    /// answers of models are translated.
    pub fn way(self, endpoint: Endpoint) -> Option<Way> {
        let row = self.row();
        if row.dialects.contains(&endpoint.dialect()) {
            return Some(Way::Native);
        }
        row.translated.filter(|_| endpoint.generates()).map(Way::Translated)
    }

    /// The dialects that requests are translated to.
    pub(crate) fn translated() -> impl Iterator<Item = Dialect> {
        Protocol::ALL.into_iter().filter_map(|protocol| protocol.row().translated)
    }

    /// How it carries the provider's key.
    pub fn key_header(self) -> KeyHeader {
        self.row().key
    }

    /// The header that names the version of the API, and the version that is spoken.
    pub(crate) fn version(self) -> Option<&'static (HeaderName, HeaderValue)> {
        self.row().version.as_ref()
    }

    /// Whether each base URL ends in `/v1`, which people leave out.
    pub(crate) fn is_versioned(self) -> bool {
        self.row().is_versioned
    }

    /// An example of a base URL.
    pub(crate) fn example(self) -> &'static str {
        self.row().example
    }

    /// Whether providers take `stream_options`, by which a stream's usage is requested.
    pub(crate) fn takes_stream_options(self) -> bool {
        self.row().takes_stream_options
    }

    /// The path, and query if any, of a request for an answer by a model, below the base URL.
    /// `None` where it is the endpoint's, and the body names the model.
    pub fn model_path(self, model: &str, streams: bool) -> Option<String> {
        self.row().model_path.map(|path| path(model, streams))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_has_its_endpoints() {
        use Way::{Native, Translated};
        let (chat, messages, gemini) = (Dialect::Chat, Dialect::Messages, Dialect::Gemini);
        for (endpoint, openai, anthropic, google) in [
            ("chat.completions", Some(Native), Some(Translated(messages)), Some(gemini)),
            ("responses", Some(Native), Some(Translated(messages)), Some(gemini)),
            ("messages", Some(Translated(chat)), Some(Native), Some(gemini)),
            ("messages.count_tokens", None, Some(Native), None),
            ("embeddings", Some(Native), None, None),
        ] {
            let endpoint = Endpoint::named(endpoint).unwrap();
            let ways = Protocol::ALL.map(|protocol| protocol.way(endpoint));
            let google = google.map(Translated);
            assert_eq!(ways, [openai, anthropic, google, Some(Native)], "{}", endpoint.as_str());
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
