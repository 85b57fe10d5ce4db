//! Where nodes can lead the gateway's requests, as seen by what arrives at sockets, not only by the
//! gateway's answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::nodes::enrolment::{document, start};
use crate::support::client::Answer;
use crate::support::documents::chat_body;
use crate::support::envelope;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::node::{Node, next_second, now, report, send};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{localhost_is_ipv4, until};

/// A server on a loopback address that answers everything, and counts connections.
struct Watched {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Watched {
    async fn at(address: &str) -> Watched {
        let listener = TcpListener::bind(format!("{address}:0")).await.unwrap();
        let (address, connections) =
            (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&connections);
        let accepting = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let _some = stream.read(&mut [0; 4096]).await;
                    let body = scripted::completion_body("watched").to_string();
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                        connection: close\r\ncontent-length";
                    let _gone = stream
                        .write_all(format!("{head}: {}\r\n\r\n{body}", body.len()).as_bytes())
                        .await;
                });
            }
        });
        Watched { address, connections, accepting }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn registration(endpoint: &str, models: &[&str]) -> Value {
    let models: Vec<Value> = models.iter().map(|model| json!({ "id": model })).collect();
    json!({ "version": "1", "endpoint": endpoint, "models": models })
}

async fn ask(gateway: &Gateway, key: &Key, model: &str) -> Answer {
    gateway.chat(key, chat_body(model, false).as_bytes()).await
}

/// Asserts that the gateway received this many chats, so that it has not asked itself.
async fn only_ours_arrived(gateway: &Gateway, asked: f64) {
    let arrived = until("all to be counted", async || {
        // A request is counted after its answer was sent.
        let arrived =
            gateway.metric("rerouter_requests_total", &["route=\"/v1/chat/completions\""]).await;
        (arrived >= asked).then_some(arrived)
    })
    .await;
    assert!(arrived <= asked, "{arrived} requests arrived, of which {asked} were ours");
}

/// A node that is enrolled for this endpoint is refused, and gets no requests.
async fn is_refused(gateway: &Gateway, key: &Key, endpoint: &str, detail: &str) {
    let node = Node::enrol(gateway, endpoint, json!({ "endpoint": endpoint })).await;
    let refused = node.call(gateway, "register", &registration(endpoint, &["qwen"])).await;
    envelope::management(&refused, 403, "forbidden");
    assert!(refused.text().contains(detail), "{endpoint}: {}", refused.text());
    assert_eq!(
        node.call(gateway, "heartbeat", &report(1, "ready", 0)).await.status,
        409,
        "{endpoint}"
    );
    assert_eq!(ask(gateway, key, "local").await.status, 503, "{endpoint}");
}

#[tokio::test]
async fn nothing_is_sent_to_what_the_policy_denies_however_that_is_spelt() {
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let watched = Watched::at("127.0.0.77").await;
    let gateway =
        Setup::new(&document(&other.url())).server("egress: { deny: [127.0.0.77] }").start().await;
    let key = gateway.create_key().await;
    let port = watched.address.port();
    // Forms of an address that the system's resolver understands.
    for host in [
        "127.0.0.77",
        "127.77",
        "2130706509",
        "0x7f00004d",
        "[::ffff:127.0.0.77]",
        "[::ffff:7f00:4d]",
    ] {
        is_refused(
            &gateway,
            &key,
            &format!("http://{host}:{port}"),
            "No node may serve at this address.",
        )
        .await;
    }
    for host in [
        "169.254.169.254",
        "2852039166",
        "[::ffff:169.254.169.254]",
        "100.100.100.200",
        "0.0.0.0",
        "[::]",
        "[::ffff:0.0.0.0]",
        "0",
    ] {
        is_refused(
            &gateway,
            &key,
            &format!("http://{host}:{port}"),
            "No node may serve at this address.",
        )
        .await;
    }
    assert_eq!(watched.connections(), 0);
}

