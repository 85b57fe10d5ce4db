//! Known providers, one row each. A document names one as its `preset`, and the document's own
//! settings win. The first configuration contains the providers whose key is in the environment.
//! Imported configurations use the variables and addresses of this table, and traces use its names.

use super::base_url::BaseUrl;
use super::settings::{KeyHeader, Protocol};
use rerouter_dialect::endpoint::Endpoint;

#[derive(Debug, PartialEq, Eq)]
pub struct Preset {
    /// The word that names it in documents, in the shipped prices and in LiteLLM.
    pub name: &'static str,
    pub protocol: Protocol,
    /// Root URL of the API without its path. A word in capitals is a part that differs for each
    /// account.
    pub(super) url: &'static str,
    /// Path that is added to a base URL without a path.
    path: &'static str,
    /// Query that is added to a base URL without path and query.
    query: &'static str,
    /// The header of its key, if it differs from the protocol's.
    pub(super) key: Option<KeyHeader>,
    /// Whether the default path is followed by the model (a deployment), then the endpoint.
    model_in_path: bool,
    /// Its endpoints, if it lacks some of the protocol's.
    endpoints: Option<&'static [Endpoint]>,
    /// Its name in OpenTelemetry's conventions.
    pub convention: Option<&'static str>,
    /// The usual variable of its key, `…_API_KEY`, if it needs one.
    pub key_variable: Option<&'static str>,
    /// The model of the alias `auto` in a first configuration. Empty if no first configuration has
    /// this provider.
    pub model: &'static str,
    /// Patterns of requested names that a first configuration leads to this provider.
    pub names: &'static [&'static str],
}

impl Preset {
    /// The provider whose API has this host.
    pub fn of_host(host: &str) -> Option<&'static Preset> {
        PRESETS.iter().find(|preset| {
            let before = preset.url.split_once("://").map_or("", |(_, rest)| rest);
            let is_begun = before
                .split_once(|c: char| c.is_ascii_uppercase())
                .is_none_or(|(before, _)| host.starts_with(before));
            is_begun && host.ends_with(preset.host())
        })
    }

    /// The host of the API, or the end of the host if each account has its own.
    pub(super) fn host(&self) -> &'static str {
        let outer = |c: char| c == '/' || c.is_ascii_uppercase();
        self.url.rsplit(outer).next().unwrap_or_default()
    }

    /// The usual base URL; `None` if each account has its own.
    pub(super) fn base(&self) -> Option<BaseUrl> {
        let is_own = self.url.contains(|c: char| c.is_ascii_uppercase());
        let base = BaseUrl::parse(self.url).ok().filter(|_| !is_own)?;
        Some(self.complete(base))
    }

    /// The endpoints below this base URL, if it is known to lack some of the protocol's.
    pub(super) fn endpoints(&self, base: &BaseUrl) -> Option<&'static [Endpoint]> {
        // Azure's newer API has no deployments in its path and has all endpoints.
        self.endpoints.filter(|_| base.model_in_path == self.model_in_path)
    }

    /// Adds the default path and query to a base URL that has none.
    pub(super) fn complete(&self, written: BaseUrl) -> BaseUrl {
        let usual_path = written.path.is_empty();
        BaseUrl {
            path: if usual_path { self.path.to_owned() } else { written.path },
            // A URL with another path may be another API, which takes no `api-version`.
            query: match written.query.is_empty() && usual_path {
                true => self.query.to_owned(),
                false => written.query,
            },
            model_in_path: usual_path && self.model_in_path,
            ..written
        }
    }
}

/// Defaults of providers with OpenAI's protocol.
const OPENAI: Preset = Preset {
    name: "",
    protocol: Protocol::OpenAi,
    url: "",
    path: "/v1",
    query: "",
    key: None,
    model_in_path: false,
    endpoints: None,
    convention: None,
    key_variable: None,
    model: "",
    names: &[],
};

/// Endpoints of providers without the Responses API.
const OLDER: Option<&[Endpoint]> = Some(&[Endpoint::ChatCompletions, Endpoint::Embeddings]);

