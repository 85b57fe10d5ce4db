//! Background services of a gateway, for as long as its process runs.

use std::future::Future;
use std::net::TcpListener;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::FutureExt;
use jiff::Timestamp;
use log::{info, warn};
use pingora::server::{Server, ShutdownWatch};
use pingora::services::background::{BackgroundService, background_service};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

use super::checkpoints::Checkpoints;
use super::tls;
use crate::app::App;
use crate::bounds;
use crate::capture::queue::CaptureWriter;
use crate::gateway::BackgroundWork;
use crate::protocol::mock;
use crate::reload::{self, Watcher};
use crate::store::FaultPlace;

/// What the services need beside the state.
pub(super) struct ServiceParts {
    pub(super) writer: CaptureWriter,
    pub(super) mock: TcpListener,
    pub(super) background: BackgroundWork,
    /// Certificates to reload.
    pub(super) identities: Vec<tls::TlsIdentity>,
    /// Forgets remembered answers of reroutes that are over at this time.
    pub(super) forget_reroutes: Box<dyn Fn(Timestamp) + Send + Sync>,
}

/// Adds all services.
pub(super) fn add(server: &mut Server, app: &Arc<App>, parts: ServiceParts) {
    let app = || app.clone();
    let ServiceParts { writer, mock, background, identities, forget_reroutes } = parts;
    let writer = CaptureWriting { writer: Mutex::new(Some(writer)), app: app() };
    server.add_service(background_service("capture writer", writer));
    server.add_service(background_service("reload", Reloading { app: app(), identities }));
    server.add_service(background_service("providers", ProviderUpkeep { background }));
    server.add_service(background_service("mock provider", MockProvider { listener: mock }));
    server.add_service(background_service("usage", UsageWriting { app: app() }));
    server.add_service(background_service("captures", CaptureRetention { app: app() }));
    server.add_service(background_service("checkpoints", Checkpoints::new(app())));
    server.add_service(background_service("sweeps", Sweeping { app: app(), forget_reroutes }));
}

/// Writes captures.
struct CaptureWriting {
    writer: Mutex<Option<CaptureWriter>>,
    app: Arc<App>,
}

#[async_trait]
impl BackgroundService for CaptureWriting {
    async fn start(&self, _: ShutdownWatch) {
        // A shutdown does not end it: draining requests are captured too.
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            writer.run(self.app.archive.clone()).await;
        }
    }
}

/// Stores usage, and reservations of budgets before they are spent.
struct UsageWriting {
    app: Arc<App>,
}

#[async_trait]
impl BackgroundService for UsageWriting {
    async fn start(&self, _: ShutdownWatch) {
        // A shutdown does not end it: draining requests are counted too.
        let mut failing = false;
        loop {
            self.app.limits.due().await;
            let write = async {
                self.app.store.faults().pass(FaultPlace::Books);
                self.app.limits.write(&self.app.store, self.app.clock.now()).await
            };
            match catch(&self.app, write).await {
                Some(Ok(())) => failing = false,
                failed => {
                    if let Some(Err(error)) = failed.filter(|_| !failing) {
                        warn!("spend and usage could not be stored, retrying: {error}");
                    }
                    failing = true;
                    // Each request that waits for a reservation would wake us at once.
                    tokio::time::sleep(bounds::USAGE_WRITE_INTERVAL).await;
                }
            }
        }
    }
}

/// Reloads the routing document and certificates, when their files change and on SIGHUP.
struct Reloading {
    app: Arc<App>,
    identities: Vec<tls::TlsIdentity>,
}

#[async_trait]
impl BackgroundService for Reloading {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut watcher = Watcher::new(self.app.clone());
        let Ok(mut hangup) = signal(SignalKind::hangup()) else {
            warn!("SIGHUP cannot be received: no document is reloaded");
            return;
        };
        let mut tick = tokio::time::interval(reload::INTERVAL);
        // Checks of the file must be apart from each other, also after a slow one.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = shutdown.changed() => return,
                _ = hangup.recv() => {
                    watcher.reload().await;
                    self.identities.iter().for_each(tls::TlsIdentity::reload);
                }
                _ = tick.tick() => {
                    watcher.check().await;
                    self.identities.iter().for_each(tls::TlsIdentity::reload_if_changed);
                }
            }
        }
    }
}

