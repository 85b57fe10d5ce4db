//! The addresses to which the gateway may connect: those that the server document's policy allows,
//! but never its own.

use std::net::{IpAddr, SocketAddr};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use super::net::embedded_ipv4;
use super::{Net, Server};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressPeer {
    Provider,
    /// A node, by its registration.
    Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressRefusal {
    Policy,
    /// The gateway listens there: it would be a loop.
    Ours,
}

#[derive(Clone, Debug)]
pub struct Egress {
    denied: Vec<Net>,
    /// Addresses of metadata services, always denied to nodes.
    metadata: Vec<Net>,
    ours: Vec<SocketAddr>,
}

impl Egress {
    pub fn new(denied: Vec<Net>, ours: Vec<SocketAddr>) -> Egress {
        Egress { denied, metadata: Net::metadata(), ours }
    }

    /// `mock` is the address of the mock provider.
    pub fn of(server: &Server, mock: Option<SocketAddr>) -> Egress {
        Egress::new(server.egress.deny.clone(), server.own_addresses().chain(mock).collect())
    }

    pub fn check(&self, address: SocketAddr, peer: EgressPeer) -> Result<(), EgressRefusal> {
        let ip = address.ip().to_canonical();
        // The unspecified address means this machine.
        let here = || ip.is_loopback() || ip.is_unspecified() || is_of_this_machine(ip);
        let loops = |listener: &SocketAddr| {
            let at = listener.ip().to_canonical();
            listener.port() == address.port()
                && (at == ip
                    || (at.is_unspecified() && here())
                    || (ip.is_unspecified() && is_of_this_machine(at)))
        };
        let embedded = embedded_ipv4(ip);
        let within = |nets: &[Net]| {
            nets.iter().any(|net| net.contains(ip) || embedded.is_some_and(|ip| net.contains(ip)))
        };
        if self.ours.iter().any(loops) {
            Err(EgressRefusal::Ours)
        } else if within(&self.denied)
            || (peer == EgressPeer::Node && (ip.is_unspecified() || within(&self.metadata)))
        {
            Err(EgressRefusal::Policy)
        } else {
            Ok(())
        }
    }
}

/// Resolves a name, unless any of its addresses is denied.
impl Resolver for Egress {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        let denied = |at: &SocketAddr| self.check(*at, EgressPeer::Provider).is_err();
        match found.iter().any(denied) {
            true => Err(ureq::Error::Other("its address is denied by `egress`".into())),
            false => Ok(found),
        }
    }
}

/// Whether the address belongs to this machine: only then can a socket be bound to it.
fn is_of_this_machine(address: IpAddr) -> bool {
    std::net::UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
#[path = "egress_tests.rs"]
mod tests;
