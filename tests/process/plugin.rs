//! The library in another Pingora server: our services beside a proxy of its own, in one process.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use async_trait::async_trait;
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server, ShutdownSignal, ShutdownSignalWatch};
use pingora::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use rerouter::internals::clock::Clock;
use rerouter::internals::config;
use rerouter::internals::log::AccessLog;
use rerouter::internals::secret::Secret;
use rerouter::internals::store::Faults;
use rerouter::{Environment, Gateway};
use serde_json::json;
use tokio::sync::oneshot;

use crate::support::client::{Answer, Connection, Tls, request};
use crate::support::documents::{chat_body, in_order};
use crate::support::provider::{Provider, answer, completion};
use crate::support::{PATIENCE, free_port, until};

pub const ADMIN: &str = "plugin-admin-0123456789abcdef0123456789";

/// The proxy that was there first: it sends everything to one place.
struct Own {
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for Own {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }
}

/// The server's own way to be told to leave.
struct Told(Mutex<Option<oneshot::Receiver<()>>>);

#[async_trait]
impl ShutdownSignalWatch for Told {
    async fn recv(&self) -> ShutdownSignal {
        let told = self.0.lock().unwrap().take().expect("asked once");
        told.await.expect("told, not forgotten");
        ShutdownSignal::GracefulTerminate
    }
}

/// What is not in every test.
#[derive(Default)]
pub struct Extras<'a> {
    /// `AGENT_CLOUD_API_KEY`.
    pub agent_key: Option<&'a str>,
    /// A second listener, with TLS.
    pub tls: bool,
    /// What its gateway lives by.
    pub clock: Clock,
    /// Where its access lines go, if anywhere.
    pub access_log: Option<AccessLog>,
    /// `REROUTER_MASTER_KEY`.
    pub master_key: Option<&'a str>,
    /// What its routing document takes from the environment.
    pub variables: &'static [(&'static str, &'static str)],
}

/// Another server, on a thread of this process, with both on board.
pub struct Host {
    own: SocketAddr,
    gateway: SocketAddr,
    metrics: SocketAddr,
    tls: Option<(SocketAddr, Tls)>,
    leave: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Host {
    async fn start(dir: &std::path::Path, own_upstream: SocketAddr, routing: &str) -> Host {
        Host::start_failing(dir, own_upstream, routing, Faults::default()).await
    }

    /// One whose gateway fails as `faults` says.
    pub async fn start_failing(
        dir: &std::path::Path,
        own_upstream: SocketAddr,
        routing: &str,
        faults: Faults,
    ) -> Host {
        Host::start_with(dir, own_upstream, routing, faults, Extras::default()).await
    }

    /// One whose gateway lives by this clock too.
    pub async fn start_at(
        dir: &std::path::Path,
        own_upstream: SocketAddr,
        routing: &str,
        faults: Faults,
        clock: Clock,
    ) -> Host {
        Host::start_with(dir, own_upstream, routing, faults, Extras { clock, ..Extras::default() })
            .await
    }

    /// The same with what is not in every test.
    pub async fn start_with(
        dir: &std::path::Path,
        own_upstream: SocketAddr,
        routing: &str,
        faults: Faults,
        extras: Extras<'_>,
    ) -> Host {
        let [own, gateway, metrics, secure] =
            [(); 4].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
        std::fs::write(dir.join("routing.yaml"), routing).unwrap();
        let tls = extras.tls.then(|| Tls::make(dir));
        let files = format!(
            "{{ cert: {}, key: {} }}",
            json!(dir.join("cert.pem")),
            json!(dir.join("key.pem"))
        );
        let second = tls
            .as_ref()
            .map(|_| format!(", {{ address: \"{secure}\", tls: {files} }}"))
            .unwrap_or_default();
        let format = if extras.access_log.is_some() { "json" } else { "off" };
        let document = format!(
            "listeners: [ {{ address: \"{gateway}\" }}{second} ]\n\
             metrics: {{ address: \"{metrics}\" }}\nthreads: 1\n\
             access_log: {{ format: {format} }}\ndata_dir: {}\nrouting: {{ file: {} }}\n",
            json!(dir.join("data")),
            json!(dir.join("routing.yaml")),
        );
        let document =
            config::read_server("plugin", &document, &|_| None).expect("the server document");
        let agent_key = extras.agent_key.map(Secret::new);
        let known = extras.variables;
        let environment = Environment {
            admin_key: Some(Secret::new(ADMIN)),
            agent_key,
            master_key: extras.master_key.map(Secret::new),
            clock: extras.clock,
            access_log: extras.access_log,
            variables: Arc::new(|name| {
                known.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            }),
            ..Environment::default()
        };
        let prepared =
            Gateway::prepare_failing(document, environment, faults).await.expect("a gateway");
        let (leave, told) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let conf = ServerConf {
                grace_period_seconds: Some(1),
                graceful_shutdown_timeout_seconds: Some(1),
                ..ServerConf::default()
            };
            let mut server = Server::new_with_opt_and_conf(None, conf);
            server.bootstrap();
            let mut service =
                http_proxy_service(&server.configuration, Own { upstream: own_upstream });
            service.add_tcp(&own.to_string());
            server.add_service(service);
            prepared.add_to(&mut server).expect("our services");
            server.run(RunArgs { shutdown_signal: Box::new(Told(Mutex::new(Some(told)))) });
        });
        for address in [own, gateway].into_iter().chain(tls.as_ref().map(|_| secure)) {
            until("the server to listen", async || Connection::try_open(address).await).await;
        }
        Host { own, gateway, metrics, tls: tls.map(|tls| (secure, tls)), leave, thread }
    }

    pub async fn ask(
        &self,
        method: &str,
        target: &str,
        credential: Option<&str>,
        body: Option<&str>,
    ) -> Answer {
        let bearer = credential.map(|credential| format!("Bearer {credential}"));
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(bearer.iter().map(|bearer| ("authorization", bearer.as_str())));
        exchange(self.gateway, method, target, &headers, body.map(str::as_bytes)).await
    }
}

