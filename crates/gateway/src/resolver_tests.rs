use super::*;
use rerouter_core::config::Net;

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn denied_networks_and_our_own_listeners_are_never_an_address() {
    let denied = vec![Net::parse("169.254.0.0/16").unwrap()];
    // `localhost` may resolve to either address.
    let ours = ["0.0.0.0:8080", "127.0.0.1:9090", "[::1]:9090"];
    let ours = ours.map(|address| address.parse().unwrap()).to_vec();
    let resolver = Resolver::new(Egress::new(denied, ours));
    assert!(resolver.address("127.0.0.1", 9000, Some(EgressPeer::Provider), SOON).await.is_ok());
    assert!(resolver.address("169.254.169.254", 80, None, SOON).await.is_ok(), "our own provider");
    for (host, port) in [
        ("169.254.169.254", 80),
        ("::ffff:169.254.1.1", 80),
        ("127.0.0.1", 8080),
        ("localhost", 9090),
    ] {
        assert!(
            matches!(
                resolver.address(host, port, Some(EgressPeer::Provider), SOON).await,
                Err(ResolveError::Denied)
            ),
            "{host}:{port}"
        );
    }
}

#[tokio::test]
async fn a_server_is_found_on_either_address_of_this_machine() {
    let resolver = Resolver::new(Egress::new(vec![Net::parse("127.0.0.9").unwrap()], vec![]));
    let choose = async |found: [SocketAddr; 2]| {
        resolver.choose(found.to_vec(), Some(EgressPeer::Provider)).await
    };
    for own in ["[::1]:0", "127.0.0.1:0"] {
        // A machine may have no IPv6.
        let Ok(listener) = std::net::TcpListener::bind(own) else { continue };
        let address = listener.local_addr().unwrap();
        let both =
            ["::1", "127.0.0.1"].map(|ip| SocketAddr::new(ip.parse().unwrap(), address.port()));
        assert_eq!(choose(both).await.unwrap(), [address], "{own}");
    }
    let far = ["[2001:db8::1]:9", "192.0.2.1:9"].map(|address| address.parse().unwrap());
    assert_eq!(choose(far).await.unwrap(), [far[1], far[0]]);
    let denied = ["127.0.0.9:9"; 2].map(|address| address.parse().unwrap());
    assert!(matches!(choose(denied).await, Err(ResolveError::Denied)));
}

#[tokio::test]
async fn metadata_addresses_are_denied_to_nodes_alone() {
    let resolver = Resolver::new(Egress::new(Vec::new(), Vec::new()));
    for host in ["100.100.100.200", "168.63.129.16"] {
        assert!(
            resolver.address(host, 80, Some(EgressPeer::Provider), SOON).await.is_ok(),
            "{host}"
        );
        assert!(
            matches!(
                resolver.address(host, 80, Some(EgressPeer::Node), SOON).await,
                Err(ResolveError::Denied)
            ),
            "{host}"
        );
    }
    assert!(resolver.address("192.0.2.1", 80, Some(EgressPeer::Node), SOON).await.is_ok());
}

#[tokio::test]
async fn a_dead_address_is_used_only_if_its_name_has_no_other() {
    let resolver = Resolver::new(Egress::new(Vec::new(), Vec::new()));
    let [a, b]: [SocketAddr; 2] =
        ["192.0.2.1:9", "192.0.2.2:9"].map(|address| address.parse().unwrap());
    let known = |addresses: &[SocketAddr]| {
        let name = ("provider.test".to_owned(), 9);
        resolver.known.insert(name, (addresses.to_vec(), Instant::now()));
    };
    let used = async || resolver.address("provider.test", 9, None, SOON).await.unwrap();
    known(&[a, b]);
    assert_eq!(used().await, a);
    assert!(resolver.cannot_connect("provider.test", a));
    assert_eq!(used().await, b);
    // It is looked up again, in any order.
    known(&[a, b]);
    assert_eq!(used().await, b);
    assert!(!resolver.cannot_connect("provider.test", b), "there is no third");
    assert_eq!(used().await, a);
    known(&[b]);
    assert_eq!(used().await, b);
    assert!(!resolver.cannot_connect("other.test", b));
}

#[tokio::test]
async fn a_cached_address_is_used_until_the_document_drops_its_name() {
    let resolver = Resolver::new(Egress::new(Vec::new(), Vec::new()));
    assert!(resolver.is_due("localhost", 80) && !resolver.is_due("::1", 80));
    let found = resolver.look_up("localhost", 80).await.unwrap();
    assert!(!resolver.is_due("localhost", 80));
    let name = ("localhost".to_owned(), 80);
    let old = Instant::now().checked_sub(DNS_TTL).unwrap();
    resolver.known.insert(name.clone(), (vec![found], old));
    assert!(resolver.is_due("localhost", 80));
    assert_eq!(
        resolver.address("localhost", 80, Some(EgressPeer::Provider), SOON).await.unwrap(),
        found
    );
    assert_eq!(resolver.known.get(&name).unwrap().1, old, "nobody looked it up for that");
    resolver.retain(|other| *other == name);
    assert!(resolver.known.contains_key(&name));
    resolver.retain(|_| false);
    assert!(resolver.known.is_empty());
    assert!(matches!(
        resolver.look_up("no-such-host.invalid", 80).await,
        Err(ResolveError::Unknown)
    ));
}
