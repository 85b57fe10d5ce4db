//! Networks in CIDR notation, for what may be connected to and who may speak for others.

use std::net::{IpAddr, Ipv6Addr};

/// A network: addresses that share a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    base: IpAddr,
    prefix: u32,
}

/// Where clouds tell a machine its credentials: AWS, Azure, Google (all on the first), AWS by IPv6 with what its containers are told,
/// Google by IPv6, Oracle and Scaleway by IPv6, Azure's agent, Alibaba.
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

/// The IPv4 address to which an IPv6 address leads that has one in it: by translators (RFC 6052 section 2.2, RFC 8215), by relays
/// of 6to4 (RFC 3056 section 2), or as they were once written (RFC 4291 section 2.5.5.1).
pub(super) fn translated(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(address) = address else { return None };
    let last = u32::try_from(address.to_bits() & u128::from(u32::MAX)).unwrap_or_default();
    let embedded = match address.segments() {
        [0x2002, high, low, ..] => (u32::from(high) << 16) | u32::from(low),
        [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0x64, 0xff9b, 1, ..] => last,
        // Not `::` and `::1`.
        [0, 0, 0, 0, 0, 0, ..] if last > 1 => last,
        _ => return None,
    };
    Some(IpAddr::V4(embedded.into()))
}

impl Net {
    /// Where clouds tell a machine its credentials.
    pub fn metadata() -> Vec<Net> {
        METADATA.iter().filter_map(|text| Net::parse(text)).collect()
    }

    /// What is denied where nothing else is said: that, and the addresses that lead to this machine whatever listens there.
    pub(super) fn denied() -> Vec<Net> {
        let unspecified = ["0.0.0.0/8", "::/128"].iter().filter_map(|text| Net::parse(text));
        unspecified.chain(Net::metadata()).collect()
    }

    /// Reads `10.0.0.0/8`, `fe80::/10`, or an address alone.
    pub fn parse(text: &str) -> Option<Net> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let base: IpAddr = address.parse().ok()?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        let digits =
            |prefix: &str| !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
        let prefix = match prefix {
            Some(prefix) => prefix.parse().ok().filter(|bits| digits(prefix) && *bits <= most)?,
            None => most,
        };
        Some(Net { base, prefix })
    }

    /// Whether the address is in it. An IPv4 address written as IPv6 (`::ffff:a.b.c.d`) counts as what it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, width: u32| {
            self.prefix == 0 || (a ^ b) >> (width - self.prefix.min(width)) == 0
        };
        match (self.base.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) if self.base.is_ipv4() => {
                same(u128::from(a.to_bits()), u128::from(b.to_bits()), 32)
            }
            (IpAddr::V4(_), IpAddr::V4(b)) => match self.base {
                IpAddr::V6(a) => same(a.to_bits(), b.to_ipv6_mapped().to_bits(), 128),
                IpAddr::V4(_) => false,
            },
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), Ipv6Addr::to_bits(b), 128),
            _ => false,
        }
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
