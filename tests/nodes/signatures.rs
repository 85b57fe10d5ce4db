//! Signatures of nodes over every kind of connection: their time limits, and that each is valid
//! once. Manipulated signatures are tested in `enrolment` and in the unit tests of the reader.

use serde_json::json;

use crate::nodes::enrolment::{check_401, document, start};
use crate::support::client::{Answer, Connection, H2, pairs, request};
use crate::support::gateway::{Gateway, Setup};
use crate::support::node::{Node, next_second, now, send};
use crate::support::provider::{self as scripted, Provider};

const EVENTS: &str = "/v1/agent/events";
const NOTHING: &[u8] = br#"{"events":[]}"#;

/// The headers of a valid signed request.
fn good(gateway: &Gateway, node: &Node) -> Vec<(&'static str, String)> {
    node.sign(gateway, EVENTS, NOTHING, now())
}

#[tokio::test]
async fn a_signature_for_another_gateway_is_none() {
    let (gateway, _other) = start().await;
    let node = Node::enrol(&gateway, "rack", json!({})).await;
    for authority in [
        "gw.example.com",
        "127.0.0.1",
        "localhost",
        &format!("localhost:{}", gateway.address().port()),
        "127.0.0.1:1",
    ] {
        let headers = node.sign_for(authority, EVENTS, NOTHING, now());
        check_401(&send(&gateway, EVENTS, &headers, NOTHING).await, authority);
    }
    // The `Host` of the request does not matter: the signature is for the listener.
    let mut connection = gateway.connect().await;
    let headers = good(&gateway, &node);
    let headers = pairs(&headers);
    let host = format!("localhost:{}", gateway.address().port());
    assert_eq!(
        connection.exchange(&request("POST", EVENTS, &host, &headers, Some(NOTHING))).await.status,
        202
    );
}

/// The answer to a call whose signature is dated `skew` seconds from now, if the clock stays in one
/// second.
async fn skewed(gateway: &Gateway, node: &Node, skew: i64) -> Answer {
    for _ in 0..200 {
        let then = now();
        let answer =
            send(gateway, EVENTS, &node.sign(gateway, EVENTS, NOTHING, then + skew), NOTHING).await;
        if now() == then {
            return answer;
        }
    }
    panic!("no answer within the second of its question")
}

#[tokio::test]
async fn a_minute_is_sixty_seconds() {
    let (gateway, _other) = start().await;
    let node = Node::enrol(&gateway, "rack", json!({})).await;
    for (skew, status) in [(-60, 202), (60, 202), (-61, 401), (61, 401)] {
        let answer = skewed(&gateway, &node, skew).await;
        assert_eq!(answer.status, status, "{skew}: {}", answer.text());
        if status == 401 {
            check_401(&answer, &format!("{skew}"));
        }
    }
    assert!(
        gateway
            .metric("rerouter_auth_failures_total", &["interface=\"pin\"", "reason=\"skew\""])
            .await
            >= 2.0
    );
}

