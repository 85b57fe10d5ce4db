//! The gateway in a Pingora server of your own, beside a proxy that is there already:
//!
//! ```sh
//! ADMIN_API_KEY=… cargo run --example beside_your_own -- rerouter.yaml
//! ```
//!
//! The gateway then listens where the document says, and the other proxy on 127.0.0.1:6188.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server};
use pingora::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use rerouter::{Environment, Gateway, Secret};

/// What your server does already: here, everything goes to one place.
struct YourOwn;

#[async_trait]
impl ProxyHttp for YourOwn {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> pingora::Result<Box<HttpPeer>> {
        let upstream = SocketAddr::from(([127, 0, 0, 1], 8000));
        Ok(Box::new(HttpPeer::new(upstream, false, String::new())))
    }
}

/// The library reads no environment: what it may see is handed in.
#[expect(clippy::disallowed_methods, reason = "a program of its own")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Any logger does; this one writes JSON lines to standard error.
    let filter = "info,pingora=warn,pingora_core=warn,pingora_proxy=warn";
    rerouter::init_log(filter, rerouter::LogForm::Json)?;

    let mut server = Server::new_with_opt_and_conf(
        None,
        ServerConf { threads: 2, grace_period_seconds: Some(30), ..ServerConf::default() },
    );
    server.bootstrap();
    let mut yours = http_proxy_service(&server.configuration, YourOwn);
    yours.add_tcp("127.0.0.1:6188");
    server.add_service(yours);

    // Store, keys and routing document are opened before the server starts, so a mistake in them
    // ends here.
    let document =
        rerouter::load_server(std::env::args_os().nth(1).map(PathBuf::from).as_deref(), &variable)
            .map_err(|problems| {
                problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
            })?;
    let environment = Environment {
        admin_key: variable("ADMIN_API_KEY").map(Secret::new),
        agent_key: variable("AGENT_CLOUD_API_KEY").map(Secret::new),
        master_key: variable("REROUTER_MASTER_KEY").map(Secret::new),
        master_key_old: variable("REROUTER_MASTER_KEY_OLD").map(Secret::new),
        variables: Arc::new(variable),
        ..Environment::default()
    };
    let start = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let gateway = start.block_on(Gateway::prepare(document, environment))?;
    gateway.add_to(&mut server)?;

    // SIGTERM: both stop accepting, and what is under way has the grace period to end.
    server.run(RunArgs::default());
    Ok(())
}
