//! Keeps the write-ahead logs of the store short: a damaged log loses what it holds, and so does a
//! copy of the database without its log.

use std::sync::Arc;

use async_trait::async_trait;
use log::warn;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;

use crate::app::App;
use crate::bounds;

/// Makes a checkpoint at the start and every few minutes.
pub(super) struct Checkpoints {
    app: Arc<App>,
}

impl Checkpoints {
    pub(super) fn new(app: Arc<App>) -> Self {
        Checkpoints { app }
    }
}

#[async_trait]
impl BackgroundService for Checkpoints {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut tick = tokio::time::interval(bounds::CHECKPOINT);
        loop {
            tokio::select! {
                _ = shutdown.changed() => return,
                _ = tick.tick() => checkpoint(&self.app).await,
            }
        }
    }
}

/// Moves the logs into the databases.
pub(super) async fn checkpoint(app: &App) {
    if let Err(error) = app.store.checkpoint().await {
        warn!("the write-ahead logs of the store could not be emptied and grow: {error}");
    }
}
