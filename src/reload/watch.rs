//! Follows the routing document's file. Somebody may still be writing into it, and the first half
//! of a document can be a document too. So a change is read when the file has stood still for some
//! looks, and taken only if it reads the same at the first of them and at the last.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::{keep, swap};
use crate::app::App;
use crate::bounds;
use crate::config::{self, Problem, Source};

/// Follows the routing document's file.
pub struct Watcher {
    app: Arc<App>,
    file: Option<PathBuf>,
    /// The state of the file that was taken last, or refused for what it says.
    settled: Option<Stamp>,
    /// A later one, which may not be the last.
    changed: Option<Changed>,
}

/// What tells two states of a file apart without reading it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

/// What one look found.
#[derive(Clone, PartialEq, Eq)]
struct Found {
    stamp: Option<Stamp>,
    source: Result<Source, Vec<Problem>>,
}

struct Changed {
    found: Found,
    /// How many looks have found the file like this.
    looks: u32,
}

/// What became of the file's state.
enum Came {
    /// It is live as this revision.
    Live(String),
    /// It says what is live already.
    Same,
    /// It reads otherwise than a moment ago: somebody is writing.
    Written,
}

/// Why a state of the file was not taken.
struct Refused {
    problems: Vec<String>,
    /// Not by what it says: the same may be taken a moment later.
    for_now: bool,
}

impl Watcher {
    /// A watcher that has not looked yet.
    pub fn new(app: Arc<App>) -> Self {
        let file = config::routing_path(&app.server);
        Watcher { app, file, settled: None, changed: None }
    }

    /// Looks whether the file has changed, and takes the change when it has stood still for
    /// [`bounds::WATCH_EQUAL_READS`] looks.
    pub async fn look(&mut self) {
        let Some(file) = self.file.clone() else { return };
        let stamp = stamp(&file);
        if stamp.is_none() || stamp == self.settled {
            self.changed = None;
            return;
        }
        match &mut self.changed {
            Some(changed) if changed.found.stamp == stamp => {
                changed.looks = changed.looks.saturating_add(1)
            }
            _ => self.changed = find(&file).map(|found| Changed { found, looks: 1 }),
        }
        let Some(changed) =
            self.changed.as_ref().filter(|changed| changed.looks >= bounds::WATCH_EQUAL_READS)
        else {
            return;
        };
        let found = changed.found.clone();
        // The first change that is taken may be none: the file is read at the start, and may have
        // changed just then.
        self.take(&file, &found, self.settled.is_none()).await;
    }

    /// Reads the file whatever its state (SIGHUP), unless it changes just now: then it is read when
    /// it stands still.
    pub async fn reload(&mut self) {
        let Some(file) = self.file.clone() else {
            log::info!("the built-in routing document is live; there is no file to read again");
            return;
        };
        let found = find(&file);
        tokio::time::sleep(bounds::SIGHUP_REREAD).await;
        match found {
            Some(found) => self.take(&file, &found, false).await,
            None => self.say_written(&file),
        }
    }

    /// Takes a state of the file, if it still is as it was found.
    async fn take(&mut self, file: &Path, found: &Found, first: bool) {
        let taken = self.replace(file, found).await;
        let for_now = matches!(&taken, Ok(Came::Written) | Err(Refused { for_now: true, .. }));
        match taken {
            Ok(Came::Live(revision)) => {
                log::info!("routing document {} is live as revision {revision}", file.display())
            }
            Ok(Came::Same) if first => {}
            Ok(Came::Same) => {
                self.app.metrics.reload("unchanged");
                log::info!("routing document {} says what it said before", file.display());
            }
            Ok(Came::Written) => {
                self.changed = None;
                self.say_written(file);
            }
            Err(Refused { problems, .. }) => {
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
        if let Some(changed) = self.changed.as_mut().filter(|_| for_now) {
            // It is tried again after as many looks as a change is.
            changed.looks = 0;
        }
        if !for_now {
            self.settled = found.stamp;
            self.changed = None;
        }
    }

    fn say_written(&self, file: &Path) {
        log::info!(
            "routing document {} is being written; it is read when it stands still",
            file.display()
        );
    }

    async fn replace(&self, file: &Path, before: &Found) -> Result<Came, Refused> {
        let said = |problems: &[Problem]| Refused {
            problems: problems.iter().map(ToString::to_string).collect(),
            for_now: false,
        };
        let for_now = |why: String| Refused { problems: vec![why], for_now: true };
        // Not while a document that came by the API is being written into this file.
        let _turn =
            self.app.configuring.acquire().await.map_err(|closed| for_now(closed.to_string()))?;
        let Some(found) = find(file).filter(|found| found == before) else {
            return Ok(Came::Written);
        };
        // A megabyte at most, on a thread that serves no requests.
        let source = found.source.map_err(|problems| said(&problems))?;
        let app = &self.app;
        let routing = config::read_routing(
            &source.file,
            &source.text,
            &app.server,
            &*app.variables,
            app.mock,
        );
        let routing = routing.map_err(|problems| said(&problems))?;
        let revision = routing.revision().to_string();
        if revision == app.revision() {
            // Values behind `${…}` may have changed all the same: the new one is taken, quietly.
            app.replace(routing);
            return Ok(Came::Same);
        }
        keep(app, &routing).await.map_err(|error| for_now(error.to_string()))?;
        for warning in config::warnings(&source.file, &routing) {
            log::warn!("{warning}");
        }
        swap(app, routing);
        app.metrics.reload("success");
        Ok(Came::Live(revision))
    }
}

/// Reads the file; `None` where it changes meanwhile.
fn find(file: &Path) -> Option<Found> {
    let found = Found { stamp: stamp(file), source: config::load(file) };
    (stamp(file) == found.stamp).then_some(found)
}

fn stamp(file: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(file).ok()?;
    Some(Stamp { modified: found.modified().ok(), length: found.len(), inode: found.ino() })
}
