//! Reload of the routing document: watch, parse, check, keep the text, swap. A bad document changes nothing but a
//! counter and the log.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use crate::app::App;
use crate::bounds;
use crate::config::{self, Variables};
use crate::error::Error;

/// Follows the routing document's file.
pub struct Watcher {
    app: Arc<App>,
    variables: Variables,
    file: Option<PathBuf>,
    seen: Option<Stamp>,
}

/// What tells two states of a file apart without reading it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

impl Watcher {
    /// A watcher that has not looked yet.
    pub fn new(app: Arc<App>, variables: Variables) -> Self {
        let file = config::routing_path(&app.server);
        Watcher { app, variables, file, seen: None }
    }

    /// Reads the file once more if it has changed since the last look.
    pub async fn look(&mut self) {
        let Some(file) = self.file.clone() else { return };
        let now = stamp(&file).await;
        let first = self.seen.is_none();
        if now.is_some() && self.seen != now {
            self.seen = now;
            // The first look reads too: between the reading of the document at the start and now, it may have changed.
            self.take(&file, first).await;
        }
    }

    /// Reads the file whatever its state (SIGHUP).
    pub async fn reload(&self) {
        let Some(file) = &self.file else {
            log::info!("the built-in routing document is live; there is no file to read again");
            return;
        };
        self.take(file, false).await;
    }

    async fn take(&self, file: &std::path::Path, first: bool) {
        match self.replace(file).await {
            Ok(None) if first => {}
            Ok(Some(revision)) => log::info!("routing document {} is live as revision {revision}", file.display()),
            Ok(None) => {
                self.app.metrics.reload("unchanged");
                log::info!("routing document {} says what it said before", file.display());
            }
            Err(problems) => {
                self.app.metrics.reload("failure");
                for problem in &problems {
                    log::error!("routing document not taken: {problem}");
                }
                log::error!(
                    "routing document {} has {} problem(s); revision {} stays live",
                    file.display(),
                    problems.len(),
                    self.app.revision()
                );
            }
        }
    }

    async fn replace(&self, file: &std::path::Path) -> Result<Option<String>, Vec<String>> {
        let said = |problems: Vec<config::Problem>| problems.iter().map(ToString::to_string).collect::<Vec<_>>();
        // A megabyte at most, on a thread that serves no requests.
        let source = config::load(file).map_err(said)?;
        let routing = config::read_routing(&source.file, &source.text, &self.app.server, &*self.variables, self.app.mock).map_err(said)?;
        let revision = routing.revision().to_string();
        if revision == self.app.revision() {
            // Values behind `${…}` may have changed all the same: the new one is taken, quietly.
            self.app.replace(routing);
            return Ok(None);
        }
        keep(&self.app, &routing).await.map_err(|error| vec![error.to_string()])?;
        self.app.replace(routing);
        self.app.metrics.reload("success");
        Ok(Some(revision))
    }
}

/// Keeps the text of a document before any capture can name its revision.
pub async fn keep(app: &App, routing: &crate::routing::recipe::Routing) -> Result<(), Error> {
    app.store.keep_document(routing.revision(), routing.text(), app.clock.now()).await.map_err(Error::store_unavailable)
}

async fn stamp(file: &std::path::Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let found = tokio::fs::metadata(file).await.ok()?;
    Some(Stamp { modified: found.modified().ok(), length: found.len(), inode: found.ino() })
}

/// How often [`Watcher::look`] is called.
pub const INTERVAL: std::time::Duration = bounds::WATCH_INTERVAL;
