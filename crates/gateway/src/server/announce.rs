//! Log lines at the start: addresses, and warnings about what is open to everybody.

use log::{info, warn};

use super::console_link;
use rerouter_access::auth::{LOGIN_WINDOW, NETWORK_LOGINS};
use rerouter_core::app::App;

pub(super) fn announce(app: &App) {
    for listener in &app.server.listeners {
        let scheme = if listener.tls.is_some() { "https" } else { "http" };
        let interfaces: Vec<&str> =
            listener.interfaces.iter().map(|interface| interface.as_str()).collect();
        info!("listening on {scheme}://{} for {}", listener.address, interfaces.join(", "));
    }
    if let Some(console) = console_link::console(app) {
        info!("console on {console}");
    }
    info!("metrics on http://{}/metrics", app.server.metrics.address);
    info!("routing document revision {} is live", app.revision());
    if app.auth.agent_is_enforced() {
        info!("AGENT is enforced");
    } else {
        warn!(
            "AGENT is OPEN: /v1/agents and /v1/api-keys take requests without a credential; \
             set AGENT_CLOUD_API_KEY to enforce it"
        );
    }
    let fronted = app.server.may_be_fronted() || !app.server.trusted_proxies.is_empty();
    if fronted && !app.server.listens_publicly() {
        if app.server.registration_is_open() {
            warn!(
                "registration is OPEN, also to clients of a proxy in front; \
                 close it with `pin: {{ registration: closed }}`"
            );
        }
        if !app.auth.agent_is_enforced() {
            warn!(
                "AGENT is OPEN also to clients of a proxy in front, \
                 and the agents that they write are models"
            );
        }
    }
    if app.server.may_be_fronted() {
        warn!(
            "`trusted_proxies` is empty: if there is a proxy in front, \
             all its clients count as one, and {} failed logins of one lock out all for {} \
             minutes; name the network of the proxy",
            NETWORK_LOGINS,
            LOGIN_WINDOW.as_secs() / 60
        );
    }
}