impl Host {
    /// Where the gateway listens.
    pub fn address(&self) -> SocketAddr {
        self.gateway
    }

    /// One request to the gateway, with these headers as they are.
    pub async fn send(&self, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        exchange(self.gateway, "POST", target, headers, Some(body)).await
    }

    /// `GET /metrics`.
    pub async fn metrics(&self) -> String {
        exchange(self.metrics, "GET", "/metrics", &[], None).await.text()
    }

    /// Where the gateway listens with TLS, and whom to trust there.
    pub fn tls(&self) -> (SocketAddr, &Tls) {
        let (address, tls) = self.tls.as_ref().expect("started with TLS");
        (*address, tls)
    }

    /// Leaves, and waits until it has.
    pub async fn stop(self) {
        self.leave.send(()).expect("the server waits to be told");
        let ended = tokio::task::spawn_blocking(move || self.thread.join());
        tokio::time::timeout(PATIENCE, ended)
            .await
            .expect("the server leaves")
            .unwrap()
            .expect("without a panic");
    }
}

async fn exchange(
    to: SocketAddr,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: Option<&[u8]>,
) -> Answer {
    let mut connection = Connection::try_open(to).await.expect("it accepts");
    connection.exchange(&request(method, target, &to.to_string(), headers, body)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_serves_beside_a_proxy_of_another_server() {
    let dir = tempfile::tempdir().unwrap();
    let provider = Provider::always(completion("from the provider")).await;
    let theirs =
        Provider::always(answer(200, &[("x-theirs", "yes")], b"from their upstream")).await;
    let host =
        Host::start(dir.path(), theirs.address(), &in_order(&[("up", &provider.url())], "")).await;

    let refused =
        host.ask("POST", "/v1/chat/completions", None, Some(&chat_body("auto", false))).await;
    assert_eq!(refused.status, 401, "{}", refused.text());
    let named = r#"{"name":"plugin","scopes":["inference","replay"]}"#;
    let made = host.ask("POST", "/v1/router/keys", Some(ADMIN), Some(named)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let key = made.json()["key"].as_str().expect("a key").to_owned();
    let chat =
        host.ask("POST", "/v1/chat/completions", Some(&key), Some(&chat_body("auto", false))).await;
    assert_eq!(chat.status, 200, "{}", chat.text());
    assert_eq!(chat.json()["choices"][0]["message"]["content"], "from the provider");
    assert_eq!((provider.count(), theirs.count()), (1, 0));
    let id = chat.request_id();
    let capture = until("the capture", async || {
        let found = host.ask("GET", &format!("/v1/router/replay/{id}"), Some(&key), None).await;
        (found.status == 200).then(|| found.json())
    })
    .await;
    assert_eq!(capture["served"]["provider"], "up");

    // The other proxy knows neither credentials nor captures, and is what it was.
    let other = exchange(host.own, "POST", "/anything", &[], Some(b"theirs")).await;
    assert_eq!(
        (other.status, other.header("x-theirs"), other.header("x-request-id")),
        (200, Some("yes"), None)
    );
    assert_eq!(
        (other.text().as_str(), theirs.last().body.as_slice()),
        ("from their upstream", b"theirs".as_slice())
    );
    assert_eq!(provider.count(), 1);

    // It leaves when its own server does, and the process stays.
    let (own, gateway) = (host.own, host.gateway);
    host.stop().await;
    for address in [own, gateway] {
        assert!(Connection::try_open(address).await.is_none(), "{address} still accepts");
    }
}