#[tokio::test]
async fn a_gateway_is_never_a_node_of_its_own() {
    let (gateway, _other) = start().await;
    let key = gateway.create_key().await;
    let mut asked = 0.0;
    for port in [gateway.address().port(), gateway.metrics_address().port()] {
        for host in [
            "127.0.0.1",
            "localhost",
            "127.1",
            "2130706433",
            "0x7f000001",
            "[::ffff:127.0.0.1]",
            "0.0.0.0",
            "0",
            "[::]",
        ] {
            if host == "localhost" && !localhost_is_ipv4() {
                continue;
            }
            is_refused(
                &gateway,
                &key,
                &format!("http://{host}:{port}"),
                "The gateway itself listens at this address.",
            )
            .await;
            asked += 1.0;
        }
    }
    only_ours_arrived(&gateway, asked).await;
}

#[tokio::test]
async fn where_a_name_leads_is_looked_at_each_time_that_it_is_asked() {
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let mut gateway = Setup::new(&document(&other.url())).start().await;
    let key = gateway.create_key().await;
    let (denied, taken) = (Watched::at("127.0.0.77").await, Watched::at("127.0.0.78").await);
    let mut nodes = Vec::new();
    for (name, host, watched) in [("denied", "127.77", &denied), ("taken", "127.78", &taken)] {
        let endpoint = format!("http://{host}:{}", watched.address.port());
        let node = Node::enrol(&gateway, name, json!({ "endpoint": endpoint })).await;
        node.serve(&gateway, &endpoint, &["qwen"], json!({})).await;
        assert_eq!(ask(&gateway, &key, "local").await.status, 200);
        assert_eq!(watched.connections(), 1, "it serves");
        node.beat(&gateway, 2, "draining", 0).await;
        nodes.push(node);
    }
    // From now on, one endpoint is denied, and at the other one the gateway itself listens.
    let port = taken.address.port();
    drop(taken);
    gateway.add_to_server("egress: { deny: [127.0.0.77] }");
    gateway.add_listener(&format!("127.0.0.78:{port}"));
    gateway.restart().await;
    next_second().await;
    let mut asked = 0.0;
    for node in &nodes {
        node.beat(&gateway, 10, "ready", 0).await;
        let refused = ask(&gateway, &key, "local").await;
        assert_eq!(refused.status, 502, "{}", refused.text());
        let capture = gateway.capture(&refused.request_id()).await;
        assert_eq!(capture["decision"]["attempts"][0]["error"], "connect", "{capture}");
        assert_eq!(ask(&gateway, &key, "auto").await.header("x-rerouter-provider"), Some("other"));
        asked += 2.0;
        node.beat(&gateway, 11, "draining", 0).await;
    }
    assert_eq!(denied.connections(), 1, "of before");
    only_ours_arrived(&gateway, asked).await;
}

#[tokio::test]
async fn what_a_node_claims_beyond_its_enrolment_brings_it_nothing() {
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let routing = document(&other.url()).replace(
        "  nodes/qwen:",
        "  nodes/llama: { input_per_mtok: 1.0, output_per_mtok: 1.0 }\n  nodes/qwen:",
    );
    let gateway = Setup::new(&routing).start().await;
    let key = gateway.create_key().await;
    let (here, there) = (
        Provider::always(scripted::completion("here")).await,
        Provider::always(scripted::completion("there")).await,
    );
    let node =
        Node::enrol(&gateway, "a", json!({"models": ["qwen"], "endpoint": here.url()})).await;
    let register = async |endpoint: &str, models: &[&str]| {
        node.call(&gateway, "register", &registration(endpoint, models)).await
    };
    let nothing = async |state: &str| {
        assert_eq!(ask(&gateway, &key, "nodes/llama").await.status, 503, "{state}");
        assert_eq!((here.count(), there.count()), (0, 0), "{state}");
    };
    for (endpoint, models) in
        [(here.url(), &["llama"][..]), (here.url(), &["qwen", "llama"]), (there.url(), &["qwen"])]
    {
        envelope::management(&register(&endpoint, models).await, 403, "forbidden");
        assert_eq!(ask(&gateway, &key, "local").await.status, 503);
        nothing("before it registered").await;
    }
    assert_eq!(register(&here.url(), &["qwen"]).await.status, 200);
    nothing("registered for less").await;
    let more = json!({
        "seq": 1, "status": "ready", "running": 0, "queued": 0,
        "models": [{"id": "qwen"}, {"id": "llama"}]
    });
    envelope::management(&node.call(&gateway, "heartbeat", &more).await, 403, "forbidden");
    nothing("after a report of more").await;
    envelope::management(&register(&there.url(), &["qwen"]).await, 403, "forbidden");
    assert_eq!(ask(&gateway, &key, "local").await.status, 200);
    assert_eq!((here.count(), there.count()), (1, 0), "it serves where it may");
    // Without an endpoint in its enrolment, a node may only register the address from which it
    // connects.
    let free = Node::enrol(&gateway, "b", json!({})).await;
    let watched = Watched::at("127.0.0.77").await;
    for endpoint in
        [format!("http://127.77:{}", watched.address.port()), "http://192.0.2.1:9".to_owned()]
    {
        envelope::management(
            &free.call(&gateway, "register", &registration(&endpoint, &["llama"])).await,
            403,
            "forbidden",
        );
    }
    assert_eq!((ask(&gateway, &key, "nodes/llama").await.status, watched.connections()), (503, 0));
}

