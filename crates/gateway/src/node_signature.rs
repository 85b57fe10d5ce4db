//! Checks the signature of a node's callback, and its nonce, which is accepted only once.

use std::sync::Arc;
use std::time::Duration;

use pingora::protocols::http::ServerSession;

use super::exchange::HttpExchange;
use rerouter_access::auth::signature::{Covered, Signed};
use rerouter_access::auth::{self, Principal};
use rerouter_access::nodes::NonceRefusal;
use rerouter_base::bounds;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::NodeId;
use rerouter_base::interface::Surface;
use rerouter_core::api::NODE_REPORT;
use rerouter_core::app::App;
use rerouter_store::{OnLeaseLost, SpentNonce, StoreError};

/// Longest wait for the store to record or look up a nonce. A disk that hangs counts as failing,
/// well before `NODE_CALLBACK_TIMEOUT`.
const NODE_NONCE_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct NodeSignatures<'a> {
    pub(super) app: &'a App,
}

impl NodeSignatures<'_> {
    /// Names the node that signed. The nonce is not checked here: [`NodeSignatures::spend`] does
    /// that before the request is answered.
    pub(super) fn identify_node(
        &self,
        exchange: &mut HttpExchange,
        session: &ServerSession,
    ) -> Result<Principal> {
        let connected_to = session.server_addr().and_then(|address| address.as_inet()).copied();
        let authority = self.app.server.signed_authority(connected_to, exchange.client.secure);
        let (method, path, query) =
            (&exchange.method, exchange.path.as_str(), exchange.query.as_deref());
        let covered = Covered { method, authority: &authority, path, query };
        let signed = Signed::read(&covered, &session.req_header().headers)
            .map_err(|reason| self.no_node(reason))?;
        let id =
            self.app.nodes.identify(&signed, exchange.at).map_err(|reason| self.no_node(reason))?;
        let signed = Arc::new(signed);
        exchange.signed = Some((id.clone(), signed.clone()));
        Ok(Principal::Node { id, signed })
    }

    /// Spends the nonce of a valid signature. `route` is the path pattern of the request's route,
    /// empty if there is no route.
    pub(super) async fn spend(&self, node: NodeId, signed: &Signed, route: &str) -> Result<()> {
        let (nodes, store, now) = (&self.app.nodes, &self.app.store, self.app.clock.now());
        let (generation, created) = (signed.generation, signed.created);
        nodes.spend_nonce(&node, &signed.nonce, created, now).map_err(|refused| match refused {
            NonceRefusal::Spent => self.no_node("nonce"),
            NonceRefusal::TooMany => too_many(),
        })?;
        let changes_nothing = nodes.changes_nothing(&node, generation);
        if changes_nothing && !store.is_shared() {
            return Ok(());
        }
        // If other gateways take reports too, only the store knows all nonces. A gateway that may
        // serve without the store accepts reports nevertheless: a store without writes must not
        // stop traffic to nodes.
        let goes_on = self.app.server.store.on_lease_lost == OnLeaseLost::ServeStale;
        let in_memory = route == NODE_REPORT && changes_nothing && goes_on;
        let nonce = signed.nonce.clone();
        let spent = SpentNonce { node, generation, nonce, created, at: now };
        match in_time(store.spend_nonce(spent)).await {
            Ok(_) => Ok(()),
            Err(StoreError::Conflict) => Err(self.no_node("nonce")),
            Err(StoreError::NotFound) => Err(self.no_node("key")),
            Err(StoreError::Full(_) | StoreError::Unavailable(_)) if in_memory => Ok(()),
            Err(other) => Err(Error::store_unavailable(other)),
        }
    }

    pub(super) fn no_node(&self, reason: &'static str) -> Error {
        let interface = Surface::NodeCallback.interface().as_str();
        self.app.metrics.request.auth_failures.with_label_values(&[interface, reason]).inc();
        auth::unauthorized(Surface::NodeCallback, reason).because(reason)
    }
}

/// Turns a store that hangs into a store that fails.
async fn in_time<T>(
    done: impl Future<Output = std::result::Result<T, StoreError>>,
) -> std::result::Result<T, StoreError> {
    let late = |_| StoreError::unavailable("timed out");
    tokio::time::timeout(NODE_NONCE_TIMEOUT, done).await.map_err(late)?
}

fn too_many() -> Error {
    let most = bounds::NODE_NONCES;
    Error::new(Kind::RateLimited, format!("The node signed {most} requests within two minutes."))
        .retry_after(bounds::NODE_HEARTBEAT)
}
