//! The providers that a first configuration may have, and how they are found.

use std::net::SocketAddr;

use rerouter_core::config::Env;
use rerouter_routing::BaseUrl;

/// A provider that is found by a variable of the environment.
#[derive(Debug)]
pub(crate) struct KnownProvider {
    /// Name in the document.
    pub(crate) name: &'static str,
    /// Variable of the key; `None` for a server on this machine, which is asked.
    pub(crate) key: Option<&'static str>,
    /// Variable that SDKs read the base URL from.
    base_url: Option<&'static str>,
    /// Settings in the document, before key and base URL.
    pub(super) settings: &'static str,
    /// The model that `auto` leads to.
    model: &'static str,
    /// Patterns of names that mean models of this provider.
    pub(crate) names: &'static [&'static str],
    /// Settings of its models in the document.
    pub(super) prices: &'static str,
}

const KEYED: KnownProvider = KnownProvider {
    name: "",
    key: None,
    base_url: None,
    settings: "",
    model: "",
    names: &[],
    prices: "{}",
};

/// In the order in which `auto` tries them.
pub(crate) static KNOWN: [KnownProvider; 7] = [
    KnownProvider {
        name: "openai",
        key: Some("OPENAI_API_KEY"),
        base_url: Some("OPENAI_BASE_URL"),
        settings: "preset: openai",
        model: "gpt-5-mini",
        names: &["gpt-*", "chatgpt-*", "o1*", "o3*", "o4*", "text-embedding-*"],
        ..KEYED
    },
    KnownProvider {
        name: "anthropic",
        key: Some("ANTHROPIC_API_KEY"),
        base_url: Some("ANTHROPIC_BASE_URL"),
        settings: "preset: anthropic",
        model: "claude-haiku-4-5",
        names: &["claude-*"],
        ..KEYED
    },
    KnownProvider {
        name: "gemini",
        key: Some("GEMINI_API_KEY"),
        base_url: Some("GEMINI_BASE_URL"),
        settings: "preset: gemini",
        model: "gemini-2.5-flash",
        names: &["gemini-*"],
        ..KEYED
    },
    KnownProvider {
        name: "mistral",
        key: Some("MISTRAL_API_KEY"),
        base_url: Some("MISTRAL_BASE_URL"),
        settings: "preset: mistral",
        model: "mistral-small-2603",
        names: &["mistral-*", "ministral-*", "magistral-*", "codestral-*", "devstral-*"],
        ..KEYED
    },
    KnownProvider {
        name: "groq",
        key: Some("GROQ_API_KEY"),
        base_url: Some("GROQ_BASE_URL"),
        settings: "preset: groq",
        model: "llama-3.3-70b-versatile",
        ..KEYED
    },
    KnownProvider {
        name: "openrouter",
        key: Some("OPENROUTER_API_KEY"),
        base_url: Some("OPENROUTER_BASE_URL"),
        settings: "preset: openrouter",
        model: "openai/gpt-5-mini",
        ..KEYED
    },
    KnownProvider {
        name: "ollama",
        settings: "preset: ollama",
        model: "llama3.2",
        prices: "{ input_per_mtok: 0, output_per_mtok: 0 }",
        ..KEYED
    },
];

/// A provider for a first configuration.
#[derive(Clone, Debug)]
pub(crate) struct FoundProvider {
    pub(crate) known: &'static KnownProvider,
    /// As the document has it; `None`: the preset's.
    pub(super) base_url: Option<String>,
    /// The model that `auto` leads to.
    pub(crate) model: String,
    /// Where it was found, for people.
    pub(crate) place: String,
}

impl KnownProvider {
    /// The provider, whether or not it is there. A base URL in the environment is used unless it
    /// leads to one of the gateway's `own` addresses, as in a shell that is set up for its
    /// clients.
    pub(crate) fn wanted(&'static self, env: &Env<'_>, own: &[SocketAddr]) -> FoundProvider {
        let from_env = self.base_url.filter(|name| {
            env(name).is_some_and(|url| !url.trim().is_empty() && !leads_to(&url, own))
        });
        FoundProvider {
            known: self,
            base_url: from_env.map(|name| format!("${{{name}}}")),
            model: self.model.to_owned(),
            place: self.key.unwrap_or(self.name).to_owned(),
        }
    }
}

/// Whether a URL leads to one of these addresses of this machine.
fn leads_to(url: &str, own: &[SocketAddr]) -> bool {
    let Ok(base) = BaseUrl::with_query(url.trim()) else { return false };
    let local = base.host == "localhost"
        || base.host.parse::<std::net::IpAddr>().is_ok_and(|ip| {
            ip.to_canonical().is_loopback()
                || ip.is_unspecified()
                || own.iter().any(|own| own.ip() == ip)
        });
    local && own.iter().any(|own| own.port() == base.port)
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;

    #[test]
    fn the_gateways_own_address_is_no_provider() {
        let own: Vec<SocketAddr> =
            ["127.0.0.1:8080", "192.0.2.7:8443"].map(|at| at.parse().unwrap()).into();
        for (url, is_own) in [
            ("http://127.0.0.1:8080/v1", true),
            ("http://localhost:8080", true),
            ("http://[::1]:8080/v1", true),
            ("https://192.0.2.7:8443", true),
            ("http://127.0.0.1:8081/v1", false),
            ("https://api.example.com:8080/v1", false),
            ("not a url", false),
        ] {
            assert_eq!(leads_to(url, &own), is_own, "{url}");
            let env = |name: &str| match name {
                "OPENAI_API_KEY" => Some("k".to_owned()),
                "OPENAI_BASE_URL" => Some(url.to_owned()),
                // Where nothing listens.
                "OLLAMA_HOST" => Some("127.0.0.1:1".to_owned()),
                _ => None,
            };
            let found = find(&env, &own);
            let [openai] = &found[..] else { panic!("{found:?}") };
            assert_eq!(openai.base_url.is_none(), is_own, "{url}");
        }
    }
}
