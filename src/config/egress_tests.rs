use super::*;

fn egress() -> Egress {
    let ours =
        ["0.0.0.0:8080", "127.0.0.1:9090", "[::1]:7070"].map(|address| address.parse().unwrap());
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
        assert_eq!(egress().check(address.parse().unwrap(), EgressPeer::Node), Ok(()), "{address}");
    }
}

#[test]
fn an_embedded_address_is_judged_by_its_destination() {
    for address in [
        "[64:ff9b::192.0.2.1]:80",
        "[64:ff9a::169.254.169.254]:80",
        "[64:ff9b:0:1::169.254.169.254]:80",
    ] {
        assert_eq!(egress().check(address.parse().unwrap(), EgressPeer::Node), Ok(()), "{address}");
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
    let both =
        ["10.1.2.3:1", "[::ffff:10.1.2.3]:1", "[64:ff9b::10.1.2.3]:1", "[64:ff9b:1::10.1.2.3]:1"];
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
