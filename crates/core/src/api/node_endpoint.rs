//! The addresses at which a node may serve.

use std::net::{IpAddr, SocketAddr};

use super::nodes;
use super::route::ClientOrigin;
use crate::app::App;
use crate::config::{Egress, EgressPeer, EgressRefusal};
use rerouter_base::bounds;
use rerouter_base::error::{Error, Result};
use rerouter_routing::BaseUrl;
use rerouter_store::NodeRow;

/// Checks the endpoint of a node: the endpoint of its enrolment, else one at the address that it
/// registers from. The endpoint must not be one of the gateway's own listeners, an address that
/// `egress.deny` forbids, or one where clouds serve credentials. Host names are resolved here, and
/// again for each request.
pub(super) async fn may_serve_at(
    app: &App,
    row: &NodeRow,
    base: &BaseUrl,
    client: &ClientOrigin,
) -> Result<()> {
    let refuse = |detail: &str| Err(Error::forbidden(detail));
    match &row.endpoint {
        Some(endpoint) if nodes::place(endpoint)? != *base => {
            return refuse("The node is enrolled with another endpoint.");
        }
        Some(_) => {}
        None => from_there(app, base, client)?,
    }
    let public = app.server.public_url.as_deref().and_then(|url| BaseUrl::parse(url).ok());
    if public.is_some_and(|public| (&public.host, public.port) == (&base.host, base.port)) {
        return refuse("The gateway itself listens at this address.");
    }
    let egress = Egress::of(&app.server, app.mock);
    let mut denied = None;
    for address in addresses(base).await {
        match egress.check(address, EgressPeer::Node) {
            // One permitted address is enough.
            Ok(()) => return Ok(()),
            Err(why) => denied = Some(why),
        }
    }
    match denied {
        // The name may become resolvable later.
        None => Ok(()),
        Some(EgressRefusal::Ours) => refuse("The gateway itself listens at this address."),
        Some(EgressRefusal::Policy) => refuse("No node may serve at this address."),
    }
}

/// Checks that a node without an enrolled endpoint registers from the address of its endpoint.
fn from_there(app: &App, base: &BaseUrl, client: &ClientOrigin) -> Result<()> {
    let refuse = |detail: &str| Err(Error::forbidden(detail));
    let from = client.address.filter(|_| client.proven).map(|from| from.to_canonical());
    let Some(from) = from else {
        return refuse(
            "The node's address is unknown behind a proxy that is not in `trusted_proxies`. Enrol \
             the node with its endpoint.",
        );
    };
    let address: Option<IpAddr> =
        base.host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    let local = base.host == "localhost" || address.is_some_and(|address| address.is_loopback());
    if !(if local { from.is_loopback() } else { address == Some(from) }) {
        return refuse(
            "A node enrolled without an endpoint must serve at the address that it registers from.",
        );
    }
    // Behind a local proxy without X-Forwarded-For every client would look local.
    if from.is_loopback() && app.server.may_be_fronted() {
        return refuse(
            "With a `public_url` and no `trusted_proxies` the gateway cannot tell which clients \
             are local. Enrol the node with its endpoint.",
        );
    }
    Ok(())
}

/// The addresses of a base URL, as far as they are known.
async fn addresses(base: &BaseUrl) -> Vec<SocketAddr> {
    if let Ok(address) = base.host.parse::<IpAddr>() {
        return vec![SocketAddr::new(address, base.port)];
    }
    let looked_up = tokio::time::timeout(
        bounds::DNS_TIME,
        tokio::net::lookup_host((base.host.as_str(), base.port)),
    )
    .await;
    looked_up.ok().and_then(|found| found.ok()).map(Iterator::collect).unwrap_or_default()
}
