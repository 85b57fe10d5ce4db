//! Background services of a gateway, which run as long as its process.

use std::future::Future;
use std::net::TcpListener;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use log::{info, warn};
use pingora::server::{Server, ShutdownWatch};
use pingora::services::background::{BackgroundService, background_service};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior};

use super::checkpoints;
use super::tls::TlsIdentity;
use super::upgrade::{self, Offering};
use crate::BackgroundWork;
use crate::mock;
use rerouter_access::auth::SWEEP_INTERVAL;
use rerouter_access::limits::USAGE_WRITE_INTERVAL;
use rerouter_captures::capture::queue::CaptureWriter;
use rerouter_core::app::App;
use rerouter_core::reload::{self, Watcher};
use rerouter_store::{OnLeaseLost, PanicPoint, StoreError};

/// Time between two rounds that share captures with the other gateways.
const SHARE_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time between two such rounds while they fail: the time doubles up to this.
const SHARE_RETRY: Duration = Duration::from_secs(20);
/// Time between two reads of what nodes reported to other gateways.
const NODE_REPORTS_INTERVAL: Duration = Duration::from_secs(2);

pub(super) struct ServiceParts {
    pub(super) writer: CaptureWriter,
    pub(super) mock: TcpListener,
    pub(super) background: BackgroundWork,
    pub(super) identities: Vec<TlsIdentity>,
}

/// Services that ignore the shutdown keep running while requests are drained.
pub(super) fn add(server: &mut Server, app: &Arc<App>, parts: ServiceParts) {
    let ServiceParts { writer, mock, background, identities } = parts;
    let archive = app.archive.clone();
    let app = || app.clone();
    add_task(server, "capture writer", |_| writer.run(archive));
    add_task(server, "spend", with(app(), |app, _| write_spend(app)));
    add_task(server, "usage", with(app(), |app, _| write_usage(app)));
    add_task(server, "mock provider", |_| serve_mock(mock));
    add_task(server, "reload", with(app(), |app, shutdown| watch_files(app, identities, shutdown)));
    add_task(server, "sweeps", with(app(), sweep));
    add_task(server, "checkpoints", with(app(), checkpoints::run));
    if app().store.is_shared() {
        add_task(
            server,
            "node reports",
            with(app(), |app, shutdown| until(shutdown, learn_of_nodes(app))),
        );
    }
    if app().archive.is_shared() {
        add_task(
            server,
            "shared captures",
            with(app(), |app, shutdown| until(shutdown, share_captures(app))),
        );
    }
    add_task(server, "providers", |shutdown| {
        until(shutdown, async move { background.run().await })
    });
    add_task(
        server,
        "captures",
        with(app(), |app, shutdown| until(shutdown, remove_expired_captures(app))),
    );
}

pub(super) fn add_upgrade(server: &mut Server, offering: Offering) {
    add_task(server, "upgrade", |shutdown| upgrade::run(offering, shutdown));
}

/// A service that runs once, from the start of the server.
struct Task(Mutex<Option<TaskFn>>);

type TaskFn = Box<dyn FnOnce(ShutdownWatch) -> BoxFuture<'static, ()> + Send>;

#[async_trait]
impl BackgroundService for Task {
    async fn start(&self, shutdown: ShutdownWatch) {
        let run = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(run) = run {
            run(shutdown).await;
        }
    }
}

fn add_task<F: Future<Output = ()> + Send + 'static>(
    server: &mut Server,
    name: &'static str,
    run: impl FnOnce(ShutdownWatch) -> F + Send + 'static,
) {
    let run: TaskFn = Box::new(|shutdown| run(shutdown).boxed());
    server.add_service(background_service(name, Task(Mutex::new(Some(run)))));
}

/// Makes a task that gets the state.
fn with<F>(
    app: Arc<App>,
    run: impl FnOnce(Arc<App>, ShutdownWatch) -> F,
) -> impl FnOnce(ShutdownWatch) -> F {
    move |shutdown| run(app, shutdown)
}

async fn until(mut shutdown: ShutdownWatch, work: impl Future<Output = ()>) {
    tokio::select! {
        _ = shutdown.changed() => {}
        () = work => {}
    }
}

/// A panic ends the round but not the service; then the result is `None`.
async fn catch<T>(app: &App, work: impl Future<Output = T>) -> Option<T> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    if done.is_err() {
        app.metrics.process.panics.inc();
    }
    done.ok()
}

/// Writes spend at intervals, and the hold of a budget as soon as a request waits for it.
async fn write_spend(app: Arc<App>) {
    let (mut next, mut failing) = (Instant::now(), false);
    loop {
        let is_waited_for = app.limits.due(next).await;
        if !is_waited_for {
            next = Instant::now() + USAGE_WRITE_INTERVAL;
        }
        let write = app.limits.write_spend(&app.store, app.clock.now(), !is_waited_for);
        failing = is_failing(catch(&app, write).await, failing, "spend");
        if failing {
            // Each request that waits for a hold would wake us at once.
            tokio::time::sleep(USAGE_WRITE_INTERVAL).await;
        }
    }
}