/// A first configuration tries them in this order.
pub static PRESETS: [Preset; 11] = [
    Preset {
        name: "openai",
        url: "https://api.openai.com",
        convention: Some("openai"),
        key_variable: Some("OPENAI_API_KEY"),
        model: "gpt-5-mini",
        names: &["gpt-*", "chatgpt-*", "o1*", "o3*", "o4*", "text-embedding-*"],
        ..OPENAI
    },
    Preset {
        name: "anthropic",
        protocol: Protocol::Anthropic,
        url: "https://api.anthropic.com",
        convention: Some("anthropic"),
        key_variable: Some("ANTHROPIC_API_KEY"),
        model: "claude-haiku-4-5",
        names: &["claude-*"],
        ..OPENAI
    },
    // ai.google.dev/api: Google's own protocol
    Preset {
        name: "gemini",
        protocol: Protocol::Gemini,
        url: "https://generativelanguage.googleapis.com",
        path: "/v1beta",
        convention: Some("gcp.gemini"),
        key_variable: Some("GEMINI_API_KEY"),
        model: "gemini-2.5-flash",
        names: &["gemini-*"],
        ..OPENAI
    },
    Preset {
        name: "mistral",
        url: "https://api.mistral.ai",
        // docs.mistral.ai/api
        endpoints: OLDER,
        convention: Some("mistral_ai"),
        key_variable: Some("MISTRAL_API_KEY"),
        model: "mistral-small-2603",
        names: &["mistral-*", "ministral-*", "magistral-*", "codestral-*", "devstral-*"],
        ..OPENAI
    },
    Preset {
        name: "groq",
        url: "https://api.groq.com",
        path: "/openai/v1",
        convention: Some("groq"),
        key_variable: Some("GROQ_API_KEY"),
        model: "llama-3.3-70b-versatile",
        ..OPENAI
    },
    Preset {
        name: "openrouter",
        url: "https://openrouter.ai",
        path: "/api/v1",
        key_variable: Some("OPENROUTER_API_KEY"),
        model: "openai/gpt-5-mini",
        ..OPENAI
    },
    Preset { name: "ollama", url: "http://127.0.0.1:11434", model: "llama3.2", ..OPENAI },
    // learn.microsoft.com/azure/ai-foundry/openai/reference
    Preset {
        name: "azure",
        url: "https://RESOURCE.openai.azure.com",
        path: "/openai/deployments",
        query: "api-version=2024-10-21",
        key: Some(KeyHeader::Named("api-key")),
        model_in_path: true,
        endpoints: OLDER,
        convention: Some("azure.ai.openai"),
        key_variable: Some("AZURE_API_KEY"),
        ..OPENAI
    },
    // docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions.html
    Preset {
        name: "bedrock",
        url: "https://bedrock-runtime.REGION.amazonaws.com",
        path: "/openai/v1",
        convention: Some("aws.bedrock"),
        ..OPENAI
    },
    Preset {
        name: "deepseek",
        url: "https://api.deepseek.com",
        // api-docs.deepseek.com
        endpoints: Some(&[Endpoint::ChatCompletions]),
        convention: Some("deepseek"),
        key_variable: Some("DEEPSEEK_API_KEY"),
        ..OPENAI
    },
    Preset { name: "vllm", url: "http://127.0.0.1:8000", ..OPENAI },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_a_root_and_is_found_by_its_host() {
        for (at, preset) in PRESETS.iter().enumerate() {
            let written = BaseUrl::parse(preset.url).unwrap();
            assert!(written.path.is_empty() && preset.path.starts_with('/'), "{}", preset.name);
            match preset.base() {
                Some(base) => {
                    assert_eq!((base.path, base.query), (preset.path.into(), preset.query.into()))
                }
                None => assert!(preset.host().starts_with('.'), "{}", preset.name),
            }
            let host = preset.url.trim_start_matches("https://");
            assert_eq!(Preset::of_host(host), Some(preset));
            assert!(PRESETS[..at].iter().all(|other| other.name != preset.name));
            assert!(preset.key_variable.is_none_or(|name| name.ends_with("_API_KEY")));
        }
        assert_eq!(Preset::of_host("mine.openai.azure.com"), Some(&PRESETS[7]));
        assert_eq!(Preset::of_host("openai.example.com"), None);
    }
}
