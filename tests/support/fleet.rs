//! Several gateways on one PostgreSQL database, each by a proxy of its own, which can stop
//! forwarding as a network does.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::gateway::{Gateway, Setup};
use super::postgres::Cluster;

/// Where the fleet begins: a provider inside the gateway, one alias.
pub const ROUTING: &str = "
providers: { demo: { protocol: mock } }
recipes: { all: { rules: [ { name: default, targets: [ { target: demo/echo } ] } ] } }
aliases: { auto: all }
";

/// The master key that gateways on one database share.
pub const MASTER_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// A TCP proxy to a port of this machine.
pub struct Proxy {
    pub port: u16,
    open: Arc<watch::Sender<bool>>,
    /// Milliseconds that each way takes.
    away: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub async fn start(to: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let open = Arc::new(watch::Sender::new(true));
        let (doors, away) = (Arc::clone(&open), Arc::<AtomicU64>::default());
        let way = Arc::clone(&away);
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (mut door, other) = (doors.subscribe(), doors.subscribe());
                let ways = [(); 2].map(|()| Arc::clone(&way));
                tokio::spawn(async move {
                    if door.wait_for(|open| *open).await.is_err() {
                        return;
                    }
                    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    let [there, back] = ways;
                    tokio::join!(
                        forward(from_client, to_server, door, there),
                        forward(from_server, to_client, other, back)
                    );
                });
            }
        });
        Proxy { port, open, away, task }
    }

    /// Forwards nothing from now on; no connection ends.
    pub fn close(&self) {
        self.open.send_replace(false);
    }

    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Each way takes so many milliseconds from now on.
    pub fn move_away(&self, ms: u64) {
        self.away.store(ms, Ordering::Release);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut door: watch::Receiver<bool>,
    away: Arc<AtomicU64>,
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read) = from.read(&mut buffer).await {
        if door.wait_for(|open| *open).await.is_err() || read == 0 {
            break;
        }
        match away.load(Ordering::Acquire) {
            0 => {}
            ms => pause(ms).await,
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            break;
        }
    }
    let _closed = to.shutdown().await;
}

/// One gateway and its way to the database.
pub struct Member {
    pub gateway: Gateway,
    pub proxy: Proxy,
}

impl Member {
    /// Starts it; `more` are lines of the server document.
    pub async fn start(cluster: &Cluster, url: &str, lease: &str, more: &str) -> Member {
        let proxy = Proxy::start(cluster.port()).await;
        let url = url.replace(&format!(":{}/", cluster.port()), &format!(":{}/", proxy.port));
        Member { gateway: setup(&url, lease, more).start().await, proxy }
    }

    /// Stops the process in its tracks, as a machine that hangs does.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let id = self.gateway.process().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().unwrap();
        assert!(sent.success());
    }
}

/// A gateway on this database.
pub fn setup(url: &str, lease: &str, more: &str) -> Setup {
    let store = format!("store: {{ url: \"{url}\", lease: {lease} }}\n{more}");
    Setup::new(ROUTING).stored().server(&store).env("REROUTER_MASTER_KEY", MASTER_KEY)
}

/// So many gateways on a new database, started at once.
pub async fn fleet(cluster: &Cluster, count: usize, lease: &str, more: &str) -> Vec<Member> {
    let url = cluster.database().await;
    join_all((0..count).map(|_| Member::start(cluster, &url, lease, more))).await
}

pub async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