/// Resolves names of providers, and checks their health.
struct ProviderUpkeep {
    background: BackgroundWork,
}

#[async_trait]
impl BackgroundService for ProviderUpkeep {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        tokio::select! {
            _ = shutdown.changed() => {}
            () = self.background.run() => {}
        }
    }
}

/// Serves the in-process mock provider.
struct MockProvider {
    listener: TcpListener,
}

#[async_trait]
impl BackgroundService for MockProvider {
    async fn start(&self, _: ShutdownWatch) {
        match self.listener.try_clone() {
            // A shutdown does not end it: draining requests may need it.
            Ok(listener) => mock::serve(listener, std::future::pending())
                .await
                .unwrap_or_else(|error| warn!("the mock provider stopped: {error}")),
            Err(error) => warn!("the mock provider cannot serve: {error}"),
        }
    }
}

/// Removes what has expired: sessions, counters, audit rows, remembered answers.
struct Sweeping {
    app: Arc<App>,
    forget_reroutes: Box<dyn Fn(Timestamp) + Send + Sync>,
}

#[async_trait]
impl BackgroundService for Sweeping {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut tick = tokio::time::interval(bounds::SWEEP_INTERVAL);
        loop {
            tokio::select! {
                _ = shutdown.changed() => return,
                _ = tick.tick() => {
                    catch(&self.app, self.sweep()).await;
                }
            }
        }
    }
}

impl Sweeping {
    async fn sweep(&self) {
        self.app.made_keys.sweep(self.app.clock.now());
        (self.forget_reroutes)(self.app.clock.now());
        if let Err(error) =
            self.app.auth.sweep_sessions(&self.app.store, self.app.clock.now()).await
        {
            warn!("expired sessions could not be deleted: {error}");
        }
        if let Err(error) = self.app.auth.sweep_uses(&self.app.store).await {
            warn!("the last uses of keys could not be stored, retrying: {error}");
        }
        sweep_audit(&self.app).await;
        self.app.limits.sweep(&self.app.auth, self.app.clock.now());
        if let Err(error) = self.app.limits.trim(&self.app.store, self.app.clock.now()).await {
            warn!("old usage could not be deleted: {error}");
        }
    }
}

/// Runs one round of a service. A panic ends the round, not the service.
async fn catch<T>(app: &App, work: impl Future<Output = T>) -> Option<T> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    if done.is_err() {
        app.metrics.panic();
    }
    done.ok()
}

/// Deletes audit rows beyond their retention.
async fn sweep_audit(app: &App) {
    let kept = &app.server.audit;
    let before = app.clock.now().checked_sub(kept.age).unwrap_or(Timestamp::MIN);
    match app.store.trim_audit(before, kept.rows).await {
        Ok(0) => {}
        Ok(count) => info!("{count} audit rows beyond their retention were deleted"),
        Err(error) => {
            warn!("audit rows beyond their retention could not be deleted: {error}")
        }
    }
}

/// Deletes captures beyond their retention.
struct CaptureRetention {
    app: Arc<App>,
}

#[async_trait]
impl BackgroundService for CaptureRetention {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let retain = async {
            let mut tick = tokio::time::interval(bounds::SWEEP_INTERVAL);
            loop {
                tick.tick().await;
                let (retention, now) = (&self.app.server.capture.retention, self.app.clock.now());
                let before =
                    now.checked_sub(retention.age).map_or(i64::MIN, |at| at.as_microsecond());
                if let Some(Err(error)) =
                    catch(&self.app, self.app.archive.retain(before, retention.size)).await
                {
                    warn!("captures past their retention could not be removed: {error}");
                }
            }
        };
        tokio::select! {
            _ = shutdown.changed() => {}
            () = retain => {}
        }
    }
}
