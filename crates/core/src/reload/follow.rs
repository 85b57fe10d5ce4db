//! Follows the routing document that another gateway made live, if the store holds the document. A
//! change is acknowledged once every gateway runs it, so it is read on the thread that follows the
//! store.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::swap;
use crate::app::App;
use crate::config;
use rerouter_store::{Change, Committed, Follower, LiveDocument, Reload};

/// Makes documents of the store live. Clones share one gateway.
#[derive(Clone, Default)]
pub struct DocumentFollower(Arc<Mutex<FollowedGateway>>);

/// The gateway, or the document that came before there was a gateway.
#[derive(Default)]
struct FollowedGateway {
    app: Option<Weak<App>>,
    waiting: Option<LiveDocument>,
}

impl DocumentFollower {
    /// Sets the gateway that runs the documents, and gives it the document that came since the
    /// start.
    pub fn bind(&self, app: &Arc<App>) {
        let mut gateway = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(document) = gateway.waiting.take() {
            take(app, document);
        }
        gateway.app = Some(Arc::downgrade(app));
    }

    fn take(&self, document: LiveDocument) {
        let mut gateway = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &gateway.app {
            Some(app) => _ = app.upgrade().map(|app| take(&app, document)),
            None => gateway.waiting = Some(document),
        }
    }
}

impl Follower for DocumentFollower {
    fn apply(&self, committed: &Committed) {
        for change in &committed.changes {
            if let Change::Document(document) = change {
                self.take(document.clone());
            }
        }
    }

    fn reload(&self) -> Box<dyn Reload> {
        Box::new(self.clone())
    }

    fn document(&self) -> Option<String> {
        let gateway = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gateway.app.as_ref().and_then(Weak::upgrade).map(|app| app.revision())
    }
}

impl Reload for DocumentFollower {
    fn row(&mut self, row: Change) {
        if let Change::Document(document) = row {
            self.take(document);
        }
    }

    fn finish(self: Box<Self>, _rev: u64) {}
}

/// Makes a document live. If this gateway refuses it, because it lacks a variable or is an older
/// build, the previous document stays live, and the gateway goes on following changes of keys.
fn take(app: &App, document: LiveDocument) {
    if !app.follows_documents() || document.revision == app.revision() {
        return;
    }
    let (text, server) = (document.text.expose(), &app.server);
    let read = config::read_routing(config::NO_FILE, text, server, &*app.variables, app.mock);
    match read {
        Ok(routing) => {
            swap(app, routing);
            app.metrics.reload("success");
            log::info!("routing document revision {} is live", document.revision);
        }
        Err(problems) => {
            let told = problems.iter().map(ToString::to_string).collect();
            app.refuse_document(told, Some(document.revision.clone()));
            problems.iter().for_each(|problem| log::error!("routing document refused: {problem}"));
            log::error!(
                "the routing document {} of the store is refused here: revision {} stays live",
                document.revision,
                app.revision()
            );
        }
    }
}
