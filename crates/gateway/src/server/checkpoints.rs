//! Keeps the write-ahead logs of the store short: a damaged log loses its content, and so does a
//! copy of the database without its log.

use std::sync::Arc;
use std::time::Duration;

use log::warn;
use pingora::server::ShutdownWatch;

use rerouter_core::app::App;

/// Time between two checkpoints of the store. A damaged write-ahead log loses at most what was
/// written since the last one.
const CHECKPOINT: Duration = Duration::from_secs(120);

/// Time until the next checkpoint if a reader was in the way.
const AGAIN: Duration = Duration::from_secs(5);

/// Makes a checkpoint at the start and then once every [`CHECKPOINT`], until the shutdown begins.
pub(super) async fn run(app: Arc<App>, mut shutdown: ShutdownWatch) {
    let mut tick = tokio::time::interval(CHECKPOINT);
    loop {
        tokio::select! {
            _ = shutdown.changed() => return,
            _ = tick.tick() => {
                if !checkpoint(&app).await {
                    tick.reset_after(AGAIN);
                }
            }
        }
    }
}

/// Moves the content of the write-ahead logs into the databases. Returns `false` if a reader was in
/// the way.
pub(super) async fn checkpoint(app: &App) -> bool {
    let emptied = app.store.checkpoint().await;
    emptied.unwrap_or_else(|error| {
        warn!("the write-ahead logs of the store could not be emptied and grow: {error}");
        true
    })
}
