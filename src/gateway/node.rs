//! Who a node's callback is from: the signature of its head, and the nonce in it, which is good once.

use std::sync::Arc;

use pingora::protocols::http::ServerSession;

use super::edge::Edge;
use super::exchange::Exchange;
use crate::api::NODE_REPORT;
use crate::auth::signature::{Covered, Signed};
use crate::auth::{self, Principal};
use crate::bounds;
use crate::error::{Error, Kind, Result};
use crate::id::NodeId;
use crate::interface::Surface;
use crate::nodes::NonceError;
use crate::store::{SpentNonce, StoreError};

impl Edge {
    /// Whose signature it is. Its nonce, which is not looked at here, is spent before anything comes of that.
    pub(super) fn identify_node(
        &self,
        exchange: &mut Exchange,
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

    /// Spends the nonce of a good signature, durably. `route` is where the request leads, if it leads anywhere.
    pub(super) async fn spend(&self, node: NodeId, signed: &Signed, route: &str) -> Result<()> {
        let (generation, nonce, created) =
            (signed.generation, signed.nonce.clone(), signed.created);
        let spent = SpentNonce { node, generation, nonce, created, at: self.app.clock.now() };
        match in_time(self.app.store.spend_nonce(spent.clone())).await {
            // A copy of it may have come while the store took nothing.
            Ok(_) if self.app.nodes.is_aside(&spent.node, &spent.nonce, created) => {
                Err(self.no_node("nonce"))
            }
            Ok(_) => {
                if self.app.nodes.puts_aside(false) {
                    log::info!("what nodes report is kept by the store again");
                }
                Ok(())
            }
            Err(StoreError::Conflict) => Err(self.no_node("nonce")),
            Err(StoreError::NotFound) => Err(self.no_node("key")),
            Err(StoreError::LimitReached) => Err(too_many()),
            // All else that nodes tell is written down anyway.
            Err(failed @ (StoreError::Full(_) | StoreError::Unavailable(_)))
                if route == NODE_REPORT =>
            {
                self.put_aside(&spent, failed).await
            }
            Err(other) => Err(Error::store_unavailable(other)),
        }
    }

    /// Takes the nonce of a report that the store cannot keep. The order is what makes it good once; see
    /// [`crate::nodes::Nodes::take_aside`].
    async fn put_aside(&self, spent: &SpentNonce, failed: StoreError) -> Result<()> {
        let SpentNonce { node, generation, nonce, created, at } = spent;
        if !self.app.nodes.may_be_aside(node, *generation) {
            return Err(Error::store_unavailable(failed));
        }
        self.app.nodes.take_aside(node, nonce, *created, *at).map_err(|spent| match spent {
            NonceError::Before => self.no_node("nonce"),
            NonceError::TooMany => too_many(),
        })?;
        in_time(self.app.store.mark_node(node, *created))
            .await
            .map_err(Error::store_unavailable)?;
        match in_time(self.app.store.nonce_is_known(node, nonce, *created)).await {
            Ok(false) => {
                if self.app.nodes.puts_aside(true) {
                    log::warn!(
                        "nodes report while the store takes nothing ({failed}): the nonces of that are put aside"
                    );
                }
                Ok(())
            }
            Ok(true) => Err(self.no_node("nonce")),
            Err(unread) => Err(Error::store_unavailable(unread)),
        }
    }

    pub(super) fn no_node(&self, reason: &'static str) -> Error {
        self.app.metrics.auth_failure(Surface::NodeCallback.interface().as_str(), reason);
        auth::unauthorized(Surface::NodeCallback).because(reason)
    }
}

/// What hangs counts as what fails. It may be done later all the same: then the nonce is known twice, and good no more often.
async fn in_time<T>(
    done: impl Future<Output = std::result::Result<T, StoreError>>,
) -> std::result::Result<T, StoreError> {
    let late = |_| StoreError::Unavailable("it took too long".into());
    tokio::time::timeout(bounds::NODE_SPEND, done).await.map_err(late)?
}

fn too_many() -> Error {
    let most = bounds::NODE_NONCES;
    Error::new(Kind::RateLimited, format!("The node signed {most} requests within two minutes."))
        .retry_after(bounds::NODE_HEARTBEAT)
}
