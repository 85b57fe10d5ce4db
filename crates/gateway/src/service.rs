//! The trait of a listener's service, between connections and requests, and the end of a request on
//! its connection.

use async_trait::async_trait;
use bytes::Bytes;
use http::Response;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use tokio::time::timeout;

use super::answers;
use super::intake::DRAIN_TIME;
use rerouter_base::bounds;
use rerouter_base::error::Error;
use rerouter_core::app::App;

/// Answers the requests of one listener.
#[async_trait]
pub trait HttpService: Send + Sync + 'static {
    /// `standby`: the connection has only a reserve slot and closes afterwards. Returns the
    /// connection if another request may come on it.
    async fn serve(
        &self,
        session: Box<ServerSession>,
        standby: bool,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream>;

    /// Answers bytes that are not a request head. The connection closes.
    async fn refuse(&self, session: &mut ServerSession, came: &[u8], error: Error);
}

/// Returns the connection if `keep` is set and the request has been read completely.
pub async fn answer(
    app: &App,
    mut session: Box<ServerSession>,
    response: Response<Bytes>,
    keep: bool,
) -> Option<Stream> {
    let keep = keep && session.is_body_empty();
    if keep {
        session.set_keepalive(Some(bounds::KEEP_ALIVE.as_secs()));
    }
    if answers::write(app, &mut session, response, keep).await.is_err() {
        return finish(session, false).await;
    }
    finish(session, keep).await
}

pub async fn refuse(session: &mut ServerSession, response: Response<Bytes>) {
    answers::write_unparsed(session, response).await;
}

/// Ends a request on its connection, and returns the connection if it may be used again.
pub(super) async fn finish(mut session: Box<ServerSession>, reusable: bool) -> Option<Stream> {
    if !reusable {
        // The shutdown flushes, and a client that does not read could delay it forever.
        let _late = timeout(DRAIN_TIME, session.shutdown()).await;
        return None;
    }
    // Boxed, because this future holds the session and would be the largest part of the request's
    // future.
    match Box::pin(session.finish()).await.ok().flatten()?.into_parts() {
        (stream, None) => Some(stream),
        // The client sent its next request before the answer to this one (pipelining). That request
        // would be lost here, so the connection closes.
        (_, Some(_)) => None,
    }
}
