//! Replaces the routing document: reads, checks, stores and swaps it. An invalid document is only
//! logged and counted as a failure.

mod follow;
mod watch;

use std::io::Write;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::PathBuf;
use std::time::Duration;

pub use follow::DocumentFollower;
pub use watch::{WATCH_EQUAL_READS, Watcher};

use crate::app::App;
use crate::config::{self, Problem};
use rerouter_access::auth::Principal;
use rerouter_base::atomic_file::Replacement;
use rerouter_base::blocking::blocking;
use rerouter_base::error::Error;
use rerouter_document::DOCUMENT_PROBLEMS;
use rerouter_routing::Routing;
use rerouter_store::{Event, GatewayRow, Store, StoreError};

/// Time between two calls of [`Watcher::check`]. Polling also notices symbolic links of mounted
/// configuration that are swapped.
pub const INTERVAL: Duration = Duration::from_millis(500);

/// Stores the text of a document before any capture can refer to its revision.
pub(crate) async fn store_text(app: &App, routing: &Routing) -> Result<(), Error> {
    store_text_in(&app.store, app, routing).await
}

/// Stores the text of the document at a start. A read-only store is enough if it has the text
/// already. If several gateways take their document from the store, only the first one writes its
/// own.
pub async fn store_text_at_start(app: &App, routing: &Routing) -> Result<(), Error> {
    if app.follows_documents() {
        return match make_live(&app.store, app, routing, Some("")).await {
            Ok(_) | Err(ReloadRefusal::Stale { .. }) => Ok(()),
            Err(ReloadRefusal::Failed(error)) => Err(error),
            Err(other) => Err(Error::internal(format!("{other:?}"))),
        };
    }
    let Err(failed) = store_text(app, routing).await else { return Ok(()) };
    match app.store.document(routing.revision()).await {
        Ok(Some(_)) => {
            log::warn!("the routing document was not stored again, the store has it: {failed}");
            Ok(())
        }
        _ => Err(failed),
    }
}

async fn store_text_in(store: &Store, app: &App, routing: &Routing) -> Result<(), Error> {
    store
        .keep_document(routing.revision(), routing.text(), app.clock.now())
        .await
        .map_err(Error::store_unavailable)
}

/// Makes a document live on all gateways that share the store, if the revision of the live one is
/// `expected`; the empty text means that there is no live one. Returns warnings for the caller.
async fn make_live(
    store: &Store,
    app: &App,
    routing: &Routing,
    expected: Option<&str>,
) -> Result<Vec<String>, ReloadRefusal> {
    let (revision, text) = (routing.revision(), routing.text());
    let made = store.make_live(revision, text, app.clock.now(), expected).await;
    let committed = match made {
        Ok(committed) => committed,
        Err(StoreError::Stale) => {
            return Err(ReloadRefusal::stale(app, app.revision()));
        }
        Err(error) => return Err(ReloadRefusal::Failed(Error::store_unavailable(error))),
    };
    let failed = |error| ReloadRefusal::Failed(Error::store_unavailable(error));
    let unconfirmed = app.store.acknowledge(committed.rev).await.map_err(failed)?;
    let others = app.store.gateways().await.map_err(failed)?;
    let has_another = |other: &&GatewayRow| {
        !other.fenced && other.applied >= committed.rev && other.document != revision
    };
    let mut refused: Vec<&GatewayRow> = others.iter().filter(has_another).collect();
    // If another document is live by now, the others run that one and have refused nothing.
    let live = app.store.live_document();
    if !refused.is_empty() && live.await.map_err(failed)?.as_deref() != Some(text) {
        refused.clear();
    }
    let refused = refused
        .iter()
        .map(|other| format!("the gateway {} refused the document; its log says why", other.name));
    let unconfirmed =
        unconfirmed.iter().map(|name| format!("the gateway {name} may not have the document"));
    Ok(refused.chain(unconfirmed).collect())
}

#[derive(Debug)]
pub struct Applied {
    pub revision: String,
    pub previous: String,
    /// Probable mistakes, and names that no longer exist.
    pub warnings: Vec<String>,
}

