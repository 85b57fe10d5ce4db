//! HTTP clients of the node command.

use std::path::Path;

use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use super::super::client::authorities;
use rerouter_routing::BaseUrl;

/// Bytes of an answer of a server to its node: lists, metrics, slots with their prompts.
pub(super) const NODE_RESPONSE_BYTES: u64 = 8 << 20;

/// A client that trusts the authorities of the PEM file `ca`, else the public ones.
pub(super) fn agent(ca: Option<&Path>) -> Result<Agent, String> {
    let mut tls = TlsConfig::builder();
    if let Some(file) = ca {
        tls = tls.root_certs(RootCerts::new_with_certs(&authorities(file)?));
    }
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        // The gateway and the server are reached directly, even if the environment names a proxy.
        .proxy(None)
        .user_agent(concat!("rerouter/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls.build())
        .build();
    Ok(Agent::new_with_config(config))
}

pub(super) fn url(base: &BaseUrl, path: &str) -> String {
    format!("{}://{}{path}", if base.tls { "https" } else { "http" }, base.authority())
}
