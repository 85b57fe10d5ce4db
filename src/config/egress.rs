//! Which addresses the gateway may connect to: by the policy of the server document, and never its
//! own.

use std::net::{IpAddr, SocketAddr};

use super::net::embedded_ipv4;
use super::{Net, Server};

/// Who named the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EgressPeer {
    /// A provider of the routing document.
    Provider,
    /// A node, by its registration.
    Node,
}

/// Why a destination is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The policy denies it.
    Policy,
    /// The gateway listens there: it would be a loop.
    Ours,
}

#[derive(Clone, Debug)]
pub(crate) struct Egress {
    denied: Vec<Net>,
    /// Always denied to nodes: metadata services.
    metadata: Vec<Net>,
    ours: Vec<SocketAddr>,
}

impl Egress {
    /// Denies `denied`, and the addresses `ours` that this process listens on.
    pub(crate) fn new(denied: Vec<Net>, ours: Vec<SocketAddr>) -> Egress {
        Egress { denied, metadata: Net::metadata(), ours }
    }

    /// The policy of a server document. `mock` is the address of the mock provider.
    pub(crate) fn of(server: &Server, mock: Option<SocketAddr>) -> Egress {
        Egress::new(server.egress_deny.clone(), server.own_addresses().chain(mock).collect())
    }

    /// Checks an address after names were resolved.
    pub(crate) fn check(&self, address: SocketAddr, peer: EgressPeer) -> Result<(), Denied> {
        let ip = address.ip().to_canonical();
        // The unspecified address is this machine.
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
            Err(Denied::Ours)
        } else if within(&self.denied)
            || (peer == EgressPeer::Node && (ip.is_unspecified() || within(&self.metadata)))
        {
            Err(Denied::Policy)
        } else {
            Ok(())
        }
    }
}

/// Whether the address belongs to this machine: only then can a socket be bound to it.
fn is_of_this_machine(address: IpAddr) -> bool {
    std::net::UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn egress() -> Egress {
        let ours = ["0.0.0.0:8080", "127.0.0.1:9090", "[::1]:7070"]
            .map(|address| address.parse().unwrap());
        Egress::new(vec![Net::parse("10.0.0.0/8").unwrap()], ours.to_vec())
    }

    #[test]
    fn own_addresses_are_denied_in_each_spelling() {
        for address in [
            "127.0.0.1:8080",
            "127.0.0.2:8080",
            "0.0.0.0:8080",
            "[::]:8080",
            "[::1]:8080",
            "[::ffff:127.0.0.1]:8080",
            "127.0.0.1:9090",
            "[::ffff:127.0.0.1]:9090",
            "0.0.0.0:9090",
            "[::ffff:0.0.0.0]:9090",
            "[::1]:7070",
        ] {
            for whose in [EgressPeer::Provider, EgressPeer::Node] {
                assert_eq!(
                    egress().check(address.parse().unwrap(), whose),
                    Err(Denied::Ours),
                    "{address}"
                );
            }
        }
        for address in ["127.0.0.1:8081", "127.0.0.2:9090", "192.0.2.1:8080"] {
            assert_eq!(
                egress().check(address.parse().unwrap(), EgressPeer::Node),
                Ok(()),
                "{address}"
            );
        }
    }

    #[test]
    fn an_embedded_address_is_judged_by_its_destination() {
        for address in [
            "[64:ff9b::192.0.2.1]:80",
            "[64:ff9a::169.254.169.254]:80",
            "[64:ff9b:0:1::169.254.169.254]:80",
        ] {
            assert_eq!(
                egress().check(address.parse().unwrap(), EgressPeer::Node),
                Ok(()),
                "{address}"
            );
        }
    }

    #[test]
    fn metadata_and_this_machine_are_denied_by_default_in_each_spelling() {
        let server = super::super::read_server("test", "{}", &|_| None).unwrap();
        for host in [
            "169.254.169.254",
            "[::ffff:169.254.169.254]",
            "[::169.254.169.254]",
            "[64:ff9b::169.254.169.254]",
            "[64:ff9b:1::a9fe:a9fe]",
            "[2002:a9fe:a9fe::]",
            "[2002:a9fe:a9fe:1::7]",
            "100.100.100.200",
            "[::ffff:100.100.100.200]",
            "[2002:6464:64c8::]",
            "168.63.129.16",
            "[64:ff9b::168.63.129.16]",
            "[fd00:ec2::254]",
            "[fe80::1]",
            "0.0.0.0",
            "[::]",
            "[::ffff:0.0.0.0]",
            "[64:ff9b::0.0.0.0]",
        ] {
            let address = format!("{host}:80").parse().unwrap();
            assert_eq!(
                Egress::of(&server, None).check(address, EgressPeer::Provider),
                Err(Denied::Policy),
                "{host}"
            );
        }
        for host in [
            "127.0.0.1",
            "[::1]",
            "192.0.2.1",
            "[2002:c000:201::]",
            "[2001:db8::1]",
            "[64:ff9b::192.0.2.1]",
        ] {
            let address = format!("{host}:80").parse().unwrap();
            assert_eq!(
                Egress::of(&server, None).check(address, EgressPeer::Provider),
                Ok(()),
                "{host}"
            );
        }
    }

    #[test]
    fn nodes_have_the_policy_and_more() {
        let both = [
            "10.1.2.3:1",
            "[::ffff:10.1.2.3]:1",
            "[64:ff9b::10.1.2.3]:1",
            "[64:ff9b:1::10.1.2.3]:1",
        ];
        let nodes = [
            "169.254.169.254:80",
            "[::ffff:169.254.169.254]:80",
            "[64:ff9b::169.254.169.254]:80",
            "[64:ff9b:1:a::168.63.129.16]:80",
            "[fd00:ec2::254]:80",
            "[fd00:ec2::23]:80",
            "[fd20:ce::254]:80",
            "[fd00:c1::a9fe:a9fe]:80",
            "[fd00:42::42]:80",
            "100.100.100.200:80",
            "0.0.0.0:1",
            "[::]:1",
        ];
        for (addresses, of_providers) in [(&both[..], Err(Denied::Policy)), (&nodes[..], Ok(()))] {
            for address in addresses {
                assert_eq!(
                    egress().check(address.parse().unwrap(), EgressPeer::Node),
                    Err(Denied::Policy),
                    "{address}"
                );
                assert_eq!(
                    egress().check(address.parse().unwrap(), EgressPeer::Provider),
                    of_providers,
                    "{address}"
                );
            }
        }
    }
}
