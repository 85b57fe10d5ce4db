//! Reload of the routing document: watch, parse, check, keep the text, swap. A bad document changes nothing but a
//! counter and the log.

mod watch;

use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

pub use watch::Watcher;

use crate::app::App;
use crate::auth::Principal;
use crate::blocking::blocking;
use crate::bounds;
use crate::config::{self, Problem};
use crate::error::Error;
use crate::routing::Routing;
use crate::store::{Event, Store};

/// Keeps the text of a document before any capture can name its revision.
pub async fn keep(app: &App, routing: &Routing) -> Result<(), Error> {
    keep_in(&app.store, app, routing).await
}

/// The same at the start, where it is enough that the store has the text from before: it may take nothing now.
pub async fn keep_at_start(app: &App, routing: &Routing) -> Result<(), Error> {
    let Err(failed) = keep(app, routing).await else { return Ok(()) };
    match app.store.document(routing.revision()).await {
        Ok(Some(_)) => {
            log::warn!(
                "the store takes nothing, and has this routing document from before: {failed}"
            );
            Ok(())
        }
        _ => Err(failed),
    }
}

async fn keep_in(store: &Store, app: &App, routing: &Routing) -> Result<(), Error> {
    store
        .keep_document(routing.revision(), routing.text(), app.clock.now())
        .await
        .map_err(Error::store_unavailable)
}

/// What came of a document that was taken.
#[derive(Debug)]
pub struct Taken {
    /// The revision that is live now.
    pub revision: String,
    /// The one that was before.
    pub previous: String,
    /// What clients may notice.
    pub warnings: Vec<String>,
}

/// Why a document was not taken; nothing has changed.
#[derive(Debug)]
pub enum NotTaken {
    /// What is wrong with it.
    Problems(Vec<Problem>),
    /// Another revision is live than the caller thinks.
    Stale {
        /// The one that is.
        live: String,
    },
    /// The caller named what is live, but the file holds what is not live yet, or cannot be.
    Changed(PathBuf),
    /// The document does not come from a place that can be written.
    ReadOnly(String),
    /// Anything else.
    Failed(Error),
}

/// Where a document comes from that is to be made live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coming {
    /// From a caller of the API: it holds its credentials as `${…}`.
    Given,
    /// From the store, where it was kept when it was live.
    Kept,
}

/// What the caller believes to be live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expecting<'a> {
    /// Whatever it is.
    Anything,
    /// This revision.
    Revision(&'a str),
    /// This revision, and nothing else that waits in its file.
    RevisionAndFile(&'a str),
}

/// Whose change it is.
#[derive(Clone, Copy)]
pub struct By<'a> {
    /// Who asks. Whoever waited and may no more makes nothing live.
    pub who: &'a Principal,
    /// What the audit is told: its row, whose target is the revision, is written last, so that it is there exactly when the
    /// document is taken.
    pub event: &'a Event,
}

/// Makes a document live: reads it, keeps its text, writes it to its file where it has one, swaps.
pub async fn take(
    app: &App,
    text: String,
    coming: Coming,
    expecting: Expecting<'_>,
    by: By<'_>,
) -> Result<Taken, NotTaken> {
    let _turn = app
        .configuring
        .acquire()
        .await
        .map_err(|closed| NotTaken::Failed(Error::internal(closed)))?;
    let previous = app.live();
    let live = previous.routing.revision().to_string();
    if let Expecting::Revision(expected) | Expecting::RevisionAndFile(expected) = expecting
        && expected != live
    {
        return Err(NotTaken::Stale { live });
    }
    let routing = match read(app, text, coming).await {
        Ok(routing) => routing,
        Err(refused) => {
            app.metrics.reload("failure");
            return Err(refused);
        }
    };
    let revision = routing.revision().to_string();
    let file = place(app)?;
    if let Some(file) = file.as_ref().filter(|_| matches!(expecting, Expecting::RevisionAndFile(_)))
        && is_changed(file.clone(), &previous.routing).await.map_err(NotTaken::Failed)?
    {
        return Err(NotTaken::Changed(file.clone()));
    }
    app.auth.check_still(by.who, app.clock.now()).map_err(NotTaken::Failed)?;
    let mut event = by.event.clone();
    event.target.id.clone_from(&revision);
    let noted = app.store.noting(event);
    match file {
        None => keep_in(&noted, app, &routing).await.map_err(NotTaken::Failed)?,
        Some(file) => put(app, &noted, file, &routing, &previous.routing).await?,
    }
    let odd = config::warnings(config::NO_FILE, &routing);
    let mut warnings = swap(app, routing);
    warnings.extend(odd.into_iter().map(|odd| Problem { warning: false, ..odd }.to_string()));
    app.metrics.reload(if revision == live { "unchanged" } else { "success" });
    log::info!("routing document is live as revision {revision}, before it {live}");
    Ok(Taken { revision, previous: live, warnings })
}

