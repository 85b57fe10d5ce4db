//! Providers that a document names by one word, one row each. What the document says itself wins.

use super::base_url::BaseUrl;
use super::settings::{KeyHeader, Protocol};
use rerouter_dialect::endpoint::Endpoint;

/// What is known of a provider.
#[derive(Debug, PartialEq, Eq)]
pub struct Preset {
    /// The word that names it in documents.
    pub name: &'static str,
    pub protocol: Protocol,
    /// Root URL of the API; `None` where each account or machine has its own.
    pub(super) base_url: Option<&'static str>,
    /// An example for the others.
    pub(super) example: &'static str,
    /// Path of a base URL that is written without one.
    pub(super) path: &'static str,
    /// Query of a base URL that is written without one.
    pub(super) query: &'static str,
    pub(super) key: KeyHeader,
    /// Whether the default path is followed by the model (a deployment), then the endpoint.
    pub(super) model_in_path: bool,
    /// The endpoints that it has, where it lacks some of its protocol's.
    pub(super) endpoints: Option<&'static [Endpoint]>,
    /// Its part of the shipped prices.
    pub(super) prices: Option<&'static str>,
}

impl Preset {
    /// The endpoints below this base URL, where it is known that some are missing.
    pub(super) fn endpoints(&self, base: &BaseUrl) -> Option<&'static [Endpoint]> {
        // Azure's newer API has no deployments in its path, and all endpoints.
        self.endpoints.filter(|_| base.model_in_path == self.model_in_path)
    }

    /// A base URL as written, with path and query where it has none.
    pub(super) fn complete(&self, written: BaseUrl) -> BaseUrl {
        let usual_path = written.path.is_empty();
        BaseUrl {
            path: if usual_path { self.path.to_owned() } else { written.path },
            // A path of one's own may be another API, which has no versions.
            query: match written.query.is_empty() && usual_path {
                true => self.query.to_owned(),
                false => written.query,
            },
            model_in_path: usual_path && self.model_in_path,
            ..written
        }
    }
}

/// A provider of OpenAI's protocol at one address.
const OPENAI: Preset = Preset {
    name: "openai",
    protocol: Protocol::OpenAi,
    base_url: Some("https://api.openai.com/v1"),
    example: "",
    path: "/v1",
    query: "",
    key: KeyHeader::Bearer,
    model_in_path: false,
    endpoints: None,
    prices: Some("openai"),
};

/// Without responses.
const OLDER: Option<&[Endpoint]> = Some(&[Endpoint::ChatCompletions, Endpoint::Embeddings]);

pub(crate) static PRESETS: [Preset; 11] = [
    OPENAI,
    Preset {
        name: "anthropic",
        protocol: Protocol::Anthropic,
        base_url: Some("https://api.anthropic.com"),
        key: KeyHeader::Named("x-api-key"),
        prices: Some("anthropic"),
        ..OPENAI
    },
    // learn.microsoft.com/azure/ai-foundry/openai/reference
    Preset {
        name: "azure",
        base_url: None,
        example: "https://RESOURCE.openai.azure.com",
        path: "/openai/deployments",
        query: "api-version=2024-10-21",
        key: KeyHeader::Named("api-key"),
        model_in_path: true,
        endpoints: OLDER,
        prices: None,
        ..OPENAI
    },
    // docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions.html
    Preset {
        name: "bedrock",
        base_url: None,
        example: "https://bedrock-runtime.REGION.amazonaws.com",
        path: "/openai/v1",
        prices: None,
        ..OPENAI
    },
    Preset {
        name: "deepseek",
        base_url: Some("https://api.deepseek.com/v1"),
        // api-docs.deepseek.com
        endpoints: Some(&[Endpoint::ChatCompletions]),
        prices: None,
        ..OPENAI
    },
    // ai.google.dev/api: Google's own protocol
    Preset {
        name: "gemini",
        protocol: Protocol::Gemini,
        base_url: Some("https://generativelanguage.googleapis.com/v1beta"),
        path: "/v1beta",
        key: KeyHeader::Named("x-goog-api-key"),
        prices: Some("gemini"),
        ..OPENAI
    },
    Preset {
        name: "groq",
        base_url: Some("https://api.groq.com/openai/v1"),
        path: "/openai/v1",
        prices: Some("groq"),
        ..OPENAI
    },
    Preset {
        name: "mistral",
        base_url: Some("https://api.mistral.ai/v1"),
        // docs.mistral.ai/api
        endpoints: OLDER,
        prices: Some("mistral"),
        ..OPENAI
    },
    Preset { name: "ollama", base_url: Some("http://127.0.0.1:11434/v1"), prices: None, ..OPENAI },
    Preset {
        name: "openrouter",
        base_url: Some("https://openrouter.ai/api/v1"),
        path: "/api/v1",
        prices: Some("openrouter"),
        ..OPENAI
    },
    Preset { name: "vllm", base_url: Some("http://127.0.0.1:8000/v1"), prices: None, ..OPENAI },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_an_address_or_an_example_and_its_default_is_what_completion_gives() {
        for preset in &PRESETS {
            let whole = preset.base_url.map(|url| BaseUrl::parse(url).unwrap());
            match whole {
                Some(whole) if !whole.path.is_empty() => {
                    let bare = BaseUrl { path: String::new(), ..whole.clone() };
                    assert_eq!(preset.complete(bare), whole, "{}", preset.name);
                }
                Some(_) => {}
                None => assert!(BaseUrl::parse(preset.example).is_ok(), "{}", preset.name),
            }
        }
        let mut names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PRESETS.len());
    }
}
