//! Keeps the write-ahead logs of the store short: what lies in a log is lost where that is damaged, or where somebody copies a
//! database without it.

use std::sync::Arc;

use async_trait::async_trait;
use log::warn;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;

use crate::app::App;
use crate::bounds;

/// Moves what the logs hold into the databases, when it begins and every few minutes.
pub(super) struct Checkpointing {
    app: Arc<App>,
}

impl Checkpointing {
    pub(super) fn of(app: &Arc<App>) -> Self {
        Checkpointing { app: app.clone() }
    }
}

#[async_trait]
impl BackgroundService for Checkpointing {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut tick = tokio::time::interval(bounds::CHECKPOINT);
        loop {
            tokio::select! {
                _ = shutdown.changed() => return,
                _ = tick.tick() => make(&self.app).await,
            }
        }
    }
}

/// Moves it now.
pub(super) async fn make(app: &App) {
    if let Err(error) = app.store.checkpoint().await {
        warn!("the write-ahead logs of the store could not be emptied, and grow: {error}");
    }
}
