//! A first configuration: the providers that the environment has keys for, and a routing document
//! for them. `serve` without documents runs it, `init` writes it.

mod document;
mod files;
mod ollama;
mod providers;

use std::net::SocketAddr;

pub(super) use self::document::{ADDRESSES, routing_document, server_document};
pub(super) use self::files::{files, write};
pub(super) use self::providers::{FoundProvider, known};
use rerouter_core::config::{self, Env, Server};

/// The known providers that are there. `own` are the addresses of the gateway to be.
pub(super) fn find(env: &Env<'_>, own: &[SocketAddr]) -> Vec<FoundProvider> {
    let is_set = |name: &str| env(name).is_some_and(|value| !value.trim().is_empty());
    let found = known().filter_map(|known| match known.key_variable {
        Some(key) => is_set(key).then(|| FoundProvider::wanted(known, env, own)),
        None => ollama::find(known, env),
    });
    found.collect()
}

/// Gives a server without a routing document that of the providers that are found. Returns them;
/// `None` if it has one.
pub(super) fn adopt(server: &mut Server, env: &Env<'_>) -> Option<Vec<FoundProvider>> {
    if server.routing.store || config::routing_path(server).is_some() {
        return None;
    }
    let own: Vec<SocketAddr> = server.own_addresses().collect();
    let found = find(env, &own);
    server.made_routing = (!found.is_empty()).then(|| routing_document(&found));
    Some(found)
}
