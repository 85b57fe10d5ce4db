//! The end of the process: signals, drain, exit.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use log::{info, warn};
use pingora::server::{ShutdownSignal, ShutdownSignalWatch, ShutdownWatch};
use pingora::services::background::BackgroundService;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use super::checkpoints;
use crate::accept::SHUTDOWN_IDLE;
use crate::intake::DRAIN_TIME;
use rerouter_core::app::App;

/// Longest time for a process that ends to store revocations and disablings.
const SHUTDOWN_WRITE_TIME: Duration = Duration::from_secs(5);

/// Drains the gateway: `/readyz` fails from now on, unless another process has taken over. Resolves
/// when no request is under way, and captures, spend and revocations are durable; failures of the
/// store are logged. Afterwards keys with a budget are refused. New connections are still accepted,
/// so stop the server first, and limit the wait.
pub(super) async fn drained(app: &App) {
    match app.is_handed_over() {
        true => connections_ended(app).await,
        false => {
            app.drain();
            // Idle connections get their time, others close with their next answer.
            let _late = tokio::time::timeout(2 * SHUTDOWN_IDLE, no_connections(app)).await;
        }
    }
    requests_ended(app).await;
    // A request that comes from now on spends no budget, as nobody would store what it costs.
    app.limits.stop();
    requests_ended(app).await;
    let captured = async {
        app.captures.flush().await;
        if let Err(error) = app.archive.close().await {
            warn!("captures could not be closed, the next start recovers them: {error}");
        }
        // The next start uploads the captures that are left.
        let shared = tokio::time::timeout(SHUTDOWN_WRITE_TIME, app.archive.share());
        match shared.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!("the last captures do not reach the other gateways: {error}"),
            Err(_) => warn!("the last captures do not reach the other gateways in time"),
        }
    };
    let unsaved = app.auth.flush_pending(SHUTDOWN_WRITE_TIME);
    let (unsaved, ()) = tokio::join!(unsaved, captured);
    for id in unsaved {
        warn!("the end of {id} could not be stored: end it again after the next start");
    }
    if let Err(error) = app.auth.sweep_uses(&app.store).await {
        warn!("the last uses of keys could not be stored: {error}");
    }
    if let Err(error) = app.limits.close(&app.store).await {
        warn!("spend and usage could not be stored, reserved amounts count as spent: {error}");
    }
    // The other gateways' changes no longer have to wait for this gateway.
    let left = tokio::time::timeout(SHUTDOWN_WRITE_TIME, app.store.leave()).await;
    if let Ok(Err(error)) = left {
        warn!("this gateway is still on the list of gateways, until its silence shows: {error}");
    }
    // A store that hangs must not delay the exit.
    let _late = tokio::time::timeout(SHUTDOWN_WRITE_TIME, checkpoints::checkpoint(app)).await;
}

async fn requests_ended(app: &App) {
    while app.requests_under_way() > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until each connection has ended, with its next answer or after a short silence.
async fn connections_ended(app: &App) {
    // A connection that was accepted just now is not counted yet.
    tokio::time::sleep(DRAIN_TIME).await;
    no_connections(app).await;
}

async fn no_connections(app: &App) {
    while app.connections() > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The signal that the kernel sends for a write beyond the limit on file sizes (setrlimit(2)). The
/// number is right on Linux and macOS, except on MIPS.
const SIGXFSZ: i32 = 25;

/// SIGTERM, SIGINT and SIGQUIT. From its creation on none of them ends the process by itself, and
/// none is missed.
pub struct CaughtSignals {
    terminate: Signal,
    interrupt: Signal,
    /// Asks for an upgrade. Taken by what does it.
    pub(super) quit: Option<Signal>,
}

impl CaughtSignals {
    /// Fails if signals cannot be received. Panics outside a Tokio runtime.
    pub fn catch() -> std::io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(CaughtSignals { terminate, interrupt, quit: Some(signal(SignalKind::quit())?) })
    }

    /// Resolves at the first SIGTERM or SIGINT since the creation, or since the last time.
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Begins a drain on SIGTERM, SIGINT, or when another process has taken over.
pub(super) struct StopSignals {
    pub(super) caught: Mutex<Option<CaughtSignals>>,
    pub(super) handed_over: Arc<Notify>,
}

#[async_trait]
impl ShutdownSignalWatch for StopSignals {
    async fn recv(&self) -> ShutdownSignal {
        // Handled and ignored, so that a write beyond the limit fails as on a full disk and does
        // not end the process.
        let _ignored = signal(SignalKind::from_raw(SIGXFSZ));
        let caught = self.caught.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stopped = async {
            match caught {
                Some(mut caught) => caught.received().await,
                None => stop_signal().await,
            }
        };
        tokio::select! {
            () = stopped => {}
            () = self.handed_over.notified() => {}
        }
        ShutdownSignal::GracefulTerminate
    }
}

async fn stop_signal() {
    match CaughtSignals::catch() {
        Ok(mut caught) => caught.received().await,
        Err(error) => {
            warn!("signals cannot be received, only SIGKILL ends this process: {error}");
            std::future::pending().await
        }
    }
}

/// Exits when the drain is complete, or at a second signal; Pingora alone would wait for its whole
/// grace period.
pub(super) struct DrainService {
    pub(super) app: Arc<App>,
}

#[async_trait]
impl BackgroundService for DrainService {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        if shutdown.changed().await.is_err() {
            return;
        }
        info!("draining: {} request(s) under way", self.app.requests_under_way());
        let second_signal = async {
            // A service manager that stops the service sends one signal to all its processes.
            if self.app.is_handed_over() {
                stop_signal().await;
            }
            stop_signal().await;
        };
        tokio::select! {
            () = drained(&self.app) => info!("drained"),
            () = second_signal => warn!(
                "stopped by a second signal: {} request(s) cut off", self.app.requests_under_way()
            ),
        }
        self.app.access_log.flush(Duration::from_secs(1));
        self.app.telemetry.flush(Duration::from_secs(1));
        std::process::exit(0);
    }
}