/// Writes usage at intervals. Requests wait for holds, so holds do not wait for usage.
async fn write_usage(app: Arc<App>) {
    let mut failing = false;
    loop {
        tokio::time::sleep(USAGE_WRITE_INTERVAL).await;
        let write = async {
            app.store.faults().pass(PanicPoint::Usage);
            app.limits.write_due_usage(&app.store, app.clock.now()).await
        };
        failing = is_failing(catch(&app, write).await, failing, "usage");
    }
}

/// Logs the first error of several.
fn is_failing(round: Option<Result<(), StoreError>>, before: bool, what: &str) -> bool {
    if let Some(Err(error)) = round.as_ref().filter(|_| !before) {
        warn!("{what} could not be stored, retrying: {error}");
    }
    !matches!(round, Some(Ok(())))
}

async fn serve_mock(listener: TcpListener) {
    mock::serve(listener, std::future::pending())
        .await
        .unwrap_or_else(|error| warn!("the mock provider stopped: {error}"));
}

/// Reloads the routing document and certificates when their files change and on SIGHUP.
async fn watch_files(app: Arc<App>, identities: Vec<TlsIdentity>, mut shutdown: ShutdownWatch) {
    let mut watcher = Watcher::new(app);
    let Ok(mut hangup) = signal(SignalKind::hangup()) else {
        warn!("SIGHUP cannot be received: no document is reloaded");
        return;
    };
    let mut tick = tokio::time::interval(reload::INTERVAL);
    // Two checks of the files must be apart in time, even after a slow one.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = shutdown.changed() => return,
            _ = hangup.recv() => {
                watcher.reload().await;
                identities.iter().for_each(TlsIdentity::reload);
            }
            _ = tick.tick() => {
                watcher.check().await;
                identities.iter().for_each(TlsIdentity::reload_if_changed);
            }
        }
    }
}

/// Removes what has expired: sessions, counters, remembered answers, audit rows, old usage. Also
/// exchanges the last uses of keys with the store.
async fn sweep(app: Arc<App>, mut shutdown: ShutdownWatch) {
    let mut tick = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        tokio::select! {
            _ = shutdown.changed() => return,
            _ = tick.tick() => { catch(&app, sweep_once(&app)).await; }
        }
    }
}

async fn sweep_once(app: &App) {
    if let Err(error) = app.auth.learn_uses(&app.store, app.clock.now()).await {
        warn!("the last uses by other gateways could not be read: {error}");
    }
    if let Err(error) = app.auth.sweep_sessions(&app.store, app.clock.now()).await {
        warn!("expired sessions could not be deleted: {error}");
    }
    if let Err(error) = app.auth.sweep_uses(&app.store).await {
        warn!("the last uses of keys could not be stored, retrying: {error}");
    }
    sweep_audit(app).await;
    app.limits.sweep(app.clock.now());
    app.creations.sweep(app.clock.now());
    app.named_reroutes.sweep(app.clock.now());
    if let Err(error) = app.limits.trim(&app.store, app.clock.now()).await {
        warn!("old usage could not be deleted: {error}");
    }
}

/// Reads what nodes report to other gateways.
async fn learn_of_nodes(app: Arc<App>) {
    let mut tick = tokio::time::interval(NODE_REPORTS_INTERVAL);
    loop {
        tick.tick().await;
        match app.store.node_reports().await {
            Ok(reports) => {
                let now = app.clock.now();
                reports.iter().for_each(|(report, age)| app.nodes.learn(report, *age, now));
            }
            Err(_) if app.server.store.on_lease_lost == OnLeaseLost::ServeStale => {
                app.nodes.hold(app.clock.now());
            }
            Err(error) => log::debug!("reports of nodes cannot be read: {error}"),
        }
    }
}

async fn sweep_audit(app: &App) {
    let kept = &app.server.audit.retention;
    let before = app.clock.now().checked_sub(kept.age).unwrap_or(Timestamp::MIN);
    match app.store.trim_audit(before, kept.rows).await {
        Ok(0) => {}
        Ok(count) => info!("{count} audit rows beyond their retention were deleted"),
        Err(error) => warn!("audit rows beyond their retention could not be deleted: {error}"),
    }
}

/// Shares captures that wait in this process with the index and the object store of all gateways.
async fn share_captures(app: Arc<App>) {
    let (mut wait, mut failing) = (SHARE_INTERVAL, false);
    loop {
        tokio::time::sleep(wait).await;
        match catch(&app, app.archive.share()).await {
            Some(Ok(())) => {
                if std::mem::take(&mut failing) {
                    info!("captures reach the other gateways again");
                }
                wait = SHARE_INTERVAL;
            }
            failed => {
                // A panic is logged elsewhere, where it is counted.
                if let (Some(Err(error)), false) = (failed, std::mem::replace(&mut failing, true)) {
                    warn!("captures do not reach the other gateways, and wait here: {error}");
                }
                wait = (wait * 2).min(SHARE_RETRY);
            }
        }
    }
}

async fn remove_expired_captures(app: Arc<App>) {
    let mut tick = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        tick.tick().await;
        let (retention, now) = (&app.server.capture.retention, app.clock.now());
        let before = now.checked_sub(retention.age).map_or(i64::MIN, |at| at.as_microsecond());
        let removed = catch(&app, app.archive.retain(before, retention.size)).await;
        if let Some(Err(error)) = removed {
            warn!("captures past their retention could not be removed: {error}");
        }
    }
}
