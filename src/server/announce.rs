//! What a start says of the gateway: where it listens, and what is open that perhaps should not be.

use log::{info, warn};

use crate::app::App;
use crate::bounds;

/// Says it.
pub(super) fn announce(app: &App) {
    for listener in &app.server.listeners {
        let scheme = if listener.tls.is_some() { "https" } else { "http" };
        let interfaces: Vec<&str> =
            listener.interfaces.iter().map(|interface| interface.as_str()).collect();
        info!("listening on {scheme}://{} for {}", listener.address, interfaces.join(", "));
    }
    info!("metrics on http://{}/metrics", app.server.metrics);
    info!("routing document revision {} is live", app.revision());
    if app.auth.agent_is_enforced() {
        info!("AGENT is enforced");
    } else {
        warn!(
            "AGENT is OPEN: /v1/agents and /v1/api-keys take requests without a credential; set AGENT_CLOUD_API_KEY to enforce it"
        );
    }
    let fronted = app.server.may_be_fronted() || !app.server.trusted_proxies.is_empty();
    if fronted && !app.server.listens_publicly() {
        if app.server.registration_open {
            warn!(
                "registration is OPEN, also to whoever comes by the proxy before this gateway; `pin: {{ registration: closed }}` closes it"
            );
        }
        if !app.auth.agent_is_enforced() {
            warn!(
                "AGENT is OPEN also to whoever comes by the proxy before this gateway, and what they write are models"
            );
        }
    }
    if app.server.may_be_fronted() {
        warn!(
            "no proxy is named in `trusted_proxies`: if one stands before this gateway, all who come by it are one client, and whoever \
             tries {} logins keeps everybody out for {} minutes; name its network",
            bounds::NETWORK_LOGINS,
            bounds::LOGIN_WINDOW.as_secs() / 60
        );
    }
}