/// The reason why a document did not become live. Nothing has changed.
#[derive(Debug)]
pub enum ReloadRefusal {
    Problems(Vec<Problem>),
    /// The caller expected another revision to be live.
    Stale {
        live: String,
        /// The live revision of the store, if this gateway refused it.
        refused: Option<String>,
    },
    /// The file has changed, which the caller has not seen.
    Changed(PathBuf),
    /// The document cannot be written.
    ReadOnly(String),
    Failed(Error),
}

impl ReloadRefusal {
    /// Another revision than the expected one is `live`.
    pub fn stale(app: &App, live: String) -> Self {
        let refused = app.refused_document().and_then(|refused| refused.revision.clone());
        ReloadRefusal::Stale { live, refused }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentOrigin {
    /// A request: the document may hold credentials only as `${…}`.
    Request,
    /// The store, which has every document that was ever live.
    Store,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition<'a> {
    Any,
    Revision(&'a str),
    /// This revision, with an unchanged file.
    RevisionAndFile(&'a str),
}

#[derive(Clone, Copy)]
pub struct ChangeAuthor<'a> {
    /// The caller, who is checked again after a wait because the caller's rights may have changed.
    pub principal: &'a Principal,
    /// The audit row. Its target becomes the revision. The row is written last, so that it exists
    /// exactly if the document became live.
    pub event: &'a Event,
}

/// Makes a document live: reads it, stores its text, writes its file if there is one, swaps.
pub async fn apply(
    app: &App,
    text: String,
    origin: DocumentOrigin,
    expecting: Precondition<'_>,
    author: ChangeAuthor<'_>,
) -> Result<Applied, ReloadRefusal> {
    let _turn = app
        .configuring
        .acquire()
        .await
        .map_err(|closed| ReloadRefusal::Failed(Error::internal(closed)))?;
    let previous = app.live();
    let live = previous.routing.revision().to_string();
    if let Precondition::Revision(expected) | Precondition::RevisionAndFile(expected) = expecting
        && expected != live
    {
        return Err(ReloadRefusal::stale(app, live));
    }
    let routing = match read(app, text, origin).await {
        Ok(routing) => routing,
        Err(refused) => {
            app.metrics.reload("failure");
            return Err(refused);
        }
    };
    let revision = routing.revision().to_string();
    let file = writable_file(app)?;
    if let Some(file) =
        file.as_ref().filter(|_| matches!(expecting, Precondition::RevisionAndFile(_)))
        && is_changed(file.clone(), &previous.routing).await.map_err(ReloadRefusal::Failed)?
    {
        return Err(ReloadRefusal::Changed(file.clone()));
    }
    app.auth.recheck(author.principal, app.clock.now()).map_err(ReloadRefusal::Failed)?;
    let mut event = author.event.clone();
    event.target.id.clone_from(&revision);
    let noted = app.store.noting(event);
    let mistakes = config::warnings(config::NO_FILE, &routing);
    let mut warnings = removed_names(&previous.routing, &routing);
    match file {
        None if app.follows_documents() => {
            let expected = (expecting != Precondition::Any).then_some(live.as_str());
            warnings.extend(make_live(&noted, app, &routing, expected).await?);
        }
        None => {
            store_text_in(&noted, app, &routing).await.map_err(ReloadRefusal::Failed)?;
            swap(app, routing);
        }
        Some(file) => {
            write_and_store(app, &noted, file, &routing, &previous.routing).await?;
            swap(app, routing);
        }
    }
    warnings.truncate(DOCUMENT_PROBLEMS);
    warnings.extend(
        mistakes.into_iter().map(|mistake| Problem { warning: false, ..mistake }.to_string()),
    );
    app.metrics.reload(if revision == live { "unchanged" } else { "success" });
    log::info!("routing document revision {revision} is live, {live} was before");
    Ok(Applied { revision, previous: live, warnings })
}

/// Logs and counts the names that no longer exist.
fn swap(app: &App, routing: Routing) {
    let gone = removed_names(&app.live().routing, &routing);
    app.replace(routing);
    app.metrics.process.names_gone.inc_by(gone.len() as u64);
    gone.iter().take(DOCUMENT_PROBLEMS).for_each(|warning| log::warn!("{warning}"));
}

/// Stores a document, writes its file, and writes the audit row. A failure restores the file and
/// the newest document of the store.
async fn write_and_store(
    app: &App,
    noted: &Store,
    file: PathBuf,
    routing: &Routing,
    previous: &Routing,
) -> Result<(), ReloadRefusal> {
    // Before the file: a gateway that starts with the file finds the text stored.
    store_text(app, routing).await.map_err(ReloadRefusal::Failed)?;
    let before = tokio::fs::read_to_string(&file).await;
    if let Err(why) = write(file.clone(), routing.text().to_owned()).await {
        // The live document becomes the newest again.
        store_text(app, previous).await.map_err(ReloadRefusal::Failed)?;
        return Err(ReloadRefusal::ReadOnly(format!(
            "{} cannot be written: {why}",
            file.display()
        )));
    }
    if let Err(error) = store_text_in(noted, app, routing).await {
        if let Err(why) =
            write(file.clone(), before.unwrap_or_else(|_| previous.text().to_owned())).await
        {
            log::error!("{} could not be restored after a failed change: {why}", file.display());
        }
        if let Err(why) = store_text(app, previous).await {
            log::error!(
                "the live document is not the newest in the store after a failed change: {why}"
            );
        }
        return Err(ReloadRefusal::Failed(error));
    }
    Ok(())
}

/// Reads and checks a document on a blocking thread, because a megabyte takes a while.
async fn read(app: &App, text: String, origin: DocumentOrigin) -> Result<Routing, ReloadRefusal> {
    let (server, variables, mock) = (app.server.clone(), app.variables.clone(), app.mock);
    let reading = blocking(move || match origin {
        DocumentOrigin::Request => config::read_given(&text, &server, &*variables, mock),
        DocumentOrigin::Store => {
            config::read_routing(config::NO_FILE, &text, &server, &*variables, mock)
        }
    });
    reading
        .await
        .map_err(|lost| ReloadRefusal::Failed(lost.into()))?
        .map_err(ReloadRefusal::Problems)
}

/// The file of the document; `None` if the store holds the document.
fn writable_file(app: &App) -> Result<Option<PathBuf>, ReloadRefusal> {
    if app.server.routing.store {
        return Ok(None);
    }
    let read_only = "the built-in document is live: set `routing.file`, or `routing.store: true`";
    let file = app.server.routing.file.clone();
    file.map(Some).ok_or_else(|| ReloadRefusal::ReadOnly(read_only.to_owned()))
}

/// Replaces the content of a file in one step. The file keeps its permissions, and its owner if
/// this process may change owners. A symbolic link stays a link.
async fn write(file: PathBuf, text: String) -> std::io::Result<()> {
    let writing = blocking(move || {
        let file = std::fs::canonicalize(&file)?;
        let before = std::fs::metadata(&file)?;
        let mut replacement = Replacement::begin(&file)?;
        let out = replacement.file();
        // Only root may change the owner, but everybody may set one of their own groups.
        let _unchanged = fchown(&*out, Some(before.uid()), Some(before.gid()))
            .or_else(|_| fchown(&*out, None, Some(before.gid())));
        out.set_permissions(before.permissions())?;
        out.write_all(text.as_bytes())?;
        replacement.commit()
    });
    writing.await.map_err(std::io::Error::other)?
}

/// Whether the file differs from the live document: somebody has changed the file, which a caller
/// who read the live document has not seen. An unreadable file counts as unchanged.
async fn is_changed(file: PathBuf, taken: &Routing) -> Result<bool, Error> {
    let found = blocking(move || config::load(&file)).await?;
    Ok(found.is_ok_and(|found| found.text != taken.text()))
}

/// Warnings about names that clients can no longer request.
fn removed_names(before: &Routing, after: &Routing) -> Vec<String> {
    let aliases = before.aliases().map(|(name, _)| name).filter(|name| after.alias(name).is_none());
    let aliases =
        aliases.map(|name| format!("the alias `{name}` is gone: requests for it get 404"));
    let targets = before
        .targets()
        .map(|target| &*target.name)
        .filter(|name| before.is_askable(name) && !after.is_askable(name));
    let targets =
        targets.map(|name| format!("`{name}` is gone: requests for it by that name get 404"));
    aliases.chain(targets).collect()
}
