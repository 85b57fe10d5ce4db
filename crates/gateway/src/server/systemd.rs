//! Notifies systemd when the gateway serves, when it drains, and which process has taken over
//! (sd_notify(3)). Does nothing without `NOTIFY_SOCKET`.

use std::sync::Arc;

use async_trait::async_trait;
use log::warn;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use sd_notify::NotifyState;

use rerouter_core::app::App;

/// It starts after the listeners are bound.
pub(super) struct SystemdService(pub(super) Arc<App>);

#[async_trait]
impl BackgroundService for SystemdService {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        notify(NotifyState::Ready);
        // After an upgrade the systemd unit is not stopping: the new process serves.
        if shutdown.changed().await.is_ok() && !self.0.is_handed_over() {
            notify(NotifyState::Stopping);
        }
    }
}

/// Notifies systemd that another process has taken over from this one.
pub(super) fn main_process_is(id: u32) {
    notify(NotifyState::MainPid(id));
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        warn!("systemd could not be told about a change of state: {error}");
    }
}