#[tokio::test]
async fn a_nonce_is_good_once_whatever_became_of_the_process() {
    let (mut gateway, _other) = start().await;
    let node = Node::enrol(&gateway, "rack", json!({})).await;
    let refused = async |gateway: &Gateway, sent: &[Vec<(&'static str, String)>], state: &str| {
        for headers in sent {
            check_401(&send(gateway, EVENTS, headers, NOTHING).await, state);
        }
    };
    let mut sent = vec![good(&gateway, &node)];
    assert_eq!(send(&gateway, EVENTS, &sent[0], NOTHING).await.status, 202);
    refused(&gateway, &sent, "twice").await;
    // A signature is used up even if its request was refused for another reason.
    let bad = node.sign(&gateway, EVENTS, b"[]", now());
    check_401(&send(&gateway, EVENTS, &bad, b"[ ]").await, "another body");
    check_401(&send(&gateway, EVENTS, &bad, b"[]").await, "its own body, too late");
    gateway.restart().await;
    refused(&gateway, &sent, "after a restart").await;
    next_second().await;
    sent.push(good(&gateway, &node));
    assert_eq!(send(&gateway, EVENTS, &sent[1], NOTHING).await.status, 202);
    gateway.kill_9();
    gateway.start_again().await;
    refused(&gateway, &sent, "after a crash").await;
    next_second().await;
    sent.push(good(&gateway, &node));
    assert_eq!(send(&gateway, EVENTS, &sent[2], NOTHING).await.status, 202);
    gateway.upgrade().await;
    refused(&gateway, &sent, "after an upgrade").await;
    next_second().await;
    assert_eq!(send(&gateway, EVENTS, &good(&gateway, &node), NOTHING).await.status, 202);
}

#[tokio::test]
async fn over_tls_and_http_2_and_ipv6_the_same_is_signed() {
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let gateway = Setup::new(&document(&other.url())).tls().ipv6().start().await;
    let node = Node::enrol(&gateway, "rack", json!({})).await;
    let (address, _) = gateway.tls();
    let mut http2 = H2::open(gateway.tls()).await;
    let over_http2 = async |http2: &mut H2, authority: &str| {
        let headers = node.sign_for(authority, EVENTS, NOTHING, now());
        let headers = pairs(&headers);
        (
            http2.send("POST", EVENTS, &headers, NOTHING, false).await,
            http2.send("POST", EVENTS, &headers, NOTHING, true).await,
        )
    };
    let (taken, again) = over_http2(&mut http2, &address.to_string()).await;
    assert_eq!(taken.status, 202, "{}", taken.text());
    check_401(&again, "twice, on another stream");
    // This `:authority` is a name of the listener, but not the signed one.
    check_401(
        &over_http2(&mut http2, &format!("localhost:{}", address.port())).await.0,
        "what was asked for",
    );
    check_401(&over_http2(&mut http2, &gateway.host()).await.0, "another listener");
    let bent = Node { secret: node.secret.replace("nod_", "nod-"), ..node.clone() };
    let headers = bent.sign_for(&address.to_string(), EVENTS, NOTHING, now());
    let headers = pairs(&headers);
    check_401(&http2.send("POST", EVENTS, &headers, NOTHING, false).await, "another secret");

    let ipv6 = gateway.ipv6();
    let over_ipv6 = async |authority: &str| {
        let headers = node.sign_for(authority, EVENTS, NOTHING, now());
        let headers = pairs(&headers);
        let mut connection = Connection::try_open(ipv6).await.expect("the gateway accepts");
        connection
            .exchange(&request("POST", EVENTS, &ipv6.to_string(), &headers, Some(NOTHING)))
            .await
    };
    assert_eq!(over_ipv6(&format!("[::1]:{}", ipv6.port())).await.status, 202);
    check_401(&over_ipv6(&format!("::1:{}", ipv6.port())).await, "without its brackets");
    check_401(&over_ipv6("[::1]").await, "without its port");
}

#[tokio::test]
async fn behind_a_public_name_that_is_what_every_listener_is_signed_for() {
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let setup = Setup::new(&document(&other.url()))
        .server("public_url: https://GW.example.com:443")
        .tls()
        .ipv6();
    let gateway = setup.start().await;
    let node = Node::enrol(&gateway, "rack", json!({})).await;
    let headers = |authority: &str| node.sign_for(authority, EVENTS, NOTHING, now());
    assert_eq!(
        send(&gateway, EVENTS, &headers("gw.example.com"), NOTHING).await.status,
        202,
        "without the port that https has anyway"
    );
    for authority in ["gw.example.com:443", "GW.example.com", "gw.example.com.", &gateway.host()] {
        check_401(&send(&gateway, EVENTS, &headers(authority), NOTHING).await, authority);
    }
    let mut http2 = H2::open(gateway.tls()).await;
    let signed = headers("gw.example.com");
    let signed = pairs(&signed);
    assert_eq!(http2.send("POST", EVENTS, &signed, NOTHING, false).await.status, 202);
}