/// Sends a registration with these headers in addition to its signature.
async fn register_through(
    gateway: &Gateway,
    node: &Node,
    authority: &str,
    endpoint: &str,
    more: &[(&'static str, &str)],
) -> Answer {
    let body = registration(endpoint, &["qwen"]).to_string();
    let mut headers = node.sign_for(authority, "/v1/agent/register", body.as_bytes(), now());
    headers.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
    send(gateway, "/v1/agent/register", &headers, body.as_bytes()).await
}

#[tokio::test]
async fn nobody_becomes_local_by_a_proxy_on_the_gateway_s_machine() {
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let watched = Watched::at("127.0.0.1").await;
    let local = format!("http://{}", watched.address);
    let routing = document(&other.url());
    let through = ("x-forwarded-for", "203.0.113.9");
    for (server, proxied, direct) in [
        // A proxy that is not in `trusted_proxies` is recognized by the headers that it adds.
        (
            "",
            vec![
                vec![through],
                vec![("forwarded", "for=203.0.113.9")],
                vec![("via", "1.1 proxy")],
                vec![("x-real-ip", "127.0.0.1")],
            ],
            200,
        ),
        // A trusted proxy says where the node connects from. Without that header, the address is
        // the proxy's own.
        (
            "trusted_proxies: [127.0.0.1]",
            vec![
                vec![through],
                vec![("x-forwarded-for", "127.0.0.1")],
                vec![("x-forwarded-for", "?")],
                vec![],
            ],
            403,
        ),
        // With a public URL, there may be a proxy that adds no headers.
        ("public_url: https://gw.example.com", vec![vec![through], vec![]], 403),
    ] {
        let gateway = Setup::new(&routing).server(server).start().await;
        let key = gateway.create_key().await;
        let node = Node::enrol(&gateway, "a", json!({})).await;
        let authority = if server.starts_with("public_url") {
            "gw.example.com".to_owned()
        } else {
            gateway.host()
        };
        for headers in proxied {
            let refused = register_through(&gateway, &node, &authority, &local, &headers).await;
            envelope::management(&refused, 403, "forbidden");
            assert_eq!(
                (ask(&gateway, &key, "local").await.status, watched.connections()),
                (503, 0),
                "{server}: {headers:?}"
            );
        }
        assert_eq!(
            register_through(&gateway, &node, &authority, &local, &[]).await.status,
            direct,
            "{server}"
        );
        if server.starts_with("trusted") {
            let at_home =
                register_through(&gateway, &node, &authority, "http://203.0.113.9:9", &[through])
                    .await;
            assert_eq!(at_home.status, 200, "{}", at_home.text());
        }
        // An endpoint in the enrolment needs no such check.
        let fixed = Node::enrol(&gateway, "b", json!({ "endpoint": local })).await;
        assert_eq!(
            register_through(&gateway, &fixed, &authority, &local, &[through]).await.status,
            200,
            "{server}"
        );
    }
}
