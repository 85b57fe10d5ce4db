//! How a provider is reached: its address, who may vouch for it, what is spoken, and every timeout (Pingora has none by
//! default).

use std::sync::Arc;

use dashmap::DashMap;
use pingora::protocols::tls::CaType;
use pingora::protocols::{ALPN, TcpKeepalive};
use pingora::upstreams::peer::HttpPeer;
use pingora::utils::tls::{WrappedX509, parse_x509};

use super::resolve::{Resolver, Unresolved};
use crate::app::App;
use crate::bounds;
use crate::config::{Egress, Whose};
use crate::routing::{Authorities, Protocol, Provider};

/// The way to every provider, shared by calls and health checks.
pub(super) struct Reach {
    pub(super) resolver: Resolver,
    /// Authorities as Pingora has them, by their mark.
    authorities: DashMap<u64, Arc<CaType>>,
}

impl Reach {
    pub(super) fn new(app: &App) -> Self {
        Reach {
            resolver: Resolver::new(Egress::of(&app.server, app.mock)),
            authorities: DashMap::new(),
        }
    }

    /// The provider as Pingora connects to it.
    pub(super) async fn peer(&self, provider: &Provider) -> Result<HttpPeer, Unresolved> {
        let (base, timeouts) = (&provider.base, provider.timeouts);
        let whose = match provider.protocol {
            Protocol::Mock => None,
            _ if provider.is_of_nodes() => Some(Whose::Node),
            _ => Some(Whose::Provider),
        };
        let lookup = self.resolver.address(&base.host, base.port, whose);
        let address = tokio::time::timeout(timeouts.connect, lookup)
            .await
            .map_err(|_| Unresolved::Unknown)??;
        let mut peer = HttpPeer::new(address, base.tls, base.host.clone());
        let options = &mut peer.options;
        options.connection_timeout = Some(timeouts.connect);
        options.total_connection_timeout = Some(timeouts.connect);
        options.read_timeout = Some(timeouts.idle.max(timeouts.first_byte));
        options.write_timeout = Some(timeouts.total);
        options.idle_timeout = Some(bounds::KEEP_ALIVE);
        if provider.is_of_nodes() {
            // Machines of one's own die without a word; what is idle at them is closed about when their leases end.
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
            options.max_h2_streams = bounds::H2_STREAMS;
        }
        if let Some(authorities) = &provider.ca {
            options.ca = Some(self.known(authorities));
            // The pool tells connections apart by this, and by nothing else of what was checked when they were made.
            peer.group_key = authorities.mark();
        }
        Ok(peer)
    }

    fn known(&self, authorities: &Authorities) -> Arc<CaType> {
        if let Some(known) = self.authorities.get(&authorities.mark()) {
            return known.clone();
        }
        if self.authorities.len() >= bounds::PROVIDERS {
            // Those of documents that are long gone; the live ones come back.
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
