//! Networks in CIDR notation, and the addresses where clouds serve credentials.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net(IpNet);

/// Addresses of metadata services, which hand out credentials: AWS, Azure and Google (the first
/// entry), AWS over IPv6 and in containers, Google over IPv6, Oracle and Scaleway over IPv6,
/// Azure's agent, Alibaba.
const METADATA: [&str; 8] = [
    "169.254.0.0/16",
    "fd00:ec2::/32",
    "fd20:ce::/64",
    "fd00:c1::a9fe:a9fe",
    "fd00:42::42",
    "fe80::/10",
    "168.63.129.16",
    "100.100.100.200",
];

/// The IPv4 address inside an IPv6 address: that of a translator (RFC 6052 section 2.2, RFC 8215),
/// of 6to4 (RFC 3056 section 2), or of the deprecated compatible form (RFC 4291 section 2.5.5.1).
pub(super) fn embedded_ipv4(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(address) = address else { return None };
    let last = u32::try_from(address.to_bits() & u128::from(u32::MAX)).unwrap_or_default();
    let embedded = match address.segments() {
        [0x2002, high, low, ..] => (u32::from(high) << 16) | u32::from(low),
        [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0x64, 0xff9b, 1, ..] => last,
        // Excludes `::` and `::1`.
        [0, 0, 0, 0, 0, 0, ..] if last > 1 => last,
        _ => return None,
    };
    Some(IpAddr::V4(embedded.into()))
}

impl Net {
    pub fn metadata() -> Vec<Net> {
        METADATA.iter().filter_map(|text| Net::parse(text)).collect()
    }

    /// The default of `egress.deny`: metadata services, and the unspecified addresses, which lead
    /// to this machine.
    pub(super) fn denied_by_default() -> Vec<Net> {
        let unspecified = ["0.0.0.0/8", "::/128"].iter().filter_map(|text| Net::parse(text));
        unspecified.chain(Net::metadata()).collect()
    }

    /// Reads `10.0.0.0/8`, `fe80::/10`, or a single address.
    pub fn parse(text: &str) -> Option<Net> {
        let net = match text.parse::<IpNet>() {
            Ok(net) => net,
            Err(_) => IpNet::from(text.parse::<IpAddr>().ok()?),
        };
        // `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
        let mapped = match (net.addr().to_canonical(), net.prefix_len().checked_sub(96)) {
            (IpAddr::V4(base), Some(prefix)) if net.addr().is_ipv6() => {
                Ipv4Net::new(base, prefix).ok()
            }
            _ => None,
        };
        Some(Net(mapped.map_or(net, IpNet::V4)))
    }

    /// Whether the address is in the network. `::ffff:a.b.c.d` counts as `a.b.c.d`.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership() {
        for (net, address, wanted) in [
            ("169.254.0.0/16", "169.254.169.254", true),
            ("169.254.0.0/16", "::ffff:169.254.169.254", true),
            ("169.254.0.0/16", "169.255.0.1", false),
            ("fe80::/10", "febf::1", true),
            ("fe80::/10", "fec0::1", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "::1", true),
            ("::ffff:10.0.0.0/104", "10.1.2.3", true),
            ("::ffff:10.0.0.1", "10.0.0.1", true),
        ] {
            assert_eq!(
                Net::parse(net).unwrap().contains(address.parse().unwrap()),
                wanted,
                "{net} {address}"
            );
        }
        for bad in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "10.0.0.0/+8"] {
            assert_eq!(Net::parse(bad), None, "{bad}");
        }
    }
}
