use crate::config::read_server;
use rerouter_base::interface::Interface;

fn server(text: &str) -> crate::config::Server {
    read_server("test", text, &|_| None).unwrap()
}

#[test]
fn metrics_on_loopback_accept_local_hosts_only() {
    let own = server("metrics: { address: 127.0.0.1:9090 }\nhosts: [never.test]\n");
    let mut own = own;
    own.metrics.hosts = vec!["gw.test".into()];
    for (host, taken) in [
        (None, true),
        (Some("127.0.0.1:9090"), true),
        (Some("LocalHost:9090"), true),
        (Some("[::1]:9090"), true),
        (Some("127.0.0.9"), true),
        (Some("gw.test:1"), true),
        (Some("localhost.:9090"), true),
        (Some(""), true),
        (Some("never.test"), false),
        (Some("evil.example:9090"), false),
        (Some("127.0.0.1.evil.example"), false),
        (Some("10.0.0.1:9090"), false),
        (Some("."), true),
    ] {
        assert_eq!(own.accepts_metrics_host(host), taken, "{host:?}");
    }
    assert!(
        server("metrics: { address: 0.0.0.0:9090 }\n")
            .accepts_metrics_host(Some("gateway.svc:9090"))
    );
}

#[test]
fn a_loopback_gateway_knows_its_names() {
    let server = server("hosts: [gw.test]\npublic_url: https://gw.example.com\n");
    for good in [
        "127.0.0.1:8080",
        "127.0.0.1",
        "localhost:1",
        "gw.test",
        "gw.test:99",
        "gw.example.com",
        "gw.example.com:443",
    ] {
        assert!(server.accepts_host(good, None), "{good}");
    }
    for bad in ["evil.example", "gw.test.evil", "10.0.0.1:8080", "[::2]"] {
        assert!(!server.accepts_host(bad, None), "{bad}");
    }
    assert!(server.public_https());
}

#[test]
fn a_public_listener_without_a_list_takes_any() {
    let asked = |hosts: &str, at: &str| {
        let listeners = "[{ address: 0.0.0.0:80 }, { address: 127.0.0.1:8080 }, \
            { address: '[::1]:80' }, { address: 10.0.0.1:8080 }]";
        let server = server(&format!("listeners: {listeners}\nhosts: {hosts}\n"));
        server.accepts_host("any.example", Some(at.parse().unwrap()))
    };
    for (at, any) in [
        ("10.0.0.7:80", true),
        ("127.0.0.1:80", true),
        ("[::ffff:10.0.0.7]:80", true),
        ("10.0.0.1:8080", true),
        ("127.0.0.1:8080", false),
        ("[::ffff:127.0.0.1]:8080", false),
        ("[::1]:80", false),
        // The address of a listener of an embedding server.
        ("10.0.0.7:81", true),
        ("127.0.0.1:81", false),
    ] {
        assert_eq!((asked("[]", at), asked("[a]", at)), (any, false), "{at}");
    }
    assert!(server("listeners: [{ address: 0.0.0.0:80 }]\n").accepts_host("any.example", None));
    assert!(
        !server("listeners: [{ address: 0.0.0.0:80 }]\nhosts: [a]\n")
            .accepts_host("any.example", None)
    );
}

#[test]
fn a_public_name_without_a_named_proxy_may_be_fronted() {
    for (text, fronted) in [
        ("{}", false),
        ("public_url: http://127.0.0.1:8080\n", false),
        ("public_url: http://localhost\n", false),
        ("public_url: 'http://[::1]:8080'\n", false),
        ("public_url: https://gw.example.com\n", true),
        ("public_url: https://192.0.2.1\n", true),
        ("public_url: https://gw.example.com\ntrusted_proxies: [127.0.0.1]\n", false),
    ] {
        assert_eq!(server(text).may_be_fronted(), fronted, "{text}");
    }
}

#[test]
fn nodes_sign_the_public_name_else_the_address_that_they_connected_to() {
    let signed = |text: &str, at: &str, tls: bool| {
        server(text).signed_authority(Some(at.parse().unwrap()), tls)
    };
    for (at, tls, authority) in [
        ("127.0.0.1:8080", false, "127.0.0.1:8080"),
        ("127.0.0.1:80", false, "127.0.0.1"),
        ("127.0.0.1:443", false, "127.0.0.1:443"),
        ("127.0.0.1:443", true, "127.0.0.1"),
        ("127.0.0.1:80", true, "127.0.0.1:80"),
        ("[::1]:8080", false, "[::1]:8080"),
        ("[::1]:80", false, "[::1]"),
        ("[::ffff:127.0.0.1]:8080", false, "127.0.0.1:8080"),
    ] {
        assert_eq!(signed("{}", at, tls), authority, "{at}");
    }
    for (public, authority) in [
        ("https://GW.example.com/", "gw.example.com"),
        ("https://gw.example.com:443", "gw.example.com"),
        ("https://gw.example.com:80", "gw.example.com:80"),
        ("http://gw.example.com:80", "gw.example.com"),
        ("http://gw.example.com:8080", "gw.example.com:8080"),
        ("https://[2001:DB8::1]:8443", "[2001:db8::1]:8443"),
        ("https://[2001:db8::1]", "[2001:db8::1]"),
    ] {
        assert_eq!(
            signed(&format!("public_url: '{public}'\n"), "127.0.0.1:8080", false),
            authority,
            "{public}"
        );
    }
    assert_eq!(server("{}").signed_authority(None, false), "", "nothing can be signed for it");
    // A node signs the path that arrives: a public URL with a path would change it.
    assert!(read_server("test", "public_url: https://gw.example.com/llm\n", &|_| None).is_err());
}

#[test]
fn interfaces_are_by_listener() {
    let server = server(
        "listeners: [{ address: 127.0.0.1:1, interfaces: [router] }, \
    { address: 127.0.0.1:2, interfaces: [agent] },
               { address: 127.0.0.2:2, interfaces: [pin] }, \
    { address: 0.0.0.0:3, interfaces: [pin] }]\n",
    );
    let at = |address: &str| Some(address.parse().unwrap());
    assert!(server.serves(at("127.0.0.1:1"), Interface::Router, "/v1/chat/completions"));
    assert!(server.serves(at("127.0.0.1:1"), Interface::Pin, "/v1/auth/login"));
    assert!(!server.serves(at("127.0.0.1:1"), Interface::Pin, "/v1/apikeys"));
    assert!(!server.serves(at("127.0.0.1:1"), Interface::Agent, "/v1/agents"));
    assert!(server.serves(at("127.0.0.1:2"), Interface::Agent, "/v1/agents"));
    assert!(!server.serves(at("127.0.0.1:2"), Interface::Pin, "/health"));
    assert!(
        !server.serves(at("127.0.0.2:2"), Interface::Agent, "/v1/agents"),
        "one port, another address"
    );
    assert!(!server.serves(at("10.0.0.7:3"), Interface::Agent, "/v1/agents"));
    assert!(server.serves(at("10.0.0.7:3"), Interface::Pin, "/v1/apikeys"));
}
