use std::net::TcpListener;

use ureq::unversioned::transport::DefaultConnector;

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
                Err(EgressRefusal::Ours),
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
            Err(EgressRefusal::Policy),
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
    for (addresses, of_providers) in [(&both[..], Err(EgressRefusal::Policy)), (&nodes[..], Ok(()))]
    {
        for address in addresses {
            assert_eq!(
                egress().check(address.parse().unwrap(), EgressPeer::Node),
                Err(EgressRefusal::Policy),
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

#[test]
fn a_collector_at_a_denied_address_is_not_connected_to() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = |denied: &str| {
        let egress = Egress::new(vec![Net::parse(denied).unwrap()], vec![]);
        ureq::Agent::with_parts(Config::default(), DefaultConnector::default(), egress)
    };
    for host in ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]"] {
        let url = format!("http://{host}:{port}/secret-canary");
        let Err(ureq::Error::Other(why)) = client("127.0.0.0/8").get(&url).call() else {
            panic!("{host}")
        };
        assert_eq!(why.to_string(), "its address is denied by `egress`", "{host}");
        let nobody = listener.accept().unwrap_err().kind();
        assert_eq!(nobody, std::io::ErrorKind::WouldBlock, "{host}");
    }
    drop(listener);
    let refused = client("10.0.0.0/8").get(format!("http://127.0.0.1:{port}/")).call();
    assert!(!matches!(refused, Err(ureq::Error::Other(_))), "{refused:?}");
}
