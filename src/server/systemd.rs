//! Tells systemd when the gateway serves and when it drains (sd_notify(3)).

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use log::warn;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use sd_notify::NotifyState;
use tokio::net::TcpStream;

/// How often a listener is tried that does not accept yet.
const TRY_AGAIN: Duration = Duration::from_millis(10);

pub(super) struct SystemdService {
    /// The listeners that have to accept before systemd is told.
    pub(super) addresses: Vec<SocketAddr>,
}

#[async_trait]
impl BackgroundService for SystemdService {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        // Pingora does not say when it has bound its listeners.
        for address in &self.addresses {
            while TcpStream::connect(address).await.is_err() {
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
        notify(NotifyState::Ready);
        if shutdown.changed().await.is_ok() {
            notify(NotifyState::Stopping);
        }
    }
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        warn!("systemd could not be told about a change of state: {error}");
    }
}
