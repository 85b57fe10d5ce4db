//! Connection settings of providers: address, certificate authorities, protocol, and every timeout,
//! as Pingora sets none by default.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use pingora::protocols::tls::CaType;
use pingora::protocols::{ALPN, TcpKeepalive};
use pingora::upstreams::peer::{HttpPeer, Peer};
use pingora::utils::tls::{WrappedX509, parse_x509};

use super::resolver::{ResolveError, Resolver};
use rerouter_base::bounds;
use rerouter_core::app::App;
use rerouter_core::config::{Egress, EgressPeer};
use rerouter_routing::{Authorities, PROVIDERS, Provider};

/// Most concurrent requests on one HTTP/2 connection to a provider. Further requests use another
/// connection, so that one lost packet does not stop all.
const H2_STREAMS: usize = 32;
/// Time between pings on an HTTP/2 connection to a provider. Pingora closes a connection whose ping
/// is not answered in 5 seconds.
const H2_PING: Duration = Duration::from_secs(10);

pub(super) struct Peers {
    pub(super) resolver: Resolver,
    /// Certificate authorities in Pingora's form, by their hash.
    authorities: DashMap<u64, Arc<CaType>>,
}

impl Peers {
    pub(super) fn new(app: &App) -> Self {
        Peers {
            resolver: Resolver::new(Egress::of(&app.server, app.mock)),
            authorities: DashMap::new(),
        }
    }

    /// The peer that Pingora connects to. Its address is looked up within the connect timeout.
    pub(super) async fn peer(&self, provider: &Provider) -> Result<Box<HttpPeer>, ResolveError> {
        let (base, timeouts) = (&provider.base, provider.timeouts);
        let whose = if provider.is_of_nodes() { EgressPeer::Node } else { EgressPeer::Provider };
        let whose = provider.protocol.is_remote().then_some(whose);
        let address = self.resolver.address(&base.host, base.port, whose, timeouts.connect).await?;
        let mut peer = Box::new(HttpPeer::new(address, base.tls, base.host.clone()));
        let options = &mut peer.options;
        options.connection_timeout = Some(timeouts.connect);
        options.total_connection_timeout = Some(timeouts.connect);
        options.read_timeout = Some(timeouts.idle.max(timeouts.first_byte));
        options.write_timeout = Some(timeouts.total);
        options.idle_timeout = Some(bounds::KEEP_ALIVE);
        if provider.is_of_nodes() {
            // A machine that died closes no connection. Its idle connections are closed at about
            // the time when its lease ends.
            options.tcp_keepalive = Some(TcpKeepalive {
                idle: bounds::NODE_HEARTBEAT,
                interval: bounds::NODE_HEARTBEAT / 2,
                count: 4,
                #[cfg(target_os = "linux")]
                user_timeout: bounds::NODE_LEASE,
            });
        }
        if provider.http2 {
            options.alpn = ALPN::H2H1;
            options.max_h2_streams = H2_STREAMS;
            // Many requests share a connection. One that went silent is closed.
            options.h2_ping_interval = Some(H2_PING);
            // Pingora reads no answer, and no client that leaves, while the body waits for room.
            options.write_timeout = Some(timeouts.first_byte.min(timeouts.total));
        }
        if let Some(authorities) = &provider.ca {
            options.ca = Some(self.pingora_form(authorities));
            // Pingora's pool keeps connections with different keys apart. Without the key, a
            // connection that other authorities verified could be used.
            peer.group_key = authorities.mark();
        }
        Ok(peer)
    }

    /// Notes that a peer could not be connected to. Returns whether its name has another address.
    pub(super) fn has_another_address(&self, peer: &HttpPeer) -> bool {
        let address = peer.address().as_inet();
        address.is_some_and(|address| self.resolver.cannot_connect(&peer.sni, *address))
    }

    fn pingora_form(&self, authorities: &Authorities) -> Arc<CaType> {
        if let Some(known) = self.authorities.get(&authorities.mark()) {
            return known.clone();
        }
        if self.authorities.len() >= PROVIDERS {
            // Most entries belong to old documents. Those of the live document are made again.
            self.authorities.clear();
        }
        let wrapped = authorities
            .certificates()
            .iter()
            .map(|certificate| WrappedX509::new(certificate.clone(), parse_x509));
        let made: Arc<CaType> = wrapped.collect::<Vec<_>>().into();
        self.authorities.insert(authorities.mark(), made.clone());
        made
    }
}
