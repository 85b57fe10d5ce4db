//! Watches the file of the routing document. Somebody may still be writing the file, and half a
//! document may be valid. So a change is applied only if the file has stayed unchanged for several
//! checks, and its text is the same at the first and the last of them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{store_text, swap};
use crate::app::App;
use crate::config::{self, DocumentSource, Problem};

/// Number of checks, one [`super::INTERVAL`] apart, that must find a change unchanged: two
/// seconds in all. Programs that write in place usually pause for less.
pub const WATCH_EQUAL_READS: u32 = 5;
/// Time between the two reads of the file after SIGHUP.
const SIGHUP_REREAD: Duration = Duration::from_millis(250);

pub struct Watcher {
    app: Arc<App>,
    file: Option<PathBuf>,
    /// The state of the file that was last applied or refused.
    settled: Option<FileStamp>,
    /// A newer state that may still change.
    pending: Option<PendingChange>,
}

/// Distinguishes states of a file without reading its content.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

#[derive(Clone, PartialEq, Eq)]
struct FileState {
    stamp: Option<FileStamp>,
    source: Result<DocumentSource, Vec<Problem>>,
}

struct PendingChange {
    state: FileState,
    /// Number of checks that found the file in this state.
    checks: u32,
}

enum WatchOutcome {
    /// A new revision is live.
    Live(String),
    Unchanged,
    BeingWritten,
}

struct WatchRefusal {
    problems: Vec<String>,
    /// The reason is not in the document, so the state is tried again.
    is_temporary: bool,
}

impl Watcher {
    pub fn new(app: Arc<App>) -> Self {
        let file = app.server.routing.file.clone();
        Watcher { app, file, settled: None, pending: None }
    }

    /// Checks whether the file has changed. Applies a change after [`WATCH_EQUAL_READS`] checks
    /// that find no further change.
    pub async fn check(&mut self) {
        let Some(file) = self.file.clone() else { return };
        let stamp = stamp(&file);
        if stamp.is_none() || stamp == self.settled {
            self.pending = None;
            return;
        }
        match &mut self.pending {
            Some(pending) if pending.state.stamp == stamp => {
                pending.checks = pending.checks.saturating_add(1)
            }
            _ => self.pending = read_state(&file).map(|state| PendingChange { state, checks: 1 }),
        }
        let Some(pending) =
            self.pending.as_ref().filter(|pending| pending.checks >= WATCH_EQUAL_READS)
        else {
            return;
        };
        let found = pending.state.clone();
        // The first state may be the live document, because the start reads the file too.
        self.apply(&file, &found, self.settled.is_none()).await;
    }

    /// Applies the file at once (SIGHUP). If the file is still being written, [`Watcher::check`]
    /// applies it later.
    pub async fn reload(&mut self) {
        let Some(file) = self.file.clone() else {
            log::info!("the built-in routing document is live: there is no file to reload");
            return;
        };
        let found = read_state(&file);
        tokio::time::sleep(SIGHUP_REREAD).await;
        match found {
            Some(found) => self.apply(&file, &found, false).await,
            None => self.log_being_written(&file),
        }
    }

    /// Applies a state of the file, unless the file has changed again.
    async fn apply(&mut self, file: &Path, found: &FileState, first: bool) {
        let outcome = self.replace(file, found).await;
        let is_temporary = matches!(
            &outcome,
            Ok(WatchOutcome::BeingWritten) | Err(WatchRefusal { is_temporary: true, .. })
        );
        match outcome {
            Ok(WatchOutcome::Live(revision)) => {
                log::info!("routing document {} is live, revision {revision}", file.display())
            }
            Ok(WatchOutcome::Unchanged) if first => {}
            Ok(WatchOutcome::Unchanged) => {
                self.app.metrics.reload("unchanged");
                log::info!("routing document {} is unchanged", file.display());
            }
            Ok(WatchOutcome::BeingWritten) => {
                self.pending = None;
                self.log_being_written(file);
            }
            Err(WatchRefusal { problems, .. }) => {
                self.app.refuse_document(problems.clone(), None);
                for problem in &problems {
                    log::error!("routing document refused: {problem}");
                }
                log::error!(
                    "routing document {} has {} problem(s); revision {} stays live",
                    file.display(),
                    problems.len(),
                    self.app.revision()
                );
            }
        }
        if let Some(pending) = self.pending.as_mut().filter(|_| is_temporary) {
            // Tried again after as many checks as a change needs.
            pending.checks = 0;
        }
        if !is_temporary {
            self.settled = found.stamp;
            self.pending = None;
        }
    }

    fn log_being_written(&self, file: &Path) {
        log::info!(
            "routing document {} is being written: it is reloaded when that is finished",
            file.display()
        );
    }

    async fn replace(&self, file: &Path, before: &FileState) -> Result<WatchOutcome, WatchRefusal> {
        let invalid = |problems: Vec<Problem>| WatchRefusal {
            problems: problems.iter().map(ToString::to_string).collect(),
            is_temporary: false,
        };
        let temporary = |why: String| WatchRefusal { problems: vec![why], is_temporary: true };
        // Waits while the API writes this file.
        let _turn =
            self.app.configuring.acquire().await.map_err(|closed| temporary(closed.to_string()))?;
        let Some(found) = read_state(file).filter(|found| found == before) else {
            return Ok(WatchOutcome::BeingWritten);
        };
        let DocumentSource { file, text } = found.source.map_err(invalid)?;
        let app = &self.app;
        let routing = config::read_routing(&file, &text, &app.server, &*app.variables, app.mock);
        let routing = routing.map_err(invalid)?;
        let revision = routing.revision().to_string();
        if revision == app.revision() {
            // The values of variables may have changed nevertheless.
            app.replace(routing);
            return Ok(WatchOutcome::Unchanged);
        }
        store_text(app, &routing).await.map_err(|error| temporary(error.to_string()))?;
        for warning in config::warnings(&file, &routing) {
            log::warn!("{warning}");
        }
        swap(app, routing);
        app.metrics.reload("success");
        Ok(WatchOutcome::Live(revision))
    }
}

/// `None` if it changes during the read.
fn read_state(file: &Path) -> Option<FileState> {
    let found = FileState { stamp: stamp(file), source: config::load(file) };
    (stamp(file) == found.stamp).then_some(found)
}

fn stamp(file: &Path) -> Option<FileStamp> {
    let found = std::fs::metadata(file).ok()?;
    Some(FileStamp { modified: found.modified().ok(), length: found.len(), inode: found.ino() })
}
