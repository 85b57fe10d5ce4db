//! The providers that a first configuration may have, and how they are detected.

use std::net::SocketAddr;

use rerouter_core::config::Env;
use rerouter_routing::{BaseUrl, PRESETS, Preset};

/// The known providers, in the order in which `auto` tries them.
pub(crate) fn known() -> impl Iterator<Item = &'static Preset> {
    PRESETS.iter().filter(|preset| !preset.model.is_empty())
}

#[derive(Clone, Debug)]
pub(crate) struct FoundProvider {
    pub(crate) known: &'static Preset,
    /// The base URL for the document; `None`: the preset's.
    pub(super) base_url: Option<String>,
    /// The model that `auto` leads to.
    pub(crate) model: String,
    /// Where the provider was found, for people.
    pub(crate) place: String,
}

impl FoundProvider {
    /// A known provider, available or not. A base URL in the variable that its SDK reads is used,
    /// unless it leads to one of the gateway's `own` addresses, as in a shell that is set up for
    /// the gateway's clients.
    pub(crate) fn wanted(
        known: &'static Preset,
        env: &Env<'_>,
        own: &[SocketAddr],
    ) -> FoundProvider {
        let variable = known.key_variable.map(|key| key.replace("_API_KEY", "_BASE_URL"));
        let from_env = variable.filter(|name| {
            env(name).is_some_and(|url| !url.trim().is_empty() && !leads_to(&url, own))
        });
        FoundProvider {
            known,
            base_url: from_env.map(|name| format!("${{{name}}}")),
            model: known.model.to_owned(),
            place: known.key_variable.unwrap_or(known.name).to_owned(),
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
                // No server listens at this address.
                "OLLAMA_HOST" => Some("127.0.0.1:1".to_owned()),
                _ => None,
            };
            let found = find(&env, &own);
            let [openai] = &found[..] else { panic!("{found:?}") };
            assert_eq!(openai.base_url.is_none(), is_own, "{url}");
        }
    }
}
