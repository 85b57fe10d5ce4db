//! Bare Pingora: a proxy that only selects its peer. Any Pingora proxy costs at least as much.

use std::error::Error;
use std::io::Read;
use std::net::SocketAddr;

use async_trait::async_trait;
use pingora::listeners::TcpSocketOptions;
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server};
use pingora::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service_with_name};

/// The first argument that makes a binary the bare proxy: `bare LISTEN UPSTREAM THREADS SERVICES`.
pub const ROLE: &str = "bare";

#[derive(Clone)]
struct Bare {
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }
}

/// Serves until standard input ends. It ends with the measuring process. Each service has its share
/// of the threads, and a socket of its own.
pub fn serve(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [listen, upstream, threads, services] = arguments else {
        return Err("bare LISTEN UPSTREAM THREADS SERVICES".into());
    };
    let bare = Bare { upstream: upstream.parse()? };
    let services: usize = services.parse()?;
    let threads = threads.parse::<usize>()? / services;
    let conf = ServerConf { threads, ..ServerConf::default() };
    std::thread::Builder::new().name("parent".to_owned()).spawn(|| {
        // Nothing is ever written to it, so this returns when the other end is closed.
        let _ended = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    })?;
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    for number in 0..services {
        let mut service = http_proxy_service_with_name(&server.configuration, bare.clone(), ROLE);
        if services == 1 {
            service.add_tcp(listen);
        } else {
            // Pingora gives services with the same spelling of an address the same socket.
            let port = listen.rsplit(':').next().unwrap_or_default();
            let spelling = format!("127.0.0.1:{}{port}", "0".repeat(number));
            let mut own = TcpSocketOptions::default();
            own.so_reuseport = Some(true);
            service.add_tcp_with_settings(&spelling, own);
        }
        server.add_service(service);
    }
    server.run(RunArgs::default());
    Ok(())
}
