//! A local Ollama, found by asking it for its models.

use std::time::Duration;

use serde_json::Value;

use super::super::client;
use super::providers::FoundProvider;
use rerouter_core::config::Env;
use rerouter_routing::Preset;

/// Longest wait for an answer of Ollama, because it delays a start without configuration.
const OLLAMA_ANSWER: Duration = Duration::from_millis(700);

/// The default address of Ollama.
const ADDRESS: &str = "127.0.0.1:11434";

/// The server at `OLLAMA_HOST`, else at Ollama's default port, if it answers and has a model.
pub(super) fn find(known: &'static Preset, env: &Env<'_>) -> Option<FoundProvider> {
    let host = env("OLLAMA_HOST").filter(|host| !host.trim().is_empty());
    let root = root(host.as_deref().unwrap_or(ADDRESS));
    let answer = client::ask_once(&format!("{root}/api/tags"), OLLAMA_ANSWER)?;
    let answer: Value = serde_json::from_str(&answer).ok()?;
    let models: Vec<&str> = answer
        .get("models")?
        .as_array()?
        .iter()
        .filter_map(|model| model.get("name")?.as_str())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_graphic()) && !name.contains("${"))
        .collect();
    // An embedding model cannot chat.
    let model = models.iter().find(|name| !name.contains("embed")).or(models.first())?;
    Some(FoundProvider {
        known,
        base_url: host.map(|_| format!("{root}/v1")),
        model: (*model).to_owned(),
        place: format!("Ollama at {root} ({} models)", models.len()),
    })
}

/// The root URL for a value of `OLLAMA_HOST`, with or without a scheme and a port. For a server
/// that listens on all addresses, the URL has this machine's own address.
fn root(host: &str) -> String {
    let host = host.trim().trim_end_matches('/');
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let rest = rest.split('/').next().unwrap_or_default();
    let rest = rest.replacen("0.0.0.0", "127.0.0.1", 1);
    let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| {
        !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    match has_port || scheme == "https" {
        true => format!("{scheme}://{rest}"),
        false => format!("{scheme}://{rest}:11434"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_may_be_written_in_several_ways() {
        for (host, wanted) in [
            (ADDRESS, "http://127.0.0.1:11434"),
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("0.0.0.0:8000", "http://127.0.0.1:8000"),
            ("http://gpu.example.com/", "http://gpu.example.com:11434"),
            ("https://gpu.example.com", "https://gpu.example.com"),
            ("[::1]:7", "http://[::1]:7"),
        ] {
            assert_eq!(root(host), wanted, "{host}");
        }
    }
}
