//! What the tests share: the gateway as a process, clients that show bytes, providers that do as
//! they are told.

pub mod browser;
pub mod client;
pub mod coded;
pub mod command;
pub mod console_pages;
pub mod documents;
pub mod envelope;
pub mod fleet;
pub mod frames;
pub mod gateway;
pub mod journal;
pub mod json_text;
pub mod moved_clock;
pub mod node;
pub mod node_process;
pub mod object_store;
pub mod openapi;
pub mod otlp;
pub mod postgres;
pub mod provider;
pub mod recorded;
pub mod schema;
pub mod tls_provider;
pub mod upgrading;

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest that any wait for a condition may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again, bounded, until there is an answer.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = ask().await {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
}

/// Whether `localhost` is 127.0.0.1 alone. Else it is also an address that a gateway of the tests
/// does not listen on, and so no name of the gateway.
pub fn localhost_is_ipv4() -> bool {
    let found = std::net::ToSocketAddrs::to_socket_addrs(&("localhost", 0)).unwrap();
    found.into_iter().all(|address| address.is_ipv4())
}

/// A port for a process that cannot be handed a socket. Taken below the ephemeral range, so that no
/// outgoing connection and no `bind(0)` of another test can take it in between; each test process
/// begins elsewhere.
pub fn free_port() -> u16 {
    const FIRST: u32 = 10_240;
    const SPAN: u32 = 22_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..SPAN {
        let offset = (std::process::id() * 37 + NEXT.fetch_add(1, Ordering::Relaxed)) % SPAN;
        let port = u16::try_from(FIRST + offset).unwrap();
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}

/// A number from the environment, for the larger tier; `usual` without it.
pub fn count(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Whether this is the larger tier.
pub fn full() -> bool {
    std::env::var_os("REROUTER_FULL").is_some()
}
