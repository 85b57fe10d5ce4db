//! A first configuration: providers for which the environment has keys, and a routing document for
//! them. `serve` without documents runs it, `init` writes it.

mod document;
mod files;
mod ollama;
mod providers;

use std::net::SocketAddr;

pub(super) use self::document::{ADDRESSES, routing_document, server_document};
pub(super) use self::files::{files, write};
pub(super) use self::providers::{FoundProvider, known};
use rerouter_core::config::{self, Env, Server};

/// The known providers that are available. `own` are the addresses of the future gateway.
pub(super) fn find(env: &Env<'_>, own: &[SocketAddr]) -> Vec<FoundProvider> {
    let is_set = |name: &str| env(name).is_some_and(|value| !value.trim().is_empty());
    let found = known().filter_map(|known| match known.key_variable {
        Some(key) => is_set(key).then(|| FoundProvider::wanted(known, env, own)),
        None => ollama::find(known, env),
    });
    found.collect()
}

/// Sets the routing document of a server without one, from the providers that are found. Returns
/// these; `None` if the server has a routing document.
pub(super) fn adopt(server: &mut Server, env: &Env<'_>) -> Option<Vec<FoundProvider>> {
    if server.routing.store || config::routing_path(server).is_some() {
        return None;
    }
    let own: Vec<SocketAddr> = server.own_addresses().collect();
    let found = find(env, &own);
    server.made_routing = (!found.is_empty()).then(|| routing_document(&found));
    Some(found)
}