/// Makes a document live that is kept and checked. Gives what clients may notice; that is logged
/// and counted, too.
fn swap(app: &App, routing: Routing) -> Vec<String> {
    let mut warnings = gone(&app.live().routing, &routing);
    app.replace(routing);
    app.metrics.names_gone(warnings.len());
    warnings.truncate(bounds::DOCUMENT_PROBLEMS);
    warnings.iter().for_each(|warning| log::warn!("{warning}"));
    warnings
}

/// Keeps a document, writes it to its file, and notes that. What fails leaves the file and the newest document as they were.
async fn put(
    app: &App,
    noted: &Store,
    file: PathBuf,
    routing: &Routing,
    previous: &Routing,
) -> Result<(), NotTaken> {
    // Before the file has it: a gateway that starts with it finds it kept.
    keep(app, routing).await.map_err(NotTaken::Failed)?;
    let before = tokio::fs::read_to_string(&file).await;
    if let Err(why) = write(file.clone(), routing.text().to_owned()).await {
        // The one that stays live is the newest again.
        keep(app, previous).await.map_err(NotTaken::Failed)?;
        return Err(NotTaken::ReadOnly(format!("{} cannot be written: {why}", file.display())));
    }
    if let Err(error) = keep_in(noted, app, routing).await {
        if let Err(why) =
            write(file.clone(), before.unwrap_or_else(|_| previous.text().to_owned())).await
        {
            log::error!(
                "{} could not be written back after a change that failed: {why}",
                file.display()
            );
        }
        if let Err(why) = keep(app, previous).await {
            log::error!(
                "the live document is not the newest in the store after a change that failed: {why}"
            );
        }
        return Err(NotTaken::Failed(error));
    }
    Ok(())
}

/// Reads and checks on a thread that serves no requests: a megabyte takes its time.
async fn read(app: &App, text: String, coming: Coming) -> Result<Routing, NotTaken> {
    let (server, variables, mock) = (app.server.clone(), app.variables.clone(), app.mock);
    let reading = blocking(move || match coming {
        Coming::Given => config::read_given(&text, &server, &*variables, mock),
        Coming::Kept => config::read_routing(config::NO_FILE, &text, &server, &*variables, mock),
    });
    reading.await.map_err(|lost| NotTaken::Failed(lost.into()))?.map_err(NotTaken::Problems)
}

/// The file to write to; none where the store holds the document.
fn place(app: &App) -> Result<Option<PathBuf>, NotTaken> {
    if app.server.routing.stored {
        return Ok(None);
    }
    let read_only = "the built-in document is live; name a file in `routing.file`, or set `routing.store: true`";
    config::routing_path(&app.server)
        .map(Some)
        .ok_or_else(|| NotTaken::ReadOnly(read_only.to_owned()))
}

/// Writes a file all at once: whoever reads it meanwhile finds the old one or the new one. It keeps its permissions, and its
/// owner where this process may give files away.
async fn write(file: PathBuf, text: String) -> std::io::Result<()> {
    let writing = blocking(move || {
        // Through symbolic links, which stay what they are.
        let file = std::fs::canonicalize(&file)?;
        let draft = file.with_extension(format!("new-{}", std::process::id()));
        let written = (|| {
            let before = std::fs::metadata(&file)?;
            let mut out = std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&draft)?;
            // Only root may give a file to somebody else, but anybody to a group of his own.
            let _ours = fchown(&out, Some(before.uid()), Some(before.gid()))
                .or_else(|_| fchown(&out, None, Some(before.gid())));
            out.set_permissions(before.permissions())?;
            out.write_all(text.as_bytes())?;
            out.sync_all()?;
            std::fs::rename(&draft, &file)?;
            std::fs::File::open(file.parent().unwrap_or(Path::new(".")))?.sync_all()
        })();
        if written.is_err() {
            // It may not even be there.
            let _gone = std::fs::remove_file(&draft);
        }
        written
    });
    writing.await.map_err(std::io::Error::other)?
}

/// Whether the file says something else than what was taken from it: somebody has written it since, and a caller who looked
/// at what is live has not seen that. One that cannot be read says nothing.
async fn is_changed(file: PathBuf, taken: &Routing) -> Result<bool, Error> {
    let found = blocking(move || config::load(&file)).await?;
    Ok(found.is_ok_and(|found| found.text != taken.text()))
}

/// The names that clients could ask for and no longer can.
fn gone(before: &Routing, after: &Routing) -> Vec<String> {
    let aliases = before.aliases().map(|(name, _)| name).filter(|name| after.alias(name).is_none());
    let aliases = aliases
        .map(|name| format!("the alias `{name}` is gone: requests for it are refused with 404"));
    let targets =
        before.targets().map(|target| &*target.name).filter(|name| after.target(name).is_none());
    let targets = targets
        .map(|name| format!("`{name}` is gone: requests for it by that name are refused with 404"));
    aliases.chain(targets).collect()
}

/// How often [`Watcher::look`] is called.
pub const INTERVAL: std::time::Duration = bounds::WATCH_INTERVAL;
